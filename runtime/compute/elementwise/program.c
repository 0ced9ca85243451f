#include "compute/elementwise/program.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "memory/convert.h"

static const struct {
  const char *name;
  int32_t operands;
} ops[] = {
#define OP_ROW(name, code, operands) [code] = {#name, operands},
    SHARDRT_OPS(OP_ROW)
#undef OP_ROW
};

const char *shardrt_op_name(int32_t op) {
  return op >= 0 && op < SHARDRT_OP_COUNT ? ops[op].name : NULL;
}

int32_t program_operands(const shardrt_step *step, int32_t registers[3]) {
  assert(step->op >= 0 && step->op < SHARDRT_OP_COUNT);
  const int32_t count = ops[step->op].operands;
  assert(count >= 0 && count <= 3);
  registers[0] = step->a;
  registers[1] = count > 1 ? step->b : step->a;
  registers[2] = count > 2 ? step->c : step->a;
  return count;
}

static bool computes_in(int32_t dtype) {
  switch (dtype) {
  case SHARDRT_INT32:
  case SHARDRT_UINT32:
  case SHARDRT_INT64:
  case SHARDRT_UINT64:
  case SHARDRT_FLOAT32:
  case SHARDRT_FLOAT64:
    return true;
  default:
    return false;
  }
}

static int set_step(struct program *program, int32_t i) {
  const shardrt_step *step = &program->steps[i];
  if (step->op < 0 || step->op >= SHARDRT_OP_COUNT)
    return error_set(SHARDRT_EINVAL, "elementwise: step %d is operation %d; there are %d", i, step->op,
                     SHARDRT_OP_COUNT);
  int32_t from[3];
  const int32_t count = program_operands(step, from);
  for (int32_t k = 0; k < count; k++) {
    const int32_t r = from[k];
    if (r < 0 || r >= program->nin + i)
      return error_set(SHARDRT_EINVAL, "elementwise: step %d (%s) takes register %d; %d are known before it", i,
                       shardrt_op_name(step->op), r, program->nin + i);
    if (r < program->nin && program->first[r] < 0) program->first[r] = i;
  }
  program->kernels[i] = step->op == SHARDRT_OP_CONSTANT ? NULL : kernel_find(step->op, program->dtype, KERNEL_OF_ALL);
  if (step->op != SHARDRT_OP_CONSTANT && program->kernels[i] == NULL)
    return error_set(SHARDRT_EINVAL, "elementwise: step %d: %s is not computed in %s; in float32 or float64 it is", i,
                     shardrt_op_name(step->op), shardrt_dtype_name(program->dtype));
  return SHARDRT_OK;
}

int program_set(struct program *program, const shardrt_step *steps, int32_t nsteps, int32_t dtype, int32_t nin) {
  if (!computes_in(dtype))
    return error_set(SHARDRT_EINVAL,
                     "elementwise: computing in %s; it is int32, uint32, int64, uint64, float32 or float64",
                     shardrt_dtype_name(dtype) == NULL ? "no dtype" : shardrt_dtype_name(dtype));
  if (nin < 0 || nsteps < 1 || nin > SHARDRT_MAX_REGISTERS || nsteps > SHARDRT_MAX_REGISTERS - nin)
    return error_set(SHARDRT_EINVAL, "elementwise: %d operands and %d steps; it is a step or more, and together %d",
                     nin, nsteps, SHARDRT_MAX_REGISTERS);
  *program =
      (struct program){.steps = steps, .nsteps = nsteps, .nin = nin, .dtype = dtype, .lane = shardrt_dtype_size(dtype)};
  for (int32_t r = 0; r < nin; r++) program->first[r] = -1;
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < nsteps && code == SHARDRT_OK; i++) code = set_step(program, i);
  return code;
}

/* Whether the narrow dtype has this number. */
static bool holds(int32_t dtype, double value) {
  uint16_t narrow = 0;
  double again = 0;
  convert_elements(SHARDRT_FLOAT64, dtype, &value, &narrow, 1);
  convert_elements(dtype, SHARDRT_FLOAT64, &narrow, &again, 1);
  return again == value;
}

void program_narrow(struct program *program, int32_t dtype) {
  const bool is_narrow = dtype == SHARDRT_FLOAT16 || dtype == SHARDRT_BFLOAT16;
  if (!is_narrow || program->dtype != SHARDRT_FLOAT32) return;
  const int32_t last = program->nsteps - 1; /* before it there are constants */
  for (int32_t i = 0; i < last; i++)
    if (program->kernels[i] != NULL || !holds(dtype, program->steps[i].value)) return;
  kernel *const found =
      program->kernels[last] == NULL ? NULL : kernel_find(program->steps[last].op, dtype, KERNEL_OF_ALL);
  if (found == NULL) return;
  program->kernels[last] = found;
  program->dtype = dtype;
  program->lane = shardrt_dtype_size(dtype);
}

