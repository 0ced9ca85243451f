#include "dataset/parquet/encoding/page.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/error.h"

enum { ALIGNMENT = 64 };

struct parquet_page *page_new(void) {
  struct parquet_page *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  atomic_init(&made->holders, 1);
  made->bytes = sizeof *made;
  return made;
}

void *page_room(struct parquet_page *self, size_t bytes) {
  assert(self->npieces < (int32_t)(sizeof self->pieces / sizeof *self->pieces));
  void *made = alloc_aligned(ALIGNMENT, bytes);
  if (made == NULL) return NULL;
  self->pieces[self->npieces++] = made;
  self->bytes += bytes;
  return made;
}

void page_drop(struct parquet_page *self, const void *room, size_t bytes) {
  for (int32_t i = 0; i < self->npieces; i++) {
    if (self->pieces[i] != room) continue;
    alloc_free(self->pieces[i]);
    self->pieces[i] = self->pieces[--self->npieces];
    self->bytes -= bytes;
    return;
  }
}

const struct parquet_page *page_retain(const struct parquet_page *self) {
  struct parquet_page *counted = (struct parquet_page *)self; /* only the count changes */
  atomic_fetch_add_explicit(&counted->holders, 1, memory_order_relaxed);
  return self;
}

void page_free(const struct parquet_page *self) {
  struct parquet_page *counted = (struct parquet_page *)self;
  if (self == NULL || atomic_fetch_sub_explicit(&counted->holders, 1, memory_order_acq_rel) != 1) return;
  if (self->dictionary != NULL) { /* which has none itself */
    struct parquet_page *dictionary = (struct parquet_page *)self->dictionary;
    if (atomic_fetch_sub_explicit(&dictionary->holders, 1, memory_order_acq_rel) == 1) {
      for (int32_t i = 0; i < dictionary->npieces; i++) alloc_free(dictionary->pieces[i]);
      alloc_free(dictionary);
    }
  }
  for (int32_t i = 0; i < self->npieces; i++) alloc_free(self->pieces[i]);
  alloc_free(counted);
}
