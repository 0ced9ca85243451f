/* key_array.c - arrays of random numbers: every distinct box of this process is made from its place in the whole array,
 * tile by tile, on the process's threads; or each by its own device, from the same formulas (random.cu). */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "compute/random/deviate.h"
#include "compute/random/key.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "platform/accelerator.h"

enum { TASK = 16 * KEY_TILE }; /* elements that a thread takes at a time */

/* Where the elements of a box stand in the whole array: runs of `run` elements, of which there are extent[0] * … *
 * extent[outer - 1]. Steps are in elements of the whole array. All boxes of an array have the same. */
struct runs {
  int32_t outer;
  int64_t run;
  int64_t extent[SHARDRT_MAX_NDIM];
  int64_t step[SHARDRT_MAX_NDIM];
};

struct fill;
/* Makes n <= KEY_TILE numbers from the bits that each of the fill's keys gives them. */
typedef void fill_tile(const struct fill *fill, const uint32_t bits[2][KEY_TILE], size_t n, void *to);

struct fill {
  struct unique_blocks blocks;
  const shardrt_array *out;
  shardrt_key keys[2];
  int32_t nkeys;
  int32_t width; /* of the bits */
  int32_t kind;  /* ACCELERATOR_BITS, …: the same as `tile` */
  fill_tile *tile;
  float low, span; /* of uniform numbers */
  float probability;
  int32_t least;
  uint32_t count;    /* of whole numbers from `least` on; 0: 2^32 */
  int64_t size;      /* elements of the whole array */
  int64_t elements;  /* of a shard */
  int64_t per_block; /* tasks */
  struct runs runs;
};

static struct runs runs_of(const shardrt_array *array) {
  const int64_t *shape = shardrt_array_shape(array);
  int64_t extent[SHARDRT_MAX_NDIM], step = 1;
  struct runs runs = {.outer = shardrt_array_ndim(array), .run = 1};
  work_shard_shape(array, extent);
  bool whole = true; /* all dimensions so far */
  while (runs.outer > 0 && whole) {
    const int32_t d = --runs.outer;
    runs.run *= extent[d];
    step *= shape[d];
    whole = extent[d] == shape[d];
  }
  for (int32_t d = runs.outer - 1; d >= 0; d--) {
    runs.extent[d] = extent[d];
    runs.step[d] = step;
    step *= shape[d];
  }
  return runs;
}

/* The place of a box's first element. */
static int64_t place_of(const shardrt_array *array, const shardrt_box *box) {
  const int64_t *shape = shardrt_array_shape(array);
  int64_t place = 0;
  for (int32_t d = 0; d < box->ndim; d++) place = place * shape[d] + box->start[d];
  return place;
}

/* The places of a box's elements first … first + n - 1, counted within the box. */
static void places(const struct runs *runs, int64_t origin, int64_t first, int64_t n, int64_t *at) {
  int64_t position[SHARDRT_MAX_NDIM], number = first / runs->run, within = first % runs->run, done = 0;
  for (int32_t d = runs->outer - 1; d >= 0; d--) {
    position[d] = number % runs->extent[d];
    number /= runs->extent[d];
    origin += position[d] * runs->step[d];
  }
  while (true) {
    const int64_t left = runs->run - within, count = left < n - done ? left : n - done;
    for (int64_t i = 0; i < count; i++) at[done + i] = origin + within + i;
    done += count;
    if (done == n) return;
    within = 0;
    int32_t d = runs->outer - 1;
    for (; position[d] + 1 == runs->extent[d]; d--) {
      origin -= position[d] * runs->step[d];
      position[d] = 0;
    }
    position[d]++;
    origin += runs->step[d];
  }
}

