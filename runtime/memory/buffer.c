#include "memory/buffer.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "device/device.h"

enum { BUFFER_ALIGNMENT = 64 };

struct shardrt_buffer {
  _Atomic int64_t count;
  void *data;
  size_t bytes;
  buffer_release *release;
  void *context;
};

int buffer_wrap(void *data, size_t bytes, buffer_release *release, void *context, shardrt_buffer **out) {
  shardrt_buffer *buffer = alloc_array(1, sizeof *buffer);
  if (buffer == NULL) return ALLOC_FAILED;
  *buffer = (shardrt_buffer){.data = data, .bytes = bytes, .release = release, .context = context};
  atomic_init(&buffer->count, 1);
  *out = buffer;
  return SHARDRT_OK;
}

static void release_device_memory(void *context, void *data, size_t bytes) {
  (void)context;
  (void)bytes;
  device_host.free(data);
}

static void release_zeros(void *context, void *data, size_t bytes) {
  (void)data;
  (void)bytes;
  alloc_free(context);
}

int shardrt_buffer_new(size_t bytes, shardrt_buffer **out) {
  void *data = device_host.allocate(bytes);
  if (data == NULL) return ALLOC_FAILED;
  int code = buffer_wrap(data, bytes, release_device_memory, NULL, out);
  if (code < 0) device_host.free(data);
  return code;
}

/* calloc's large blocks are fresh pages that nobody has touched; an aligned allocation would have to be cleared. */
int shardrt_buffer_zeros(size_t bytes, shardrt_buffer **out) {
  size_t room;
  if (!size_add(bytes, BUFFER_ALIGNMENT, &room)) return error_set(SHARDRT_ENOMEM, "out of memory: %zu bytes", bytes);
  char *memory = alloc_zeros(room, 1);
  if (memory == NULL) return ALLOC_FAILED;
  size_t past = (uintptr_t)memory % BUFFER_ALIGNMENT;
  int code = buffer_wrap(memory + (past == 0 ? 0 : BUFFER_ALIGNMENT - past), bytes, release_zeros, memory, out);
  if (code < 0) alloc_free(memory);
  return code;
}

shardrt_buffer *shardrt_buffer_retain(shardrt_buffer *buffer) {
  atomic_fetch_add_explicit(&buffer->count, 1, memory_order_relaxed);
  return buffer;
}

void shardrt_buffer_free(shardrt_buffer *buffer) {
  /* Acquire and release: whoever takes the memory back sees all that other threads did with it. */
  if (buffer == NULL || atomic_fetch_sub_explicit(&buffer->count, 1, memory_order_acq_rel) != 1) return;
  buffer->release(buffer->context, buffer->data, buffer->bytes);
  alloc_free(buffer);
}

void *shardrt_buffer_data(const shardrt_buffer *buffer) {
  return buffer->data;
}

size_t shardrt_buffer_bytes(const shardrt_buffer *buffer) {
  return buffer->bytes;
}
