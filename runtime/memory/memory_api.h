/* memory_api.h - dtypes, buffers, arrays: a part of shardrt.h. */
#ifndef SHARDRT_MEMORY_MEMORY_API_H
#define SHARDRT_MEMORY_MEMORY_API_H

#include "layout/layout_api.h"

enum {
  SHARDRT_BOOL,
  SHARDRT_INT8,
  SHARDRT_INT16,
  SHARDRT_INT32,
  SHARDRT_INT64,
  SHARDRT_UINT8,
  SHARDRT_UINT16,
  SHARDRT_UINT32,
  SHARDRT_UINT64,
  SHARDRT_FLOAT16,
  SHARDRT_BFLOAT16,
  SHARDRT_FLOAT32,
  SHARDRT_FLOAT64,
  SHARDRT_DTYPE_COUNT
};

const char *shardrt_dtype_name(int32_t dtype);     /* "float32"; NULL for no dtype */
int32_t shardrt_dtype_from_name(const char *name); /* or EINVAL */
size_t shardrt_dtype_size(int32_t dtype);          /* bytes of one element; 0 for no dtype */

/* One element of the two dtypes that C has no type for, as its bits: to the nearest, ties to even, beyond the largest
 * number infinity. */
double shardrt_float16_to_double(uint16_t bits);
uint16_t shardrt_float16_from_double(double value);
double shardrt_bfloat16_to_double(uint16_t bits);
uint16_t shardrt_bfloat16_from_double(double value);

/* Counted memory, 64-byte aligned unless it was wrapped; what it holds never changes once it is shared. It is the
 * process's own, or that of a device which has memory of its own. */
typedef struct shardrt_buffer shardrt_buffer;
int shardrt_buffer_new(size_t bytes, shardrt_buffer **out);   /* contents undefined; 0 bytes is allowed */
int shardrt_buffer_zeros(size_t bytes, shardrt_buffer **out); /* zeros; untouched pages cost nothing */
/* Around `bytes` bytes of the process's own memory that the caller has, at `data`, without a copy. They must be aligned
 * as their elements are (8 bytes serve every dtype), and neither move nor change while a count is left. With the last
 * count `release` is called once, with the other three, on whatever thread gave that count back. NULL: the caller keeps
 * the memory for as long as any count is left. ENOMEM: nothing was taken, and `release` is not called. */
int shardrt_buffer_wrap(void *data, size_t bytes, void (*release)(void *context, void *data, size_t bytes),
                        void *context, shardrt_buffer **out);
shardrt_buffer *shardrt_buffer_retain(shardrt_buffer *buffer); /* one count more; returns buffer */
void shardrt_buffer_free(shardrt_buffer *buffer);              /* one count less; any thread */
/* Its address, which is the host's where shardrt_buffer_device is -1, else the device's: not to be read here. */
void *shardrt_buffer_data(const shardrt_buffer *buffer);
/* Which of this process's devices it lies on, from 0; -1: in the process's own memory. */
int32_t shardrt_buffer_device(const shardrt_buffer *buffer);
/* What it holds, in the process's own memory: the buffer's data, or a copy of it, which is made at the first call and
 * lives as long as the buffer; not to be written to. Waits for what is still computed. EDEVICE, ENOMEM. */
int shardrt_buffer_host(shardrt_buffer *buffer, void **out);
/* Begins to make that copy, and does not wait for it. */
int shardrt_buffer_fetch(shardrt_buffer *buffer);
size_t shardrt_buffer_bytes(const shardrt_buffer *buffer); /* as it was made with */
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

/* A global array, as one process sees it: dtype, global shape, sharding, and a buffer for each of its own shards, in
 * mesh order. On the host platform replicas in one process share a buffer; on others each device has its own. */
typedef struct shardrt_array shardrt_array;
/* An array whose shards have no buffers yet. Errors as shardrt_sharding_shard_shape. */
int shardrt_array_new(shardrt_sharding *sharding, int32_t dtype, int32_t ndim, const int64_t *shape, int32_t process,
                      int32_t devices_per_process, shardrt_array **out);
void shardrt_array_free(shardrt_array *array); /* and a count less of its buffers and its sharding */
/* The number of an array among those that all processes made together, the same in every process; 0, as a new array
 * has: it was not made by all together. What all processes do with an array first compares the numbers. Where processes
 * make arrays apart, one by one, the number comes from the value (all of it, C-contiguous): its highest bit is set, and
 * equal arrays have equal numbers. */
