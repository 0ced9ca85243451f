/* chunk_grid.h - sources of arrays that lie in chunks of one shape, or in one piece: what the formats zarr and hdf5
 * have in common. A format says what an array is and how one of its chunks is read; boxes that cut chunks, elements
 * that no chunk has, byte order and the chunks that are kept are the same for all. */
#ifndef SHARDRT_DATASET_CHUNKED_CHUNK_GRID_H
#define SHARDRT_DATASET_CHUNKED_CHUNK_GRID_H

#include "dataset/chunked/chunks.h"
#include "dataset/source.h"

/* The array of one field. Chunks are counted in row-major order; those at the far edges are as large as all. */
struct chunk_grid {
  char *title; /* for messages: "the Zarr array a.zarr/image"; owned */
  uint64_t fingerprint;
  int32_t dtype;
  int32_t ndim;    /* of all samples together: shape[0] is their number */
  bool swap;       /* elements are big-endian */
  bool in_place;   /* chunks are not decoded: they lie in files as they are */
  uint8_t fill[8]; /* an element that no chunk has, in the machine's byte order */
  int64_t shape[SHARDRT_MAX_NDIM];
  int64_t chunk[SHARDRT_MAX_NDIM];
  const uint8_t *data;              /* all elements in one piece, where they lie so; then there are no chunks */
  size_t chunk_bytes;               /* these two are made by chunk_grid_open */
  int64_t counts[SHARDRT_MAX_NDIM]; /* of chunks in each dimension */
  struct chunks *chunks;
  _Atomic int64_t *counted; /* of all fields: the column of chunks whose decoding counts; see count_block */
  int64_t columns;          /* of chunks, in this field and those before it */
  int64_t block_rows;
  chunk_load *load; /* given `own` */
  void *own;        /* the format's */
  void (*drop)(void *own);
  const struct stored *file; /* what `data` lies in; NULL: no file. It lies on a server: `data` is NULL */
  size_t first;              /* where it begins there */
};

/* Fills a zeroed grid but for what chunk_grid_open makes, from what the user named; grids that failed are dropped too.
 */
typedef int chunk_grid_read(const char *path, const shardrt_source_options *options, struct chunk_grid *out);

/* What a format's `open` does, given how it reads what one array is. */
int chunk_grid_open(const struct source_format *format, int32_t nfields, const char *const *names,
                    const char *const *paths, const shardrt_source_options *options, chunk_grid_read *read,
                    shardrt_source **out);

/* The coordinates of a chunk. */
void chunk_grid_place(const struct chunk_grid *self, int64_t number, int64_t *at);

/* A decoded chunk may have as many bytes: what the blosc library can tell of, too. */
#define CHUNK_GRID_BYTES_AT_MOST ((size_t)INT32_MAX)

/* A format's functions. */
int chunk_grid_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                      const shardrt_box *inner, struct reader *reader, void *dst);
int chunk_grid_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out);
/* Blocks are all chunks of as many rows as the chunks have. */
int64_t chunk_grid_block_count(const shardrt_source *source);
struct sample_range chunk_grid_block(const shardrt_source *source, int64_t block);
int64_t chunk_grid_blocks_kept(const shardrt_source *source);
void chunk_grid_close(shardrt_source *source);
#define CHUNK_GRID_SOURCE                                                                                              \
  .gather = chunk_grid_gather, .extents = chunk_grid_extents, .block_count = chunk_grid_block_count,                   \
  .block = chunk_grid_block, .blocks_kept = chunk_grid_blocks_kept, .close = chunk_grid_close

#endif
