#include "layout/box.h"

#include <inttypes.h>

bool box_equal(const shardrt_box *a, const shardrt_box *b) {
  if (a->ndim != b->ndim) return false;
  for (int32_t d = 0; d < a->ndim; d++)
    if (a->start[d] != b->start[d] || a->stop[d] != b->stop[d]) return false;
  return true;
}

bool box_is_empty(const shardrt_box *box) {
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

bool box_contains(const shardrt_box *outer, const shardrt_box *inner) {
  if (box_is_empty(inner)) return true;
  for (int32_t d = 0; d < inner->ndim; d++)
    if (inner->start[d] < outer->start[d] || inner->stop[d] > outer->stop[d]) return false;
  return true;
}

bool box_intersect(const shardrt_box *a, const shardrt_box *b, shardrt_box *out) {
  shardrt_box shared = {.ndim = a->ndim};
  for (int32_t d = 0; d < a->ndim; d++) {
    shared.start[d] = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
    shared.stop[d] = a->stop[d] < b->stop[d] ? a->stop[d] : b->stop[d];
    if (shared.start[d] >= shared.stop[d]) return false;
  }
  *out = shared;
  return true;
}

void box_add_text(const shardrt_box *box, struct text *text) {
  text_add(text, "[");
  for (int32_t d = 0; d < box->ndim; d++)
    text_add(text, "%s%" PRId64 ":%" PRId64, d != 0 ? ", " : "", box->start[d], box->stop[d]);
  text_add(text, "]");
}
