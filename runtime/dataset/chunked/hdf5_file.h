/* hdf5_file.h - datasets of HDF5 files, by the library libhdf5: https://docs.hdfgroup.org/hdf5/v1_10. It has one lock
 * for all that it does, so it is only asked where things lie; elements are read past it. */
#ifndef SHARDRT_DATASET_CHUNKED_HDF5_FILE_H
#define SHARDRT_DATASET_CHUNKED_HDF5_FILE_H

#include "storage/stored.h"

enum hdf5_filter_kind { HDF5_DEFLATE, HDF5_SHUFFLE, HDF5_FLETCHER32 };

enum { HDF5_FILTERS = 8 };

struct hdf5_dataset {
  int64_t file_id, id; /* the library's; 0: none */
  uint64_t base;       /* where in the file its chunks' addresses count from */
  int32_t dtype;
  bool swap; /* elements are big-endian */
  int32_t ndim;
  int64_t shape[SHARDRT_MAX_NDIM];
  int64_t chunk[SHARDRT_MAX_NDIM];
  bool chunked; /* else its elements lie in one piece: */
  bool written; /* if at all; else each is the fill value */
  bool compact; /* among what describes it, so that the library must be asked for them; else */
  uint64_t offset;
  uint8_t fill[8]; /* in the machine's byte order */
  bool *checked;   /* whether the index of its chunks was looked at as a whole: see hdf5_find; owned */
  int32_t nfilters;
  enum hdf5_filter_kind filters[HDF5_FILTERS]; /* in the order in which they were applied */
};

/* Finds a dataset of a file, which outlives it. What it leaves is closed in any case. EIO: no file, no dataset;
 * EFORMAT: malformed, or something that shardrt does not read, which the message names. */
int hdf5_open(const struct stored *file, const char *name, struct hdf5_dataset *out);
void hdf5_close(struct hdf5_dataset *self);

/* The elements of a compact dataset, `bytes` bytes. */
int hdf5_read_compact(const struct hdf5_dataset *self, void *dst);

/* Where the chunk at these coordinates, in chunks, lies; *bytes = 0: nowhere. Bit i of *mask: filter i was left out.
 * Before the first that lies nowhere, all of the index is looked at: EFORMAT, if it holds chunks that cannot be found.
 */
int hdf5_find(const struct hdf5_dataset *self, const int64_t *at, uint64_t *offset, uint64_t *bytes, uint32_t *mask);

/* Takes back what a chunk's filters did, where `mask` does not say otherwise: into `dst`, which has room for `bytes`
 * and 4 more for each filter, or in place. EFORMAT: damaged, or not `bytes` bytes in the end. */
int hdf5_decode(const struct hdf5_dataset *self, uint32_t mask, const uint8_t *data, size_t data_bytes, uint8_t *dst,
                size_t bytes, struct reader *reader, const uint8_t **out);

#endif
