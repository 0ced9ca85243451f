/* array.c - global arrays as one process sees them: its own shards and their buffers. */
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compare.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "base/text.h"
#include "layout/box.h"
#include "layout/sharding.h"
#include "memory/array.h"
#include "memory/array_text.h"
#include "memory/buffer.h"
#include "memory/buffer_pool.h"
#include "platform/accelerator.h"

/* Invariant: shards are in mesh order; shards of one `block` have the same box. Buffers are NULL until they are set;
 * after that an array does not change, but for giving them up. */
struct shardrt_array {
  shardrt_sharding *sharding;
  int32_t dtype;
  int32_t ndim;
  int64_t shape[SHARDRT_MAX_NDIM];
  int64_t shard_shape[SHARDRT_MAX_NDIM];
  size_t bytes;       /* of the whole value */
  size_t shard_bytes; /* of one shard */
  int32_t process;
  int32_t devices_per_process;
  uint64_t layout;
  uint64_t number; /* among the arrays that all processes made together, or of the value */
  int64_t shard_count;
  int64_t block_count;
  shardrt_shard *shards;
  shardrt_buffer **buffers;
};

static _Atomic uint64_t layouts; /* that there were */

enum { FEW_SHARDS = 16 }; /* of one process: so many are found at the first attempt */

static int find_shards(shardrt_array *array, int32_t devices_per_process) {
  shardrt_shard few[FEW_SHARDS];
  int64_t count, blocks;
  int code = shardrt_sharding_shards(array->sharding, array->ndim, array->shape, array->process, devices_per_process,
                                     few, FEW_SHARDS, &count, &blocks);
  if (code < 0) return code;
  array->shards = alloc_array((size_t)count, sizeof *array->shards);
  if (array->shards == NULL) return ALLOC_FAILED;
  if (count <= FEW_SHARDS)
    memcpy(array->shards, few, (size_t)count * sizeof *few);
  else
    code = shardrt_sharding_shards(array->sharding, array->ndim, array->shape, array->process, devices_per_process,
                                   array->shards, count, &count, &blocks);
  if (code < 0) return code;
  array->buffers = alloc_zeros((size_t)count, sizeof(shardrt_buffer *));
  if (array->buffers == NULL) return ALLOC_FAILED;
  array->shard_count = count;
  assert(blocks <= count); /* a block has a shard at least */
  array->block_count = blocks;
  return SHARDRT_OK;
}

static int whole_size(int32_t dtype, int32_t ndim, const int64_t *shape, size_t *bytes) {
  if (shardrt_dtype_size(dtype) == 0) return error_set(SHARDRT_EINVAL, "there is no dtype number %d", dtype);
  if (ndim < 0 || ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "an array of %d dimensions; it can have 0 to %d", ndim, SHARDRT_MAX_NDIM);
  for (int32_t d = 0; d < ndim; d++)
    if (shape[d] < 0)
      return error_set(SHARDRT_EINVAL, "dimension %d has size %" PRId64 "; a size is 0 or more", d, shape[d]);
  if (size_bytes(ndim, shape, shardrt_dtype_size(dtype), bytes)) return SHARDRT_OK;
  char buffer[256];
  struct text text = {.bytes = buffer, .capacity = sizeof buffer};
  text_add_shape(&text, ndim, shape);
  return error_set(SHARDRT_EOVERFLOW, "an array of shape %s and dtype %s has more bytes than 64 bits count", buffer,
                   shardrt_dtype_name(dtype));
}

