/* fit.h - best fit, decreasing: which row each of many lengths goes to, so that few rows do. The longest go first, each
 * to the row with the least room that is enough (Johnson, "Near-optimal bin packing algorithms", 1973; for token
 * sequences: Ding et al., "Fewer truncations improve language modeling", 2024). */
#ifndef SHARDRT_DATASET_VIEW_FIT_H
#define SHARDRT_DATASET_VIEW_FIT_H

#include <stdint.h>

enum { FIT_CAPACITY_MOST = 1 << 24, FIT_LEVELS = 5 };

/* What it needs, used again for one window of lengths after another. Between calls no room is marked. */
struct fit {
  int32_t capacity; /* of a row */
  int32_t most;     /* lengths in one call */
  /* rooms[0] has bit r set where some row has room for r; rooms[l + 1] has bit i set where word i of rooms[l] is not 0.
   */
  uint64_t *rooms[FIT_LEVELS];
  int32_t *heads;   /* of each room: the row that was last left with it, */
  int32_t *next;    /* of each row: the one before that; -1 ends */
  int64_t *sorted;  /* lengths and numbers, for the order */
  int32_t *left;    /* of each row: its room */
  int32_t *renamed; /* of each row: its number in the order in which rows are first used */
};

/* Room for at most `most` lengths a call. ENOMEM; what it leaves is given back by fit_clear. Needs 1 <= capacity <=
 * FIT_CAPACITY_MOST. */
int fit_set(struct fit *self, int32_t capacity, int32_t most);
void fit_clear(struct fit *self);

/* Writes the row of each of n lengths, 1 <= lengths[i] <= capacity; rows are numbered as they first appear in `rows`.
 * Returns how many they are. Depends on nothing but the lengths and their order. */
int32_t fit_rows(struct fit *self, const int32_t *lengths, int32_t n, int32_t *rows);

#endif
