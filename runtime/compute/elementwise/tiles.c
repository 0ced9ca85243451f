// build: -O3
/* tiles.c - compiled with -O3. */
#include "compute/elementwise/tiles.h"

#include <string.h>

#include "base/simd.h"
#include "compute/work.h"
#include "memory/convert.h"
#include "memory/element.h"
#include "system/cache_stream.h"

/* Bytes of each operand and result that are fetched ahead; more would wait for one another. Of all operands together
 * where results are streamed: an operand is mostly such a result then, and comes from memory. */
enum { CACHE_LINE = 64, FETCH = 8 * CACHE_LINE, FETCH_ALL = 16 * CACHE_LINE };

static char *part_slot(const struct tiles_part *part, int32_t r) {
  const struct program *program = &part->self->program;
  return part->slots + (size_t)program->slot[r] * program->tile * program->lane;
}

/* n times the same lane. */
SIMD_INLINE void repeat_body(void *slot, size_t lane, size_t n) {
  if (lane == sizeof(simd_2)) {
    const simd_2 first = *(const simd_2 *)slot;
    for (size_t i = 0; i < n; i++) ((simd_2 *)slot)[i] = first;
  } else if (lane == sizeof(simd_4)) {
    const simd_4 first = *(const simd_4 *)slot;
    for (size_t i = 0; i < n; i++) ((simd_4 *)slot)[i] = first;
  } else {
    const simd_8 first = *(const simd_8 *)slot;
    for (size_t i = 0; i < n; i++) ((simd_8 *)slot)[i] = first;
  }
}

static void repeat_plain(void *slot, size_t lane, size_t n) {
  repeat_body(slot, lane, n);
}

SIMD_AVX2 static void repeat_avx2(void *slot, size_t lane, size_t n) {
  repeat_body(slot, lane, n);
}

SIMD_AVX512 static void repeat_avx512(void *slot, size_t lane, size_t n) {
  repeat_body(slot, lane, n);
}

static void repeat_first(void *slot, size_t lane, size_t n) {
  static void (*const repeats[SIMD_LEVELS])(void *slot, size_t lane, size_t n) = {repeat_plain, repeat_avx2,
                                                                                  repeat_avx512};
  repeats[simd_level()](slot, lane, n);
}

/* Where the one lane of a fixed register stands. */
static char *part_fixed(struct tiles_part *part, int32_t r) {
  return part->self->program.repeated[r] ? part_slot(part, r) : (char *)&part->ones[r];
}

static void finish_fixed(struct tiles_part *part, int32_t r, char *value, size_t n) {
  const struct program *program = &part->self->program;
  if (program->repeated[r]) repeat_first(value, program->lane, n);
  part->values[r] = value;
}

/* What all tiles, of n elements or fewer, have in common. */
static void set_fixed(struct tiles_part *part, size_t n) {
  const struct program *program = &part->self->program;
  const int32_t nin = program->nin;
  for (int32_t k = 0; k < nin; k++) {
    if (program->load[k] != PROGRAM_FIXED || program->first[k] < 0) continue;
    char *value = part_fixed(part, k);
    convert_elements(part->self->operands[k].dtype, program->dtype, part->in[k], value, 1);
    finish_fixed(part, k, value, n);
  }
  for (int32_t i = 0; i < program->nsteps; i++) {
    if (!program->fixed[nin + i]) continue;
    char *value = part_fixed(part, nin + i);
    if (program->kernels[i] == NULL) {
      convert_elements(SHARDRT_FLOAT64, program->dtype, &program->steps[i].value, value, 1);
    } else {
      int32_t at[3];
      program_operands(&program->steps[i], at);
      const void *from[] = {part->values[at[0]], part->values[at[1]], part->values[at[2]]};
      program->kernels[i](from, value, 1);
    }
    finish_fixed(part, nin + i, value, n);
  }
}

