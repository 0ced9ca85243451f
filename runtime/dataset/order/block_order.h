/* block_order.h - an order of epochs for sources that are stored in blocks (source.h), each of which is to be decoded
 * or downloaded about once an epoch in the whole job.
 *
 * The blocks are permuted; of `window` that follow one another the rows are mixed. With four blocks A B C D of 6 rows
 * each in one window, and batches of 8 rows, three batches are
 *
 *     A A B B C C D D
 *     A A B B C C D D      (which of A's rows stands in which of its places is a permutation of A's rows)
 *     A A B B C C D D
 *
 * A batch so has rows of all the window's blocks, as many of each as it can, and a row of the batch, a lane, has few of
 * the blocks. Processes read lanes that follow one another: with any number of processes, each block is read by the one
 * that has its lanes, or by two where its lanes are cut. Where batches have fewer rows than the window has blocks,
 * several blocks share a lane, and the rows of these are permuted together.
 *
 * So the sample at a position is a function of the seed, the epoch, the position, the window and the number of lanes. A
 * table of 16 bytes for each block is worked out for each epoch; samples are then found by binary searches.
 *
 * In a mix each part has blocks, windows and epochs of its own, and of each batch about its share of the lanes. */
#ifndef SHARDRT_DATASET_ORDER_BLOCK_ORDER_H
#define SHARDRT_DATASET_ORDER_BLOCK_ORDER_H

#include "dataset/source.h"

struct block_orders;

/* Of a source, which outlives it; `lanes` are the rows of a batch. ENOMEM. */
int block_orders_new(const shardrt_source *source, uint64_t seed, int64_t window, int64_t lanes,
                     struct block_orders **out);
void block_orders_free(struct block_orders *self); /* NULL is allowed */

/* From now on there are so many lanes: another order, unless there were as many. */
void block_orders_set_lanes(struct block_orders *self, int64_t lanes);

/* As epoch_order_samples; any thread. */
int block_orders_samples(struct block_orders *self, int64_t epoch, int64_t first, int64_t n, int64_t *samples,
                         int64_t *epochs);

/* How many blocks are read in epoch 0 by who reads lanes from … to of every batch. Not of a mix. ENOMEM. */
int block_orders_touched(struct block_orders *self, int64_t from, int64_t to, int64_t *out);

#endif
