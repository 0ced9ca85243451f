/* elementwise.c - shardrt_elementwise: a program (program.h) on every element of every block, spread over the threads,
 * with one result or several.
 *
 * The elements of all blocks stand in one row, which is cut into tasks; so few large blocks and many small ones are
 * spread alike. */
#include <string.h>

#include "base/error.h"
#include "compute/elementwise/tiles.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "platform/accelerator.h"

/* Elements of one task, at least and at most; what is not more than the least runs here. */
enum { LEAST_TASK = 16 * PROGRAM_TILE, MOST_TASK = 64 * PROGRAM_TILE, TASKS_PER_THREAD = 8 };

struct elementwise {
  struct tiles tiles;
  struct unique_blocks blocks; /* of each result, which lie alike */
  int64_t elements;            /* of one block */
  int64_t total;
  int64_t task; /* elements of each, but for the last */
};

static void run_elementwise_task(void *context, int64_t number) {
  const struct elementwise *self = context;
  struct tiles_part part;
  int64_t at = number * self->task;
  const int64_t stop = self->total - at < self->task ? self->total : at + self->task;
  while (at < stop) {
    const int64_t block = at / self->elements, first = at % self->elements;
    const int64_t n = stop - at < self->elements - first ? stop - at : self->elements - first;
    tiles_begin(&part, &self->tiles, self->blocks.shards[block], n);
    tiles_store(&part, first, first + n);
    at += n;
  }
}

/* ---- on devices with memory of their own ------------------------------------------------------------------------ */

/* Result r: its step is the last of a program of its own, whose kernels leave out what it does not need. */
static int result_on_devices(const struct accelerator *platform, const struct elementwise *self, int32_t r,
                             struct accelerator_operand *operands) {
  const struct program *program = &self->tiles.program;
  const int32_t nsteps = self->tiles.results[r] - program->nin + 1;
  const struct accelerator_program given = {program->steps, nsteps, program->nin, program->dtype};
  shardrt_array *out = self->tiles.out[r];
  int code = SHARDRT_OK;
  for (int64_t block = 0; block < self->blocks.count && code == SHARDRT_OK; block++) {
    for (int32_t k = 0; k < program->nin; k++)
      operands[k].data = unique_blocks_data(&self->blocks, self->tiles.in[k], block);
    code = platform->kernels->elementwise("elementwise", unique_blocks_device(&self->blocks, out, block), &given,
                                          operands, shardrt_array_dtype(out),
                                          unique_blocks_data(&self->blocks, out, block), self->elements);
  }
  return code;
}

static int compute_on_devices(const struct accelerator *platform, const struct elementwise *self) {
  const struct program *program = &self->tiles.program;
  struct accelerator_operand operands[SHARDRT_MAX_REGISTERS];
  for (int32_t k = 0; k < program->nin; k++) {
    const struct operand *operand = &self->tiles.operands[k];
    operands[k].dtype = operand->dtype;
    operands[k].ndim = operand->ndim;
    memcpy(operands[k].sizes, operand->sizes, sizeof operand->sizes);
    memcpy(operands[k].strides, operand->strides, sizeof operand->strides);
  }
  int code = SHARDRT_OK;
  for (int32_t r = 0; r < self->tiles.nout && code == SHARDRT_OK; r++)
    code = result_on_devices(platform, self, r, operands);
  return code;
}

/* ---- before it runs --------------------------------------------------------------------------------------------- */

static void set_tasks(struct elementwise *self) {
  self->elements = work_shard_elements(self->tiles.out[0]);
  self->total = self->blocks.count * self->elements;
  const int64_t share = self->total / ((int64_t)work_threads() * TASKS_PER_THREAD);
  self->task = share < LEAST_TASK ? LEAST_TASK : share > MOST_TASK ? MOST_TASK : share / PROGRAM_TILE * PROGRAM_TILE;
}

/* Results are of steps, ascend, and lie as the first one. */
static int check_results(const struct elementwise *self, int32_t registers) {
  const int32_t nin = self->tiles.program.nin;
  for (int32_t k = 0; k < self->tiles.nout; k++) {
    const int32_t r = self->tiles.results[k], after = k > 0 ? self->tiles.results[k - 1] : nin - 1;
    if (r <= after || r >= registers)
      return error_set(SHARDRT_EINVAL, "elementwise: result %d is register %d; it is one from %d to %d", k, r,
                       after + 1, registers - 1);
    const shardrt_array *first = self->tiles.out[0], *out = self->tiles.out[k];
    bool alike = shardrt_array_ndim(out) == shardrt_array_ndim(first) &&
                 shardrt_sharding_equal(shardrt_array_sharding(out), shardrt_array_sharding(first));
    for (int32_t d = 0; alike && d < shardrt_array_ndim(first); d++)
      alike = shardrt_array_shape(out)[d] == shardrt_array_shape(first)[d];
    if (!alike)
      return error_set(SHARDRT_EINVAL, "elementwise: result %d has another shape or sharding than result 0", k);
  }
  return SHARDRT_OK;
}

/* Of one result: several would each need a step of its own, and a narrow program has one. */
static void narrow_program(struct elementwise *self) {
  const int32_t dtype = shardrt_array_dtype(self->tiles.out[0]);
  bool alike = true;
  for (int32_t k = 0; k < self->tiles.program.nin; k++)
    alike = alike && shardrt_array_dtype(self->tiles.in[k]) == dtype;
  if (alike && self->tiles.nout == 1) program_narrow(&self->tiles.program, dtype);
}

static int begin_blocks(struct elementwise *self, int32_t nin) {
  const shardrt_array *const *in = (const shardrt_array *const *)self->tiles.in;
  int code = unique_blocks_begin("elementwise", nin, in, self->tiles.out[0], &self->blocks);
  for (int32_t k = 1; k < self->tiles.nout && code == SHARDRT_OK; k++) {
    code = work_outputs(self->tiles.out[k]);
    if (code != SHARDRT_OK) unique_blocks_end(&self->blocks);
  }
  return code;
}

int shardrt_elementwise_several(const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                                shardrt_array *const *in, int32_t nout, const int32_t *results,
                                shardrt_array *const *out) {
  if (nout < 1) return error_set(SHARDRT_EINVAL, "elementwise: %d results; there is one or more", nout);
  struct elementwise self;
  tiles_given(&self.tiles, in, nout, results, out, true);
  int code = program_set(&self.tiles.program, steps, nsteps, compute_dtype, nin);
  if (code == SHARDRT_OK) code = check_results(&self, nin + nsteps);
  const struct accelerator *platform = accelerator_get();
  if (code == SHARDRT_OK && platform == NULL) narrow_program(&self);
  self.tiles.streams = true;
  if (code == SHARDRT_OK) code = tiles_set(&self.tiles);
  if (code == SHARDRT_OK) code = begin_blocks(&self, nin);
  if (code != SHARDRT_OK) return code;
  set_tasks(&self);
  if (platform != NULL)
    code = compute_on_devices(platform, &self);
  else if (self.total > 0)
    work_spread(run_elementwise_task, &self, (self.total + self.task - 1) / self.task);
  unique_blocks_end(&self.blocks);
  return code;
}

int shardrt_elementwise(const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                        shardrt_array *const *in, shardrt_array *out) {
  const int32_t last = nin + nsteps - 1;
  return shardrt_elementwise_several(steps, nsteps, compute_dtype, nin, in, 1, &last, &out);
}
