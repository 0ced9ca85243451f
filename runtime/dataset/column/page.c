#include "dataset/column/page.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/error.h"
#include "system/huge_pages.h"

static void drop_page(struct block *block) {
  struct column_page *self = (struct column_page *)(void *)block;
  page_free(self->dictionary);
  for (int32_t i = 0; i < self->npieces; i++) huge_room_free(self->pieces[i].room, self->pieces[i].bytes);
  alloc_free(self);
}

struct column_page *page_new(void) {
  struct column_page *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  made->block = (struct block){.holders = 1, .bytes = sizeof *made, .drop = drop_page};
  return made;
}

void *page_room(struct column_page *self, size_t bytes) {
  assert(self->npieces < (int32_t)(sizeof self->pieces / sizeof *self->pieces));
  void *made = huge_room(bytes);
  if (made == NULL) return NULL;
  self->pieces[self->npieces++] = (struct page_piece){.room = made, .bytes = bytes};
  self->block.bytes += huge_room_size(bytes);
  return made;
}

void page_drop(struct column_page *self, const void *room) {
  for (int32_t i = 0; i < self->npieces; i++) {
    const struct page_piece piece = self->pieces[i];
    if (piece.room != room) continue;
    huge_room_free(piece.room, piece.bytes);
    self->pieces[i] = self->pieces[--self->npieces];
    self->block.bytes -= huge_room_size(piece.bytes);
    return;
  }
}

const struct column_page *page_retain(const struct column_page *self) {
  block_retain(&self->block);
  return self;
}

void page_free(const struct column_page *self) {
  if (self != NULL) block_free(&self->block);
}

int page_kept(uint64_t owner, int64_t number, uint32_t hand, block_load *load, const void *source,
              struct reader *reader, const struct column_page **out) {
  const struct block *block = NULL;
  int code = block_cache_get(owner, number, hand, load, source, reader, &block);
  *out = (const struct column_page *)(const void *)block;
  return code;
}
