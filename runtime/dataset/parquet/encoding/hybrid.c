// build: -O3
#include "dataset/parquet/encoding/hybrid.h"

#include <string.h>

enum { GROUP = 8, WORD = 8, MOST_WIDTH = 32 };

/* ---- bits ------------------------------------------------------------------------------------------------------- */

static inline uint64_t load_word(const uint8_t *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

/* Unpacks whole groups of 8 values; 8 bytes behind the last may be read. */
typedef void unpack_groups(const uint8_t *data, int64_t groups, uint32_t *out);

#define UNPACK_ONE(width, i)                                                                                           \
  out[i] = (uint32_t)(load_word(data + (i) * (width) / 8) >> ((i) * (width) % 8)) &                                    \
           (uint32_t)((UINT64_C(1) << (width)) - 1)
#define UNPACK(width)                                                                                                  \
  static void unpack_##width(const uint8_t *data, int64_t groups, uint32_t *out) {                                     \
    for (int64_t g = 0; g < groups; g++, data += (width), out += GROUP) {                                              \
      UNPACK_ONE(width, 0), UNPACK_ONE(width, 1), UNPACK_ONE(width, 2), UNPACK_ONE(width, 3);                          \
      UNPACK_ONE(width, 4), UNPACK_ONE(width, 5), UNPACK_ONE(width, 6), UNPACK_ONE(width, 7);                          \
    }                                                                                                                  \
  }
#define WIDTHS(X)                                                                                                      \
  X(0)                                                                                                                 \
  X(1)                                                                                                                 \
  X(2)                                                                                                                 \
  X(3)                                                                                                                 \
  X(4)                                                                                                                 \
  X(5)                                                                                                                 \
  X(6)                                                                                                                 \
  X(7)                                                                                                                 \
  X(8)                                                                                                                 \
  X(9)                                                                                                                 \
  X(10)                                                                                                                \
  X(11)                                                                                                                \
  X(12)                                                                                                                \
  X(13)                                                                                                                \
  X(14)                                                                                                                \
  X(15)                                                                                                                \
  X(16)                                                                                                                \
  X(17)                                                                                                                \
  X(18)                                                                                                                \
  X(19)                                                                                                                \
  X(20)                                                                                                                \
  X(21)                                                                                                                \
  X(22)                                                                                                                \
  X(23)                                                                                                                \
  X(24)                                                                                                                \
  X(25)                                                                                                                \
  X(26)                                                                                                                \
  X(27)                                                                                                                \
  X(28)                                                                                                                \
  X(29)                                                                                                                \
  X(30)                                                                                                                \
  X(31)                                                                                                                \
  X(32)
WIDTHS(UNPACK)
#define NAME(width) unpack_##width,
static unpack_groups *const unpack[MOST_WIDTH + 1] = {WIDTHS(NAME)};

/* Of the last groups, behind which fewer than 8 bytes may lie: from a copy. */
static void unpack_rest(const uint8_t *data, int32_t width, int64_t n, uint32_t *out) {
  uint8_t bytes[GROUP * sizeof(uint32_t) + WORD] = {0};
  uint32_t values[GROUP];
  for (int64_t done = 0; done < n; done += GROUP, data += width) {
    const int64_t left = n - done < GROUP ? n - done : GROUP;
    memcpy(bytes, data, (size_t)(left * width + 7) / 8);
    unpack[width](bytes, 1, values);
    memcpy(out + done, values, (size_t)left * sizeof *out);
  }
}

void bits_unpack(const uint8_t *data, int32_t width, int64_t n, uint32_t *out) {
  const int64_t bytes = (n * width + 7) / 8;
  if (width == 0) {
    memset(out, 0, (size_t)n * sizeof *out);
    return;
  }
  int64_t groups = (bytes - WORD) / width;
  if (groups > n / GROUP) groups = n / GROUP;
  if (groups < 0) groups = 0;
  unpack[width](data, groups, out);
  unpack_rest(data + groups * width, width, n - groups * GROUP, out + groups * GROUP);
}

