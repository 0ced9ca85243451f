#include "memory/buffer.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "platform/accelerator.h"
#include "platform/device.h"

enum { BUFFER_ALIGNMENT = 64 };

/* Of a device's memory there may be a copy here (`mirror`), which is there once `arriving`, if it is not NULL, was
 * reached. It stays where somebody asked for it for good (`kept`), else until nobody borrows it. These are the main
 * thread's. */
struct shardrt_buffer {
  _Atomic int64_t count;
  void *data;
  size_t bytes;
  buffer_release *release; /* NULL: nothing is to be done. Of a device's memory: who hears that it is gone */
  void *context;
  int32_t device;
  int32_t stream; /* in whose order it is given back */
  int32_t holder;
  void *mirror;
  struct accelerator_event *arriving;
  bool kept;
  int32_t borrowers;
};

int shardrt_buffer_wrap(void *data, size_t bytes, buffer_release *release, void *context, shardrt_buffer **out) {
  shardrt_buffer *buffer = alloc_array(1, sizeof *buffer);
  if (buffer == NULL) return ALLOC_FAILED;
  *buffer =
      (shardrt_buffer){.data = data, .bytes = bytes, .release = release, .context = context, .device = BUFFER_HOST};
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
  int code = shardrt_buffer_wrap(data, bytes, release_device_memory, NULL, out);
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
  int code = shardrt_buffer_wrap(memory + (past == 0 ? 0 : BUFFER_ALIGNMENT - past), bytes, release_zeros, memory, out);
  if (code < 0) alloc_free(memory);
  return code;
}

/* The device's memory goes once its own copy here is made, the copy when that has arrived. */
static void release_on_device(shardrt_buffer *buffer) {
  assert(buffer->borrowers == 0);
  const struct accelerator *a = accelerator_get();
  if (buffer->arriving != NULL) (void)a->streams->wait(buffer->device, buffer->stream, buffer->arriving);
  a->memory->free(buffer->device, buffer->stream, buffer->holder, buffer->data, buffer->bytes);
  if (buffer->arriving != NULL) (void)a->streams->finish(buffer->arriving);
  a->streams->event_free(buffer->arriving);
  if (buffer->mirror != NULL) a->memory->free_pinned(buffer->mirror, buffer->bytes);
}

shardrt_buffer *shardrt_buffer_retain(shardrt_buffer *buffer) {
  assert(atomic_load_explicit(&buffer->count, memory_order_relaxed) > 0); /* who retains it holds it */
  atomic_fetch_add_explicit(&buffer->count, 1, memory_order_relaxed);
  return buffer;
}

void shardrt_buffer_free(shardrt_buffer *buffer) {
  assert(buffer == NULL || atomic_load_explicit(&buffer->count, memory_order_relaxed) > 0);
  /* Acquire and release: whoever takes the memory back sees all that other threads did with it. */
  if (buffer == NULL || atomic_fetch_sub_explicit(&buffer->count, 1, memory_order_acq_rel) != 1) return;
  if (buffer->device != BUFFER_HOST) release_on_device(buffer);
  if (buffer->release != NULL) buffer->release(buffer->context, buffer->data, buffer->bytes);
  alloc_free(buffer);
}

void *shardrt_buffer_data(const shardrt_buffer *buffer) {
  return buffer->data;
}

size_t shardrt_buffer_bytes(const shardrt_buffer *buffer) {
  return buffer->bytes;
}

int32_t shardrt_buffer_device(const shardrt_buffer *buffer) {
  return buffer->device;
}

/* ---- on devices that have memory of their own ------------------------------------------------------------------- */

int buffer_on_device(int32_t device, int32_t stream, int32_t holder, size_t bytes, shardrt_buffer **out) {
  const struct accelerator *a = accelerator_get();
  void *data;
  int code = a->memory->allocate(device, stream, holder, bytes, &data);
  if (code < 0) return code;
  code = shardrt_buffer_wrap(data, bytes, NULL, NULL, out);
  if (code < 0) {
    a->memory->free(device, stream, holder, data, bytes);
    return code;
  }
  (*out)->device = device;
  (*out)->stream = stream;
  (*out)->holder = holder;
  return SHARDRT_OK;
}

void buffer_to_main(shardrt_buffer *buffer) {
  buffer->stream = ACCELERATOR_MAIN;
}

bool buffer_watch(shardrt_buffer *buffer, buffer_release *gone, void *context) {
  assert(buffer->device != BUFFER_HOST);
  if (buffer->release != NULL) return false;
  buffer->release = gone;
  buffer->context = context;
  return true;
}

/* From memory that may be given back, or written to, as soon as this returns: what an array's data was brought to is
 * pinned, and a view of it may be what is uploaded. */
