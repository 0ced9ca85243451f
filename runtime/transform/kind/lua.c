// build: -O3
/* lua.c - the transform that a recipe wrote in Lua.
 *
 * Each worker thread runs it in a Lua state of its own, which its reader keeps, so that no two threads ever share one.
 * lua/shardrt/data/worker/worker.lua, compiled into the program, is what that state runs: it unpacks the function and
 * calls it for each sample of a chunk, so that LuaJIT compiles the user's function together with the loop around it,
 * and C is entered and left once for each chunk, or, where samples take long, for each part of it. What the function
 * sees of a sample are pointers to where its bytes are and to where the output is to be, both whole.
 *
 * numbers: what is made of the function's result (MODE_…), whether it writes all of its output (1), so that this need
 *   not be cleared before, the dtype of the output (-1: the input's), its number of
 *   dimensions (-1: the input's shape) and its sizes; of one that is ragged the most elements that it has.
 * bytes: IDENTITY of them tell one function from another in all processes; the rest is the function, as
 *   lua/shardrt/data/worker/worker.lua takes it.
 *
 * For other rooms that run a recipe's functions on workers (filters): lua/shardrt/data/transform.lua has `predicate`,
 * which makes a transform of one field to one bool. Map the source by it and gather the bools as any other field. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "lua/state.h"
#include "system/clock.h"
#include "transform/kinds.h"

enum { MODE_TRANSFORM, MODE_PREDICATE, MODE_RAGGED, MODES };
enum { MODE, WRITES_ALL, DTYPE, NDIM, SIZES }; /* numbers */
enum { IDENTITY = 16 };
enum { LONG = 10 * 1000 * 1000 /* ns that a call of Lua is to take at most, for more than one sample */ };

/* What a reader keeps for one transform; L is NULL until the first chunk. */
struct lua_worker {
  lua_State *L;
  int describe;         /* references to what makes an error's message, */
  int run;              /* and to what transforms a chunk */
  shardrt_samples call; /* samples of a chunk, where the state looks for them, */
  int64_t most;         /* and how many of them at most */
  char *room; /* for what is made of one sample, where its length is not known, with the guards at both ends */
  size_t room_bytes;
};

struct lua_opening {
  const shardrt_transform *transform;
  struct lua_worker *worker;
};

static int lua_failed(lua_State *L, int status) {
  return lua_state_failed(L, status, "a worker's Lua state");
}

/* Called by Lua, so that what it raises is caught. */
static int load_function(lua_State *L) {
  const struct lua_opening *opening = lua_touserdata(L, 1);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "shardrt.data.worker.worker");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "open");
  lua_pushlstring(L, (const char *)opening->transform->bytes + IDENTITY, opening->transform->nbytes - IDENTITY);
  lua_pushinteger(L, (lua_Integer)opening->transform->numbers[MODE]);
  lua_pushboolean(L, opening->transform->numbers[WRITES_ALL] == 1);
  lua_pushlightuserdata(L, &opening->worker->call);
  lua_call(L, 4, 2);
  opening->worker->describe = luaL_ref(L, LUA_REGISTRYINDEX);
  opening->worker->run = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

static int worker_open(struct lua_worker *self, const shardrt_transform *transform) {
  lua_State *L;
  int code = lua_state_new(&L);
  if (code < 0) return error_prefix(code, "a worker");
  struct lua_opening opening = {.transform = transform, .worker = self};
  int status = lua_cpcall(L, load_function, &opening);
  if (status != 0) {
    code = lua_failed(L, status);
    lua_close(L);
    return code;
  }
  self->L = L;
  self->most = 1;
  return SHARDRT_OK;
}

static void *worker_new(const void *owner) {
  (void)owner;
  return alloc_zeros(1, sizeof(struct lua_worker));
}

static void worker_free(void *state) {
  struct lua_worker *self = state;
  if (self->L != NULL) lua_close(self->L);
  alloc_free(self->room);
  alloc_free(self);
}

