/* zarr_parse.h - the JSON of a Zarr array's metadata, read member by member. */
#ifndef SHARDRT_DATASET_CHUNKED_ZARR_PARSE_H
#define SHARDRT_DATASET_CHUNKED_ZARR_PARSE_H

#include "codec/json.h"
#include "dataset/chunked/zarr_metadata.h"

enum { ZARR_WORD = 64 };

/* What stands in the file, before it is known what it means. */
struct zarr_parse {
  struct zarr_metadata *out;
  uint32_t seen; /* for json_once */
  char type[ZARR_WORD];
  char fill[ZARR_WORD];
  bool fill_is_text;
  bool sharding;        /* within the codecs of a sharding codec */
  bool has_bytes;       /* v3's codec "bytes" was there */
  char name[ZARR_WORD]; /* of the codec, grid or encoding that is read */
  int32_t sizes;        /* of the list that is read */
  int64_t list[SHARDRT_MAX_NDIM];
  int32_t shape_sizes, chunk_sizes; /* -1: not given */
  int64_t format;
  struct zarr_codecs *codecs; /* which are read */
  int32_t inner_sizes;
  int64_t inner[SHARDRT_MAX_NDIM]; /* chunks within a shard */
};

/* Reads the object that is all of `r`, of the version that p->out has. EFORMAT: it is malformed, or has something that
 * shardrt does not read. */
int zarr_parse_object(struct json_reader *r, struct zarr_parse *p);

/* The member that every array of this version has, and this one has not; NULL: none. Another one may be it, damaged. */
const char *zarr_parse_missing(const struct zarr_parse *p);

#endif
