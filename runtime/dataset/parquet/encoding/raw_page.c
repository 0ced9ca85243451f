#include "dataset/parquet/encoding/raw_page.h"

#include <string.h>
#include <zlib.h>

#ifndef SHARDRT_WITHOUT_ISAL
#include <isa-l/crc.h>
#endif

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "codec/decompress.h"
#include "dataset/parquet/encoding/hybrid.h"

enum { CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_LZO, CODEC_BROTLI, CODEC_LZ4, CODEC_ZSTD, CODEC_LZ4_RAW };
enum { PAGE_AT_MOST = 1 << 30, LENGTH = 4 };

static int kind_of(int32_t codec, enum decompress_kind *out) {
  static const enum decompress_kind kinds[] = {
      [CODEC_NONE] = DECOMPRESS_NONE,     [CODEC_SNAPPY] = DECOMPRESS_SNAPPY, [CODEC_GZIP] = DECOMPRESS_GZIP,
      [CODEC_BROTLI] = DECOMPRESS_BROTLI, [CODEC_LZ4] = DECOMPRESS_LZ4,       [CODEC_ZSTD] = DECOMPRESS_ZSTD,
      [CODEC_LZ4_RAW] = DECOMPRESS_LZ4};
  if (codec == CODEC_LZO)
    return error_set(SHARDRT_EINVAL, "it is compressed by LZO, which shardrt does not read; zstd, snappy and LZ4 are");
  if (codec < 0 || codec > CODEC_LZ4_RAW)
    return error_set(SHARDRT_EINVAL, "it is compressed by codec %d, which shardrt does not know", (int)codec);
  *out = kinds[codec];
  return SHARDRT_OK;
}

static uint32_t crc32_of(const uint8_t *data, size_t bytes) {
#ifndef SHARDRT_WITHOUT_ISAL
  return crc32_gzip_refl(0, (unsigned char *)data, bytes); /* which does not write to it */
#else
  return (uint32_t)crc32(0, data, (uInt)bytes); /* a page has fewer than 2^31 */
#endif
}

static int check_crc32(const struct page_header *header, const uint8_t *data) {
  const uint32_t found = crc32_of(data, header->bytes);
  if (found == header->crc) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "it is damaged: its CRC-32 is %08x, and should be %08x", found, header->crc);
}

static uint32_t big_endian_32(const uint8_t *at) {
  return __builtin_bswap32(little_endian_32(at));
}

/* The LZ4 of old is as Hadoop wrote it: pieces, before each what it becomes and how long it is, highest byte first.
 * Goes through them, and decompresses them where `room` is not NULL; false: they are no such pieces. */
static bool walk_pieces(const uint8_t *data, size_t bytes, uint8_t *room, size_t unpacked, int *code) {
  enum { HEAD = 8 };
  *code = SHARDRT_OK;
  while (bytes >= HEAD && *code == SHARDRT_OK) {
    const size_t becomes = big_endian_32(data), length = big_endian_32(data + LENGTH);
    data += HEAD;
    bytes -= HEAD;
    if (length > bytes || becomes > unpacked) return false;
    if (room != NULL) {
      *code = decompress(DECOMPRESS_LZ4, data, length, room, becomes);
      room += becomes;
    }
    data += length;
    bytes -= length;
    unpacked -= becomes;
  }
  return bytes == 0 && unpacked == 0;
}

/* Others wrote one block, as LZ4_RAW is. */
static int unpack_lz4_of_old(const uint8_t *data, size_t bytes, uint8_t *room, size_t unpacked) {
  int code;
  if (!walk_pieces(data, bytes, NULL, unpacked, &code)) return decompress(DECOMPRESS_LZ4, data, bytes, room, unpacked);
  walk_pieces(data, bytes, room, unpacked, &code);
  return code;
}

/* Memory that stays, or not. */
static uint8_t *raw_room(struct column_page *keeper, bool keeps, size_t bytes, struct reader *reader,
                         struct raw_page *out) {
  if (!keeps) return reader_room(reader, bytes);
  out->piece = page_room(keeper, bytes);
  return out->piece;
}

/* Gives the values of the last `bytes` bytes of a page, which become `unpacked`. */
static int unpack(const struct raw_place *place, const uint8_t *data, size_t bytes, size_t unpacked, bool compressed,
                  bool keeps, struct column_page *keeper, struct reader *reader, struct raw_page *out,
                  const uint8_t **at) {
  enum decompress_kind kind = DECOMPRESS_NONE;
  int code = compressed ? kind_of(place->chunk->codec, &kind) : SHARDRT_OK;
  if (code != SHARDRT_OK) return code;
  if (kind == DECOMPRESS_NONE && bytes != unpacked)
    return error_set(SHARDRT_EFORMAT, "it has %zu bytes, and its header tells of %zu", bytes, unpacked);
  const bool mapped = place->file->map.remote == NULL;
  *at = data;
  out->stays = mapped;
  if (kind == DECOMPRESS_NONE && (mapped || !keeps)) return SHARDRT_OK;
  out->stays = keeps;
  uint8_t *room = raw_room(keeper, keeps, unpacked, reader, out);
  if (room == NULL) return ALLOC_FAILED;
  *at = room;
  const int64_t start = reader_now();
  if (kind == DECOMPRESS_LZ4 && place->chunk->codec == CODEC_LZ4)
    code = unpack_lz4_of_old(data, bytes, room, unpacked);
  else if (unpacked > 0 || bytes > 0)
    code = decompress(kind, data, bytes, room, unpacked);
  reader_spent(reader, READER_DECODE, start);
  return code;
}

