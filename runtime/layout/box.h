/* box.h - half-open ranges in each dimension of an array, and what can be done with them. A box knows nothing of
 * devices, files or processes. start <= stop in every dimension; a box is empty where one of them is equal. A box of
 * no dimensions is one element. */
#ifndef SHARDRT_LAYOUT_BOX_H
#define SHARDRT_LAYOUT_BOX_H

#include "base/text.h"
#include "shardrt.h"

/* All of an array of `shape`. */
shardrt_box box_whole(int32_t ndim, const int64_t *shape);
bool box_equal(const shardrt_box *a, const shardrt_box *b);
bool box_is_empty(const shardrt_box *box);
/* Never more than the array's own elements, which were checked to fit. */
int64_t box_elements(const shardrt_box *box);
/* What a and b, of one array, share: false, and *out alone, where that is nothing. */
bool box_intersect(const shardrt_box *a, const shardrt_box *b, shardrt_box *out);
/* The box as `block`, which holds it, sees it: counted from that block's first element. */
shardrt_box box_within(const shardrt_box *box, const shardrt_box *block);
/* How long it is in each dimension. */
void box_shape(const shardrt_box *box, int64_t *shape);
/* Elements before the box's first one in an array of `shape`, row-major. `box` is relative to that array. */
int64_t box_offset(const shardrt_box *box, const int64_t *shape);
/* Whether the elements of a box within an array of `shape` stand there in one run. `box` is relative to that array. */
bool box_is_run(const shardrt_box *box, const int64_t *shape);
/* A box that is not empty cut into pieces of at most `limit` >= 1 elements: whole rows as far as they fit, cut evenly
 * along one dimension and one by one along those before it, so that every piece of a run is a run. They follow each
 * other in row-major order. */
int64_t box_piece_count(const shardrt_box *box, int64_t limit);
shardrt_box box_piece(const shardrt_box *box, int64_t limit, int64_t i);
/* A box that is not empty cut into as many as `parts` >= 1, but not beyond single rows, as evenly as can be, along the
 * first dimension that is long enough, or else the longest. */
int64_t box_part_count(const shardrt_box *box, int64_t parts);
shardrt_box box_part(const shardrt_box *box, int64_t parts, int64_t i);
/* "[0:16, 32:64]". */
void box_add_text(const shardrt_box *box, struct text *text);

#endif
