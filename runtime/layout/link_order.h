/* link_order.h - in which order things are best put side by side that are not linked equally well: pure arithmetic. */
#ifndef SHARDRT_LAYOUT_LINK_ORDER_H
#define SHARDRT_LAYOUT_LINK_ORDER_H

#include <stdint.h>

/* An order of 0 … count - 1, such that lines of any length that divides `count` (a mesh's fastest axis) hold the ones
 * that are linked best: worth[i * count + k] >= 0 is what it is worth that i and k stand in one line, the same both
 * ways. Nothing changes places with which all would be worth as much. ENOMEM. */
int link_order_find(int32_t count, const int64_t *worth, int32_t *order);

#endif
