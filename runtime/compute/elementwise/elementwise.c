/* elementwise.c - shardrt_elementwise: a program (program.h) on every element of every block, spread over the threads,
 * with one result or several.
 *
 * The elements of all blocks stand in one row, which is cut into tasks; so few large blocks and many small ones are
 * spread alike. */
#include <string.h>

#include "base/error.h"
#include "compute/elementwise/operand.h"
#include "compute/elementwise/program.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "memory/convert.h"
#include "memory/element.h"
#include "platform/accelerator.h"

/* Elements of one task, at least and at most; what is not more than the least runs here. */
enum { LEAST_TASK = 16 * PROGRAM_TILE, MOST_TASK = 64 * PROGRAM_TILE, TASKS_PER_THREAD = 8 };

struct elementwise {
  struct program program;
  struct operand operands[SHARDRT_MAX_REGISTERS];
  shardrt_array *const *in;
  int32_t nout;
  const int32_t *results; /* their registers, ascending */
  shardrt_array *const *out;
  struct unique_blocks blocks; /* of each result, which lie alike */
  int64_t elements;            /* of one block */
  int64_t total;
  bool moves;   /* the elements stay what they are, without a dtype to compute in */
  int64_t task; /* elements of each, but for the last */
};

/* A part of a block, on one thread. */
struct block_part {
  const struct elementwise *self;
  int64_t shard;
  const void *values[SHARDRT_MAX_REGISTERS]; /* of registers, in this tile */
  char *raw;
  char *slots;
};

static char *block_part_slot(const struct block_part *part, int32_t r) {
  const struct program *program = &part->self->program;
  return part->slots + (size_t)program->slot[r] * program->tile * program->lane;
}

static const char *block_part_operand(const struct block_part *part, int32_t k) {
  return shardrt_buffer_data(shardrt_array_buffer(part->self->in[k], part->shard));
}

/* n times the same lane. */
static void repeat_first(void *slot, size_t lane, size_t n) {
  if (lane == 4)
    for (size_t i = 1; i < n; i++) memcpy((char *)slot + 4 * i, slot, 4);
  else
    for (size_t i = 1; i < n; i++) memcpy((char *)slot + 8 * i, slot, 8);
}

static void run_step(struct block_part *part, int32_t i, void *to, size_t n) {
  const struct program *program = &part->self->program;
  const shardrt_step *step = &program->steps[i];
  const int32_t count = program_operands(step);
  const void *const *values = part->values;
  const void *from[] = {values[step->a], values[count > 1 ? step->b : step->a], values[count > 2 ? step->c : step->a]};
  program->kernels[i](from, to, n);
  part->values[program->nin + i] = to;
}

/* What all tiles, of n elements or fewer, have in common. */
static void block_part_begin(struct block_part *part, size_t n) {
  const struct program *program = &part->self->program;
  const int32_t nin = program->nin;
  for (int32_t k = 0; k < nin; k++) {
    if (program->load[k] != PROGRAM_FIXED || program->first[k] < 0) continue;
    convert_elements(part->self->operands[k].dtype, program->dtype, block_part_operand(part, k),
                     block_part_slot(part, k), 1);
    repeat_first(block_part_slot(part, k), program->lane, n);
    part->values[k] = block_part_slot(part, k);
  }
  for (int32_t i = 0; i < program->nsteps; i++) {
    if (!program->fixed[nin + i]) continue;
    char *slot = block_part_slot(part, nin + i);
    if (program->kernels[i] == NULL)
      convert_elements(SHARDRT_FLOAT64, program->dtype, &program->steps[i].value, slot, 1);
    else
      run_step(part, i, slot, 1);
    repeat_first(slot, program->lane, n);
    part->values[nin + i] = slot;
  }
}

/* A tile of operand k: as lanes. */
static void block_part_load(struct block_part *part, int32_t k, int64_t first, size_t n) {
  const struct program *program = &part->self->program;
  const struct operand *operand = &part->self->operands[k];
  const bool same = operand->dtype == program->dtype;
  char *slot = program->load[k] == PROGRAM_LOADED ? block_part_slot(part, k) : NULL;
  const void *found = operand_gather(operand, block_part_operand(part, k), first, (int64_t)n, same ? slot : part->raw);
  if (!same) convert_elements(operand->dtype, program->dtype, found, slot, n);
  part->values[k] = same ? found : slot;
}

/* What step i is the first to need. */
static void load_operands(struct block_part *part, int32_t i, int64_t first, size_t n) {
  const struct program *program = &part->self->program;
  const shardrt_step *step = &program->steps[i];
  const int32_t count = program_operands(step), a = step->a, b = count > 1 ? step->b : a, c = count > 2 ? step->c : a;
  const int32_t registers[] = {a, b == a ? program->nin : b, c == a || c == b ? program->nin : c};
  for (int32_t k = 0; k < 3; k++) {
    const int32_t r = registers[k];
    if (r < program->nin && program->first[r] == i && !program->fixed[r]) block_part_load(part, r, first, n);
  }
}