/* A tile of operand k: as lanes, in its slot. Where all are the same and the call takes one, it is one: it says so. */
static bool load_operand(struct tiles_part *part, const struct tiles_call *call, int32_t k, int64_t first, size_t n) {
  const struct program *program = &part->self->program;
  const struct operand *operand = &part->self->operands[k];
  const bool same = operand->dtype == program->dtype;
  char *slot = part_slot(part, k);
  part->values[k] = slot;
  const void *one = operand_one(operand, part->in[k], first, (int64_t)n);
  if (one != NULL) {
    convert_elements(operand->dtype, program->dtype, one, slot, 1);
    if (k != call->one) repeat_first(slot, program->lane, n);
    return k == call->one;
  }
  const void *found = operand_gather(operand, part->in[k], first, (int64_t)n, same ? slot : part->raw);
  if (same)
    part->values[k] = found;
  else
    convert_elements(operand->dtype, program->dtype, found, slot, n);
  return false;
}

/* Where result k's elements from `first` on are to lie. */
static char *part_result(const struct tiles_part *part, int32_t k, int64_t first) {
  return part->out[k] + (size_t)first * shardrt_dtype_size(shardrt_array_dtype(part->self->out[k]));
}

/* Result k of a tile, from its slot. */
static void store_result(struct tiles_part *part, int32_t k, int64_t first, size_t n) {
  const struct tiles *self = part->self;
  const int32_t from = self->program.dtype, to = shardrt_array_dtype(self->out[k]);
  const void *values = part->values[self->results[k]];
  char *result = part_result(part, k, first);
  if (!self->streams) {
    convert_elements(from, to, values, result, n);
    return;
  }
  if (from != to) convert_elements(from, to, values, part->raw, n);
  cache_stream(result, from == to ? values : part->raw, n * shardrt_dtype_size(to));
}

static void run_tile(struct tiles_part *part, int64_t first, size_t n) {
  const struct tiles *self = part->self;
  const size_t lane = self->program.lane;
  for (int32_t i = 0; i < self->nin_place; i++)
    part->values[self->in_place[i]] = part->in[self->in_place[i]] + (size_t)first * lane;
  for (int32_t k = 0; k < self->nout; k++)
    if (self->program.direct[self->results[k]])
      part->values[self->results[k]] = part->to[self->results[k]] = part_result(part, k, first);
  for (const struct tiles_call *call = self->calls, *end = call + self->ncalls; call < end; call++) {
    bool is_one = false;
    for (int32_t k = 0; k < call->nloads; k++) is_one = load_operand(part, call, call->loads[k], first, n) || is_one;
    const void *from[] = {part->values[call->from[0]], part->values[call->from[1]], part->values[call->from[2]]};
    (is_one ? call->run_of_one : call->run)(from, part->to[call->to], n);
  }
  for (int32_t k = 0; self->stores && k < self->nout; k++)
    if (!self->program.direct[self->results[k]]) store_result(part, k, first, n);
}

void tiles_begin(struct tiles_part *part, const struct tiles *self, int64_t shard, int64_t n) {
  const int64_t tile = (int64_t)self->program.tile;
  part->self = self;
  for (int32_t k = 0; k < self->program.nin; k++)
    part->in[k] = shardrt_buffer_data(shardrt_array_buffer(self->in[k], shard));
  for (int32_t k = 0; self->stores && k < self->nout; k++)
    part->out[k] = shardrt_buffer_data(shardrt_array_buffer(self->out[k], shard));
  part->raw = part->scratch;
  part->slots = part->scratch + self->program.raw;
  for (int32_t i = 0; i < self->ncalls; i++) {
    const int32_t r = self->calls[i].to;
    if (self->program.slot[r] >= 0) part->values[r] = part->to[r] = part_slot(part, r);
  }
  set_fixed(part, (size_t)(n < tile ? n : tile));
}

static void fetch_begin(const char *at, size_t bytes, size_t most) {
  for (size_t i = 0; i < bytes && i < most; i += CACHE_LINE) __builtin_prefetch(at + i);
}

/* Brings the beginnings of what a tile reads and writes into the nearest cache, while the one before it is computed: a
 * processor looks ahead by itself as far as a page goes, and a tile is about as long. */