static int upload(shardrt_buffer *made, const void *from) {
  const struct accelerator *a = accelerator_get();
  int code = a->copies->upload(made->device, ACCELERATOR_MAIN, made->data, from, made->bytes);
  if (code < 0 || made->bytes == 0 || !a->copies->is_pinned(from)) return code;
  struct accelerator_event *there = NULL;
  code = a->streams->record(made->device, ACCELERATOR_MAIN, &there);
  if (code == SHARDRT_OK) code = a->streams->finish(there);
  a->streams->event_free(there);
  return code;
}

int buffer_to_device(shardrt_buffer *buffer, int32_t device, shardrt_buffer **out) {
  if (buffer->device == device) {
    *out = shardrt_buffer_retain(buffer);
    return SHARDRT_OK;
  }
  const struct accelerator *a = accelerator_get();
  shardrt_buffer *made;
  int code = buffer_on_device(device, ACCELERATOR_MAIN, ACCELERATOR_ARRAYS, buffer->bytes, &made);
  if (code < 0) return code;
  if (buffer->device == BUFFER_HOST) {
    code = upload(made, buffer->data);
  } else {
    code = a->streams->after(device, buffer->device);
    if (code == SHARDRT_OK) code = a->copies->copy(device, made->data, buffer->device, buffer->data, buffer->bytes);
    if (code == SHARDRT_OK) code = a->streams->after(buffer->device, device);
  }
  if (code < 0) {
    shardrt_buffer_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

/* Downloads beside what the device goes on to compute. */
static int begin_mirror(shardrt_buffer *buffer, void *mirror, struct accelerator_event **arriving) {
  const struct accelerator *a = accelerator_get();
  struct accelerator_event *made = NULL;
  int code = a->streams->record(buffer->device, ACCELERATOR_MAIN, &made);
  if (code == SHARDRT_OK) code = a->streams->wait(buffer->device, ACCELERATOR_OUT, made);
  a->streams->event_free(made);
  if (code == SHARDRT_OK)
    code = a->copies->download(buffer->device, ACCELERATOR_OUT, mirror, buffer->data, buffer->bytes);
  return code < 0 ? code : a->streams->record(buffer->device, ACCELERATOR_OUT, arriving);
}

static int fetch_to_host(shardrt_buffer *buffer) {
  if (buffer->device == BUFFER_HOST || buffer->mirror != NULL) return SHARDRT_OK;
  const struct accelerator *a = accelerator_get();
  void *mirror;
  int code = a->memory->allocate_pinned(buffer->bytes, &mirror);
  if (code < 0) return code;
  code = begin_mirror(buffer, mirror, &buffer->arriving);
  if (code < 0) /* what failed may still write to it: it is given up */
    return error_prefix(code, "an array's data cannot be brought to the host");
  buffer->mirror = mirror;
  return SHARDRT_OK;
}

/* Waits for what was fetched. */
static int arrive(shardrt_buffer *buffer, void **out) {
  if (buffer->device == BUFFER_HOST) {
    *out = buffer->data;
    return SHARDRT_OK;
  }
  if (buffer->arriving != NULL) {
    int code = accelerator_get()->streams->finish(buffer->arriving);
    if (code < 0) return error_prefix(code, "an array's data cannot be brought to the host");
    accelerator_get()->streams->event_free(buffer->arriving);
    buffer->arriving = NULL;
  }
  *out = buffer->mirror;
  return SHARDRT_OK;
}

int shardrt_buffer_fetch(shardrt_buffer *buffer) {
  buffer->kept = true;
  return fetch_to_host(buffer);
}

int shardrt_buffer_host(shardrt_buffer *buffer, void **out) {
  int code = shardrt_buffer_fetch(buffer);
  return code == SHARDRT_OK ? arrive(buffer, out) : code;
}

int buffer_borrow(shardrt_buffer *buffer) {
  int code = fetch_to_host(buffer);
  if (code == SHARDRT_OK) buffer->borrowers++;
  return code;
}

int buffer_borrowed(shardrt_buffer *buffer, void **out) {
  assert(buffer->borrowers > 0);
  return arrive(buffer, out);
}

void buffer_return(shardrt_buffer *buffer) {
  assert(buffer->borrowers > 0);
  if (--buffer->borrowers > 0 || buffer->kept || buffer->mirror == NULL) return;
  const struct accelerator *a = accelerator_get();
  if (buffer->arriving != NULL) (void)a->streams->finish(buffer->arriving);
  a->streams->event_free(buffer->arriving);
  a->memory->free_pinned(buffer->mirror, buffer->bytes);
  buffer->arriving = NULL;
  buffer->mirror = NULL;
}