static void run_fill_task(void *context, int64_t number) {
  const struct fill *self = context;
  const int64_t block = number / self->per_block;
  const int64_t origin = place_of(self->out, &shardrt_array_shard(self->out, self->blocks.shards[block])->box);
  const size_t element = shardrt_dtype_size(shardrt_array_dtype(self->out));
  char *data = unique_blocks_data(&self->blocks, self->out, block);
  int64_t first = number % self->per_block * TASK, stop = first + TASK;
  if (stop > self->elements) stop = self->elements;
  while (first < stop) {
    const int64_t n = stop - first < KEY_TILE ? stop - first : KEY_TILE;
    int64_t at[KEY_TILE];
    uint32_t bits[2][KEY_TILE];
    places(&self->runs, origin, first, n, at);
    for (int32_t k = 0; k < self->nkeys; k++) key_bits(&self->keys[k], self->size, self->width, at, (size_t)n, bits[k]);
    self->tile(self, (const uint32_t(*)[KEY_TILE])bits, (size_t)n, data + (size_t)first * element);
    first += n;
  }
}

static int fill_on_devices(const struct accelerator *a, const struct fill *self) {
  struct accelerator_random random = {.kind = self->kind,
                                      .dtype = shardrt_array_dtype(self->out),
                                      .keys = {self->keys[0], self->keys[1]},
                                      .width = self->width,
                                      .low = self->low,
                                      .span = self->span,
                                      .probability = self->probability,
                                      .least = self->least,
                                      .count = self->count,
                                      .size = self->size,
                                      .elements = self->elements,
                                      .outer = self->runs.outer,
                                      .run = self->runs.run};
  memcpy(random.extent, self->runs.extent, sizeof random.extent);
  memcpy(random.step, self->runs.step, sizeof random.step);
  int code = SHARDRT_OK;
  for (int64_t block = 0; block < self->blocks.count && code == SHARDRT_OK; block++) {
    random.origin = place_of(self->out, &shardrt_array_shard(self->out, self->blocks.shards[block])->box);
    code = a->kernels->random("random numbers", unique_blocks_device(&self->blocks, self->out, block), &random,
                              unique_blocks_data(&self->blocks, self->out, block));
  }
  return code;
}

static int fill_array(struct fill *self, shardrt_array *out) {
  self->out = out;
  if (!size_elements(shardrt_array_ndim(out), shardrt_array_shape(out), &self->size))
    return error_set(SHARDRT_EOVERFLOW, "the elements of an array of random numbers");
  int code = key_check(&self->keys[0], self->size, self->width);
  if (code == SHARDRT_OK) code = unique_blocks_begin("random numbers", 0, NULL, out, &self->blocks);
  if (code != SHARDRT_OK) return code;
  self->elements = work_shard_elements(out);
  self->per_block = (self->elements + TASK - 1) / TASK;
  self->runs = runs_of(out);
  const struct accelerator *a = accelerator_get();
  if (a != NULL)
    code = fill_on_devices(a, self);
  else
    work_spread(run_fill_task, self, self->blocks.count * self->per_block);
  unique_blocks_end(&self->blocks);
  return code;
}

static int check_dtype(const char *what, int32_t wanted, const shardrt_array *out) {
  const int32_t dtype = shardrt_array_dtype(out);
  if (dtype == wanted) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s are %s, not %s", what, shardrt_dtype_name(wanted), shardrt_dtype_name(dtype));
}

/* ---- bits ------------------------------------------------------------------------------------------------------- */

static void tile_bits(const struct fill *self, const uint32_t bits[2][KEY_TILE], size_t n, void *to) {
  if (self->width == 32) memcpy(to, bits[0], n * sizeof(uint32_t));
  uint16_t *halves = to;
  for (size_t i = 0; i < n && self->width == 16; i++) halves[i] = (uint16_t)bits[0][i];
  uint8_t *bytes = to;
  for (size_t i = 0; i < n && self->width == 8; i++) bytes[i] = (uint8_t)bits[0][i];
}

int shardrt_key_bits(const shardrt_key *key, shardrt_array *out) {
  const int32_t dtype = shardrt_array_dtype(out);
  if (dtype != SHARDRT_UINT8 && dtype != SHARDRT_UINT16 && dtype != SHARDRT_UINT32)
    return error_set(SHARDRT_EINVAL, "random bits are uint8, uint16 or uint32, not %s", shardrt_dtype_name(dtype));
  struct fill fill = {.keys = {*key},
                      .nkeys = 1,
                      .width = 8 * (int32_t)shardrt_dtype_size(dtype),
                      .kind = ACCELERATOR_BITS,
                      .tile = tile_bits};
  return fill_array(&fill, out);
}

