/* packing.h - which sequences, or pieces of them, stand in which row of one length: worked out of their lengths alone.
 */
#ifndef SHARDRT_DATASET_VIEW_PACKING_H
#define SHARDRT_DATASET_VIEW_PACKING_H

#include "dataset/source.h"

/* A sequence, or a piece of one that is longer than a row: elements piece * length … of it, `elements` of them. */
struct pack_piece {
  int64_t sample; /* of the base */
  int32_t piece;
  int32_t elements;
};

/* Row r has pieces[firsts[r] … firsts[r + 1]], one after the other from its start. */
struct packing {
  struct pack_piece *pieces; /* owned, as the others */
  int64_t npieces;
  int64_t *firsts; /* rows + 1 */
  int64_t rows;
  int64_t *block_rows; /* the rows that blocks begin at, and their number; NULL: each row is one */
  int64_t nblocks;
  double filled;   /* the part of all rows' elements that pieces take */
  int64_t dropped; /* elements of sequences that were cut off */
};

/* Of sequences of these lengths, one for each of the base's samples. `out` begins empty, and is for packing_clear
 * whatever becomes of it. ENOMEM. */
int packing_make(const shardrt_source *base, const int64_t *lengths, const shardrt_pack_options *o,
                 struct packing *out);
void packing_clear(struct packing *self);

#endif
