/* zarr_metadata.h - what a Zarr array's own JSON file says of it.
 *
 *   .zarray    Zarr v2: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
 *   zarr.json  Zarr v3: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html and its codecs: bytes, gzip,
 *              zstd, blosc, crc32c, sharding_indexed; transpose where it changes nothing */
#ifndef SHARDRT_DATASET_CHUNKED_ZARR_METADATA_H
#define SHARDRT_DATASET_CHUNKED_ZARR_METADATA_H

#include "codec/zarr_codec.h"
#include "storage/stored.h"

struct zarr_metadata {
  int32_t version; /* 2 or 3 */
  int32_t dtype;
  int32_t ndim;
  bool swap; /* elements are big-endian */
  int64_t shape[SHARDRT_MAX_NDIM];
  int64_t chunk[SHARDRT_MAX_NDIM]; /* of what one decoding gives */
  uint8_t fill[8];                 /* one element, in the machine's byte order */
  char separator;                  /* between the coordinates in a chunk's name, which begins with "c" and one where */
  bool prefix;
  struct zarr_codecs codecs;
  /* Where one file holds many chunks. */
  bool sharded;
  bool index_first;                    /* their index stands at the file's begin, not its end */
  int64_t per_shard[SHARDRT_MAX_NDIM]; /* chunks of a file in each dimension; else 1 */
  struct zarr_codecs index_codecs;
};

/* Reads the metadata of the array in a folder. `file` is to be closed in any case. EIO: there is none; EFORMAT: it is
 * malformed, or tells of something that shardrt does not read, which the message names. */
int zarr_metadata_read(const char *folder, const shardrt_source_options *options, struct stored *file,
                       struct zarr_metadata *out);

#endif