int shardrt_array_new(shardrt_sharding *sharding, int32_t dtype, int32_t ndim, const int64_t *shape, int32_t process,
                      int32_t devices_per_process, shardrt_array **out) {
  size_t bytes = 0;
  int code = whole_size(dtype, ndim, shape, &bytes);
  if (code < 0) return code;
  shardrt_array *array = alloc_zeros(1, sizeof *array);
  if (array == NULL) return ALLOC_FAILED;
  array->layout = 1 + atomic_fetch_add_explicit(&layouts, 1, memory_order_relaxed);
  array->sharding = sharding_retain(sharding);
  array->dtype = dtype;
  array->ndim = ndim;
  array->bytes = bytes;
  array->process = process;
  array->devices_per_process = devices_per_process;
  memcpy(array->shape, shape, (size_t)ndim * sizeof *shape);
  code = shardrt_sharding_shard_shape(sharding, ndim, shape, array->shard_shape);
  if (code < 0) goto failed;
  size_bytes(ndim, array->shard_shape, shardrt_dtype_size(dtype), &array->shard_bytes); /* less than the whole's */
  code = find_shards(array, devices_per_process);
  if (code < 0) goto failed;
  *out = array;
  return SHARDRT_OK;

failed:
  shardrt_array_free(array);
  return code;
}

int shardrt_array_like(const shardrt_array *like, shardrt_array **out) {
  size_t count = (size_t)like->shard_count;
  shardrt_array *array = alloc_array(1, sizeof *array);
  if (array == NULL) return ALLOC_FAILED;
  *array = *like;
  array->shards = alloc_array(count, sizeof *array->shards);
  array->buffers = array->shards == NULL ? NULL : alloc_array(count, sizeof(shardrt_buffer *));
  if (array->buffers == NULL) {
    alloc_free(array->shards);
    alloc_free(array);
    return ALLOC_FAILED;
  }
  sharding_retain(array->sharding);
  memcpy(array->shards, like->shards, count * sizeof *array->shards);
  for (size_t i = 0; i < count; i++)
    array->buffers[i] = like->buffers[i] == NULL ? NULL : shardrt_buffer_retain(like->buffers[i]);
  *out = array;
  return SHARDRT_OK;
}

void shardrt_array_free(shardrt_array *array) {
  if (array == NULL) return;
  for (int64_t i = 0; i < array->shard_count; i++) shardrt_buffer_free(array->buffers[i]);
  alloc_free(array->buffers);
  alloc_free(array->shards);
  shardrt_sharding_free(array->sharding);
  alloc_free(array);
}

size_t shardrt_array_held_bytes(const shardrt_array *array, const shardrt_array *of, bool *on_devices) {
  const int64_t count = array->shard_count;
  *on_devices = count > 0 && array->buffers[0] != NULL && shardrt_buffer_device(array->buffers[0]) >= 0;
  size_t held = 0;
  int64_t blocks = 0; /* they are numbered by first appearance */
  for (int64_t i = 0; i < count; i++) {
    if (!*on_devices && array->shards[i].block < blocks) continue;
    blocks++;
    if (array->buffers[i] == NULL) continue;
    if (of == NULL || i >= of->shard_count || array->buffers[i] != of->buffers[i]) held += array->shard_bytes;
  }
  return held;
}

int32_t shardrt_array_dtype(const shardrt_array *array) {
  return array->dtype;
}

int32_t shardrt_array_ndim(const shardrt_array *array) {
  return array->ndim;
}

const int64_t *shardrt_array_shape(const shardrt_array *array) {
  return array->shape;
}

shardrt_sharding *shardrt_array_sharding(const shardrt_array *array) {
  return array->sharding;
}

uint64_t shardrt_array_layout(const shardrt_array *array) {
  return array->layout;
}

int64_t shardrt_array_shard_count(const shardrt_array *array) {
  return array->shard_count;
}

const shardrt_shard *shardrt_array_shard(const shardrt_array *array, int64_t i) {
  assert(i >= 0 && i < array->shard_count);
  return &array->shards[i];
}

uint64_t shardrt_array_number(const shardrt_array *array) {
  return array->number;
}

void shardrt_array_set_number(shardrt_array *array, uint64_t number) {
  array->number = number;
}

