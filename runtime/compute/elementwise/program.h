/* program.h - the steps of an elementwise computation, checked and laid out: which loop each is, and where in a
 * thread's scratch memory its value stands while it is needed.
 *
 * A program runs tile by tile: all steps on `tile` elements, then on the next ones, so that what is between the steps
 * stays in the nearest cache. A slot is room for one tile; a value has one from the step that gives it, or first needs
 * it, to the last one that does. What is the same for every tile (constants, operands of one element, what is computed
 * from these alone) keeps its own. */
#ifndef SHARDRT_COMPUTE_ELEMENTWISE_PROGRAM_H
#define SHARDRT_COMPUTE_ELEMENTWISE_PROGRAM_H

#include "compute/elementwise/kernel.h"

/* The most elements of a tile, and the fewest, of which all have a multiple. Bytes of scratch memory, which are to stay
 * in the nearest cache: the smallest tiles of all registers have room, and one that waits for conversion. */
enum {
  PROGRAM_TILE = 1024,
  PROGRAM_TILE_STEP = 16,
  PROGRAM_SCRATCH = PROGRAM_TILE_STEP * 8 * (SHARDRT_MAX_REGISTERS + 1)
};

/* How an operand comes to a tile. */
enum program_load {
  PROGRAM_IN_PLACE, /* it is read where it lies: no slot */
  PROGRAM_FIXED,    /* all tiles are the same */
  PROGRAM_LOADED    /* a tile of it is made in its slot, before the first step that needs it */
};

/* Registers are as in shardrt_elementwise. */
struct program {
  const shardrt_step *steps; /* the caller's */
  int32_t nsteps;
  int32_t nin;
  int32_t dtype;
  size_t lane; /* bytes of one */
  size_t tile;
  size_t raw; /* bytes in front of the slots, for elements that wait for conversion */
  enum program_load load[SHARDRT_MAX_REGISTERS]; /* of operands */
  int32_t first[SHARDRT_MAX_REGISTERS];          /* of operands: the first step that needs it */
  int32_t last[SHARDRT_MAX_REGISTERS];           /* the last step that needs each; its own, where none does */
  int32_t slot[SHARDRT_MAX_REGISTERS];           /* of values; -1: none */
  bool fixed[SHARDRT_MAX_REGISTERS];             /* of registers: one value for all tiles */
  bool repeated[SHARDRT_MAX_REGISTERS];          /* of fixed ones: as often as a tile has elements, in a slot */
  bool direct[SHARDRT_MAX_REGISTERS];            /* of registers: a result that its step writes where it is to lie */
  kernel *kernels[SHARDRT_MAX_REGISTERS];        /* of steps; NULL: CONSTANT */
};

/* Sets all but loads and layout; EINVAL as shardrt_elementwise says. */
int program_set(struct program *program, const shardrt_step *steps, int32_t nsteps, int32_t dtype, int32_t nin);

/* Of a program whose operands and results are all of one dtype. Where that is float16 or bfloat16, it is computed in
 * it: if there is only one step, beside constants that the dtype has, and a kernel for that. The results are the same.
 */
void program_narrow(struct program *program, int32_t dtype);

/* How many operands a step has, and their registers: behind the last, the first again. */
int32_t program_operands(const shardrt_step *step, int32_t registers[3]);

/* Sets which registers are fixed, when the loads are known. */
void program_find_fixed(struct program *program);

/* Sets which of these are repeated: all that a step or a result needs so. The other steps get kernels that take one
 * element. */
void program_find_repeated(struct program *program, const int32_t *results, int32_t nresults);

/* Whether every step that a tile has is a few instructions for a vector, so that elements come and go as fast as memory
 * does. Needs what is fixed. */
bool program_is_light(const struct program *program);

/* Sets the layout, when it is known what is fixed, repeated and direct. `results`: registers whose values are needed
 * until the end. `raw`: an operand is gathered before it is converted. */
void program_lay_out(struct program *program, const int32_t *results, int32_t nresults, bool raw);

#endif
