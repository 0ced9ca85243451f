/* arrayfile_api.h - files of arrays: a part of shardrt.h. */
#ifndef SHARDRT_ARRAYFILE_ARRAYFILE_API_H
#define SHARDRT_ARRAYFILE_ARRAYFILE_API_H

#include "comm/comm_api.h"
#include "memory/memory_api.h"

/* .npy files as arrays. header: dtype, ndim, shape (which has room for SHARDRT_MAX_NDIM), and a fingerprint (may be
 * NULL) of the file's length and first block. load: the whole of it. fill: gives every shard of an array that is being
 * made, and has the file's dtype and shape, its buffer; reads only this process's distinct boxes, each once, and tells
 * how many bytes these are (*bytes_read may be NULL). save: whole or not at all (a temporary name, synced,
 * renamed; an object of a bucket by an upload of this process's, which goes up anew where SIGTERM that asks for an
 * orderly end ended it). */
int shardrt_npy_header(const char *path, int32_t *dtype, int32_t *ndim, int64_t *shape, uint64_t *fingerprint);
int shardrt_npy_load(const char *path, int32_t *dtype, int32_t *ndim, int64_t *shape, shardrt_buffer **out);
int shardrt_npy_fill(const char *path, shardrt_array *array, int64_t *bytes_read);
int shardrt_npy_save(const char *path, int32_t dtype, int32_t ndim, const int64_t *shape, const void *data);

/* .safetensors files: named arrays in one file (https://huggingface.co/docs/safetensors). */
typedef struct shardrt_tensor {
  const char *name; /* UTF-8 */
  int32_t dtype;
  int32_t ndim;
  int64_t shape[SHARDRT_MAX_NDIM];
  size_t offset; /* of its first byte in the file */
  size_t bytes;
} shardrt_tensor;

typedef struct shardrt_safetensors shardrt_safetensors;
/* Opens a file for reading: its header is read and checked, nothing else. EIO: it cannot be read. EFORMAT: it is
 * malformed, or cut off; the message names the file and the array in question. */
int shardrt_safetensors_open(const char *path, shardrt_safetensors **out);
void shardrt_safetensors_free(shardrt_safetensors *file); /* and with it the names and shapes borrowed from it */
int64_t shardrt_safetensors_count(const shardrt_safetensors *file); /* arrays in it */
/* The i-th array, by name, ascending; borrowed from the file, as is its name. */
const shardrt_tensor *shardrt_safetensors_tensor(const shardrt_safetensors *file, int64_t i);
/* A number that is equal in processes that see the same file: its length, its header, the first block of its data. */
uint64_t shardrt_safetensors_fingerprint(const shardrt_safetensors *file);
/* The whole of one array. */
int shardrt_safetensors_load(const shardrt_safetensors *file, int64_t i, shardrt_buffer **out);
/* Gives every shard of an array that is being made, and has the dtype and shape of the file's i-th, its buffer; reads
 * only this process's distinct boxes, each once, and tells how many bytes these are (*bytes_read may be NULL). */
int shardrt_safetensors_fill(const shardrt_safetensors *file, int64_t i, shardrt_array *array, int64_t *bytes_read);

/* What is saved under one name. */
typedef struct shardrt_saved {
  const char *name;
  const shardrt_array *array; /* a global array; or NULL: a host value, the same in every process, as follows */
  const void *data;
  int32_t dtype;
  int32_t ndim;
  int64_t shape[SHARDRT_MAX_NDIM];
} shardrt_saved;

/* Saves arrays in one file; every process must call it, and all must see the same file system. Each element is written
 * once in the job: by the process that owns replica 0 of its box (see shardrt_safetensors_rows), a host value's by
 * process 0; *bytes_written, which may be NULL, tells this process's. The file appears under its name whole or not at
 * all, also where the job is killed or a disk is full: it is written under a temporary name, `path` and ".<16
 * digits>.tmp", synced, and renamed; what a killed job left behind is removed by the next one that saves to the same
 * path. An error in one process is an error in all. EINVAL: a name that is no UTF-8, or stands twice. EMISMATCH:
 * processes that save different things. EIO.
 *
 * At an address ("s3://bucket/key", gs://, az://) it becomes an object with the same bytes: what a process sends need
 * not be what its devices hold. Large objects go up in parts; whatever fails, also a process, and SIGTERM end the
 * upload. Where that asks for an orderly end (shardrt_stop_asked), it goes up anew. *sums, which may be NULL, becomes
 * the hashes of every 8 MiB of it (shardrt_file_fingerprint), in every process; the caller's. Of a file it stays as it
 * is. */
int shardrt_safetensors_save(shardrt_job *job, const char *path, int64_t count, const shardrt_saved *entries,
                             int64_t *bytes_written, shardrt_buffer **sums);
/* An array whose boxes would be very many very small runs in the file, scattered between those of other processes
 * (columns of few bytes), is laid out in rows before it is written, over the job's links: *out becomes that sharding,
 * with a count, or NULL for an array that is written as it is. Only an array's layout decides. */
int shardrt_safetensors_rows(const shardrt_sharding *sharding, int32_t dtype, int32_t ndim, const int64_t *shape,
                             int32_t process_count, int32_t devices_per_process, shardrt_sharding **out);

#endif
