/* unicode.c - classes of characters, and normalisation form C: https://www.unicode.org/reports/tr15/ */
#include "tokenizer/unicode.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tokenizer/unicode_tables.h"

uint8_t *unicode_classes_new(void) {
  uint8_t *classes = alloc_array(UNICODE_COUNT, 1);
  for (int32_t i = 0; classes != NULL && i < UNICODE_CLASS_RUNS; i++) {
    const uint32_t first = unicode_class_runs[i] >> 8;
    const uint32_t next = i + 1 < UNICODE_CLASS_RUNS ? unicode_class_runs[i + 1] >> 8 : UNICODE_COUNT;
    memset(classes + first, (int)(unicode_class_runs[i] & 0xff), next - first);
  }
  return classes;
}

/* ---- form C ----------------------------------------------------------------------------------------------------- */

/* Hangul syllables are made of a first, a middle and perhaps a last letter, by their numbers. */
enum {
  SYLLABLES = 0xac00,
  FIRSTS = 0x1100,
  MIDDLES = 0x1161,
  LASTS = 0x11a7, /* the letter before the first of them: no last letter */
  FIRST_COUNT = 19,
  MIDDLE_COUNT = 21,
  LAST_COUNT = 28,
  SYLLABLE_COUNT = FIRST_COUNT * MIDDLE_COUNT * LAST_COUNT,
};

/* A character's canonical combining class. In a word of `room` it stands above the character: CODE of its bits. */
enum { CODE = 24 };

static uint32_t rank_of(uint32_t c) {
  int32_t low = 0, high = UNICODE_RANK_RUNS; /* the run begins at low or behind it, before high */
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (unicode_rank_runs[middle] >> 8 <= c)
      low = middle;
    else
      high = middle;
  }
  return unicode_rank_runs[low] & 0xff;
}

static uint32_t code_of(uint32_t word) {
  return word & ((1u << CODE) - 1);
}

static const struct unicode_parts *find_parts(uint32_t c) {
  int32_t low = 0, high = UNICODE_PARTS;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (unicode_parts[middle].whole == c) return &unicode_parts[middle];
    if (unicode_parts[middle].whole < c)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

/* Adds what a character is made of. */
static size_t add_parts(uint32_t c, uint32_t *room, size_t count) {
  if (c - SYLLABLES < SYLLABLE_COUNT) {
    const uint32_t number = c - SYLLABLES;
    room[count++] = FIRSTS + number / (MIDDLE_COUNT * LAST_COUNT);
    room[count++] = MIDDLES + number % (MIDDLE_COUNT * LAST_COUNT) / LAST_COUNT;
    if (number % LAST_COUNT > 0) room[count++] = LASTS + number % LAST_COUNT;
    return count;
  }
  uint32_t seconds[4]; /* none is made of more */
  int32_t depth = 0;
  for (const struct unicode_parts *parts = find_parts(c); parts != NULL; parts = find_parts(c)) {
    if (parts->second != 0) seconds[depth++] = parts->second;
    c = parts->first;
  }
  for (;;) {
    room[count++] = rank_of(c) << CODE | c;
    if (depth == 0) return count;
    c = seconds[--depth];
  }
}

/* Marks that follow one another come in the order of their classes, those of one class as they stood. */
static void sort_marks(uint32_t *marks, size_t count, uint32_t *other) {
  size_t places[UINT8_MAX + 2] = {0};
  for (size_t i = 0; i < count; i++) places[(marks[i] >> CODE) + 1]++;
  for (int32_t rank = 0; rank < UINT8_MAX; rank++) places[rank + 1] += places[rank];
  for (size_t i = 0; i < count; i++) other[places[marks[i] >> CODE]++] = marks[i];
  memcpy(marks, other, count * sizeof *marks);
}

/* Behind the text, `room` has place for as much again: of a character of b bytes come b * 4 / 3 parts at most. */
static void sort_all(uint32_t *room, size_t count) {
  for (size_t at = 0, next; at < count; at = next) {
    bool sorted = true;
    for (next = at + 1; room[at] >> CODE > 0 && next < count && room[next] >> CODE > 0; next++)
      sorted = sorted && room[next - 1] >> CODE <= room[next] >> CODE;
    if (!sorted) sort_marks(room + at, next - at, room + count);
  }
}

/* The character that two others are made into; 0: none. */
static uint32_t join(uint32_t first, uint32_t second) {
  if (first - FIRSTS < FIRST_COUNT && second - MIDDLES < MIDDLE_COUNT)
    return SYLLABLES + ((first - FIRSTS) * MIDDLE_COUNT + second - MIDDLES) * LAST_COUNT;
  if (first - SYLLABLES < SYLLABLE_COUNT && (first - SYLLABLES) % LAST_COUNT == 0 &&
      second - LASTS - 1 < LAST_COUNT - 1)
    return first + second - LASTS;
  int32_t low = 0, high = UNICODE_PAIRS;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    const struct unicode_parts *pair = &unicode_pairs[middle];
    if (pair->first == first && pair->second == second) return pair->whole;
    if (pair->first < first || (pair->first == first && pair->second < second))
      low = middle + 1;
    else
      high = middle;
  }
  return 0;
}

/* Joins each mark with the last character before it that is none, unless another of its class, or a mark that does not
 * join, stands between them. */
static size_t compose(uint32_t *room, size_t count) {
  size_t made = 0, starter = SIZE_MAX;
  for (size_t i = 0; i < count; i++) {
    const uint32_t rank = room[i] >> CODE;
    const bool beside = starter != SIZE_MAX && made == starter + 1;
    const bool blocked = starter == SIZE_MAX || (!beside && room[made - 1] >> CODE >= rank);
    const uint32_t joined = blocked ? 0 : join(code_of(room[starter]), code_of(room[i]));
    if (joined != 0) {
      room[starter] = joined;
      continue;
    }
    if (rank == 0) starter = made;
    room[made++] = room[i];
  }
  return made;
}

size_t unicode_nfc(const uint8_t *text, size_t bytes, uint32_t *room, uint8_t *to) {
  size_t count = 0, written = 0, length;
  for (size_t at = 0; at < bytes; at += length) count = add_parts(unicode_get(text + at, &length), room, count);
  sort_all(room, count);
  count = compose(room, count);
  for (size_t i = 0; i < count; i++) {
    char put[UTF8_AT_MOST];
    const size_t n = utf8_put(code_of(room[i]), put);
    memcpy(to + written, put, n);
    written += n;
  }
  return written;
}
