/* box.h - half-open ranges in each dimension of an array, and what can be done with them. A box knows nothing of
 * devices, files or processes. start <= stop in every dimension; a box is empty where one of them is equal. A box of
 * no dimensions is one element. */
#ifndef SHARDRT_LAYOUT_BOX_H
#define SHARDRT_LAYOUT_BOX_H

#include "base/text.h"
#include "shardrt.h"

bool box_equal(const shardrt_box *a, const shardrt_box *b);
bool box_is_empty(const shardrt_box *box);
/* Never more than the array's own elements, which were checked to fit. */
int64_t box_elements(const shardrt_box *box);
/* Whether every element of `inner` lies in `outer`; an empty box lies in every one. */
bool box_contains(const shardrt_box *outer, const shardrt_box *inner);
/* What a and b, of one array, share: false, and *out alone, where that is nothing. */
bool box_intersect(const shardrt_box *a, const shardrt_box *b, shardrt_box *out);
/* "[0:16, 32:64]". */
void box_add_text(const shardrt_box *box, struct text *text);

#endif