static void fetch_tile(const struct tiles_part *part, int64_t first, size_t n) {
  const struct tiles *self = part->self;
  const struct program *program = &self->program;
  for (int32_t k = 0; k < program->nin; k++) {
    const struct operand *operand = &self->operands[k];
    if (program->first[k] >= 0 && operand_is_plain(operand))
      fetch_begin(part->in[k] + (size_t)first * operand->size, n * operand->size, self->fetch);
  }
  for (int32_t k = 0; !self->streams && k < self->nout; k++)
    fetch_begin(part_result(part, k, first), n * shardrt_dtype_size(shardrt_array_dtype(self->out[k])), self->fetch);
}

/* Of an operand whose elements are only moved. */
static void move_elements(struct tiles_part *part, int64_t first, int64_t stop) {
  const struct operand *operand = part->self->operands;
  char *to = part_result(part, 0, first);
  const void *found = operand_gather(operand, part->in[0], first, stop - first, to);
  if (found != to) memcpy(to, found, (size_t)(stop - first) * operand->size);
}

static void stream_elements(struct tiles_part *part, int64_t first, int64_t stop) {
  const struct operand *operand = part->self->operands;
  const int64_t most = (int64_t)(sizeof part->scratch / operand->size);
  for (int64_t at = first, n; at < stop; at += n) {
    n = stop - at < most ? stop - at : most;
    cache_stream(part_result(part, 0, at), operand_gather(operand, part->in[0], at, n, part->scratch),
                 (size_t)n * operand->size);
  }
}

static void run_tiles(struct tiles_part *part, int64_t first, int64_t stop) {
  const int64_t tile = (int64_t)part->self->program.tile;
  for (int64_t at = first, next; at < stop; at = next) {
    next = stop - at < tile ? stop : at + tile;
    fetch_tile(part, next, (size_t)(stop - next < tile ? stop - next : tile));
    run_tile(part, at, (size_t)(next - at));
  }
}

void tiles_store(struct tiles_part *part, int64_t first, int64_t stop) {
  const struct tiles *self = part->self;
  if (!self->moves)
    run_tiles(part, first, stop);
  else if (self->streams)
    stream_elements(part, first, stop);
  else
    move_elements(part, first, stop);
  if (self->streams) cache_stream_end();
}

const void *tiles_read(struct tiles_part *part, int64_t first, int64_t stop, void *room) {
  const struct tiles *self = part->self;
  if (self->stores) {
    tiles_store(part, first, stop);
    return part_result(part, 0, first);
  }
  const int32_t from = self->program.dtype, to = shardrt_array_dtype(self->out[0]), r = self->results[0];
  const int64_t tile = (int64_t)self->program.tile;
  if (from == to && stop - first <= tile) {
    run_tile(part, first, (size_t)(stop - first));
    return part->values[r];
  }
  for (int64_t at = first; at < stop; at += tile) {
    const size_t n = (size_t)(stop - at < tile ? stop - at : tile);
    run_tile(part, at, n);
    convert_elements(from, to, part->values[r], (char *)room + (size_t)(at - first) * shardrt_dtype_size(to), n);
  }
  return room;
}

/* ---- before it runs --------------------------------------------------------------------------------------------- */

/* Signed numbers, unsigned ones or floats. */
static int32_t kind_of(int32_t dtype) {
  return (ELEMENT_IS_FLOAT(dtype) ? 1 : 0) + (dtype >= SHARDRT_UINT8 ? 1 : 0);
}

/* Whether the result is the one operand, none of whose numbers the dtype to compute in changes. */
static bool only_moves(const struct tiles *self) {
  const struct program *program = &self->program;
  const int32_t dtype = self->operands[0].dtype;
  const bool is_copy = program->nin == 1 && program->nsteps == 1 && program->steps[0].op == SHARDRT_OP_COPY;
  if (!is_copy || program->load[0] == PROGRAM_FIXED || dtype == SHARDRT_BOOL) return false;
  const bool fits = shardrt_dtype_size(dtype) < program->lane && kind_of(dtype) == kind_of(program->dtype);
  return dtype == shardrt_array_dtype(self->out[0]) && (dtype == program->dtype || fits);
}

