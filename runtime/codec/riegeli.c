#include "codec/riegeli.h"

#include <assert.h>
#include <string.h>

#include <highwayhash/c_bindings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "codec/decompress.h"

enum { BLOCK_HEADER = 24, CHUNK_HEADER = 40, VARINT_BYTES = 10 };

static uint64_t riegeli_hash(const uint8_t *data, size_t bytes) {
  static const HHKey key = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952, 0x0a7364726f636572};
  return HighwayHash64(key, (const char *)data, bytes);
}

bool riegeli_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
  uint64_t value = 0;
  for (int32_t shift = 0; *at < end && shift < 64; shift += 7) {
    const uint8_t byte = *(*at)++;
    if (shift == 63 && byte > 1) return false;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *out = value;
      return true;
    }
  }
  return false;
}

/* ---- bytes of a chunk, which block headers may interrupt --------------------------------------------------------- */

/* Where reading a chunk stands. */
struct riegeli_place {
  const struct input *file;
  size_t begin; /* of the chunk */
  size_t at;
};

static int bad_chunk(const struct riegeli_place *p, const char *what) {
  error_set(SHARDRT_EFORMAT, "the chunk at byte %zu %s", p->begin, what);
  return SHARDRT_EFORMAT;
}

static int skip_block_header(struct riegeli_place *p, struct reader *reader) {
  const uint8_t *header = NULL;
  if (p->file->bytes - p->at < BLOCK_HEADER) return bad_chunk(p, "is cut off");
  int code = input_get(p->file, p->at, BLOCK_HEADER, reader, &header);
  if (code != SHARDRT_OK) return code;
  if (little_endian_64(header) != riegeli_hash(header + 8, BLOCK_HEADER - 8) ||
      little_endian_64(header + 8) != p->at - p->begin)
    return error_set(SHARDRT_EFORMAT, "the chunk at byte %zu: the block header at byte %zu is damaged (HighwayHash)",
                     p->begin, p->at);
  p->at += BLOCK_HEADER;
  return SHARDRT_OK;
}

/* Copies `bytes` bytes out of several blocks. */
static int take_pieces(struct riegeli_place *p, size_t bytes, struct reader *reader, uint8_t *dst) {
  while (bytes > 0) {
    int code = p->at % RIEGELI_BLOCK == 0 ? skip_block_header(p, reader) : SHARDRT_OK;
    if (code != SHARDRT_OK) return code;
    const size_t in_block = RIEGELI_BLOCK - p->at % RIEGELI_BLOCK, piece = bytes < in_block ? bytes : in_block;
    const uint8_t *from = NULL;
    if (p->file->bytes - p->at < piece) return bad_chunk(p, "is cut off");
    code = input_get(p->file, p->at, piece, reader, &from);
    if (code != SHARDRT_OK) return code;
    memcpy(dst, from, piece);
    dst += piece;
    bytes -= piece;
    p->at += piece;
  }
  return SHARDRT_OK;
}

static int take_bytes(struct riegeli_place *p, size_t bytes, struct reader *reader, const uint8_t **out) {
  assert(p->begin <= p->at && p->at <= p->file->bytes);
  if (p->at % RIEGELI_BLOCK == 0 && bytes > 0) {
    int code = skip_block_header(p, reader);
    if (code != SHARDRT_OK) return code;
  }
  if (p->file->bytes - p->at < bytes) return bad_chunk(p, "is cut off");
  if (bytes <= RIEGELI_BLOCK - p->at % RIEGELI_BLOCK) {
    p->at += bytes;
    return input_get(p->file, p->at - bytes, bytes, reader, out);
  }
  uint8_t *copy = reader_room(reader, bytes);
  *out = copy;
  return copy != NULL ? take_pieces(p, bytes, reader, copy) : ALLOC_FAILED;
}

