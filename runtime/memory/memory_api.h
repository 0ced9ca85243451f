/* memory_api.h - how buffers and arrays are made: a part of shardrt.h. */
#ifndef SHARDRT_MEMORY_MEMORY_API_H
#define SHARDRT_MEMORY_MEMORY_API_H

#include "layout/layout_api.h"
#include "memory/array_api.h"

int shardrt_buffer_new(size_t bytes, shardrt_buffer **out);   /* contents undefined; 0 bytes is allowed */
int shardrt_buffer_zeros(size_t bytes, shardrt_buffer **out); /* zeros; untouched pages cost nothing */
/* Begins to make the copy that shardrt_buffer_host gives, and does not wait for it. */
int shardrt_buffer_fetch(shardrt_buffer *buffer);
/* Bytes that this process's devices have of their own, together; of a GPU that is several devices, once. 0: they have
 * no memory but the process's. */
size_t shardrt_device_memory(void);
/* What this thread calls from now on where a device has no memory left for it, or the host none that is pinned, before
 * it tries again: it may free whatever the thread's own call at that moment was not given. NULL, as at first: nothing.
 */
void shardrt_device_reclaim(void (*reclaim)(void));

/* Copies a box between two C-contiguous arrays: `extent` elements in each dimension, from src_start in src to
 * dst_start in dst. EINVAL where a box leaves its array. The innermost run is as long as the shapes allow. */
int shardrt_box_copy(int32_t ndim, size_t element_bytes, const int64_t *extent, void *dst, const int64_t *dst_shape,
                     const int64_t *dst_start, const void *src, const int64_t *src_shape, const int64_t *src_start);

/* An array whose shards have no buffers yet. Errors as shardrt_sharding_shard_shape. */
int shardrt_array_new(shardrt_sharding *sharding, int32_t dtype, int32_t ndim, const int64_t *shape, int32_t process,
                      int32_t devices_per_process, shardrt_array **out);
/* One more array as `like` is, with a count of each buffer that it has: its dtype, shape, sharding, shards and number
 * are copied, not computed. ENOMEM. */
int shardrt_array_like(const shardrt_array *like, shardrt_array **out);
void shardrt_array_free(shardrt_array *array); /* and a count less of its buffers and its sharding */
/* The bytes of its buffers: one for each distinct box in the process's own memory, or one for each shard where devices
 * have memory of their own, which `on_devices` says. Not those that `of`, if it is not NULL, has at the same place. */
size_t shardrt_array_held_bytes(const shardrt_array *array, const shardrt_array *of, bool *on_devices);
/* The number of an array among those that all processes made together, the same in every process; 0, as a new array
 * has: it was not made by all together. What all processes do with an array first compares the numbers. Where processes
 * make arrays apart, one by one, the number comes from the value (all of it, C-contiguous): its highest bit is set, and
 * equal arrays have equal numbers. */
uint64_t shardrt_array_number(const shardrt_array *array);
void shardrt_array_set_number(shardrt_array *array, uint64_t number);
void shardrt_array_number_by_value(shardrt_array *array, const void *value);
/* Gives shard i (of an array that is being made) its buffer, in place of the one it may have; takes a count. One that
 * does not lie in the memory of the shard's device is copied there. EINVAL: another size. */
int shardrt_array_set_buffer(shardrt_array *array, int64_t i, shardrt_buffer *buffer);
/* Fills every shard of an array that is being made, one buffer for each distinct box, from the whole value. */
int shardrt_array_fill_global(shardrt_array *array, const void *value);
/* The same from this process's part of the value, `local_shape` of it: in each dimension either the global size, or
 * the distinct ranges that this process's devices hold, ascending and packed (make_array_from_process_local_data).
 * EINVAL where a dimension is neither; the message names it and the sizes that would do. */
int shardrt_array_fill_local(shardrt_array *array, const int64_t *local_shape, const void *value);

/* For Python: the destructor of a capsule "dltensor" or "dltensor_versioned", which calls the deleter where nobody
 * consumed it. As no Python runs in it, it may come while an exception is on its way, and when the interpreter ends.
 * Before the first capsule it is told where PyCapsule_IsValid and PyCapsule_GetPointer are. */
void shardrt_dlpack_capsule_free(void *capsule);
void shardrt_dlpack_python(int (*is_valid)(void *capsule, const char *name),
                           void *(*pointer)(void *capsule, const char *name));

#endif