void bits_unpack_wide(const uint8_t *data, int32_t width, int64_t n, uint64_t *out) {
  if (width <= MOST_WIDTH) {
    uint32_t room[HYBRID_PIECE];
    for (int64_t done = 0; done < n; done += HYBRID_PIECE) { /* a piece is whole bytes */
      const int64_t piece = n - done < HYBRID_PIECE ? n - done : HYBRID_PIECE;
      bits_unpack(data + done * width / 8, width, piece, room);
      for (int64_t i = 0; i < piece; i++) out[done + i] = room[i];
    }
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    const int64_t bit = i * width;
    uint64_t value = 0;
    for (int64_t got = 0; got < width;) {
      const int64_t from = (bit + got) % 8;
      value |= (uint64_t)(data[(bit + got) / 8] >> from) << got;
      got += 8 - from;
    }
    out[i] = width == 64 ? value : value & ((UINT64_C(1) << width) - 1);
  }
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

void hybrid_begin(const uint8_t *data, size_t bytes, int32_t width, struct hybrid_walk *out) {
  out->in = (struct hybrid){.at = data, .end = data + bytes, .width = width};
  out->left = 0;
}

static bool next_head(struct hybrid_walk *walk) {
  struct hybrid *in = &walk->in;
  uint64_t head = 0;
  int32_t shift = 0;
  uint8_t byte;
  do {
    if (in->at == in->end || shift > 35) return false;
    byte = *in->at++;
    head |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
  } while (byte >= 0x80);
  walk->packed = (head & 1) != 0;
  walk->left = (int64_t)(head >> 1);
  if (walk->packed) {
    walk->left *= GROUP;
    return true;
  }
  const int32_t bytes = (in->width + 7) / 8;
  if (in->end - in->at < bytes) return false;
  walk->value = 0;
  for (int32_t i = 0; i < bytes; i++) walk->value |= (uint32_t)in->at[i] << 8 * i;
  in->at += bytes;
  return true;
}

bool hybrid_next(struct hybrid_walk *walk, int64_t wanted, struct hybrid_run *out) {
  struct hybrid *in = &walk->in;
  while (walk->left == 0)
    if (!next_head(walk)) return false;
  int64_t count = walk->left < wanted ? walk->left : wanted;
  *out = (struct hybrid_run){.count = count, .value = walk->value};
  if (walk->packed) {
    if (count > HYBRID_PIECE) count = HYBRID_PIECE;
    const int64_t bytes = (count * in->width + 7) / 8;
    if (in->end - in->at < bytes) return false; /* a last group may be cut off behind the last value */
    bits_unpack(in->at, in->width, count, walk->room);
    *out = (struct hybrid_run){.count = count, .values = walk->room};
    in->at += count == walk->left || count % GROUP == 0 ? count * in->width / 8 : in->end - in->at;
  }
  walk->left -= count;
  return true;
}

bool hybrid_levels(const uint8_t *data, size_t bytes, int32_t most, int64_t n, uint8_t *out, bool *same) {
  struct hybrid_walk walk;
  struct hybrid_run run;
  int64_t done = 0;
  uint32_t highest = 0;
  *same = true;
  hybrid_begin(data, bytes, hybrid_width(most), &walk);
  while (done < n) {
    if (!hybrid_next(&walk, n - done, &run)) return false;
    if (run.values == NULL) {
      if (run.value > (uint32_t)most) return false;
      if (*same && run.value != (uint32_t)most) {
        memset(out, most, (size_t)done);
        *same = false;
      }
      if (!*same) memset(out + done, (int)run.value, (size_t)run.count);
    } else {
      bool full = true;
      for (int64_t i = 0; i < run.count; i++) {
        if (run.values[i] > highest) highest = run.values[i];
        full = full && run.values[i] == (uint32_t)most;
      }
      if (*same && !full) {
        memset(out, most, (size_t)done);
        *same = false;
      }
      for (int64_t i = 0; i < run.count && !*same; i++) out[done + i] = (uint8_t)run.values[i];
    }
    done += run.count;
  }
  return highest <= (uint32_t)most;
}
