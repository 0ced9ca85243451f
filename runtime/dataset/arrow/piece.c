#include "dataset/arrow/piece.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "codec/decompress.h"

enum { LENGTH = 8 /* before a compressed buffer: the bytes that it becomes; -1: it is as it is */, ALIGNMENT = 64 };

int arrow_piece_error(const struct arrow_piece *self, int code) {
  return error_prefix(code, "%s: column \"%s\", message at byte %zu", self->file->title, self->leaf->as.name,
                      self->message);
}

size_t arrow_piece_bytes(const struct arrow_piece *self, int32_t buffer) {
  return self->unpacked != NULL ? self->unpacked->spans[buffer].length : self->buffers[buffer].bytes;
}

bool arrow_piece_stays(const struct arrow_piece *self) {
  return self->unpacked == NULL && self->file->map.remote == NULL;
}

int arrow_piece_get(const struct arrow_piece *self, int32_t buffer, size_t at, size_t bytes, struct reader *reader,
                    const uint8_t **out) {
  const size_t has = arrow_piece_bytes(self, buffer);
  if (at > has || bytes > has - at) {
    error_set(SHARDRT_EFORMAT, "its buffer %d has %zu bytes, and should have %zu from byte %zu on", (int)buffer, has,
              bytes, at);
    return arrow_piece_error(self, SHARDRT_EFORMAT);
  }
  if (self->unpacked == NULL) return stored_get(self->file, self->buffers[buffer].offset + at, bytes, reader, out);
  *out = self->unpacked->data + self->unpacked->spans[buffer].start + at;
  return SHARDRT_OK;
}

/* What a buffer becomes: its bytes, and whether it is compressed. */
static int unpacked_bytes(const struct arrow_piece *self, const uint8_t *data, size_t bytes, size_t *out,
                          bool *is_packed) {
  *is_packed = false;
  *out = 0;
  if (bytes == 0) return SHARDRT_OK;
  const int64_t length = bytes < LENGTH ? -2 : (int64_t)little_endian_64(data);
  *is_packed = length >= 0;
  *out = length >= 0 ? (size_t)length : bytes - LENGTH;
  if (length >= -1 && *out <= ARROW_PIECE_BYTES) return SHARDRT_OK;
  error_set(SHARDRT_EFORMAT, "it tells of a buffer of %lld bytes; at most %d can be read", (long long)length,
            ARROW_PIECE_BYTES);
  return arrow_piece_error(self, SHARDRT_EFORMAT);
}

static int unpack_all(const struct arrow_piece *self, const uint8_t *const *data, struct page_span *spans,
                      const bool *packed, uint8_t *room) {
  const enum decompress_kind kind = self->codec == ARROW_LZ4 ? DECOMPRESS_LZ4_FRAME : DECOMPRESS_ZSTD;
  for (int32_t b = 0; b < self->nbuffers; b++) {
    const size_t bytes = self->buffers[b].bytes;
    if (bytes == 0) continue;
    int code = decompress(packed[b] ? kind : DECOMPRESS_NONE, data[b] + LENGTH, bytes - LENGTH, room + spans[b].start,
                          spans[b].length);
    if (code != SHARDRT_OK) return arrow_piece_error(self, code);
  }
  return SHARDRT_OK;
}

static int unpack_into(const struct arrow_piece *self, struct reader *reader, struct column_page *page) {
  const size_t n = (size_t)self->nbuffers;
  struct page_span *spans = page_room(page, (n > 0 ? n : 1) * sizeof *spans);
  const uint8_t **data = reader_room(reader, (n + 1) * sizeof *data);
  bool *packed = reader_room(reader, n + 1);
  size_t all = 0;
  if (spans == NULL || data == NULL || packed == NULL) return ALLOC_FAILED;
  for (size_t b = 0; b < n; b++) {
    size_t bytes;
    data[b] = NULL;
    int code = self->buffers[b].bytes > 0
                   ? stored_get(self->file, self->buffers[b].offset, self->buffers[b].bytes, reader, &data[b])
                   : SHARDRT_OK;
    if (code == SHARDRT_OK) code = unpacked_bytes(self, data[b], self->buffers[b].bytes, &bytes, &packed[b]);
    if (code != SHARDRT_OK) return code;
    spans[b] = (struct page_span){.start = (uint32_t)all, .length = (uint32_t)bytes};
    all += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (all > ARROW_PIECE_BYTES) {
      error_set(SHARDRT_EFORMAT,
                "its values have more than %d bytes, which is what can be read; smaller record batches "
                "would do",
                ARROW_PIECE_BYTES);
      return arrow_piece_error(self, SHARDRT_EFORMAT);
    }
  }
  uint8_t *room = page_room(page, all);
  if (room == NULL) return ALLOC_FAILED;
  page->rows = self->nbuffers;
  page->spans = spans;
  page->data = room;
  const int64_t start = reader_now();
  int code = unpack_all(self, data, spans, packed, room);
  reader_spent(reader, READER_DECODE, start);
  return code;
}

int arrow_piece_unpack(const struct arrow_piece *self, struct reader *reader, struct column_page **out) {
  const struct reader_mark mark = reader_mark(reader);
  struct column_page *page = page_new();
  if (page == NULL) return ALLOC_FAILED;
  int code = unpack_into(self, reader, page);
  reader_release(reader, mark);
  if (code < 0) {
    page_free(page);
    return code;
  }
  *out = page;
  return SHARDRT_OK;
}
