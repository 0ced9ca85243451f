#include "dataset/parquet/encoding/page.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/error.h"

enum { ALIGNMENT = 64 };

static void drop_page(struct block *block) {
  struct parquet_page *self = (struct parquet_page *)(void *)block;
  page_free(self->dictionary);
  for (int32_t i = 0; i < self->npieces; i++) alloc_free(self->pieces[i]);
  alloc_free(self);
}

struct parquet_page *page_new(void) {
  struct parquet_page *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  made->block = (struct block){.holders = 1, .bytes = sizeof *made, .drop = drop_page};
  return made;
}

void *page_room(struct parquet_page *self, size_t bytes) {
  assert(self->npieces < (int32_t)(sizeof self->pieces / sizeof *self->pieces));
  void *made = alloc_aligned(ALIGNMENT, bytes);
  if (made == NULL) return NULL;
  self->pieces[self->npieces++] = made;
  self->block.bytes += bytes;
  return made;
}

void page_drop(struct parquet_page *self, const void *room, size_t bytes) {
  for (int32_t i = 0; i < self->npieces; i++) {
    if (self->pieces[i] != room) continue;
    alloc_free(self->pieces[i]);
    self->pieces[i] = self->pieces[--self->npieces];
    self->block.bytes -= bytes;
    return;
  }
}

const struct parquet_page *page_retain(const struct parquet_page *self) {
  block_retain(&self->block);
  return self;
}

void page_free(const struct parquet_page *self) {
  if (self != NULL) block_free(&self->block);
}
