#include "storage/local/extents.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

int extents_set(int64_t capacity, struct extents *out) {
  *out = (struct extents){.capacity = capacity};
  out->list = alloc_array((size_t)capacity, sizeof *out->list);
  return out->list != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

void extents_clear(struct extents *self) {
  alloc_free(self->list);
  *self = (struct extents){0};
}

/* Whether `next`, which does not begin before `last`, became part of it. */
static bool join_extent(struct extent *last, const struct extent *next) {
  assert(last->file != next->file || next->offset >= last->offset);
  if (last->file != next->file || next->offset > last->offset + last->bytes + EXTENTS_GAP) return false;
  const size_t end = next->offset + next->bytes;
  if (end > last->offset + last->bytes) last->bytes = end - last->offset;
  return true;
}

int extents_add(struct extents *self, const struct mapping *file, size_t offset, size_t bytes) {
  if (bytes == 0 || offset >= file->bytes) return SHARDRT_OK;
  const size_t left = file->bytes - offset;
  const struct extent next = {.file = file, .offset = offset, .bytes = bytes < left ? bytes : left};
  if (self->count > 0) {
    struct extent *last = &self->list[self->count - 1];
    if (last->offset <= offset && join_extent(last, &next)) return SHARDRT_OK;
  }
  if (self->count == self->capacity) {
    struct extent *larger = alloc_array((size_t)self->capacity * 2, sizeof *larger);
    if (larger == NULL) return ALLOC_FAILED;
    memcpy(larger, self->list, (size_t)self->count * sizeof *larger);
    alloc_free(self->list);
    self->list = larger;
    self->capacity *= 2;
  }
  self->list[self->count++] = next;
  return SHARDRT_OK;
}

static int by_place(const void *a, const void *b) {
  const struct extent *x = a, *y = b;
  const uintptr_t p = (uintptr_t)x->file, q = (uintptr_t)y->file;
  if (p != q) return p < q ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

void extents_merge(struct extents *self) {
  if (self->count < 2) return;
  qsort(self->list, (size_t)self->count, sizeof *self->list, by_place);
  int64_t last = 0;
  for (int64_t i = 1; i < self->count; i++)
    if (!join_extent(&self->list[last], &self->list[i])) self->list[++last] = self->list[i];
  self->count = last + 1;
}
