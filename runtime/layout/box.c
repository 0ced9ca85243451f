#include "layout/box.h"

#include <assert.h>
#include <inttypes.h>

/* start <= stop in every dimension, of which there are not too many. */
static inline bool box_is_valid(const shardrt_box *box) {
  if (box->ndim < 0 || box->ndim > SHARDRT_MAX_NDIM) return false;
  for (int32_t d = 0; d < box->ndim; d++)
    if (box->start[d] > box->stop[d]) return false;
  return true;
}

shardrt_box box_whole(int32_t ndim, const int64_t *shape) {
  assert(ndim >= 0 && ndim <= SHARDRT_MAX_NDIM);
  shardrt_box box = {.ndim = ndim};
  for (int32_t d = 0; d < ndim; d++) box.stop[d] = shape[d];
  return box;
}

bool box_equal(const shardrt_box *a, const shardrt_box *b) {
  if (a->ndim != b->ndim) return false;
  for (int32_t d = 0; d < a->ndim; d++)
    if (a->start[d] != b->start[d] || a->stop[d] != b->stop[d]) return false;
  return true;
}

bool box_is_empty(const shardrt_box *box) {
  assert(box_is_valid(box));
  for (int32_t d = 0; d < box->ndim; d++)
    if (box->start[d] == box->stop[d]) return true;
  return false;
}

int64_t box_elements(const shardrt_box *box) {
  /* Sizes beside a size of 0 were not checked to have a product. */
  if (box_is_empty(box)) return 0;
  int64_t elements = 1;
  for (int32_t d = 0; d < box->ndim; d++) elements *= box->stop[d] - box->start[d];
  return elements;
}

bool box_intersect(const shardrt_box *a, const shardrt_box *b, shardrt_box *out) {
  assert(a->ndim == b->ndim); /* of one array */
  shardrt_box shared = {.ndim = a->ndim};
  for (int32_t d = 0; d < a->ndim; d++) {
    shared.start[d] = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
    shared.stop[d] = a->stop[d] < b->stop[d] ? a->stop[d] : b->stop[d];
    if (shared.start[d] >= shared.stop[d]) return false;
  }
  *out = shared;
  return true;
}

shardrt_box box_within(const shardrt_box *box, const shardrt_box *block) {
  shardrt_box inner = {.ndim = box->ndim};
  for (int32_t d = 0; d < box->ndim; d++) {
    assert(box->start[d] >= block->start[d] && box->stop[d] <= block->stop[d]);
    inner.start[d] = box->start[d] - block->start[d];
    inner.stop[d] = box->stop[d] - block->start[d];
  }
  return inner;
}

void box_shape(const shardrt_box *box, int64_t *shape) {
  for (int32_t d = 0; d < box->ndim; d++) shape[d] = box->stop[d] - box->start[d];
}

int64_t box_offset(const shardrt_box *box, const int64_t *shape) {
  int64_t offset = 0;
  for (int32_t d = 0; d < box->ndim; d++) offset = offset * shape[d] + box->start[d];
  return offset;
}

bool box_is_run(const shardrt_box *box, const int64_t *shape) {
  assert(box_is_valid(box));
  int32_t d = box->ndim - 1;
  while (d >= 0 && box->stop[d] - box->start[d] == shape[d]) d--;
  for (d--; d >= 0; d--)
    if (box->stop[d] - box->start[d] != 1) return false;
  return true;
}

/* Along which dimension a box is cut (-1: not at all), and how many of its rows a piece has at most. */
static int32_t box_cut(const shardrt_box *box, int64_t limit, int64_t *rows) {
  assert(limit >= 1 && !box_is_empty(box));
  int64_t below = 1; /* elements of one row */
  for (int32_t d = box->ndim - 1; d >= 0; d--) {
    int64_t extent = box->stop[d] - box->start[d], fit = limit / below;
    if (extent > fit) {
      int64_t pieces = (extent + fit - 1) / fit;
      *rows = (extent + pieces - 1) / pieces;
      return d;
    }
    below *= extent;
  }
  return -1;
}

int64_t box_piece_count(const shardrt_box *box, int64_t limit) {
  int64_t rows;
  int32_t cut = box_cut(box, limit, &rows);
  if (cut < 0) return 1;
  int64_t count = (box->stop[cut] - box->start[cut] + rows - 1) / rows;
  for (int32_t d = 0; d < cut; d++) count *= box->stop[d] - box->start[d];
  return count;
}

shardrt_box box_piece(const shardrt_box *box, int64_t limit, int64_t i) {
  int64_t rows;
  int32_t cut = box_cut(box, limit, &rows);
  shardrt_box piece = *box;
  if (cut < 0) return piece;
  int64_t pieces = (box->stop[cut] - box->start[cut] + rows - 1) / rows;
  assert(i >= 0 && i < box_piece_count(box, limit));
  piece.start[cut] += i % pieces * rows;
  if (box->stop[cut] - piece.start[cut] > rows) piece.stop[cut] = piece.start[cut] + rows;
  i /= pieces;
  for (int32_t d = cut - 1; d >= 0; d--) {
    int64_t extent = box->stop[d] - box->start[d];
    piece.start[d] += i % extent;
    piece.stop[d] = piece.start[d] + 1;
    i /= extent;
  }
  return piece;
}

static int64_t box_extent(const shardrt_box *box, int32_t dim) {
  return box->stop[dim] - box->start[dim];
}

/* The dimension along which a box is cut into parts; -1: it has none. */
static int32_t box_parted(const shardrt_box *box, int64_t parts) {
  assert(parts >= 1 && !box_is_empty(box));
  int32_t longest = box->ndim - 1;
  for (int32_t d = 0; d < box->ndim; d++) {
    if (box_extent(box, d) >= parts) return d;
    if (box_extent(box, d) > box_extent(box, longest)) longest = d;
  }
  return longest;
}

int64_t box_part_count(const shardrt_box *box, int64_t parts) {
  int32_t d = box_parted(box, parts);
  if (d < 0) return 1;
  return box_extent(box, d) < parts ? box_extent(box, d) : parts;
}

shardrt_box box_part(const shardrt_box *box, int64_t parts, int64_t i) {
  shardrt_box part = *box;
  int32_t d = box_parted(box, parts);
  if (d < 0) return part;
  int64_t count = box_part_count(box, parts), extent = box_extent(box, d);
  assert(i >= 0 && i < count);
  part.start[d] = box->start[d] + extent / count * i + extent % count * i / count;
  part.stop[d] = box->start[d] + extent / count * (i + 1) + extent % count * (i + 1) / count;
  return part;
}

void box_add_text(const shardrt_box *box, struct text *text) {
  text_add(text, "[");
  for (int32_t d = 0; d < box->ndim; d++)
    text_add(text, "%s%" PRId64 ":%" PRId64, d != 0 ? ", " : "", box->start[d], box->stop[d]);
  text_add(text, "]");
}