/* Where result k's elements from `first` on are to lie. */
static char *block_part_result(const struct block_part *part, int32_t k, int64_t first) {
  shardrt_array *out = part->self->out[k];
  return (char *)shardrt_buffer_data(shardrt_array_buffer(out, part->shard)) +
         (size_t)first * shardrt_dtype_size(shardrt_array_dtype(out));
}

static void block_part_tile(struct block_part *part, int64_t first, size_t n) {
  const struct elementwise *self = part->self;
  const struct program *program = &self->program;
  const int32_t nin = program->nin;
  int32_t result = 0; /* the next one */
  for (int32_t i = 0; i < program->nsteps; i++) {
    const bool is_result = result < self->nout && self->results[result] == nin + i;
    if (!program->fixed[nin + i]) {
      load_operands(part, i, first, n);
      run_step(part, i,
               program->direct[nin + i] ? block_part_result(part, result, first) : block_part_slot(part, nin + i), n);
    }
    if (is_result) result++;
  }
  for (int32_t k = 0; k < self->nout; k++)
    if (!program->direct[self->results[k]])
      convert_elements(program->dtype, shardrt_array_dtype(self->out[k]), part->values[self->results[k]],
                       block_part_result(part, k, first), n);
}

/* The elements [first, stop) of a block. */
static void block_part_run(struct block_part *part, int64_t first, int64_t stop) {
  const int64_t tile = (int64_t)part->self->program.tile;
  block_part_begin(part, (size_t)(stop - first < tile ? stop - first : tile));
  for (int64_t at = first; at < stop; at += tile)
    block_part_tile(part, at, (size_t)(stop - at < tile ? stop - at : tile));
}

/* The same of an operand whose elements are only moved. */
static void block_part_move(struct block_part *part, int64_t first, int64_t stop) {
  const struct operand *operand = part->self->operands;
  char *to = block_part_result(part, 0, first);
  const void *found = operand_gather(operand, block_part_operand(part, 0), first, stop - first, to);
  if (found != to) memcpy(to, found, (size_t)(stop - first) * operand->size);
}

static void run_elementwise_task(void *context, int64_t number) {
  const struct elementwise *self = context;
  char scratch[PROGRAM_SCRATCH] __attribute__((aligned(64)));
  struct block_part part = {.self = self, .raw = scratch, .slots = scratch + self->program.raw};
  int64_t at = number * self->task;
  const int64_t stop = self->total - at < self->task ? self->total : at + self->task;
  while (at < stop) {
    const int64_t block = at / self->elements, first = at % self->elements;
    const int64_t n = stop - at < self->elements - first ? stop - at : self->elements - first;
    part.shard = self->blocks.shards[block];
    (self->moves ? block_part_move : block_part_run)(&part, first, first + n);
    at += n;
  }
}

/* ---- on devices with memory of their own ------------------------------------------------------------------------ */

/* Result r: its step is the last of a program of its own, whose kernels leave out what it does not need. */
static int result_on_devices(const struct accelerator *platform, const struct elementwise *self, int32_t r,
                             struct accelerator_operand *operands) {
  const struct program *program = &self->program;
  const int32_t nsteps = self->results[r] - program->nin + 1;
  const struct accelerator_program given = {program->steps, nsteps, program->nin, program->dtype};
  shardrt_array *out = self->out[r];
  int code = SHARDRT_OK;
  for (int64_t block = 0; block < self->blocks.count && code == SHARDRT_OK; block++) {
    for (int32_t k = 0; k < program->nin; k++) operands[k].data = unique_blocks_data(&self->blocks, self->in[k], block);
    code = platform->kernels->elementwise("elementwise", unique_blocks_device(&self->blocks, out, block), &given,
                                          operands, shardrt_array_dtype(out),
                                          unique_blocks_data(&self->blocks, out, block), self->elements);
  }
  return code;
}

static int compute_on_devices(const struct accelerator *platform, const struct elementwise *self) {
  const struct program *program = &self->program;
  struct accelerator_operand operands[SHARDRT_MAX_REGISTERS];
  for (int32_t k = 0; k < program->nin; k++) {
    const struct operand *operand = &self->operands[k];
    operands[k].dtype = operand->dtype;
    operands[k].ndim = operand->ndim;
    memcpy(operands[k].sizes, operand->sizes, sizeof operand->sizes);
    memcpy(operands[k].strides, operand->strides, sizeof operand->strides);
  }
  int code = SHARDRT_OK;
  for (int32_t r = 0; r < self->nout && code == SHARDRT_OK; r++) code = result_on_devices(platform, self, r, operands);
  return code;
}

/* ---- before it runs --------------------------------------------------------------------------------------------- */

