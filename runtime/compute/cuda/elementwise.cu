/* elementwise.cu - shardrt_elementwise on a device: a program becomes steps for its kernels (fused.cuh).
 *
 * Only what the result needs is computed. An operand is loaded before the first step that takes it. A value that only
 * the step behind it takes stays in registers; others have a slot, from the step that gives it to the last one that
 * takes it. */
#include "compute/cuda/fused.cuh"

/* While steps are made, they take values by the numbers of the steps that give them, or FUSED_CONSTANT + a number. */
struct fusing {
  const struct accelerator_program *given;
  const struct accelerator_operand *operands;
  fused_long *out;
  bool needed[SHARDRT_MAX_REGISTERS];
  bool known[SHARDRT_MAX_REGISTERS];
  uint16_t value[SHARDRT_MAX_REGISTERS]; /* of registers that are known */
  uint16_t last[SHARDRT_MAX_REGISTERS];  /* of the steps made: the last one that takes its value */
  uint16_t slot[SHARDRT_MAX_REGISTERS];
};

static const int32_t operand_counts[] = {
#define COUNT(name, code, operands) operands,
    SHARDRT_OPS(COUNT)
#undef COUNT
};

static int32_t register_of(const shardrt_step *step, int32_t k) {
  return k == 0 ? step->a : k == 1 ? step->b : step->c;
}