/* Which operand of step i comes to it alone and may be one lane of a tile, and the kernel for that: of a step of two,
 * neither of which is fixed. (A fixed one is one lane already.) */
static void find_one(const struct tiles *self, struct tiles_call *call, int32_t i, int32_t count) {
  const struct program *program = &self->program;
  const int32_t *from = call->from;
  call->one = -1;
  if (count != 2 || from[0] == from[1] || program->fixed[from[0]] || program->fixed[from[1]]) return;
  for (int32_t k = 0; k < call->nloads; k++) {
    const int32_t r = call->loads[k];
    const enum kernel_form form = from[0] == r ? KERNEL_OF_ONE_FIRST : KERNEL_OF_ONE_SECOND;
    if (program->last[r] != i || !operand_repeats(&self->operands[r])) continue;
    call->run_of_one = kernel_find(program->steps[i].op, program->dtype, form);
    call->one = call->run_of_one == NULL ? -1 : r;
    return;
  }
}

/* Step i, which each tile has: operands that no tile reads where they lie are loaded for the first step with them. */
static void add_call(struct tiles *self, int32_t i) {
  const struct program *program = &self->program;
  struct tiles_call *call = &self->calls[self->ncalls++];
  call->run = program->kernels[i];
  call->to = program->nin + i;
  call->nloads = 0;
  const int32_t count = program_operands(&program->steps[i], call->from);
  for (int32_t k = 0; k < count; k++) {
    const int32_t r = call->from[k];
    bool is_new = r < program->nin && program->load[r] == PROGRAM_LOADED && program->first[r] == i;
    for (int32_t j = 0; j < call->nloads; j++) is_new = is_new && call->loads[j] != r;
    if (is_new) call->loads[call->nloads++] = r;
  }
  find_one(self, call, i, count);
}

static void set_calls(struct tiles *self) {
  const struct program *program = &self->program;
  self->nin_place = self->ncalls = 0;
  for (int32_t k = 0; k < program->nin; k++)
    if (program->load[k] == PROGRAM_IN_PLACE && program->first[k] >= 0) self->in_place[self->nin_place++] = k;
  for (int32_t i = 0; i < program->nsteps; i++)
    if (!program->fixed[program->nin + i]) add_call(self, i);
}

/* A bool is converted even to where it would be one. */
int tiles_set(struct tiles *self) {
  struct program *program = &self->program;
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  work_shard_shape(self->out[0], shape);
  bool raw = false;
  size_t plain = 0;
  for (int32_t k = 0; k < program->nin; k++) {
    struct operand *operand = &self->operands[k];
    int code = operand_set(operand, "elementwise", k, self->in[k], shardrt_array_ndim(self->out[0]), shape);
    if (code != SHARDRT_OK) return code;
    const bool same = operand->dtype == program->dtype;
    program->load[k] = operand_is_one(operand)             ? PROGRAM_FIXED
                       : same && operand_is_plain(operand) ? PROGRAM_IN_PLACE
                                                           : PROGRAM_LOADED;
    plain += operand_is_plain(operand);
    raw = raw || (!same && program->load[k] == PROGRAM_LOADED && !operand_is_plain(operand));
  }
  program_find_fixed(program);
  program_find_repeated(program, self->results, self->nout);
  self->streams = self->streams && program_is_light(program) &&
                  work_streams(program->nin, (const shardrt_array *const *)self->in, self->nout, self->out);
  self->fetch = self->streams && plain > 0 && FETCH_ALL / plain > FETCH ? FETCH_ALL / plain : FETCH;
  for (int32_t k = 0; k < self->nout; k++) {
    const int32_t r = self->results[k];
    const bool same = shardrt_array_dtype(self->out[k]) == program->dtype;
    program->direct[r] = self->stores && !self->streams && same && !program->fixed[r];
    raw = raw || (self->streams && !same);
  }
  program_lay_out(program, self->results, self->nout, raw);
  set_calls(self);
  self->moves = self->stores && only_moves(self);
  return SHARDRT_OK;
}
