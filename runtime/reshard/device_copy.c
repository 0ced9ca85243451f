#include "reshard/device_copy.h"

#include <string.h>

#include "base/alloc.h"
#include "layout/box.h"
#include "platform/accelerator.h"

static const char what[] = "reshard";

haul_place haul_packed(const shardrt_box *box, int32_t device, void *data) {
  haul_place place = {.device = device, .data = data, .is_run = true};
  int64_t stride = 1;
  for (int32_t d = box->ndim - 1; d >= 0; d--) {
    place.stride[d] = stride;
    stride *= box->stop[d] - box->start[d];
  }
  return place;
}

haul_place haul_in_block(const struct block_grid *grid, int64_t number, const shardrt_box *box, int32_t device,
                         void *data) {
  haul_place place = {.device = device, .data = data};
  shardrt_box block = block_grid_box(grid, number), inner = *box;
  int64_t stride = 1;
  for (int32_t d = box->ndim - 1; d >= 0; d--) {
    inner.start[d] -= block.start[d];
    inner.stop[d] -= block.start[d];
    place.stride[d] = stride;
    place.first += inner.start[d] * stride;
    stride *= grid->shard_shape[d];
  }
  place.is_run = box_is_run(&inner, grid->shard_shape);
  return place;
}

static int place_box(int32_t device, size_t element, const shardrt_box *box, const haul_place *to,
                     const haul_place *from) {
  accelerator_place place = {.ndim = box->ndim, .to_first = to->first, .from_first = from->first};
  for (int32_t d = 0; d < box->ndim; d++) {
    place.extent[d] = box->stop[d] - box->start[d];
    place.to_stride[d] = to->stride[d];
    place.from_stride[d] = from->stride[d];
  }
  return accelerator_get()->place(what, device, element, &place, to->data, from->data);
}

static int copy_run(size_t element, const shardrt_box *box, const haul_place *to, const haul_place *from) {
  return accelerator_get()->copy(to->device, to->data + (size_t)to->first * element, from->device,
                                 from->data + (size_t)from->first * element, (size_t)box_elements(box) * element);
}

/* The same place, as a piece of its box sees it. */
static haul_place place_of_piece(const haul_place *whole, const shardrt_box *box, const shardrt_box *piece) {
  haul_place place = *whole;
  for (int32_t d = 0; d < box->ndim; d++) place.first += (piece->start[d] - box->start[d]) * whole->stride[d];
  place.is_run = whole->is_run; /* what is cut from a run is one (box_piece) */
  return place;
}

/* Packed where it lies, unless it is a run there, and put in place where it goes, unless it is a run there. */
static int pass_piece(size_t element, const shardrt_box *box, const haul_place *to, const haul_place *from,
                      void *packed, void *unpacked) {
  const accelerator *a = accelerator_get();
  haul_place leaving = *from, coming = *to;
  int code = SHARDRT_OK;
  if (packed != NULL) {
    leaving = haul_packed(box, from->device, packed);
    code = place_box(from->device, element, box, &leaving, from);
  }
  if (unpacked != NULL) coming = haul_packed(box, to->device, unpacked);
  if (code == SHARDRT_OK) code = a->after(to->device, from->device);
  if (code == SHARDRT_OK) code = copy_run(element, box, &coming, &leaving);
  if (code == SHARDRT_OK && unpacked != NULL) code = place_box(to->device, element, box, to, &coming);
  const int after = a->after(from->device, to->device); /* also where something failed: what was begun is under way */
  return code < 0 ? code : after;
}

static int pass_through(size_t element, const shardrt_box *box, const haul_place *to, const haul_place *from,
                        size_t staging) {
  const accelerator *a = accelerator_get();
  int64_t limit = (int64_t)(staging / element), elements = box_elements(box);
  if (limit < 1) limit = 1;
  if (limit > elements) limit = elements;
  const size_t bytes = (size_t)limit * element;
  void *packed = NULL, *unpacked = NULL;
  int code = SHARDRT_OK;
  if (!from->is_run) code = a->allocate(from->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &packed);
  if (code == SHARDRT_OK && !to->is_run)
    code = a->allocate(to->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &unpacked);
  const int64_t pieces = box_piece_count(box, limit);
  for (int64_t i = 0; i < pieces && code == SHARDRT_OK; i++) {
    shardrt_box piece = box_piece(box, limit, i);
    haul_place there = place_of_piece(to, box, &piece), here = place_of_piece(from, box, &piece);
    code = pass_piece(element, &piece, &there, &here, packed, unpacked);
  }
  if (packed != NULL) a->free(from->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, packed, bytes);
  if (unpacked != NULL) a->free(to->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, unpacked, bytes);
  return code;
}

int haul_box(size_t element, const shardrt_box *box, const haul_place *to, const haul_place *from, size_t staging) {
  if (box_is_empty(box)) return SHARDRT_OK;
  if (to->is_run && from->is_run) return copy_run(element, box, to, from);
  if (to->device == from->device || accelerator_get()->reaches(to->device, from->device))
    return place_box(to->device, element, box, to, from);
  return pass_through(element, box, to, from, staging);
}

/* ---- order between devices -------------------------------------------------------------------------------------- */

int haul_pairs_new(haul_pairs *pairs, int32_t devices) {
  *pairs = (haul_pairs){.devices = devices, .takes = alloc_zeros((size_t)devices, (size_t)devices)};
  return pairs->takes == NULL ? ALLOC_FAILED : SHARDRT_OK;
}

void haul_pairs_free(haul_pairs *pairs) {
  alloc_free(pairs->takes);
}

void haul_pairs_clear(haul_pairs *pairs) {
  memset(pairs->takes, 0, (size_t)pairs->devices * (size_t)pairs->devices);
}

static int order(const haul_pairs *pairs, bool before) {
  const accelerator *a = accelerator_get();
  int code = SHARDRT_OK;
  for (int32_t to = 0; to < pairs->devices; to++) {
    for (int32_t from = 0; from < pairs->devices && code == SHARDRT_OK; from++) {
      if (to == from || !pairs->takes[(size_t)to * (size_t)pairs->devices + (size_t)from]) continue;
      code = before ? a->after(to, from) : a->after(from, to);
    }
  }
  return code;
}

int haul_before(const haul_pairs *pairs) {
  return order(pairs, true);
}

int haul_after(const haul_pairs *pairs) {
  return order(pairs, false);
}