void shardrt_array_number_by_value(shardrt_array *array, const void *value) {
  uint64_t hash = hash_number(hash_bytes(0, value, array->bytes), array->dtype);
  for (int32_t d = 0; d < array->ndim; d++) hash = hash_number(hash, array->shape[d]);
  array->number = hash | ARRAY_NUMBER_BY_VALUE;
}

size_t shardrt_array_shard_bytes(const shardrt_array *array) {
  return array->shard_bytes;
}

shardrt_buffer *shardrt_array_buffer(const shardrt_array *array, int64_t i) {
  assert(i >= 0 && i < array->shard_count);
  return array->buffers[i];
}

const void *shardrt_array_host_data(const shardrt_array *array, int64_t i) {
  const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
  return buffer != NULL && shardrt_buffer_device(buffer) < 0 ? shardrt_buffer_data(buffer) : NULL;
}

int32_t array_local_device(const shardrt_array *array, int64_t i) {
  assert(array->shards[i].device / array->devices_per_process == array->process); /* its own */
  return array->shards[i].device - array->process * array->devices_per_process;
}

int64_t array_processes(const shardrt_array *array) {
  return (shardrt_mesh_size(shardrt_sharding_mesh(array->sharding)) - 1) / array->devices_per_process + 1;
}

/* With the array in the message, as a device's memory or a device may fail at any of many. */
static int wrong_device(const shardrt_array *array, int64_t i, int code) {
  char bytes[512];
  struct text text = {.bytes = bytes, .capacity = sizeof bytes};
  array_add_text(array, &text);
  return error_prefix(code, "device %d's shard of %s", array->shards[i].device, bytes);
}

int shardrt_array_set_buffer(shardrt_array *array, int64_t i, shardrt_buffer *buffer) {
  assert(i >= 0 && i < array->shard_count);
  if (shardrt_buffer_bytes(buffer) != array->shard_bytes)
    return error_set(SHARDRT_EINVAL, "device %d's shard has %zu bytes, not %zu", array->shards[i].device,
                     array->shard_bytes, shardrt_buffer_bytes(buffer));
  shardrt_buffer *before = array->buffers[i];
  if (accelerator_get() == NULL) {
    array->buffers[i] = shardrt_buffer_retain(buffer);
  } else {
    int code = buffer_to_device(buffer, array_local_device(array, i), &array->buffers[i]);
    if (code < 0) return wrong_device(array, i, code);
  }
  shardrt_buffer_free(before);
  return SHARDRT_OK;
}

void array_drop(shardrt_array *array, int32_t block) {
  for (int64_t i = 0; i < array->shard_count; i++) {
    if (array->shards[i].block != block) continue;
    shardrt_buffer_free(array->buffers[i]);
    array->buffers[i] = NULL;
  }
}

/* ---- filling ---- */

/* How a box of the global array is found in the value that fills it, one dimension. */
struct range_set {
  bool whole;      /* the value has all of the dimension: at the box's own start */
  int64_t count;   /* otherwise: the distinct ranges of this process, */
  int64_t *starts; /* ascending; they stand packed, so the j-th begins at j times the shard's size */
};

static void range_set_find(struct range_set *set, const shardrt_array *array, int32_t dim) {
  for (int64_t i = 0; i < array->shard_count; i++) set->starts[i] = array->shards[i].box.start[dim];
  qsort(set->starts, (size_t)array->shard_count, sizeof *set->starts, compare_int64);
  set->count = 0;
  for (int64_t i = 0; i < array->shard_count; i++)
    if (i == 0 || set->starts[i] != set->starts[set->count - 1]) set->starts[set->count++] = set->starts[i];
}

static int64_t range_set_offset(const struct range_set *set, int64_t start, int64_t size) {
  if (set->whole) return start;
  const int64_t *found = bsearch(&start, set->starts, (size_t)set->count, sizeof start, compare_int64);
  assert(found != NULL); /* the set is of all shards */
  return (found - set->starts) * size;
}