static void mark_needed(fusing *self) {
  const int32_t nin = self->given->nin, nsteps = self->given->nsteps;
  memset(self->needed, 0, sizeof self->needed);
  self->needed[nin + nsteps - 1] = true;
  for (int32_t i = nsteps - 1; i >= 0; i--) {
    const shardrt_step *step = &self->given->steps[i];
    for (int32_t k = 0; k < operand_counts[step->op] && self->needed[nin + i]; k++)
      self->needed[register_of(step, k)] = true;
  }
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

/* Whether four neighbours of the result take four aligned neighbours of it, or one element. */
static bool takes_fours(const struct accelerator_operand *operand) {
  const int32_t inner = operand->ndim - 1;
  if (inner > 0 && operand->sizes[inner] % LANES_FOUR != 0) return false;
  if (operand->strides[inner] == 0) return inner > 0; /* along a row */
  if (operand->strides[inner] != 1 || !lanes_are_aligned(operand->data, shardrt_dtype_size(operand->dtype)))
    return false;
  for (int32_t d = 0; d < inner; d++)
    if (operand->strides[d] % LANES_FOUR != 0) return false;
  return true;
}

static uint16_t add_operand(fused_long *out, const struct accelerator_operand *operand) {
  fused_operand *own = &out->operand[out->operands];
  own->data = operand->data;
  own->dtype = (uint8_t)operand->dtype;
  own->ndim = (uint8_t)operand->ndim;
  own->first = out->dimensions;
  own->plain = operand->ndim == 1 && operand->strides[0] == 1;
  own->wide = out->elements > kernel_narrow();
  own->same = operand->ndim == 0 || operand->strides[operand->ndim - 1] == 0;
  own->fours = operand->ndim == 0 || takes_fours(operand);
  for (int32_t d = 0; d < operand->ndim; d++) {
    fused_dimension *dimension = &out->dimension[out->dimensions++];
    dimension->size = operand->sizes[d];
    dimension->stride = operand->strides[d];
    if (!own->wide) dimension->by = divisor_of(operand->sizes[d]);
  }
  return out->operands++;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static uint16_t add_step(fused_long *out, uint16_t op, uint16_t a, uint16_t b, uint16_t c) {
  out->step[out->steps] = {op, a, b, c, FUSED_NOWHERE};
  return out->steps++;
}

template <int32_t D> static uint64_t bits_of(double value) {
  const lanes_type<D> lane = lanes_cast<SHARDRT_FLOAT64, D>::of(value);
  uint64_t bits = 0;
  memcpy(&bits, &lane, sizeof lane);
  return bits;
}

static uint16_t add_constant(fused_long *out, int32_t dtype, double value) {
  uint64_t bits = 0;
  LANES_DTYPE(dtype, D, bits = bits_of<D>(value))
  out->constant[out->constants] = bits;
  return (uint16_t)(FUSED_CONSTANT + out->constants++);
}

static uint16_t value_of(fusing *self, int32_t r) {
  if (!self->known[r]) { /* so it is an operand */
    const uint16_t number = add_operand(self->out, &self->operands[r]);
    self->value[r] = add_step(self->out, FUSED_LOAD, number, FUSED_LAST, FUSED_LAST);
    self->known[r] = true;
  }
  return self->value[r];
}

static void make_step(fusing *self, int32_t i) {
  const shardrt_step *step = &self->given->steps[i];
  const int32_t count = operand_counts[step->op];
  uint16_t values[3] = {FUSED_LAST, FUSED_LAST, FUSED_LAST};
  for (int32_t k = 0; k < count; k++) values[k] = value_of(self, register_of(step, k));
  const int32_t r = self->given->nin + i;
  self->value[r] = step->op == SHARDRT_OP_CONSTANT ? add_constant(self->out, self->given->dtype, step->value)
                   : step->op == SHARDRT_OP_COPY
                       ? values[0]
                       : add_step(self->out, (uint16_t)step->op, values[0], values[1], values[2]);
  self->known[r] = true;
}

/* What the result needs, in the order given; all that is made leads to the result, which so comes last. */
static void make_steps(fusing *self) {
  const int32_t last = self->given->nin + self->given->nsteps - 1;
  memset(self->known, 0, sizeof self->known);
  for (int32_t i = 0; i < self->given->nsteps; i++)
    if (self->needed[self->given->nin + i]) make_step(self, i);
  if (self->value[last] >= FUSED_CONSTANT)
    add_step(self->out, SHARDRT_OP_COPY, self->value[last], FUSED_LAST, FUSED_LAST);
}

/* ---- slots ------------------------------------------------------------------------------------------------------ */

/* Whether the k-th of a step's three is a value that another step gives. */
static bool takes(const fused_step *step, const uint16_t *value) {
  return step->op != FUSED_LOAD && *value < FUSED_CONSTANT;
}

/* Slots are taken in the order of steps; one that is given back is the next one taken. */
static void give_slots(fusing *self) {
  fused_long *out = self->out;
  uint16_t unused[SHARDRT_MAX_REGISTERS], nunused = 0;
  bool kept[SHARDRT_MAX_REGISTERS] = {false};
  for (uint16_t i = 0; i < out->steps; i++) {
    fused_step *step = &out->step[i];
    for (const uint16_t *value : {&step->a, &step->b, &step->c}) {
      if (!takes(step, value)) continue;
      self->last[*value] = i;
      kept[*value] = kept[*value] || *value + 1 != i;
    }
  }
  for (uint16_t i = 0; i < out->steps; i++) {
    fused_step *step = &out->step[i];
    for (uint16_t *value : {&step->a, &step->b, &step->c}) {
      if (!takes(step, value)) continue;
      const uint16_t from = *value;
      *value = from + 1 == i ? (uint16_t)FUSED_LAST : self->slot[from];
      if (!kept[from] || self->last[from] != i) continue;
      kept[from] = false; /* the step reads before it writes */
      unused[nunused++] = self->slot[from];
    }
    if (!kept[i]) continue;
    self->slot[i] = step->to = nunused > 0 ? unused[--nunused] : out->slots++;
  }
}

/* ---- one step --------------------------------------------------------------------------------------------------- */

/* Sets the plan's `single` where the steps are loads of the compute dtype and one more, or a load alone, and the result
 * is of the dtype that their kernel gives. */
static void find_single(fusing *self, fused_plan *plan) {
  const fused_long *all = &plan->program;
  fused_single *single = &plan->single;
  const uint16_t final = (uint16_t)(all->steps - 1);
  fused_step step = all->step[final];
  if (step.op == FUSED_LOAD) step = {SHARDRT_OP_COPY, final, FUSED_LAST, FUSED_LAST, FUSED_NOWHERE};
  plan->is_single = false;
  if (!fused_has_single(self->given->dtype, step.op)) return;
  if (all->operands > fused_single::OPERANDS || all->constants > fused_single::CONSTANTS ||
      all->dimensions > fused_single::DIMENSIONS)
    return;
  if (all->out_dtype != (fused_is_truth(step.op) ? (int32_t)SHARDRT_BOOL : self->given->dtype)) return;
  for (uint16_t k = 0; k < all->operands; k++)
    if (all->operand[k].dtype != self->given->dtype) return;
  for (uint16_t i = 0; i < final; i++)
    if (all->step[i].op != FUSED_LOAD) return;
  for (uint16_t *value : {&step.a, &step.b, &step.c})
    if (*value < FUSED_CONSTANT) *value = all->step[*value].a;
  plan->is_single = true;
  single->step[0] = step;
  single->elements = all->elements;
  single->out = all->out;
  single->out_dtype = all->out_dtype;
  single->fours = all->fours;
  memcpy(single->constant, all->constant, all->constants * sizeof *all->constant);
  memcpy(single->operand, all->operand, all->operands * sizeof *all->operand);
  memcpy(single->dimension, all->dimension, all->dimensions * sizeof *all->dimension);
}

int cuda_elementwise(const char *what, int32_t device, const struct accelerator_program *program,
                     const struct accelerator_operand *operands, int32_t out_dtype, void *out, int64_t elements) {
  if (elements == 0) return SHARDRT_OK;
  const int code = cuda_use(what, device);
  if (code != SHARDRT_OK) return code;
  fused_plan plan;
  fused_long *made = &plan.program;
  made->elements = elements;
  made->out = out;
  made->out_dtype = out_dtype;
  made->fours = lanes_are_aligned(out, shardrt_dtype_size(out_dtype));
  made->steps = made->slots = made->constants = made->operands = made->dimensions = 0;
  fusing fusing = {program, operands, made, {}, {}, {}, {}, {}};
  mark_needed(&fusing);
  make_steps(&fusing);
  find_single(&fusing, &plan);
  give_slots(&fusing);
  switch (program->dtype) {
  case SHARDRT_FLOAT32:
    return fused_run_float32(what, device, &plan);
  case SHARDRT_FLOAT64:
    return fused_run_float64(what, device, &plan);
  case SHARDRT_INT32:
  case SHARDRT_UINT32:
    return fused_run_whole32(what, device, program->dtype, &plan);
  default:
    return fused_run_whole64(what, device, program->dtype, &plan);
  }
}
