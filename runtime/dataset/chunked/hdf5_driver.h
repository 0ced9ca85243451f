/* hdf5_driver.h - HDF5 files on servers, and those whose blocks are checked, for the library libhdf5: a "virtual file
 * driver" of its own, that reads through stored_read. What the library asks for is what describes a dataset: little,
 * and never its elements. https://docs.hdfgroup.org/hdf5/v1_10 (H5FDregister) */
#ifndef SHARDRT_DATASET_CHUNKED_HDF5_DRIVER_H
#define SHARDRT_DATASET_CHUNKED_HDF5_DRIVER_H

#include "storage/stored.h"

/* For a list of access properties (hid_t) under which `file` is to be opened, by its path; it outlives what is opened.
 * False: the library refuses. The caller holds the library, as for all of these. */
bool hdf5_driver_use(int64_t list, const struct stored *file);

/* Why the last read failed, and with what code, and "" from then on; "": none did. Until the next read. */
const char *hdf5_driver_failure(int *code);

#endif