/* The part of `value`, of `value_shape`, that begins at `start`: where it lies, for as long as the value does, if that
 * is one run and only looked at (on the host platform what arrays hold is their own), else a copy. */
static int part_of(const shardrt_array *array, const int64_t *value_shape, const int64_t *start, const void *value,
                   shardrt_buffer **out) {
  static const int64_t origin[SHARDRT_MAX_NDIM];
  const size_t element = shardrt_dtype_size(array->dtype);
  shardrt_box box = {.ndim = array->ndim};
  int64_t offset = 0;
  for (int32_t d = 0; d < array->ndim; d++) {
    box.start[d] = start[d];
    box.stop[d] = start[d] + array->shard_shape[d];
    offset = offset * value_shape[d] + start[d];
  }
  if (accelerator_get() != NULL && box_is_run(&box, value_shape)) {
    void *there = (char *)value + (size_t)offset * element; /* which is not written to */
    return shardrt_buffer_wrap(there, array->shard_bytes, NULL, NULL, out);
  }
  struct buffer_pool *pool;
  int code = buffer_pool_of_arrays(&pool);
  if (code == SHARDRT_OK) code = buffer_pool_take(pool, array->shard_bytes, out);
  if (code < 0) return code;
  code = shardrt_box_copy(array->ndim, element, array->shard_shape, shardrt_buffer_data(*out), array->shard_shape,
                          origin, value, value_shape, start);
  if (code < 0) shardrt_buffer_free(*out);
  return code;
}

/* Fills the buffers from `value`, of `value_shape`, in which `sets` say where a box stands (NULL: at its own
 * start). All or nothing. */
static int fill_shards(shardrt_array *array, const int64_t *value_shape, const struct range_set *sets,
                       const void *value) {
  shardrt_buffer **blocks = alloc_zeros((size_t)array->block_count, sizeof(shardrt_buffer *));
  if (blocks == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < array->shard_count && code == SHARDRT_OK; i++) {
    const shardrt_shard *shard = &array->shards[i];
    if (blocks[shard->block] != NULL) continue; /* a replica: it shares the buffer */
    assert(shard->block >= 0 && shard->block < array->block_count);
    int64_t start[SHARDRT_MAX_NDIM];
    for (int32_t d = 0; d < array->ndim; d++)
      start[d] =
          sets == NULL ? shard->box.start[d] : range_set_offset(&sets[d], shard->box.start[d], array->shard_shape[d]);
    shardrt_buffer *part = NULL;
    code = part_of(array, value_shape, start, value, &part);
    if (code == SHARDRT_OK) blocks[shard->block] = part;
  }
  for (int64_t i = 0; i < array->shard_count && code == SHARDRT_OK; i++) {
    shardrt_buffer **block = &blocks[array->shards[i].block];
    code = shardrt_array_set_buffer(array, i, *block);
    if (code < 0) break;
    shardrt_buffer_free(*block); /* replicas are copied from where it lies now */
    *block = shardrt_buffer_retain(array->buffers[i]);
  }
  for (int64_t b = 0; b < array->block_count; b++) shardrt_buffer_free(blocks[b]);
  alloc_free(blocks);
  return code;
}

int shardrt_array_fill_global(shardrt_array *array, const void *value) {
  return fill_shards(array, array->shape, NULL, value);
}

static int wrong_local_size(const shardrt_array *array, int32_t dim, int64_t size, const struct range_set *set) {
  const int64_t packed = set->count * array->shard_shape[dim];
  char wanted[64] = "";
  if (packed != array->shape[dim]) snprintf(wanted, sizeof wanted, "%" PRId64 " (these, packed) or ", packed);
  return error_set(SHARDRT_EINVAL,
                   "dimension %d of the process-local data has size %" PRId64
                   ", but this process's devices hold %" PRId64 " distinct range%s of %" PRId64 " of the %" PRId64
                   " in this dimension: it must be %s%" PRId64 " (the whole dimension)",
                   dim, size, set->count, set->count == 1 ? "" : "s", array->shard_shape[dim], array->shape[dim],
                   wanted, array->shape[dim]);
}

