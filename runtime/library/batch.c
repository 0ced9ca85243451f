#include "library/batch.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "platform/accelerator.h"

struct held_bytes {
  atomic_int owners; /* a loader, and batches */
  _Atomic int64_t bytes;
};

struct shardrt_batch {
  atomic_int owners;
  struct held_bytes *held; /* in which it counts; NULL: none */
  int64_t bytes;
  int count;
  bool holds_devices; /* it outlives the job that has them */
  shardrt_array **arrays;
  const char **names; /* whose texts lie behind them */
};

/* ---- what is held ------------------------------------------------------------------------------------------------ */

int held_bytes_new(struct held_bytes **out) {
  struct held_bytes *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  atomic_init(&made->owners, 1);
  *out = made;
  return SHARDRT_OK;
}

void held_bytes_free(struct held_bytes *self) {
  if (self != NULL && atomic_fetch_sub_explicit(&self->owners, 1, memory_order_acq_rel) == 1) alloc_free(self);
}

int64_t held_bytes_get(const struct held_bytes *self) {
  return atomic_load(&self->bytes);
}

/* Replicas mostly share a buffer. */
static int64_t count_bytes(const shardrt_array *array) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
    const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
    int64_t like = 0;
    while (shardrt_array_buffer(array, like) != buffer) like++;
    if (like == i && buffer != NULL) bytes += (int64_t)shardrt_buffer_bytes(buffer);
  }
  return bytes;
}

void recipe_batch_hold(shardrt_batch *batch, struct held_bytes *held) {
  for (int i = 0; i < batch->count; i++) batch->bytes += count_bytes(batch->arrays[i]);
  batch->held = held;
  atomic_fetch_add(&held->owners, 1);
  atomic_fetch_add(&held->bytes, batch->bytes);
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

int recipe_batch_new(int count, const char *const *names, shardrt_batch **out) {
  size_t text = 0;
  for (int i = 0; i < count; i++) text += strlen(names[i]) + 1;
  const size_t each = sizeof(shardrt_array *) + sizeof(char *);
  shardrt_batch *made = alloc_zeros(1, sizeof *made + (size_t)count * each + text);
  if (made == NULL) return ALLOC_FAILED;
  atomic_init(&made->owners, 1);
  made->count = count;
  made->arrays = (shardrt_array **)(made + 1);
  made->names = (const char **)(made->arrays + count);
  char *place = (char *)(made->names + count);
  for (int i = 0; i < count; i++) {
    const size_t length = strlen(names[i]) + 1;
    made->names[i] = memcpy(place, names[i], length);
    place += length;
  }
  made->holds_devices = accelerator_get() != NULL;
  if (made->holds_devices) accelerator_hold();
  *out = made;
  return SHARDRT_OK;
}

shardrt_array **recipe_batch_arrays(shardrt_batch *batch) {
  return batch->arrays;
}

void shardrt_batch_retain(shardrt_batch *batch) {
  if (batch != NULL) atomic_fetch_add_explicit(&batch->owners, 1, memory_order_relaxed);
}

void shardrt_batch_free(shardrt_batch *batch) {
  if (batch == NULL || atomic_fetch_sub_explicit(&batch->owners, 1, memory_order_acq_rel) != 1) return;
  for (int i = 0; i < batch->count; i++) shardrt_array_free(batch->arrays[i]);
  if (batch->holds_devices) accelerator_close();
  if (batch->held != NULL) atomic_fetch_sub(&batch->held->bytes, batch->bytes);
  held_bytes_free(batch->held);
  alloc_free(batch);
}

int shardrt_batch_fields(const shardrt_batch *batch) {
  return batch->count;
}

const char *shardrt_batch_name(const shardrt_batch *batch, int field) {
  return field >= 0 && field < batch->count ? batch->names[field] : NULL;
}

const shardrt_array *shardrt_batch_array(const shardrt_batch *batch, int field) {
  return field >= 0 && field < batch->count ? batch->arrays[field] : NULL;
}

const shardrt_array *shardrt_batch_find(const shardrt_batch *batch, const char *name) {
  for (int i = 0; i < batch->count; i++)
    if (strcmp(batch->names[i], name) == 0) return batch->arrays[i];
  return NULL;
}
