/* mds_index.h - index.json of a folder of MDS shards: what they are called, how many samples they have, what columns.
 */
#ifndef SHARDRT_DATASET_MDS_MDS_INDEX_H
#define SHARDRT_DATASET_MDS_MDS_INDEX_H

#include "dataset/mds/mds_encoding.h"

enum { MDS_COLUMNS_MOST = 256, MDS_HASHES_MOST = 8 };

struct mds_column {
  char *name;     /* owned */
  char *encoding; /* "int", "ndarray:int16:2,3"; owned */
  int64_t size;   /* in bytes; 0: differs from sample to sample */
};

/* A hash of a whole file: of those that index.json has, one that can be computed. */
struct mds_hash {
  char *name;   /* "xxh3_64", "sha1"; owned */
  char *digits; /* hexadecimal; owned */
};

struct mds_file {
  char *name; /* in the folder; owned; NULL: there is none */
  int64_t bytes;
  int32_t nhashes; /* of the first MDS_HASHES_MOST of them that are known */
  char *unknown;   /* the name of one that is not; owned; NULL: all are */
  struct mds_hash hashes[MDS_HASHES_MOST];
};

struct mds_shard {
  struct mds_file raw;
  struct mds_file zip; /* the same, compressed */
  int64_t samples;
  char compression[12]; /* "zstd:3"; "": none */
};

struct mds_index {
  int32_t ncolumns;
  struct mds_column columns[MDS_COLUMNS_MOST]; /* of all shards */
  struct mds_encoding encodings[MDS_COLUMNS_MOST];
  int64_t nshards;
  struct mds_shard *shards; /* owned */
};

/* Reads a file's text; `path` is for messages. EFORMAT: malformed; another version than 2, another format than "mds";
 * columns that are not the same in all shards; a name that leads out of the folder; with `verify`, a file with hashes
 * of which none is known. */
int mds_index_read(const char *path, const uint8_t *text, size_t bytes, bool verify, struct mds_index *out);
/* Any that is zeroed or was read, or failed to. */
void mds_index_clear(struct mds_index *self);

#endif
