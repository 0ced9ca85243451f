/* tiles.h - a program (program.h) on elements of a block, one tile after the other, on one thread: for who stores the
 * results, and for who takes them as they come. */
#ifndef SHARDRT_COMPUTE_ELEMENTWISE_TILES_H
#define SHARDRT_COMPUTE_ELEMENTWISE_TILES_H

#include "compute/elementwise/operand.h"
#include "compute/elementwise/program.h"

/* A step of each tile. */
struct tiles_call {
  kernel *run;
  int32_t one;        /* the operand that is loaded for this step alone and may be one lane of a tile; -1: none */
  kernel *run_of_one; /* where it is */
  int32_t to;         /* registers: its own, and those that it takes */
  int32_t from[3];    /* where it takes fewer, the first again */
  int32_t nloads;
  int32_t loads[3]; /* operands that are loaded for it */
};

/* What all threads have in common. */
struct tiles {
  struct program program;
  struct operand operands[SHARDRT_MAX_REGISTERS];
  shardrt_array *const *in;
  int32_t nout;
  const int32_t *results; /* their registers, ascending */
  shardrt_array *const *out;
  bool moves;   /* elements only: no dtype to compute in changes them */
  bool stores;  /* results are put into `out`, which has data: else it says how they would lie, and of which dtype */
  bool streams; /* they are, and past the caches: where the caller would, tiles_set looks whether they should */
  size_t fetch; /* bytes of each operand and result that are fetched ahead */
  int32_t nin_place;
  int32_t in_place[SHARDRT_MAX_REGISTERS]; /* operands that are read where they lie */
  int32_t ncalls;
  struct tiles_call calls[SHARDRT_MAX_REGISTERS]; /* all steps but the fixed ones, in their order */
};

/* A block, or a part of it, on one thread. Where it lies only a pointer to it is needed. */
struct tiles_part {
  const struct tiles *self;
  const char *in[SHARDRT_MAX_REGISTERS]; /* the shard, of operands and results */
  char *out[SHARDRT_MAX_REGISTERS];
  const void *values[SHARDRT_MAX_REGISTERS]; /* of registers, in this tile */
  char *to[SHARDRT_MAX_REGISTERS];           /* where a step's are written */
  char *raw;
  double ones[SHARDRT_MAX_REGISTERS]; /* lanes: of what is fixed and not repeated */
  char *slots;
  char scratch[PROGRAM_SCRATCH] __attribute__((aligned(64)));
};

/* Sets what the caller gives, and nothing else: most of it is room for operands, which takes as long to clear as small
 * arrays take to compute. */
static inline void tiles_given(struct tiles *self, shardrt_array *const *in, int32_t nout, const int32_t *results,
                               shardrt_array *const *out, bool stores) {
  self->in = in;
  self->nout = nout;
  self->results = results;
  self->out = out;
  self->stores = stores;
  self->streams = false;
}

/* How each operand comes to a tile, and what that takes, once all but `operands` is set, the program by program_set.
 * EINVAL where one does not broadcast. */
int tiles_set(struct tiles *self);

/* Begins with a shard, of which no tile has more than n elements. */
void tiles_begin(struct tiles_part *part, const struct tiles *self, int64_t shard, int64_t n);

/* The elements [first, stop) of the shard: all results. */
void tiles_store(struct tiles_part *part, int64_t first, int64_t stop);

/* The same elements of the first result, in its dtype: where they were stored, or, where nothing is stored, until the
 * next call or in `room`. */
const void *tiles_read(struct tiles_part *part, int64_t first, int64_t stop, void *room);

#endif