uint64_t shardrt_array_number(const shardrt_array *array);
void shardrt_array_set_number(shardrt_array *array, uint64_t number);
void shardrt_array_number_by_value(shardrt_array *array, const void *value);
int32_t shardrt_array_dtype(const shardrt_array *array);              /* SHARDRT_FLOAT32, … */
int32_t shardrt_array_ndim(const shardrt_array *array);               /* at most SHARDRT_MAX_NDIM */
const int64_t *shardrt_array_shape(const shardrt_array *array);       /* the global shape; borrowed */
shardrt_sharding *shardrt_array_sharding(const shardrt_array *array); /* borrowed */
/* A number that two arrays share where dtype, shape, sharding and shards are the same: those of one field in a loader's
 * batches do. Arrays that were made apart have others; none comes again in a process. What was learnt of one array's
 * layout thus holds for all. */
uint64_t shardrt_array_layout(const shardrt_array *array);
int64_t shardrt_array_shard_count(const shardrt_array *array);
const shardrt_shard *shardrt_array_shard(const shardrt_array *array, int64_t i); /* borrowed */
size_t shardrt_array_shard_bytes(const shardrt_array *array);                    /* of one shard */
shardrt_buffer *shardrt_array_buffer(const shardrt_array *array, int64_t i);     /* borrowed; NULL: no data */
/* Where shard i's elements lie in this process's memory, compact and row-major, to be read as long as the array is
 * there; NULL: on a GPU, or there are none. */
const void *shardrt_array_host_data(const shardrt_array *array, int64_t i);
/* Gives shard i (of an array that is being made) its buffer, in place of the one it may have; takes a count. One that
 * does not lie in the memory of the shard's device is copied there. EINVAL: another size. */
int shardrt_array_set_buffer(shardrt_array *array, int64_t i, shardrt_buffer *buffer);
/* Fills every shard of an array that is being made, one buffer for each distinct box, from the whole value. */
int shardrt_array_fill_global(shardrt_array *array, const void *value);
/* The same from this process's part of the value, `local_shape` of it: in each dimension either the global size, or
 * the distinct ranges that this process's devices hold, ascending and packed (make_array_from_process_local_data).
 * EINVAL where a dimension is neither; the message names it and the sizes that would do. */
int shardrt_array_fill_local(shardrt_array *array, const int64_t *local_shape, const void *value);
/* Writes this process's shards into `value`, C-contiguous, of the global shape. EDATA: its shards are not the whole. */
int shardrt_array_gather(const shardrt_array *array, void *value);
/* Shard i as a tensor of DLPack 1.0 (https://github.com/dmlc/dlpack, dlpack.h, which whoever uses it includes), without
 * a copy: compact, row-major, read-only, as replicas may share it. It has a count of its own of the shard's buffer and
 * may outlive array and job; whoever gets it calls its deleter once, on any thread.
 *
 * Data on a GPU stays there (kDLCUDA, by CUDA's number of the GPU in this process). `stream` is the consumer's, as a
 * cudaStream_t: NULL (None in Python) and 1 the legacy default stream, 2 that of this thread. It waits for what
 * computes the shard, and what takes the memory next waits for what the stream has when the deleter is called: so it
 * must not be destroyed before. (void *)-1: neither waits; then the consumer has waited by itself
 * (shardrt_array_wait), and its work has ended when it calls the deleter. Data in the host's memory is there already:
 * `stream` is NULL.
 *
 * EINVAL: no such shard, a stream on the host. EDATA: the array has no data. ENOMEM, EDEVICE. */
struct DLManagedTensorVersioned;
int shardrt_array_dlpack(const shardrt_array *array, int64_t i, void *stream, struct DLManagedTensorVersioned **out);
/* The same in the form that was before DLPack 1.0, for programs that know no other. It cannot say "read-only": nobody
 * may write to it all the same. */
struct DLManagedTensor;
int shardrt_array_dlpack_legacy(const shardrt_array *array, int64_t i, void *stream, struct DLManagedTensor **out);
/* For Python: the destructor of a capsule "dltensor" or "dltensor_versioned", which calls the deleter where nobody
 * consumed it. As no Python runs in it, it may come while an exception is on its way, and when the interpreter ends.
 * Before the first capsule it is told where PyCapsule_IsValid and PyCapsule_GetPointer are. */
void shardrt_dlpack_capsule_free(void *capsule);
void shardrt_dlpack_python(int (*is_valid)(void *capsule, const char *name),
                           void *(*pointer)(void *capsule, const char *name));
/* Waits until what the array's shards here hold has been computed and copied. EDEVICE: something before has failed. */
int shardrt_array_wait(const shardrt_array *array);

#endif
