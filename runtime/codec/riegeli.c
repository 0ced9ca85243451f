#include "codec/riegeli.h"

#include <assert.h>
#include <string.h>

#ifndef SHARDRT_WITHOUT_HIGHWAYHASH
#include <highwayhash/c_bindings.h>
#endif

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "codec/decompress.h"

enum { BLOCK_HEADER = 24, CHUNK_HEADER = 40, VARINT_BYTES = 10 };

static const uint64_t hash_key[4] = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952, 0x0a7364726f636572};

#ifndef SHARDRT_WITHOUT_HIGHWAYHASH

static uint64_t riegeli_hash(const uint8_t *data, size_t bytes) {
  return HighwayHash64(hash_key, (const char *)data, bytes);
}

#else /* the same numbers, slower: https://github.com/google/highwayhash/blob/master/c/highwayhash.c (Apache-2.0) */

enum { PACKET = 32, FINAL_ROUNDS = 4 };

struct highway {
  uint64_t v0[4], v1[4], mul0[4], mul1[4];
};

/* Adds the bytes of a lane's two halves, mixed so that each product's middle bytes come to the ends. */
static void zipper_add(uint64_t v1, uint64_t v0, uint64_t *add1, uint64_t *add0) {
  *add0 += ((v0 & 0xff000000) | (v1 & 0xff00000000)) >> 24 | ((v0 & 0xff0000000000) | (v1 & 0xff000000000000)) >> 16 |
           (v0 & 0xff0000) | (v0 & 0xff00) << 32 | (v1 & 0xff00000000000000) >> 8 | v0 << 56;
  *add1 += ((v1 & 0xff000000) | (v0 & 0xff00000000)) >> 24 | (v1 & 0xff0000) | (v1 & 0xff0000000000) >> 16 |
           (v1 & 0xff00) << 24 | (v0 & 0xff000000000000) >> 8 | (v1 & 0xff) << 48 | (v0 & 0xff00000000000000);
}

static void highway_add(struct highway *h, const uint64_t lanes[4]) {
  for (int i = 0; i < 4; i++) {
    h->v1[i] += h->mul0[i] + lanes[i];
    h->mul0[i] ^= (h->v1[i] & UINT32_MAX) * (h->v0[i] >> 32);
    h->v0[i] += h->mul1[i];
    h->mul1[i] ^= (h->v0[i] & UINT32_MAX) * (h->v1[i] >> 32);
  }
  for (int i = 0; i < 4; i += 2) zipper_add(h->v1[i + 1], h->v1[i], &h->v0[i + 1], &h->v0[i]);
  for (int i = 0; i < 4; i += 2) zipper_add(h->v0[i + 1], h->v0[i], &h->v1[i + 1], &h->v1[i]);
}

static void highway_add_packet(struct highway *h, const uint8_t *packet) {
  uint64_t lanes[4];
  for (size_t i = 0; i < 4; i++) lanes[i] = little_endian_64(packet + 8 * i);
  highway_add(h, lanes);
}

static uint32_t rotate_left(uint32_t x, size_t bits) {
  return bits == 0 ? x : x << bits | x >> (32 - bits);
}

/* The last bytes, fewer than a packet and at least one. */
static void highway_add_rest(struct highway *h, const uint8_t *data, size_t bytes) {
  uint8_t packet[PACKET] = {0};
  const size_t beyond = bytes % 4, words = bytes - beyond;
  for (int i = 0; i < 4; i++) {
    h->v0[i] += ((uint64_t)bytes << 32) + bytes;
    const uint32_t high = (uint32_t)(h->v1[i] >> 32);
    h->v1[i] = (uint64_t)rotate_left(high, bytes) << 32 | rotate_left((uint32_t)h->v1[i], bytes);
  }
  memcpy(packet, data, words);
  if (bytes >= 16) {
    memcpy(packet + PACKET - 4, data + bytes - 4, 4);
  } else if (beyond > 0) {
    packet[16] = data[words];
    packet[17] = data[words + (beyond >> 1)];
    packet[18] = data[bytes - 1];
  }
  highway_add_packet(h, packet);
}

static uint64_t riegeli_hash(const uint8_t *data, size_t bytes) {
  struct highway h = {.mul0 = {0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344, 0x243f6a8885a308d3},
                      .mul1 = {0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c, 0x452821e638d01377}};
  for (int i = 0; i < 4; i++) {
    h.v0[i] = h.mul0[i] ^ hash_key[i];
    h.v1[i] = h.mul1[i] ^ (hash_key[i] >> 32 | hash_key[i] << 32);
  }
  const size_t whole = bytes - bytes % PACKET;
  for (size_t at = 0; at < whole; at += PACKET) highway_add_packet(&h, data + at);
  if (bytes > whole) highway_add_rest(&h, data + whole, bytes - whole);
  for (int round = 0; round < FINAL_ROUNDS; round++) {
    uint64_t lanes[4];
    for (int i = 0; i < 4; i++) lanes[i] = h.v0[i ^ 2] >> 32 | h.v0[i ^ 2] << 32;
    highway_add(&h, lanes);
  }
  return h.v0[0] + h.v1[0] + h.mul0[0] + h.mul1[0];
}

#endif

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