int riegeli_chunk_get(const struct input *file, size_t begin, bool verify, struct reader *reader,
                      struct riegeli_chunk *out) {
  struct riegeli_place p = {.file = file, .begin = begin, .at = begin};
  const uint8_t *header = NULL;
  if (begin >= file->bytes) return bad_chunk(&p, "lies behind the end of the file");
  int code = take_bytes(&p, CHUNK_HEADER, reader, &header);
  if (code != SHARDRT_OK) return code;
  if (little_endian_64(header) != riegeli_hash(header + 8, CHUNK_HEADER - 8))
    return bad_chunk(&p, "has a damaged header (HighwayHash)");
  const uint64_t bytes = little_endian_64(header + 8), data_hash = little_endian_64(header + 16),
                 decoded = little_endian_64(header + 32);
  *out = (struct riegeli_chunk){
      .type = header[24], .records = (int64_t)(little_endian_64(header + 24) >> 8), .decoded = decoded, .bytes = bytes};
  code = take_bytes(&p, bytes, reader, &out->data);
  if (code != SHARDRT_OK) return code;
  return !verify || riegeli_hash(out->data, bytes) == data_hash ? SHARDRT_OK
                                                                : bad_chunk(&p, "holds damaged data (HighwayHash)");
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

bool riegeli_lies_open(const struct riegeli_chunk *chunk) {
  return chunk->type == RIEGELI_RECORDS && chunk->records == 1 && chunk->bytes > 0 && chunk->data[0] == 0;
}

int riegeli_room(const struct riegeli_chunk *chunk, size_t *bytes) {
  if (chunk->type == RIEGELI_TRANSPOSED)
    return error_set(SHARDRT_EFORMAT, "is transposed, which shardrt does not read: write it again with the option "
                                      "\"transpose:false\"");
  if (chunk->type != RIEGELI_RECORDS)
    return error_set(SHARDRT_EFORMAT, "holds no records (its type is %d)", chunk->type);
  const size_t most = RIEGELI_DECODED_AT_MOST;
  *bytes = sizeof(size_t);
  if (riegeli_lies_open(chunk)) return SHARDRT_OK;
  if (chunk->decoded > most || (size_t)chunk->records > most / sizeof(size_t))
    return error_set(SHARDRT_EFORMAT,
                     "tells of %lld records of %zu bytes in all; shardrt decompresses no chunk to more than %zu bytes: "
                     "write it again with a smaller group_size",
                     (long long)chunk->records, chunk->decoded, most);
  *bytes = (size_t)chunk->records * sizeof(size_t) + chunk->decoded;
  return SHARDRT_OK;
}

static bool find_kind(uint8_t byte, enum decompress_kind *out) {
  static const uint8_t bytes[] = {
      [DECOMPRESS_NONE] = 0, [DECOMPRESS_BROTLI] = 'b', [DECOMPRESS_ZSTD] = 'z', [DECOMPRESS_SNAPPY] = 's'};
  for (size_t i = 0; i < sizeof bytes; i++) {
    if (bytes[i] != byte) continue;
    *out = (enum decompress_kind)i;
    return true;
  }
  return false;
}

/* How a part begins that is compressed. */
static bool read_unpacked_size(enum decompress_kind kind, const uint8_t **at, const uint8_t *end, uint64_t *size) {
  *size = (uint64_t)(end - *at);
  return kind == DECOMPRESS_NONE || riegeli_varint(at, end, size);
}

/* The sums of the records' sizes. */
static int read_ends(const struct riegeli_chunk *chunk, const uint8_t *at, const uint8_t *end, size_t *ends) {
  size_t sum = 0;
  for (int64_t i = 0; i < chunk->records; i++) {
    uint64_t size;
    if (!riegeli_varint(&at, end, &size) || size > chunk->decoded - sum)
      return error_set(SHARDRT_EFORMAT, "has sizes that are not those of its %lld records of %zu bytes in all",
                       (long long)chunk->records, chunk->decoded);
    sum += size;
    ends[i] = sum;
  }
  if (at == end && sum == chunk->decoded) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "has sizes of %zu bytes in all for records of %zu bytes", sum, chunk->decoded);
}

static int decode_sizes(const struct riegeli_chunk *chunk, enum decompress_kind kind, const uint8_t *at,
                        const uint8_t *end, struct reader *reader, size_t *ends) {
  uint64_t size;
  if (!read_unpacked_size(kind, &at, end, &size) || size / VARINT_BYTES > (uint64_t)chunk->records)
    return error_set(SHARDRT_EFORMAT, "has more sizes than its %lld records", (long long)chunk->records);
  if (kind == DECOMPRESS_NONE) return read_ends(chunk, at, end, ends);
  const struct reader_mark mark = reader_mark(reader);
  uint8_t *sizes = reader_room(reader, size);
  if (sizes == NULL) return ALLOC_FAILED;
  int code = decompress(kind, at, (size_t)(end - at), sizes, size);
  if (code == SHARDRT_OK) code = read_ends(chunk, sizes, sizes + size, ends);
  reader_release(reader, mark);
  return code;
}

int riegeli_decode(const struct riegeli_chunk *chunk, void *room, struct reader *reader, struct riegeli_records *out) {
  const uint8_t *at = chunk->data, *end = chunk->data + chunk->bytes;
  enum decompress_kind kind;
  uint64_t sizes_bytes, size;
  assert((uintptr_t)room % sizeof(size_t) == 0);
  if (at == end || !find_kind(*at, &kind))
    return error_set(SHARDRT_EFORMAT,
                     "is compressed in a way that shardrt does not know (it knows brotli, zstd, snappy)");
  at++;
  if (!riegeli_varint(&at, end, &sizes_bytes) || sizes_bytes > (uint64_t)(end - at))
    return error_set(SHARDRT_EFORMAT, "has a list of sizes that is longer than the chunk");
  size_t *ends = room;
  int code = decode_sizes(chunk, kind, at, at + sizes_bytes, reader, ends);
  if (code != SHARDRT_OK) return code;
  at += sizes_bytes;
  if (!read_unpacked_size(kind, &at, end, &size) || size != chunk->decoded)
    return error_set(SHARDRT_EFORMAT, "holds another number of bytes than the %zu that its header tells of",
                     chunk->decoded);
  uint8_t *values = (uint8_t *)(ends + chunk->records);
  *out = (struct riegeli_records){.count = chunk->records, .ends = ends, .data = values};
  if (!riegeli_lies_open(chunk)) return decompress(kind, at, (size_t)(end - at), values, size);
  out->data = at;
  return SHARDRT_OK;
}