/* ---- floats ----------------------------------------------------------------------------------------------------- */

static void tile_uniform(const struct fill *self, const uint32_t bits[2][KEY_TILE], size_t n, void *to) {
  deviate_uniform(bits[0], n, self->low, self->span, to);
}

int shardrt_key_uniform(const shardrt_key *key, float minval, float maxval, shardrt_array *out) {
  int code = check_dtype("uniform numbers", SHARDRT_FLOAT32, out);
  if (code < 0) return code;
  const float span = maxval - minval;
  if (!(minval < maxval) || !isfinite(span))
    return error_set(SHARDRT_EINVAL,
                     "uniform numbers from %.9g to below %.9g; as float32 the second must be larger, and their "
                     "difference finite",
                     (double)minval, (double)maxval);
  struct fill fill = {.keys = {*key},
                      .nkeys = 1,
                      .width = 32,
                      .kind = ACCELERATOR_UNIFORM,
                      .tile = tile_uniform,
                      .low = minval,
                      .span = span};
  return fill_array(&fill, out);
}

static void tile_normal(const struct fill *self, const uint32_t bits[2][KEY_TILE], size_t n, void *to) {
  (void)self;
  deviate_normal(bits[0], n, to);
}

int shardrt_key_normal(const shardrt_key *key, shardrt_array *out) {
  int code = check_dtype("normal numbers", SHARDRT_FLOAT32, out);
  if (code < 0) return code;
  struct fill fill = {.keys = {*key}, .nkeys = 1, .width = 32, .kind = ACCELERATOR_NORMAL, .tile = tile_normal};
  return fill_array(&fill, out);
}

/* ---- bool and int32 --------------------------------------------------------------------------------------------- */

static void tile_bernoulli(const struct fill *self, const uint32_t bits[2][KEY_TILE], size_t n, void *to) {
  deviate_bernoulli(bits[0], n, self->probability, to);
}

int shardrt_key_bernoulli(const shardrt_key *key, float probability, shardrt_array *out) {
  int code = check_dtype("what is true or false at random", SHARDRT_BOOL, out);
  if (code < 0) return code;
  if (!(probability >= 0 && probability <= 1))
    return error_set(SHARDRT_EINVAL, "a probability of %.9g; it is from 0 to 1", (double)probability);
  struct fill fill = {.keys = {*key},
                      .nkeys = 1,
                      .width = 32,
                      .kind = ACCELERATOR_BERNOULLI,
                      .tile = tile_bernoulli,
                      .probability = probability};
  return fill_array(&fill, out);
}

static void tile_randint(const struct fill *self, const uint32_t bits[2][KEY_TILE], size_t n, void *to) {
  deviate_randint(bits[0], bits[1], n, self->least, self->count, to);
}

int shardrt_key_randint(const shardrt_key *key, int64_t minval, int64_t maxval, shardrt_array *out) {
  const int64_t limit = INT32_MAX + (int64_t)1;
  int code = check_dtype("random whole numbers", SHARDRT_INT32, out);
  if (code < 0) return code;
  if (minval < -limit || minval >= limit || maxval < -limit || maxval > limit)
    return error_set(
        SHARDRT_EINVAL,
        "whole numbers from %lld to below %lld; the first is in [-2^31, 2^31), the second in [-2^31, 2^31]",
        (long long)minval, (long long)maxval);
  const int64_t span = maxval > minval ? maxval - minval : 1; /* as in jax.random.randint: minval alone */
  struct fill fill = {.nkeys = 2,
                      .width = 32,
                      .kind = ACCELERATOR_RANDINT,
                      .tile = tile_randint,
                      .least = (int32_t)minval,
                      .count = (uint32_t)span};
  code = shardrt_key_split(key, 2, fill.keys);
  return code < 0 ? code : fill_array(&fill, out);
}
