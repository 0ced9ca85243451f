// build: -O3
#include "dataset/parquet/encoding/delta.h"

#include <string.h>

#include "dataset/parquet/encoding/hybrid.h"

enum { PIECE = 256, MOST_BITS = 64, MINIBLOCK = 32 };

struct delta {
  const uint8_t *at, *end;
  bool failed;
  uint64_t block, miniblocks, count, value; /* value: the last one */
};

static uint64_t delta_varint(struct delta *d) {
  uint64_t value = 0;
  for (int32_t shift = 0; shift < MOST_BITS && d->at < d->end; shift += 7) {
    const uint8_t byte = *d->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  d->failed = true;
  return 0;
}

static uint64_t delta_zigzag(struct delta *d) {
  const uint64_t value = delta_varint(d);
  return value >> 1 ^ (~(value & 1) + 1);
}

static struct delta delta_begin(const uint8_t *data, size_t bytes) {
  struct delta d = {.at = data, .end = data + bytes};
  d.block = delta_varint(&d);
  d.miniblocks = delta_varint(&d);
  d.count = delta_varint(&d);
  d.value = delta_zigzag(&d);
  if (d.block == 0 || d.block > INT32_MAX || d.miniblocks == 0 || d.miniblocks > d.block ||
      d.block % d.miniblocks != 0 || d.block / d.miniblocks % MINIBLOCK != 0 || d.count > INT32_MAX)
    d.failed = true;
  return d;
}

int64_t delta_count(const uint8_t *data, size_t bytes) {
  const struct delta d = delta_begin(data, bytes);
  return d.failed ? -1 : (int64_t)d.count;
}

static void put_values(int32_t width, void *out, int64_t at, int64_t n, const uint64_t *values) {
  if (width == (int32_t)sizeof(uint64_t)) {
    memcpy((uint64_t *)out + at, values, (size_t)n * sizeof *values);
    return;
  }
  uint32_t *narrow = (uint32_t *)out + at;
  for (int64_t i = 0; i < n; i++) narrow[i] = (uint32_t)values[i];
}

/* The values of a miniblock, of which the first `left` are wanted. */
static void decode_miniblock(struct delta *d, int32_t bits, uint64_t least, int64_t values, int64_t left, int32_t width,
                             void *out, int64_t at) {
  uint64_t room[PIECE];
  const uint8_t *data = d->at;
  for (int64_t done = 0; done < values && done < left; done += PIECE, data += PIECE / 8 * bits) {
    const int64_t in_block = values - done < PIECE ? values - done : PIECE;
    const int64_t n = left - done < in_block ? left - done : in_block;
    bits_unpack_wide(data, bits, n, room);
    uint64_t value = d->value;
    for (int64_t i = 0; i < n; i++) room[i] = value += room[i] + least;
    d->value = value;
    put_values(width, out, at + done, n, room);
  }
}

bool delta_decode(const uint8_t *data, size_t bytes, int64_t n, int32_t width, void *out, size_t *taken) {
  struct delta d = delta_begin(data, bytes);
  const int64_t values = d.failed ? 0 : (int64_t)(d.block / d.miniblocks);
  if (d.failed || (uint64_t)n > d.count) return false;
  if (n > 0) put_values(width, out, 0, 1, &d.value);
  const int64_t count = (int64_t)d.count;
  for (int64_t done = 1; done < count && !d.failed;) {
    const uint64_t least = delta_zigzag(&d);
    const uint8_t *widths = d.at;
    if (d.failed || (uint64_t)(d.end - d.at) < d.miniblocks) return false;
    d.at += d.miniblocks;
    for (uint64_t m = 0; m < d.miniblocks && done < count; m++, done += values) {
      const int32_t bits = widths[m];
      if (bits > MOST_BITS || d.end - d.at < values / 8 * bits) return false;
      if (done < n) decode_miniblock(&d, bits, least, values, n - done, width, out, done);
      d.at += values / 8 * bits;
    }
  }
  *taken = (size_t)(d.at - data);
  return !d.failed;
}