/* lua/shardrt/ops/delay.lua weighs these, too: what is computed again rather than kept. */
bool program_is_light(const struct program *program) {
  for (int32_t i = 0; i < program->nsteps; i++) {
    if (program->fixed[program->nin + i]) continue;
    switch (program->steps[i].op) {
    case SHARDRT_OP_POW:
    case SHARDRT_OP_ATAN2:
    case SHARDRT_OP_FLOOR_DIVIDE:
    case SHARDRT_OP_REMAINDER:
    case SHARDRT_OP_RSQRT:
    case SHARDRT_OP_EXP:
    case SHARDRT_OP_EXPM1:
    case SHARDRT_OP_LOG:
    case SHARDRT_OP_LOG1P:
    case SHARDRT_OP_SIN:
    case SHARDRT_OP_COS:
    case SHARDRT_OP_TAN:
    case SHARDRT_OP_TANH:
    case SHARDRT_OP_LOGISTIC:
    case SHARDRT_OP_ERF:
      return false;
    default:
      break;
    }
  }
  return true;
}

/* ---- layout ----------------------------------------------------------------------------------------------------- */

/* Slots that are taken and given back; a slot given back is the next one taken. */
struct slots {
  int32_t free[SHARDRT_MAX_REGISTERS];
  int32_t nfree;
  int32_t count;
};

static int32_t slots_take(struct slots *slots) {
  assert(slots->nfree >= 0 && slots->count - slots->nfree < SHARDRT_MAX_REGISTERS);
  return slots->nfree > 0 ? slots->free[--slots->nfree] : slots->count++;
}

void program_find_fixed(struct program *program) {
  for (int32_t r = 0; r < program->nin; r++) program->fixed[r] = program->load[r] == PROGRAM_FIXED;
  for (int32_t i = 0; i < program->nsteps; i++) {
    const shardrt_step *step = &program->steps[i];
    bool fixed = true;
    int32_t from[3];
    const int32_t count = program_operands(step, from);
    for (int32_t k = 0; k < count; k++) fixed = fixed && program->fixed[from[k]];
    program->fixed[program->nin + i] = fixed;
  }
}

/* The kernel that takes the one fixed operand of step i as it is; NULL: there is none. */
static kernel *find_kernel_of_one(const struct program *program, int32_t i) {
  const shardrt_step *step = &program->steps[i];
  int32_t from[3];
  if (program_operands(step, from) != 2 || program->fixed[from[0]] == program->fixed[from[1]]) return NULL;
  return kernel_find(step->op, program->dtype, program->fixed[from[0]] ? KERNEL_OF_ONE_FIRST : KERNEL_OF_ONE_SECOND);
}

void program_find_repeated(struct program *program, const int32_t *results, int32_t nresults) {
  for (int32_t r = 0; r < program->nin + program->nsteps; r++) program->repeated[r] = false;
  for (int32_t i = 0; i < program->nsteps; i++) {
    if (program->fixed[program->nin + i]) continue; /* it is computed once, of one element */
    kernel *const of_one = find_kernel_of_one(program, i);
    if (of_one != NULL) {
      program->kernels[i] = of_one;
      continue;
    }
    int32_t from[3];
    const int32_t count = program_operands(&program->steps[i], from);
    for (int32_t k = 0; k < count; k++)
      program->repeated[from[k]] = program->repeated[from[k]] || program->fixed[from[k]];
  }
  for (int32_t k = 0; k < nresults; k++) program->repeated[results[k]] = program->fixed[results[k]];
}

/* What is repeated takes its slots first, and never gives them back. A value's slot is free after the last step that
 * needs it, so a step never writes where it reads. */
static void lay_out_step(struct program *program, int32_t i, struct slots *slots) {
  const shardrt_step *step = &program->steps[i];
  const int32_t own = program->nin + i;
  int32_t from[3];
  const int32_t count = program_operands(step, from);
  for (int32_t k = 0; k < count; k++) {
    const int32_t r = from[k];
    if (r < program->nin && program->load[r] == PROGRAM_LOADED && program->slot[r] < 0)
      program->slot[r] = slots_take(slots);
  }
  if (!program->direct[own] && !program->fixed[own]) program->slot[own] = slots_take(slots);
  for (int32_t k = 0; k < count; k++) /* it never writes where it reads */
    assert(program->slot[own] < 0 || program->slot[own] != program->slot[from[k]]);
  for (int32_t r = 0; r <= own; r++)
    if (program->last[r] == i && program->slot[r] >= 0 && !program->fixed[r])
      slots->free[slots->nfree++] = program->slot[r];
}

void program_lay_out(struct program *program, const int32_t *results, int32_t nresults, bool raw) {
  const int32_t registers = program->nin + program->nsteps;
  struct slots slots = {.count = 0};
  for (int32_t r = 0; r < registers; r++) {
    program->last[r] = r < program->nin ? -1 : r - program->nin;
    program->slot[r] = program->repeated[r] ? slots_take(&slots) : -1;
  }
  for (int32_t i = 0; i < program->nsteps; i++) {
    int32_t from[3];
    const int32_t count = program_operands(&program->steps[i], from);
    for (int32_t k = 0; k < count; k++) program->last[from[k]] = i;
  }
  for (int32_t k = 0; k < nresults; k++) program->last[results[k]] = program->nsteps;
  for (int32_t i = 0; i < program->nsteps; i++) lay_out_step(program, i, &slots);

  const size_t bytes = (size_t)slots.count * program->lane + (raw ? sizeof(double) : 0);
  const size_t fit = bytes == 0 ? PROGRAM_TILE : PROGRAM_SCRATCH / bytes / PROGRAM_TILE_STEP * PROGRAM_TILE_STEP;
  assert(fit > 0);
  program->tile = fit < PROGRAM_TILE ? fit : PROGRAM_TILE;
  program->raw = raw ? program->tile * sizeof(double) : 0;
}