/* Also tries the function in a state of its own: what a worker could not use is said when the transform is made. */
static int recipe_set(shardrt_transform *self) {
  const double *n = self->numbers;
  if (self->count < SIZES || n[MODE] < 0 || n[MODE] >= MODES || n[NDIM] > SHARDRT_MAX_NDIM ||
      (n[NDIM] >= 0 ? (double)self->count != SIZES + n[NDIM] : self->count != SIZES) || self->nbytes <= IDENTITY)
    return error_set(SHARDRT_EINVAL, "numbers and bytes that shardrt.transform.lua would not give");
  if (n[MODE] == MODE_RAGGED && (n[NDIM] != 1 || n[SIZES] > INT32_MAX))
    return error_set(SHARDRT_EINVAL, "a bound of %g elements; it is from 0 to %d", n[SIZES], INT32_MAX);
  if (n[DTYPE] >= 0 && shardrt_dtype_size((int32_t)n[DTYPE]) == 0)
    return error_set(SHARDRT_EINVAL, "dtype %g, which there is not", n[DTYPE]);
  for (int64_t d = SIZES; d < self->count; d++)
    if (!(n[d] >= 0 && n[d] <= 0x1p53))
      return error_set(SHARDRT_EINVAL, "a size of %g; they are whole numbers from 0 on", n[d]);
  struct lua_worker *trial = worker_new(self);
  if (trial == NULL) return ALLOC_FAILED;
  int code = worker_open(trial, self);
  worker_free(trial);
  return code;
}

static int recipe_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const double *n = self->numbers;
  *out = *in;
  if (n[DTYPE] >= 0) out->dtype = (int32_t)n[DTYPE];
  if (n[NDIM] >= 0) out->ndim = (int32_t)n[NDIM];
  for (int64_t d = SIZES; d < self->count; d++) out->shape[d - SIZES] = (int64_t)n[d];
  if (n[MODE] == MODE_RAGGED) out->shape[0] = -1;
  return SHARDRT_OK;
}

static int64_t recipe_most(const shardrt_transform *self, const int64_t *shape) {
  (void)shape;
  return self->numbers[MODE] == MODE_RAGGED ? (int64_t)self->numbers[SIZES] : -1;
}

static double element_count(const struct value *value) {
  double count = 1;
  for (int32_t d = 0; d < value->ndim; d++) count *= (double)value->shape[d];
  return count;
}

static shardrt_sample sample_of(const struct draw *draw, const struct value *in, const struct value *out) {
  shardrt_sample sample = {
      .data = in->data,
      .out = out->data,
      .size = element_count(in),
      .out_size = element_count(out),
      .index = (double)draw->number,
      .epoch = (double)draw->epoch,
      .random = {.seed = draw->seed, .epoch = draw->epoch, .number = draw->number, .place = draw->place},
  };
  memcpy(sample.shape, in->shape, sizeof sample.shape);
  return sample;
}

static bool has_nan(const struct value *value, size_t n) {
  int32_t found = 0;
  if (value->dtype == SHARDRT_FLOAT32) {
    const float *at = value->data;
    for (size_t i = 0; i < n; i++) found |= at[i] != at[i];
  } else if (value->dtype == SHARDRT_FLOAT64) {
    const double *at = value->data;
    for (size_t i = 0; i < n; i++) found |= at[i] != at[i];
  }
  return found != 0;
}

/* LuaJIT keeps nil and the addresses of tables in the bits of NaNs, and takes one that it loads for these. So the
 * function gets a copy of a sample that has some, in which all are the plain one. */
static int make_nans_plain(struct reader *reader, const struct value *in, shardrt_sample *sample) {
  const size_t bytes = value_bytes(in), n = bytes / shardrt_dtype_size(in->dtype);
  if (!has_nan(in, n)) return SHARDRT_OK;
  void *room = reader_room(reader, bytes);
  if (room == NULL) return ALLOC_FAILED;
  memcpy(room, in->data, bytes);
  sample->data = room;
  if (in->dtype == SHARDRT_FLOAT32) {
    float *at = room;
    for (size_t i = 0; i < n; i++)
      if (at[i] != at[i]) at[i] = __builtin_nanf("");
  } else {
    double *at = room;
    for (size_t i = 0; i < n; i++)
      if (at[i] != at[i]) at[i] = __builtin_nan("");
  }
  return SHARDRT_OK;
}

