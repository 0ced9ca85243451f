/* array_api.h - dtypes, arrays and the memory that holds them, to read: a part of shardrt.h. */
#ifndef SHARDRT_MEMORY_ARRAY_API_H
#define SHARDRT_MEMORY_ARRAY_API_H

#include "layout/shard_api.h"

/* A global array, as one process sees it: dtype, global shape, sharding, and a buffer for each of its own shards, in
 * mesh order. On the host platform replicas in one process share a buffer; on others each device has its own. */
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
/* Waits until what the array's shards here hold has been computed and copied. EDEVICE: something before has failed. */
int shardrt_array_wait(const shardrt_array *array);

/* Counted memory, 64-byte aligned unless it was wrapped; what it holds never changes once it is shared. It is the
 * process's own, or that of a device which has memory of its own.
 *
 * wrap: around `bytes` bytes of the process's own memory that the caller has, at `data`, without a copy. They must be
 * aligned as their elements are (8 bytes serve every dtype), and neither move nor change while a count is left. With
 * the last count `release` is called once, with the other three, on whatever thread gave that count back. NULL: the
 * caller keeps the memory for as long as any count is left. ENOMEM: nothing was taken, and `release` is not called. */
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
size_t shardrt_buffer_bytes(const shardrt_buffer *buffer); /* as it was made with */

/* What an element is. */
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

#endif
