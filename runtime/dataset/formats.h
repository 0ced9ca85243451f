/* formats.h - the formats, each in the file of its name. */
#ifndef SHARDRT_DATASET_FORMATS_H
#define SHARDRT_DATASET_FORMATS_H

#include "dataset/source.h"

extern const struct source_format npy_format;
extern const struct source_format zarr_format;
extern const struct source_format safetensors_format;
extern const struct source_format hdf5_format;
extern const struct source_format idx_format;
extern const struct source_format tfrecord_format;
extern const struct source_format array_record_format;
extern const struct source_format mds_format;
extern const struct source_format tar_format;
extern const struct source_format image_folder_format;
extern const struct source_format parquet_format;
extern const struct source_format arrow_format;
extern const struct source_format csv_format;
extern const struct source_format jsonl_format;
extern const struct source_format cifar_format;
extern const struct source_format npz_format;

#endif
