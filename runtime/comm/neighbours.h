/* neighbours.h - in which order things are best put side by side that are not linked equally well: pure arithmetic. */
#ifndef SHARDRT_COMM_NEIGHBOURS_H
#define SHARDRT_COMM_NEIGHBOURS_H

#include <stdint.h>

/* What a link of a class (ACCELERATOR_…) is worth: one is better than several of the class below. */
int64_t neighbours_worth(int32_t link);

/* An order of 0 … count - 1, such that lines of any length that divides `count` (a mesh's fastest axis) hold the ones
 * that are linked best: worth[i * count + k] >= 0 is what it is worth that i and k stand in one line, the same both
 * ways. Nothing changes places with which all would be worth as much. ENOMEM. */
int neighbours_order(int32_t count, const int64_t *worth, int32_t *order);

#endif