/* Cuts levels, whose length stands before them, off the values. */
static int cut_levels(struct raw_page *page, int32_t encoding, const uint8_t **levels, size_t *bytes) {
  if (encoding != ENCODING_RLE)
    return error_set(SHARDRT_EINVAL, "its levels are encoded as %s, which shardrt does not read",
                     encoding == ENCODING_BIT_PACKED ? "BIT_PACKED" : "something unknown");
  const size_t length = page->values_bytes >= LENGTH ? little_endian_32(page->values) : SIZE_MAX;
  if (length > page->values_bytes - LENGTH || page->values_bytes < LENGTH)
    return error_set(SHARDRT_EFORMAT, "its levels are cut off");
  *levels = page->values + LENGTH;
  *bytes = length;
  page->values += LENGTH + length;
  page->values_bytes -= LENGTH + length;
  return SHARDRT_OK;
}

static int cut_page(const struct raw_place *place, struct raw_page *page) {
  int code = SHARDRT_OK;
  if (place->leaf->repetition > 0)
    code = cut_levels(page, page->header.repetition_encoding, &page->repetition, &page->repetition_bytes);
  if (code == SHARDRT_OK && place->leaf->definition > 0)
    code = cut_levels(page, page->header.definition_encoding, &page->definition, &page->definition_bytes);
  return code;
}

int raw_page_read(const struct raw_place *place, raw_page_keeps *keeps, const void *context, struct column_page *keeper,
                  struct reader *reader, struct raw_page *out) {
  *out = (struct raw_page){0};
  struct page_header *header = &out->header;
  const uint8_t *data;
  int code = page_header_read(place->file, place->offset, place->bytes, reader, header);
  if (code != SHARDRT_OK) return code;
  if (header->unpacked > PAGE_AT_MOST)
    return error_set(SHARDRT_EFORMAT, "its header tells of %zu bytes; at most %d can be read", header->unpacked,
                     PAGE_AT_MOST);
  if (header->kind != PAGE_DICTIONARY && header->values > place->chunk->values)
    return error_set(SHARDRT_EFORMAT, "its header tells of %lld values, and its row group has %lld",
                     (long long)header->values, (long long)place->chunk->values);
  code = stored_get(place->file, place->offset + header->head, header->bytes, reader, &data);
  if (code == SHARDRT_OK && header->has_crc && place->verify) code = check_crc32(header, data);
  if (code != SHARDRT_OK) return code;
  if (header->kind == PAGE_DICTIONARY && header->encoding == ENCODING_PLAIN_DICTIONARY)
    header->encoding = ENCODING_PLAIN; /* an old name of it there */
  const bool kept = keeps != NULL && keeps(context, header->encoding);
  size_t before = 0; /* the levels, which are not compressed */
  if (header->kind == PAGE_DATA_2) {
    before = header->definition_bytes + header->repetition_bytes;
    if (before > header->bytes || before > header->unpacked)
      return error_set(SHARDRT_EFORMAT, "its levels are longer than it is");
    out->repetition = data;
    out->repetition_bytes = header->repetition_bytes;
    out->definition = data + header->repetition_bytes;
    out->definition_bytes = header->definition_bytes;
  }
  out->values_bytes = header->unpacked - before;
  code = unpack(place, data + before, header->bytes - before, out->values_bytes, header->is_compressed, kept, keeper,
                reader, out, &out->values);
  if (code == SHARDRT_OK && header->kind == PAGE_DATA) code = cut_page(place, out);
  return code;
}

/* One kind of levels; NULL: all are `most`. */
static int read_levels(const uint8_t *data, size_t bytes, int32_t most, int64_t n, struct reader *reader,
                       const uint8_t **out) {
  bool same = true;
  *out = NULL;
  if (most == 0) return SHARDRT_OK;
  uint8_t *room = reader_room(reader, (size_t)n);
  if (room == NULL) return ALLOC_FAILED;
  if (!hybrid_levels(data, bytes, most, n, room, &same)) {
    error_set(SHARDRT_EFORMAT, "its levels are malformed or cut off");
    return SHARDRT_EFORMAT;
  }
  if (!same) *out = room;
  return SHARDRT_OK;
}

int raw_page_levels(const struct raw_place *place, const struct raw_page *self, struct reader *reader,
                    const uint8_t **definition, const uint8_t **repetition) {
  const struct column_leaf *leaf = place->leaf;
  const int64_t n = self->header.values;
  int code = read_levels(self->definition, self->definition_bytes, leaf->definition, n, reader, definition);
  if (code == SHARDRT_OK)
    code = read_levels(self->repetition, self->repetition_bytes, leaf->repetition, n, reader, repetition);
  if (code == SHARDRT_OK && leaf->repetition > 0 && *repetition == NULL && n > 0) { /* all go on with a row */
    uint8_t *all = reader_room(reader, (size_t)n);
    if (all == NULL) return ALLOC_FAILED;
    memset(all, leaf->repetition, (size_t)n);
    *repetition = all;
  }
  return code;
}

int raw_page_error(const struct raw_place *place, int code) {
  return error_prefix(code, "%s: column \"%s\", page at byte %zu", place->file->title, place->leaf->name,
                      place->offset);
}
