#include "reshard/exchange/device_copy.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "layout/box.h"
#include "platform/accelerator.h"

struct device_view device_view_packed(const shardrt_box *box, int32_t device, void *data) {
  return device_view_in_box(box, box, device, data);
}

struct device_view device_view_in_box(const shardrt_box *whole, const shardrt_box *box, int32_t device, void *data) {
  const shardrt_box inner = box_within(box, whole);
  int64_t shape[SHARDRT_MAX_NDIM], stride = 1;
  box_shape(whole, shape);
  struct device_view view = {
      .device = device, .data = data, .first = box_offset(&inner, shape), .is_run = box_is_run(&inner, shape)};
  for (int32_t d = box->ndim - 1; d >= 0; d--) {
    view.stride[d] = stride;
    stride *= shape[d];
  }
  return view;
}

struct device_view device_view_in_block(const struct block_grid *grid, int64_t number, const shardrt_box *box,
                                        int32_t device, void *data) {
  const shardrt_box block = block_grid_box(grid, number);
  return device_view_in_box(&block, box, device, data);
}

static int place_box(const char *what, int32_t device, size_t element, const shardrt_box *box,
                     const struct device_view *to, const struct device_view *from) {
  struct accelerator_place place = {.ndim = box->ndim, .to_first = to->first, .from_first = from->first};
  for (int32_t d = 0; d < box->ndim; d++) {
    place.extent[d] = box->stop[d] - box->start[d];
    place.to_stride[d] = to->stride[d];
    place.from_stride[d] = from->stride[d];
  }
  return accelerator_get()->copies->place(what, device, element, &place, to->data, from->data);
}

static int copy_device_run(size_t element, const shardrt_box *box, const struct device_view *to,
                           const struct device_view *from) {
  return accelerator_get()->copies->copy(to->device, to->data + (size_t)to->first * element, from->device,
                                         from->data + (size_t)from->first * element,
                                         (size_t)box_elements(box) * element);
}

/* The same place, as a piece of its box sees it. */
static struct device_view place_of_piece(const struct device_view *whole, const shardrt_box *box,
                                         const shardrt_box *piece) {
  struct device_view place = *whole;
  for (int32_t d = 0; d < box->ndim; d++) place.first += (piece->start[d] - box->start[d]) * whole->stride[d];
  assert(place.first >= whole->first);
  place.is_run = whole->is_run; /* what is cut from a run is one (box_piece) */
  return place;
}

/* Packed where it lies, unless it is a run there, and put in place where it goes, unless it is a run there. */
static int pass_piece(const char *what, size_t element, const shardrt_box *box, const struct device_view *to,
                      const struct device_view *from, void *packed, void *unpacked) {
  const struct accelerator *a = accelerator_get();
  struct device_view leaving = *from, coming = *to;
  int code = SHARDRT_OK;
  if (packed != NULL) {
    leaving = device_view_packed(box, from->device, packed);
    code = place_box(what, from->device, element, box, &leaving, from);
  }
  if (unpacked != NULL) coming = device_view_packed(box, to->device, unpacked);
  if (code == SHARDRT_OK) code = a->streams->after(to->device, from->device);
  if (code == SHARDRT_OK) code = copy_device_run(element, box, &coming, &leaving);
  if (code == SHARDRT_OK && unpacked != NULL) code = place_box(what, to->device, element, box, to, &coming);
  const int after =
      a->streams->after(from->device, to->device); /* also where something failed: what was begun is under way */
  return code < 0 ? code : after;
}

static int pass_through(const char *what, size_t element, const shardrt_box *box, const struct device_view *to,
                        const struct device_view *from, size_t staging) {
  const struct accelerator *a = accelerator_get();
  int64_t limit = (int64_t)(staging / element), elements = box_elements(box);
  if (limit < 1) limit = 1;
  if (limit > elements) limit = elements;
  const size_t bytes = (size_t)limit * element;
  void *packed = NULL, *unpacked = NULL;
  int code = SHARDRT_OK;
  if (!from->is_run) code = a->memory->allocate(from->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &packed);
  if (code == SHARDRT_OK && !to->is_run)
    code = a->memory->allocate(to->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &unpacked);
  assert(to->device != from->device && (size_t)limit * element <= (staging > element ? staging : element));
  const int64_t pieces = box_piece_count(box, limit);
  for (int64_t i = 0; i < pieces && code == SHARDRT_OK; i++) {
    shardrt_box piece = box_piece(box, limit, i);
    struct device_view there = place_of_piece(to, box, &piece), here = place_of_piece(from, box, &piece);
    code = pass_piece(what, element, &piece, &there, &here, packed, unpacked);
  }
  if (packed != NULL) a->memory->free(from->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, packed, bytes);
  if (unpacked != NULL) a->memory->free(to->device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, unpacked, bytes);
  return code;
}

int device_copy_box(const char *what, size_t element, const shardrt_box *box, const struct device_view *to,
                    const struct device_view *from, size_t staging) {
  if (box_is_empty(box)) return SHARDRT_OK;
  if (to->is_run && from->is_run) return copy_device_run(element, box, to, from);
  if (to->device == from->device || accelerator_get()->copies->reaches(to->device, from->device))
    return place_box(what, to->device, element, box, to, from);
  return pass_through(what, element, box, to, from, staging);
}

/* ---- order between devices -------------------------------------------------------------------------------------- */

int device_pairs_new(struct device_pairs *pairs, int32_t devices) {
  *pairs = (struct device_pairs){.devices = devices, .takes = alloc_zeros((size_t)devices, (size_t)devices)};
  return pairs->takes == NULL ? ALLOC_FAILED : SHARDRT_OK;
}

void device_pairs_free(struct device_pairs *pairs) {
  alloc_free(pairs->takes);
}

void device_pairs_clear(struct device_pairs *pairs) {
  memset(pairs->takes, 0, (size_t)pairs->devices * (size_t)pairs->devices);
}

static int order_pairs(const struct device_pairs *pairs, bool before) {
  const struct accelerator *a = accelerator_get();
  int code = SHARDRT_OK;
  for (int32_t to = 0; to < pairs->devices; to++) {
    for (int32_t from = 0; from < pairs->devices; from++) {
      if (to == from || !pairs->takes[(size_t)to * (size_t)pairs->devices + (size_t)from]) continue;
      const int one = before ? a->streams->after(to, from)
                             : a->streams->after(from, to); /* also after a failure: others are under way */
      if (code == SHARDRT_OK) code = one;
    }
  }
  return code;
}

int device_pairs_before(const struct device_pairs *pairs) {
  return order_pairs(pairs, true);
}

int device_pairs_after(const struct device_pairs *pairs) {
  return order_pairs(pairs, false);
}