/* Whether the result is the one operand, none of whose numbers the dtype to compute in changes. */
static bool only_moves(const struct elementwise *self) {
  const struct program *program = &self->program;
  const int32_t dtype = self->operands[0].dtype;
  const bool is_copy = program->nin == 1 && program->nsteps == 1 && program->steps[0].op == SHARDRT_OP_COPY;
  if (!is_copy || program->load[0] == PROGRAM_FIXED || dtype == SHARDRT_BOOL) return false;
  const bool fits =
      shardrt_dtype_size(dtype) < program->lane && (!ELEMENT_IS_FLOAT(dtype) || ELEMENT_IS_FLOAT(program->dtype));
  return dtype == shardrt_array_dtype(self->out[0]) && (dtype == program->dtype || fits);
}

/* How each operand comes to a tile, and what that takes. A bool is converted even to where it would be one. */
static int set_operands(struct elementwise *self) {
  struct program *program = &self->program;
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  work_shard_shape(self->out[0], shape);
  bool raw = false;
  for (int32_t k = 0; k < program->nin; k++) {
    struct operand *operand = &self->operands[k];
    int code = operand_set(operand, "elementwise", k, self->in[k], shardrt_array_ndim(self->out[0]), shape);
    if (code != SHARDRT_OK) return code;
    const bool same = operand->dtype == program->dtype;
    program->load[k] = operand_is_one(operand)             ? PROGRAM_FIXED
                       : same && operand_is_plain(operand) ? PROGRAM_IN_PLACE
                                                           : PROGRAM_LOADED;
    raw = raw || (!same && program->load[k] == PROGRAM_LOADED && !operand_is_plain(operand));
  }
  program_find_fixed(program);
  for (int32_t k = 0; k < self->nout; k++) {
    const int32_t r = self->results[k];
    program->direct[r] = shardrt_array_dtype(self->out[k]) == program->dtype && !program->fixed[r];
  }
  program_lay_out(program, self->results, self->nout, raw);
  self->moves = only_moves(self);
  return SHARDRT_OK;
}

static void set_tasks(struct elementwise *self) {
  self->elements = work_shard_elements(self->out[0]);
  self->total = self->blocks.count * self->elements;
  const int64_t share = self->total / ((int64_t)work_threads() * TASKS_PER_THREAD);
  self->task = share < LEAST_TASK ? LEAST_TASK : share > MOST_TASK ? MOST_TASK : share / PROGRAM_TILE * PROGRAM_TILE;
}

/* Results are of steps, ascend, and lie as the first one. */
static int check_results(const struct elementwise *self, int32_t registers) {
  const int32_t nin = self->program.nin;
  for (int32_t k = 0; k < self->nout; k++) {
    const int32_t r = self->results[k], after = k > 0 ? self->results[k - 1] : nin - 1;
    if (r <= after || r >= registers)
      return error_set(SHARDRT_EINVAL, "elementwise: result %d is register %d; it is one from %d to %d", k, r,
                       after + 1, registers - 1);
    const shardrt_array *first = self->out[0], *out = self->out[k];
    bool alike = shardrt_array_ndim(out) == shardrt_array_ndim(first) &&
                 shardrt_sharding_equal(shardrt_array_sharding(out), shardrt_array_sharding(first));
    for (int32_t d = 0; alike && d < shardrt_array_ndim(first); d++)
      alike = shardrt_array_shape(out)[d] == shardrt_array_shape(first)[d];
    if (!alike)
      return error_set(SHARDRT_EINVAL, "elementwise: result %d has another shape or sharding than result 0", k);
  }
  return SHARDRT_OK;
}

static int begin_blocks(struct elementwise *self, int32_t nin) {
  const shardrt_array *const *in = (const shardrt_array *const *)self->in;
  int code = unique_blocks_begin("elementwise", nin, in, self->out[0], &self->blocks);
  for (int32_t k = 1; k < self->nout && code == SHARDRT_OK; k++) {
    code = work_outputs(self->out[k]);
    if (code != SHARDRT_OK) unique_blocks_end(&self->blocks);
  }
  return code;
}

int shardrt_elementwise_several(const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                                shardrt_array *const *in, int32_t nout, const int32_t *results,
                                shardrt_array *const *out) {
  if (nout < 1) return error_set(SHARDRT_EINVAL, "elementwise: %d results; there is one or more", nout);
  struct elementwise self = {.in = in, .nout = nout, .results = results, .out = out};
  int code = program_set(&self.program, steps, nsteps, compute_dtype, nin);
  if (code == SHARDRT_OK) code = check_results(&self, nin + nsteps);
  if (code == SHARDRT_OK) code = set_operands(&self);
  if (code == SHARDRT_OK) code = begin_blocks(&self, nin);
  if (code != SHARDRT_OK) return code;
  set_tasks(&self);
  const struct accelerator *platform = accelerator_get();
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
