#include "arrayfile/runs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "arrayfile/run_walk.h"
#include "base/alloc.h"

/* Runs are gathered until so many bytes touch; one of a quarter of it goes by itself, without a copy. */
enum { STAGING = 1 << 20 };

/* One box on its way. */
struct box_walk {
  const uint8_t *data; /* packed */
  struct box_runs runs;
  struct run_walk next;
};

/* What waits to be given: `used` bytes for `offset`. */
struct staging {
  uint8_t *bytes;
  size_t offset, used;
  runs_put *put;
  void *context;
};

static int staging_flush(struct staging *s) {
  const size_t used = s->used;
  s->used = 0;
  return used > 0 ? s->put(s->context, s->offset, s->bytes, used) : SHARDRT_OK;
}

static int staging_add(struct staging *s, size_t offset, const uint8_t *data, size_t bytes) {
  assert(s->used == 0 || offset >= s->offset + s->used); /* ascending, each byte once */
  int code = SHARDRT_OK;
  const bool large = bytes >= STAGING / 4;
  if (large || s->offset + s->used != offset || s->used + bytes > STAGING) code = staging_flush(s);
  if (code < 0) return code;
  if (large) return s->put(s->context, offset, data, bytes);
  if (s->used == 0) s->offset = offset;
  assert(s->used + bytes <= STAGING);
  memcpy(s->bytes + s->used, data, bytes);
  s->used += bytes;
  return SHARDRT_OK;
}

static int by_offset(const void *a, const void *b) {
  const struct box_walk *x = a, *y = b;
  return (x->next.offset > y->next.offset) - (x->next.offset < y->next.offset);
}

/* The walks are a heap by offset: none lies before its parent, (i - 1) / 2. Restores that after the first moved. */
static void heap_sift(struct box_walk *heap, int64_t count) {
  struct box_walk moved = heap[0];
  int64_t hole = 0;
  for (int64_t child; (child = 2 * hole + 1) < count; hole = child) {
    if (child + 1 < count && heap[child + 1].next.offset < heap[child].next.offset) child++;
    if (moved.next.offset <= heap[child].next.offset) break;
    heap[hole] = heap[child];
  }
  heap[hole] = moved;
}

/* None lies before its parent. */
static inline bool is_heap(const struct box_walk *heap, int64_t count) {
  for (int64_t i = 1; i < count; i++)
    if (heap[i].next.offset < heap[(i - 1) / 2].next.offset) return false;
  return true;
}

static int walk_boxes(struct box_walk *heap, int64_t count, struct staging *s) {
  if (count > 1) qsort(heap, (size_t)count, sizeof *heap, by_offset); /* ascending: a heap */
  assert(is_heap(heap, count));
  while (count > 0) {
    int code = staging_add(s, heap->next.offset, heap->data + heap->next.packed, heap->runs.run_bytes);
    if (code < 0) return code;
    if (!run_walk_next(&heap->next, &heap->runs)) *heap = heap[--count];
    if (count > 1) heap_sift(heap, count);
  }
  return staging_flush(s);
}

int runs_walk(int32_t dtype, int32_t ndim, const int64_t *shape, int64_t count, const shardrt_box *boxes,
              const void *const *data, runs_put *put, void *context) {
  shardrt_field whole = {.dtype = dtype, .ndim = ndim};
  if (ndim > 0) memcpy(whole.shape, shape, (size_t)ndim * sizeof *shape);
  struct staging s = {.put = put, .context = context};
  struct box_walk *heap = alloc_array((size_t)count, sizeof *heap);
  s.bytes = heap == NULL ? NULL : alloc_array(STAGING, 1);
  int code = s.bytes != NULL ? SHARDRT_OK : ALLOC_FAILED;
  int64_t used = 0;
  for (int64_t i = 0; code == SHARDRT_OK && i < count; i++) {
    const struct box_runs runs = box_runs_of(&whole, &boxes[i], shardrt_dtype_size(dtype));
    if (runs.box_bytes == 0) continue;
    heap[used++] = (struct box_walk){.data = data[i], .runs = runs, .next = {.offset = runs.offset}};
  }
  if (code == SHARDRT_OK) code = walk_boxes(heap, used, &s);
  alloc_free(s.bytes);
  alloc_free(heap);
  return code;
}
