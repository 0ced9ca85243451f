/* unicode_tables.h - written by unicode_tables.py: tables for unicode.c. */
#ifndef SHARDRT_TOKENIZER_UNICODE_TABLES_H
#define SHARDRT_TOKENIZER_UNICODE_TABLES_H

#include <stdint.h>

enum {
  UNICODE_CLASS_RUNS = 3430,
  UNICODE_RANK_RUNS = 496,
  UNICODE_PARTS = 2060,
  UNICODE_PAIRS = 940,
};

/* Runs of characters of one kind: the first one's code << 8 | what they are, up to the next run. */
extern const uint32_t unicode_class_runs[UNICODE_CLASS_RUNS];
extern const uint32_t unicode_rank_runs[UNICODE_RANK_RUNS]; /* canonical combining classes */

/* A character and what it is made of: one or two others (then `second` is 0, or not). */
struct unicode_parts {
  uint32_t whole, first, second;
};
extern const struct unicode_parts unicode_parts[UNICODE_PARTS]; /* canonical decompositions, ascending by `whole` */
extern const struct unicode_parts unicode_pairs[UNICODE_PAIRS]; /* compositions, ascending by `first`, `second` */

#endif