int shardrt_array_fill_local(shardrt_array *array, const int64_t *local_shape, const void *value) {
  if (array->shard_count == 0) return SHARDRT_OK; /* nothing is held here, whatever the value */
  int64_t *starts = alloc_array((size_t)array->shard_count, SHARDRT_MAX_NDIM * sizeof *starts);
  if (starts == NULL) return ALLOC_FAILED;
  struct range_set sets[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < SHARDRT_MAX_NDIM; d++)
    sets[d] = (struct range_set){.whole = true, .starts = starts + d * array->shard_count};
  int code = SHARDRT_OK;
  for (int32_t d = 0; d < array->ndim && code == SHARDRT_OK; d++) {
    sets[d].whole = local_shape[d] == array->shape[d];
    range_set_find(&sets[d], array, d);
    if (!sets[d].whole && local_shape[d] != sets[d].count * array->shard_shape[d])
      code = wrong_local_size(array, d, local_shape[d], &sets[d]);
  }
  if (code == SHARDRT_OK) code = fill_shards(array, local_shape, sets, value);
  alloc_free(starts);
  return code;
}

/* ---- reading ---- */

static int check_whole(const shardrt_array *array) {
  for (int64_t i = 0; i < array->shard_count; i++)
    if (array->buffers[i] == NULL)
      return error_set(SHARDRT_EDATA, "the array has no data: it was made for a plan, or is still being made");
  /* Distinct boxes of one sharding share no element, so they are the whole exactly if their sizes add up to it. */
  size_t held = (size_t)array->block_count * array->shard_bytes;
  if (held == array->bytes) return SHARDRT_OK;
  return error_set(
      SHARDRT_EDATA, "this process's devices hold %zu of the array's %zu bytes; %s", held, array->bytes,
      error_words("process_allgather brings the whole value to every process, addressable_shards are what is here",
                  "its shards are what is here; process_allgather, in C shardrt_process_allgather, brings the whole "
                  "value to every process"));
}

int shardrt_array_gather(const shardrt_array *array, void *value) {
  static const int64_t origin[SHARDRT_MAX_NDIM];
  int code = check_whole(array);
  int32_t next = 0; /* blocks are numbered by first appearance: the next one not yet asked for */
  for (int64_t i = 0; i < array->shard_count && code == SHARDRT_OK; i++) { /* all devices at once */
    if (array->shards[i].block != next) continue;
    code = buffer_borrow(array->buffers[i]);
    if (code == SHARDRT_OK) next++;
  }
  const int32_t borrowed = next;
  next = 0; /* and now, not yet copied */
  for (int64_t i = 0; i < array->shard_count && next < borrowed; i++) {
    const shardrt_shard *shard = &array->shards[i];
    if (shard->block != next) continue;
    next++;
    void *data;
    if (code == SHARDRT_OK) code = buffer_borrowed(array->buffers[i], &data);
    if (code == SHARDRT_OK)
      code = shardrt_box_copy(array->ndim, shardrt_dtype_size(array->dtype), array->shard_shape, value, array->shape,
                              shard->box.start, data, array->shard_shape, origin);
    buffer_return(array->buffers[i]);
  }
  return code;
}

int shardrt_array_wait(const shardrt_array *array) {
  const struct accelerator *a = accelerator_get();
  int code = SHARDRT_OK;
  for (int64_t i = 0; a != NULL && i < array->shard_count && code == SHARDRT_OK; i++) {
    if (array->buffers[i] == NULL) continue;
    struct accelerator_event *made = NULL;
    code = a->streams->record(shardrt_buffer_device(array->buffers[i]), ACCELERATOR_MAIN, &made);
    if (code == SHARDRT_OK) code = a->streams->finish(made);
    a->streams->event_free(made);
  }
  return code;
}