/* Samples first … first + count - 1 of the chunk; *failed becomes the one that did. */
static int call_lua(struct lua_worker *worker, shardrt_sample *samples, int64_t first, int64_t count, int64_t *failed) {
  lua_State *L = worker->L;
  worker->call.samples = samples + first;
  worker->call.count = count;
  lua_rawgeti(L, LUA_REGISTRYINDEX, worker->describe);
  lua_rawgeti(L, LUA_REGISTRYINDEX, worker->run);
  const int status = lua_pcall(L, 0, 0, -2);
  int code = SHARDRT_OK;
  if (status != 0) {
    *failed = first + worker->call.at;
    code = lua_failed(L, status);
  }
  lua_settop(L, 0);
  return code;
}

/* As many samples at once as take a moment: between two calls a slice may end, and who is no longer waited for gives
 * up. */
static int call_in_parts(struct lua_worker *worker, const struct reader *reader, shardrt_sample *samples, int64_t n,
                         int64_t *failed) {
  int code = SHARDRT_OK;
  for (int64_t first = 0, count; first < n && code == SHARDRT_OK; first += count) {
    count = n - first < worker->most ? n - first : worker->most;
    const int64_t start = clock_now();
    code = call_lua(worker, samples, first, count, failed);
    const int64_t took = clock_now() - start;
    if (took < LONG / 4 && count == worker->most) worker->most *= 2;
    if (took > LONG && worker->most > 1) worker->most /= 2;
    if (code == SHARDRT_OK && first + count < n) code = reader_pause(reader);
  }
  return code;
}

/* Room for the whole bound of elements of this dtype. A function that writes past it writes to a guard, not to what
 * lies behind: the state then says so. */
static int make_room(struct lua_worker *worker, double bound, int32_t dtype) {
  const size_t bytes = (size_t)bound * shardrt_dtype_size(dtype) + 2 * (size_t)SHARDRT_SAMPLE_GUARD;
  if (worker->room_bytes < bytes) {
    alloc_free(worker->room);
    worker->room_bytes = 0;
    worker->room = alloc_array(bytes, 1);
    if (worker->room == NULL) return ALLOC_FAILED;
    worker->room_bytes = bytes;
  }
  worker->call.room = worker->room + SHARDRT_SAMPLE_GUARD;
  return SHARDRT_OK;
}

static int recipe_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                      const struct value *in, struct value *out, int64_t *failed) {
  if (n == 0) return SHARDRT_OK;
  *failed = 0;
  struct lua_worker *worker = reader_state(reader, self, worker_new, worker_free);
  shardrt_sample *samples = reader_room(reader, (size_t)n * sizeof *samples);
  if (worker == NULL || samples == NULL) return ALLOC_FAILED;
  int code = worker->L != NULL ? SHARDRT_OK : worker_open(worker, self);
  if (code != SHARDRT_OK) return code;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    samples[i] = sample_of(&draws[i], &in[i], &out[i]);
    code = make_nans_plain(reader, &in[i], &samples[i]);
  }
  if (code != SHARDRT_OK) return code;
  worker->call = (shardrt_samples){.dtype = in->dtype, .out_dtype = out->dtype, .ndim = in->ndim};
  const bool ragged = self->numbers[MODE] == MODE_RAGGED;
  if (ragged) code = make_room(worker, self->numbers[SIZES], out->dtype);
  if (code == SHARDRT_OK) code = call_in_parts(worker, reader, samples, n, failed);
  for (int64_t i = 0; i < n && code == SHARDRT_OK && ragged; i++) out[i].shape[0] = out[i].full[0] = samples[i].made;
  return code;
}

static uint64_t recipe_transform_hash(const shardrt_transform *self) {
  return hash_bytes(hash_bytes(0, self->numbers, (size_t)self->count * sizeof *self->numbers), self->bytes, IDENTITY);
}

const struct transform_kind lua_kind = {
    .name = "lua",
    .stage = READER_TRANSFORM,
    .set = recipe_set,
    .form = recipe_form,
    .most = recipe_most,
    .run = recipe_run,
    .transform_hash = recipe_transform_hash,
};
