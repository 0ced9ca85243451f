/* shardrt.h - the one public header: what Lua (through the FFI) and a C program may call.
 *
 * LuaJIT's FFI reads this very file: `cc -E -P -DSHARDRT_CDEF runtime/shardrt.h` gives text that ffi.cdef accepts as
 * it stands. So: constants are enums, nothing is included under SHARDRT_CDEF, and what has an inside is a handle.
 *
 * Conventions that hold for every function here:
 *   - A function that can fail returns SHARDRT_OK (0) or a negative code from the list below and leaves one message,
 *     which says what and where, in shardrt_error_message() of the calling thread. It has then freed all it took, and
 *     its out-parameters are untouched.
 *   - Handles are counted. `_new` (and every out-parameter that is a handle) gives one count, which the caller owns
 *     and gives back with `_free`; a function that keeps a handle takes a count of its own. `_free(NULL)` does
 *     nothing.
 *   - Sizes are int64_t elements or size_t bytes, and say which. Ids, positions, ranks and axes count from 0.
 *   - What is done by all processes of a job takes the job. NULL is this process alone, in no job, where it says so,
 *     and where the call has nothing to tell another process; else it is EINVAL.
 *   - Process index, process count and devices per process are arguments, never globals, so that one process can ask
 *     as any process of any job. Device d belongs to process d / devices_per_process.
 */
#ifndef SHARDRT_H
#define SHARDRT_H

#ifndef SHARDRT_CDEF
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* ---- errors (base) ---------------------------------------------------------------------------------------------- */

/* Every code with its name's end and its text, in one place. */
#define SHARDRT_ERRORS(X)                                                                                              \
  X(ENOMEM, -1, "out of memory")                                                                                       \
  X(EINVAL, -2, "invalid argument")                                                                                    \
  X(EOVERFLOW, -3, "size does not fit in 64 bits")                                                                     \
  X(EIO, -4, "input/output error")                                                                                     \
  X(EFORMAT, -5, "malformed file")                                                                                     \
  X(EMISMATCH, -6, "processes or replicas differ")                                                                     \
  X(ETIMEOUT, -7, "timed out waiting for another process")                                                             \
  X(ECOMM, -8, "communication failed")                                                                                 \
  X(EDATA, -9, "array has no data here")                                                                               \
  X(EDEVICE, -10, "a device failed")

enum {
  SHARDRT_OK = 0,
#define SHARDRT_ERROR_CODE(name, code, text) SHARDRT_##name = code,
  SHARDRT_ERRORS(SHARDRT_ERROR_CODE)
#undef SHARDRT_ERROR_CODE
};

const char *shardrt_version(void);        /* "0.1.0"; static */
const char *shardrt_error_name(int code); /* "EINVAL"; static; "unknown" for a code outside the list */
const char *shardrt_error_text(int code); /* the list's text; static */
const char *shardrt_error_message(void);  /* of the last failure on this thread; valid until the next one; never NULL */
/* Takes out of a text, in place, what no message shows: names and passwords of addresses, and what follows their "?".
 */
void shardrt_error_hide(char *text);

/* For tests: the n-th allocation from now (1 = the next) fails once with ENOMEM, on whatever thread; 0 switches this
 * off. Returns how many allocations were counted since the last call. */
int64_t shardrt_alloc_fail_at(int64_t n);
/* For tests: from now on loops are those of processors of this level at most (0: any x86-64, 1: AVX2, 2: AVX-512, all
 * that are). Returns the level that they have now: not more than this processor's own. */
int32_t shardrt_simd_limit(int32_t level);

/* Seconds on the machine's monotonic clock, which is one for all processes of a host. */
double shardrt_clock(void);

/* ---- layout: boxes, meshes, shardings --------------------------------------------------------------------------- */

enum { SHARDRT_MAX_NDIM = 8 }; /* dimensions of an array; a mesh may have any number of axes */

/* A half-open range in each of ndim dimensions of an array, in elements. */
typedef struct shardrt_box {
  int32_t ndim;
  int64_t start[SHARDRT_MAX_NDIM];
  int64_t stop[SHARDRT_MAX_NDIM];
} shardrt_box;

typedef struct shardrt_mesh shardrt_mesh;
typedef struct shardrt_sharding shardrt_sharding;

/* A mesh: naxes named axes over devices. `ids` are the device ids in row-major mesh order, copied; NULL means
 * 0, 1, 2, … and then nothing is allocated per device. `nids` is their number (ignored when ids is NULL).
 * EINVAL, with the reason in the message: naxes < 1, a size < 1, an axis name NULL, empty or repeated, nids different
 * from the product of the sizes, an id outside [0, device_count), an id that repeats; EOVERFLOW: the product. */
int shardrt_mesh_new(int32_t naxes, const int64_t *sizes, const char *const *names, int64_t nids, const int32_t *ids,
                     int64_t device_count, shardrt_mesh **out);
void shardrt_mesh_free(shardrt_mesh *mesh);
int64_t shardrt_mesh_size(const shardrt_mesh *mesh);
int32_t shardrt_mesh_axis_count(const shardrt_mesh *mesh);
int64_t shardrt_mesh_axis_size(const shardrt_mesh *mesh, int32_t axis);
const char *shardrt_mesh_axis_name(const shardrt_mesh *mesh, int32_t axis); /* lives as long as the mesh */
int32_t shardrt_mesh_device(const shardrt_mesh *mesh, int64_t position);    /* the id at a row-major position */
/* The positions of the mesh whose device id lies in [first_id, first_id + count), ascending; writes at most `capacity`
 * of them and returns how many there are. */
int64_t shardrt_mesh_positions(const shardrt_mesh *mesh, int32_t first_id, int32_t count, int64_t *positions,
                               int64_t capacity);
/* Mesh("data": 4, "model": 2), with the devices where they are not 0, 1, 2, …; lives as long as the mesh. */
const char *shardrt_mesh_text(const shardrt_mesh *mesh);
bool shardrt_mesh_equal(const shardrt_mesh *a, const shardrt_mesh *b); /* same axes, same devices in the same order */
bool shardrt_mesh_same_devices(const shardrt_mesh *a, const shardrt_mesh *b); /* in the same order */

/* A sharding: for each array dimension the mesh axes that cut it, the first varying slowest. Dimension d is cut by
 * axis_counts[d] axes; their names stand one after the other in axis_names. Dimensions beyond nentries are whole.
 * EINVAL: nentries > SHARDRT_MAX_NDIM, a name that is no axis of the mesh, an axis used twice. */
int shardrt_sharding_new(shardrt_mesh *mesh, int32_t nentries, const int32_t *axis_counts,
                         const char *const *axis_names, shardrt_sharding **out);
/* The whole array on one device. */
int shardrt_sharding_single(int32_t device, shardrt_sharding **out);
void shardrt_sharding_free(shardrt_sharding *sharding);
shardrt_mesh *shardrt_sharding_mesh(const shardrt_sharding *sharding); /* borrowed */
/* NamedSharding(Mesh("data": 4, "model": 2), P("data", nil)), or SingleDeviceSharding(device 3); lives as long as the
 * sharding. */
const char *shardrt_sharding_text(const shardrt_sharding *sharding);
/* Into how many equal parts dimension `dim` is cut (1 beyond the spec). */
int64_t shardrt_sharding_cuts(const shardrt_sharding *sharding, int32_t dim);
bool shardrt_sharding_is_fully_replicated(const shardrt_sharding *sharding);       /* every device holds everything */
bool shardrt_sharding_equal(const shardrt_sharding *a, const shardrt_sharding *b); /* one mesh, one layout */
/* A number that is equal for equal shardings, also in other processes. */
uint64_t shardrt_sharding_fingerprint(const shardrt_sharding *sharding);

/* The shape of every shard of an array of `shape`. EINVAL where the spec is longer than ndim (also by a nil) or a
 * dimension does not divide; the message names dimension, axes, both sizes and the nearest sizes that would do.
 * A dimension of size 0 divides by anything. */
int shardrt_sharding_shard_shape(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape,
                                 int64_t *shard_shape);

/* What one device holds. */
typedef struct shardrt_shard {
  int64_t position;   /* in the mesh, row-major */
  int32_t device;     /* its id */
  int32_t process;    /* the process that owns it */
  int64_t replica_id; /* how many devices before it, in mesh order, hold the same box */
  int32_t block;      /* which of this process's distinct boxes, numbered by first appearance in mesh order */
  shardrt_box box;
} shardrt_shard;

/* The box and replica id of the device at one mesh position (block is set to 0). Errors as shard_shape. */
int shardrt_sharding_shard(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int64_t position,
                           int32_t devices_per_process, shardrt_shard *out);
/* The shards of one process, in mesh order, from its own devices only: writes at most `capacity`, sets *count to how
 * many there are (0 where the process owns no device of the mesh) and *blocks (may be NULL) to how many distinct
 * boxes. Errors as shard_shape. */
int shardrt_sharding_shards(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int32_t process,
                            int32_t devices_per_process, shardrt_shard *out, int64_t capacity, int64_t *count,
                            int64_t *blocks);
/* How many distinct sets of ranges the processes have along `dim`, and which one is `process`'s, in ascending order of
 * the first offset; 0 where it owns no device. EINVAL: the sets overlap without being equal, or differ in count. */
int shardrt_sharding_process_shards(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int32_t dim,
                                    int32_t process, int32_t devices_per_process, int64_t *count, int64_t *index);

/* The way of an array from one sharding to another, as one process sees it: which boxes it copies from its own memory,
 * receives and sends. It is computed from this process's own devices and moves. Errors as shard_shape, for either. */
typedef struct shardrt_route shardrt_route;
int shardrt_route_new(const shardrt_sharding *from, const shardrt_sharding *to, int32_t ndim, const int64_t *shape,
                      int32_t process, int32_t devices_per_process, shardrt_route **out);
/* An array that becomes a part of another one, or a part of which becomes one: element i of the old array is element
 * i + by of the new one, where there is such a one. */
typedef struct shardrt_shift {
  int32_t ndim;
  int64_t old_shape[SHARDRT_MAX_NDIM];
  int64_t new_shape[SHARDRT_MAX_NDIM];
  int64_t by[SHARDRT_MAX_NDIM];
} shardrt_shift;
/* The way of these elements; boxes are counted as in the new array. */
int shardrt_route_shifted(const shardrt_sharding *from, const shardrt_sharding *to, const shardrt_shift *shift,
                          int32_t process, int32_t devices_per_process, shardrt_route **out);
void shardrt_route_free(shardrt_route *route);
/* In elements: each that the process receives, once; that it sends, once for each receiving process; and that its new
 * boxes take from its own old ones. */
void shardrt_route_elements(const shardrt_route *route, int64_t *received, int64_t *sent, int64_t *copied);

/* A box that goes from one block of the old grid to one of the new; blocks are numbered row-major. */
typedef struct shardrt_move {
  int64_t from;
  int64_t to;
  int32_t process; /* the other one; in a copy, this one */
  shardrt_box box;
} shardrt_move;

enum { SHARDRT_COPIES, SHARDRT_RECEIVES, SHARDRT_SENDS };
/* All moves of one kind, in the order in which they are made; they live as long as the route. */
const shardrt_move *shardrt_route_moves(const shardrt_route *route, int32_t kind, int64_t *count);

/* ---- memory: dtypes, buffers, arrays ---------------------------------------------------------------------------- */

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

/* Counted memory, 64-byte aligned; what it holds never changes once it is shared. It is the process's own, or that of a
 * device which has memory of its own. */
typedef struct shardrt_buffer shardrt_buffer;
int shardrt_buffer_new(size_t bytes, shardrt_buffer **out);    /* contents undefined; 0 bytes is allowed */
int shardrt_buffer_zeros(size_t bytes, shardrt_buffer **out);  /* zeros; untouched pages cost nothing */
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
size_t shardrt_buffer_bytes(const shardrt_buffer *buffer);
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
void shardrt_array_free(shardrt_array *array);
/* The number of an array among those that all processes made together, the same in every process; 0, as a new array
 * has: it was not made by all together. What all processes do with an array first compares the numbers. Where processes
 * make arrays apart, one by one, the number comes from the value (all of it, C-contiguous): its highest bit is set, and
 * equal arrays have equal numbers. */
uint64_t shardrt_array_number(const shardrt_array *array);
void shardrt_array_set_number(shardrt_array *array, uint64_t number);
void shardrt_array_number_by_value(shardrt_array *array, const void *value);
int32_t shardrt_array_dtype(const shardrt_array *array);
int32_t shardrt_array_ndim(const shardrt_array *array);
const int64_t *shardrt_array_shape(const shardrt_array *array);       /* the global shape; borrowed */
shardrt_sharding *shardrt_array_sharding(const shardrt_array *array); /* borrowed */
int64_t shardrt_array_shard_count(const shardrt_array *array);
const shardrt_shard *shardrt_array_shard(const shardrt_array *array, int64_t i); /* borrowed */
size_t shardrt_array_shard_bytes(const shardrt_array *array);                    /* of one shard */
shardrt_buffer *shardrt_array_buffer(const shardrt_array *array, int64_t i);     /* borrowed; NULL: no data */
/* Gives shard i (of an array that is being made) its buffer, in place of the one it may have; takes a count. One that
 * does not lie in the memory of the shard's device is copied there. EINVAL: another size. */
int shardrt_array_set_buffer(shardrt_array *array, int64_t i, shardrt_buffer *buffer);
/* Fills every shard of an array that is being made, one buffer for each distinct box, from the whole value. */
int shardrt_array_fill_global(shardrt_array *array, const void *value);
/* The same from this process's part of the value, `local_shape` of it: in each dimension either the global size, or
 * the distinct ranges that this process's devices hold, ascending and packed (make_array_from_process_local_data).
 * EINVAL where a dimension is neither; the message names it and the sizes that would do. */
int shardrt_array_fill_local(shardrt_array *array, const int64_t *local_shape, const void *value);
/* The same from an array that is whole on one of this process's devices; where these have memory of their own, from
 * device to device, without waiting. EDATA: it has no data. */
int shardrt_array_fill_from(shardrt_array *array, const shardrt_array *whole);
/* Writes this process's shards into `value`, C-contiguous, of the global shape. EDATA: its shards are not the whole. */
int shardrt_array_gather(const shardrt_array *array, void *value);
/* Waits until what the array's shards here hold has been computed and copied. EDEVICE: something before has failed. */
int shardrt_array_wait(const shardrt_array *array);

/* ---- the job: processes and what they do together (comm) -------------------------------------------------------- */

enum { SHARDRT_CHECK_OFF, SHARDRT_CHECK_SAMPLE, SHARDRT_CHECK_ALL };

/* How the processes of a job find each other: by MPI where a launcher (mpirun, srun) started this one, alone
 * otherwise; or alone in any case. */
enum { SHARDRT_TRANSPORT_AUTO, SHARDRT_TRANSPORT_ALONE };

/* How a job is opened. */
typedef struct shardrt_options {
  int32_t devices;      /* of each process; 0: 1 on the host, else this process's share of the machine's GPUs */
  int32_t check;        /* SHARDRT_CHECK_… */
  int32_t transport;    /* SHARDRT_TRANSPORT_… */
  int32_t planning;     /* 1: no other process exists, nothing is read, nothing moves; this one plays process */
  int32_t rank;         /* this one */
  int32_t size;         /* of so many */
  double timeout;       /* seconds that any wait may take in which no process moves data */
  const char *platform; /* "host", "cuda"; NULL, "" or "auto": cuda where there is a GPU and the plug-in, else host */
} shardrt_options;
/* One device or a share of GPUs, found by itself, with checks of samples and 300 seconds. */
void shardrt_options_init(shardrt_options *options);

/* What a process knows of a job that it belongs to. It may be in several, one after the other or at once, of one
 * platform and with as many devices in each. All calls that take a job are made on one thread, the one that opened it;
 * where other processes are in it, each makes the same ones in the same order. */
typedef struct shardrt_job shardrt_job;
typedef struct shardrt_job_info {
  int32_t process_index;
  int32_t process_count;
  int32_t devices_per_process;
  int32_t check;     /* SHARDRT_CHECK_… */
  int32_t planning;  /* as in shardrt_options */
  char platform[16]; /* of the devices: "host" or "cuda" */
  double timeout;    /* as in shardrt_options */
} shardrt_job_info;

/* Joins a job, or begins one alone. Nothing of the options is kept. EINVAL: options that make no sense, a platform that
 * cannot be had, another than a job that is open has. EMISMATCH: processes with different options or platforms.
 * ETIMEOUT, ECOMM. After a failure *out is NULL, unless the other processes were found before: then it is a job that
 * only shardrt_job_abort and shardrt_job_abandon take. */
int shardrt_job_open(const shardrt_options *options, shardrt_job **out);
/* Leaves the job; every process must get here, and waits (with the job's timeout) for the others. The handle is gone:
 * what was made with it (loaders, traces) must be freed before; arrays on the host may stay. EMISMATCH, ETIMEOUT, ECOMM
 * where the others do not come to it: then the job is still there, for shardrt_job_abort or shardrt_job_abandon. Where
 * this process began MPI, that ends with the program, so that a job can be opened again. */
int shardrt_job_close(shardrt_job *job);
/* Leaves the job and waits for nobody; other processes wait for this one until their timeout. NULL is allowed. */
void shardrt_job_abandon(shardrt_job *job);
/* Ends the whole job at once, and this process, with `message` on stderr ("shardrt: process 2 of 4: …"; nothing where
 * it is empty), printed once where several processes fail alike. Never returns; the exit status is `status` (1…255).
 * For a program that is nothing but the job; others report an error and abandon it. NULL: this process alone ends. */
void shardrt_job_abort(shardrt_job *job, int status, const char *message);
const shardrt_job_info *shardrt_job_info_get(const shardrt_job *job); /* borrowed from the job */
/* The ids of the job's devices, all of them, in the order in which make_mesh takes them: those that are linked best
 * side by side, the processes of a host together. NULL: 0, 1, 2, … Borrowed from the job. */
const int32_t *shardrt_job_order(const shardrt_job *job);
/* Records from now on where time goes: on this thread, the main one, and on those that are started later, each of which
 * keeps its last 32,767 events. shardrt_trace_finish, when all loaders are freed and before shardrt_job_close, writes
 * what all processes recorded to one file, whole or not at all: JSON of Chrome's trace-event format, which
 * https://ui.perfetto.dev opens. Its times begin at the start, on one clock for all processes of a host. Where
 * shardrt_job_abort ends the job, each process that calls it writes its own instead, if it is given the time: to `path`
 * where it is alone, else, as process 2, to "trace.2.json". Every process must make both calls; start: once in a
 * process, as threads record for one trace only (EINVAL). finish gives the trace back (NULL: nothing), but
 * where processes did not come to it: then it is for shardrt_job_abort. EIO: process 0 cannot write the file. */
typedef struct shardrt_trace shardrt_trace;
int shardrt_trace_start(shardrt_job *job, const char *path, shardrt_trace **out);
int shardrt_trace_finish(shardrt_trace *trace);
/* From now on a line may stand on the terminal that stderr goes to, which the job's last words are to take away. */
void shardrt_job_line(shardrt_job *job);
/* Where in the recipe this process is ("recipe.lua:12"), for reports about processes that wait for each other; copied.
 */
void shardrt_job_at(shardrt_job *job, const char *where);
/* Notes a step that every process takes alike and by itself, without waiting for the others ("step 3 of the loader").
 * Whatever the processes do together next, or the end of the job, is EMISMATCH in all of them where they took other
 * steps, and the message says who took how many, and which was the last, by what stands before the first end of a line
 * in `what`. Copied. */
void shardrt_job_step(shardrt_job *job, const char *what); /* NULL: nothing */

/* What every process of the job does together. `what` says what the call is and must be equal in every process, as
 * must `bytes`: a difference is EMISMATCH in every process, and the message says who called what, where; a process
 * that does not come within the job's timeout is ETIMEOUT, naming it. */
/* `all` has room for process_count * bytes. */
int shardrt_allgather(shardrt_job *job, const char *what, const void *mine, size_t bytes, void *all);
int shardrt_barrier(shardrt_job *job, const char *what);
/* The global value of an array in every process: `value` is C-contiguous and of the global shape. Every distinct box
 * is sent by one process. */
int shardrt_process_allgather(shardrt_job *job, const shardrt_array *array, void *value);

/* What the user should know although the job goes on, each thing once, in process 0: that a plug-in is there which
 * cannot be used; that data between the devices of processes goes through the host; and why. Borrowed until the job
 * ends; NULL: there is nothing, or nothing more. */
const char *shardrt_job_notice(shardrt_job *job);

/* Laying an array out anew. NULL for the options: as they are when all are 0. */
typedef struct shardrt_reshard_options {
  size_t staging_bytes; /* at most so much memory for messages; 0: 64 MiB, on GPUs 64 MiB for each device. The same in
                           every process. GPUs take one element for each two devices that exchange any, at least */
  int32_t donate;       /* 1: `x` gives its memory up, block by block as it is no longer needed; also on failure */
  int32_t num_threads;  /* that copy, this one among them; 0: chosen from the machine */
} shardrt_reshard_options;

/* The same global array in another sharding, which may be of other devices. Every process must call it alike, also one
 * that owns no device of either. An element comes over a link only if this process does not hold it, and then once. A
 * block that was here before is shared, not copied (on GPUs: on the same device). On GPUs, copies within the process
 * are under way when it returns. EINVAL: the sharding does not fit the shape, or names a device beyond the job's; too
 * little staging for two elements. EDATA: x has no data. EMISMATCH: processes differ in what they call. ETIMEOUT: a
 * process stopped; the message names it and where it was. */
int shardrt_reshard(shardrt_job *job, shardrt_array *x, shardrt_sharding *to, const shardrt_reshard_options *options,
                    shardrt_array **out);

/* ---- checks: replicas that differ, processes that differ -------------------------------------------------------- */

/* Every process must make these calls alike, as those above. They compare nothing and return SHARDRT_OK under planning.
 * What arrays hold is not compared either where the job's check is off, or where no two devices hold the same box; what
 * else all must see alike (options, files, what is asked for) always is. Replicas are compared bit by bit: 0.0 and -0.0
 * differ, two NaNs of the same bits do not. */

uint64_t shardrt_fingerprint(const void *data, size_t bytes); /* XXH3, 64 bits */
/* Every process gives the fingerprints of its shards of one array (its shard_count of them, in mesh order). Where two
 * devices hold the same box and their fingerprints differ: EMISMATCH in every process, naming `name` (a field, or how
 * the array was made), the processes, the devices and the index range. */
int shardrt_check_replicas(shardrt_job *job, const char *name, const shardrt_array *array,
                           const uint64_t *fingerprints);
/* The same, with the fingerprints taken from the array's buffers: by the devices, where these have memory of their own
 * (all processes' have, or none's; runtime/check/fingerprint.cu says which 64 bits). */
int shardrt_check_array(shardrt_job *job, const char *name, const shardrt_array *array);
/* Every process must give the same `fingerprint` of `subject` ("the file images.npy", "the host value"): EMISMATCH in
 * every process otherwise, naming the processes that differ from process 0. */
int shardrt_check_same(shardrt_job *job, const char *subject, uint64_t fingerprint);

/* Every process tells how its part of `what`, something that all do together, ended: `code`, and where it is negative,
 * this thread's message. 0 where all succeeded; else, in every process, the code and the message of the first that did
 * not, with its number unless all failed alike. */
int shardrt_check_outcome(shardrt_job *job, const char *what, int code);

/* ---- sources: random access to samples in files ----------------------------------------------------------------- */

typedef struct shardrt_source shardrt_source;

/* One named field of every sample. */
typedef struct shardrt_field {
  const char *name; /* lives as long as the source */
  int32_t dtype;
  int32_t ndim;                    /* of one sample */
  int64_t shape[SHARDRT_MAX_NDIM]; /* -1: differs from sample to sample */
} shardrt_field;

/* What is compared with its checksum when it is read, of what has one in the file or in the index beside it:
 *   ONCE    a record or block when this source reads it for the first time; one that has none yet is given one
 *   ALWAYS  whenever it is read
 * DEFAULT is ALWAYS for formats of records, and ONCE for the arrays of "npy", "zarr", "hdf5", "idx" and tokens. */
enum { SHARDRT_VERIFY_DEFAULT, SHARDRT_VERIFY_NEVER, SHARDRT_VERIFY_ONCE, SHARDRT_VERIFY_ALWAYS };

/* How a source is opened. */
typedef struct shardrt_source_options {
  const char *cache;    /* the folder for what is worked out of files, and for parts of those on servers. NULL or "":
                           $SHARDRT_CACHE, or else    $XDG_CACHE_HOME/shardrt, ~/.cache/shardrt or /tmp/shardrt-<uid> */
  int64_t cache_bytes;  /* at most so much of files on servers is kept there; 0: $SHARDRT_CACHE_BYTES, or 10 GiB */
  int32_t headers_only; /* 1: for planning. Shapes are read, nothing is decompressed; there may be no data to read */
  int32_t verify;       /* SHARDRT_VERIFY_… */
  int32_t delimiter;    /* of csv: the character between cells; 0: a comma */
  int32_t skips_damage; /* 1: damage that is found as an index is made is noted there, and no failure: whoever reads
                           what is damaged fails; see shardrt_source_readable */
  int32_t no_header; /* 1: the first line of a csv file is a row like the others, and columns are "0", "1", …; a file
                        of tokens is tokens from its first byte on, whatever that looks like */
} shardrt_source_options;

/* `shardrt index`: the parts of a file, or of a Zarr array's folder, are gone through. `kind`: "plain", of a file's
 * blocks; "zarr"; or a format of shardrt_source_files: of one, opening it makes the index, so that there are parts only
 * where `compares`. Without that, checksums of parts that have none are noted; with it all are compared, and none is
 * noted. Of the options the cache's and csv's are looked at. EFORMAT: what describes the parts is damaged; EDATA: there
 * is nothing to compare a file of records with; EIO; ENOMEM. */
typedef struct shardrt_audit shardrt_audit;
typedef struct shardrt_audit_found {
  int64_t bytes;   /* that were read */
  int64_t unknown; /* parts that had no checksum */
  int64_t damaged; /* parts that are not what they were */
} shardrt_audit_found;
int shardrt_audit_open(const char *kind, const char *path, const shardrt_source_options *options, int32_t compares,
                       shardrt_audit **out);
void shardrt_audit_free(shardrt_audit *self); /* NULL is allowed */
int64_t shardrt_audit_parts(const shardrt_audit *self);
int64_t shardrt_audit_part_bytes(const shardrt_audit *self); /* of one, about; 0: not known */
/* Goes through some parts, with all of this process's cores. What cannot be read: EIO. */
int shardrt_audit_run(shardrt_audit *self, int64_t first, int64_t count, int32_t compares, shardrt_audit_found *found);
/* Joins what was noted with what is beside the file. EIO: it cannot be written there, nor to the cache. */
int shardrt_audit_save(shardrt_audit *self);
/* What was damaged, in no order, ten thousand at most: its message, and which bytes (offset -1: the message says). */
const char *shardrt_audit_bad(const shardrt_audit *self, int64_t i, int64_t *offset, int64_t *bytes);
/* Removes the index of a file or of a Zarr array. EIO. */
int shardrt_audit_remove(const char *path, const char *folder);

/* EFORMAT, once, where what this process noted of a file is not what another process or job read there: for the end of
 * a job, when all sources are freed. */
int shardrt_verify_finish(void);

/* One field from each file, all of one format; the first dimension counts the samples. Wherever a source takes a path
 * it takes an address, http:// or https://, too, but for "folder": see runtime/storage/remote/remote.h. Formats:
 *   "npy"  https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html; C order, little-endian
 *   "zarr" https://zarr-specs.readthedocs.io, v2 and v3: a field is the folder of one array, in C order
 *   "hdf5" https://docs.hdfgroup.org/hdf5/v1_10: a field is a dataset, named behind its file: "data.h5:/images"
 *   "idx"  http://yann.lecun.com/exdb/mnist/ (the MNIST family), also gzipped: then decompressed once into the cache,
 *          safely when many processes start together
 * EINVAL: another format; a name that is empty or stands twice; fields of different length. EFORMAT: a file is
 * malformed. EIO: it cannot be read, or the cache cannot be written. `options` may be NULL. */
int shardrt_source_open(const char *format, int32_t nfields, const char *const *names, const char *const *paths,
                        const shardrt_source_options *options, shardrt_source **out);
const char *shardrt_source_format(int32_t i); /* the name of the i-th format; static; NULL beyond the last */
/* Whether a format is one of files that hold all fields, opened by shardrt_source_files; false for an unknown one. */
bool shardrt_source_format_has_files(const char *format);

/* The samples of one or more files, which each hold all fields, one file's after the other's. `fields` are those
 * wanted: dtype -1 and ndim -1 where the file says (or, for an ndim, the first sample does); none: all that the format
 * finds. Formats, with where they are described:
 *   "tfrecord"  tf.train.Example: https://www.tensorflow.org/tutorials/load_data/tfrecord
 *   "tar"       WebDataset's archives: https://github.com/webdataset/webdataset
 *   "array_record"  Grain's and TFDS's: https://github.com/google/array_record; one field, "record", or, where `fields`
 *               asks for others, features of tf.train.Example
 *   "mds"       one folder of MosaicML Streaming's shards: https://github.com/mosaicml/streaming
 *   "folder"    one folder of classes of images, as torchvision's ImageFolder
 *   "safetensors"  the arrays of https://huggingface.co/docs/safetensors, all of one length, or those wanted
 *   "csv"       https://www.rfc-editor.org/rfc/rfc4180
 *   "jsonl"     https://jsonlines.org
 *   "npz"       https://numpy.org/doc/stable/reference/generated/numpy.savez.html, stored or deflated: the latter is
 *               unpacked once into the cache
 *   "cifar"     CIFAR-10 and -100, the binary versions: https://www.cs.toronto.edu/~kriz/cifar.html
 *
 * What the files do not say themselves (where each record is, a checksum of it) is worked out once and kept in an index
 * beside the file, or in the cache: see runtime/dataset/index.h. Errors as shardrt_source_open. */
int shardrt_source_files(const char *format, int32_t npaths, const char *const *paths, int32_t nfields,
                         const shardrt_field *fields, const shardrt_source_options *options, shardrt_source **out);
/* Fields from host arrays: `shapes` of field f are ndims[f] numbers, one field's after the other's, the first of each
 * counting the samples; a count is taken of each buffer. A NULL buffer makes a source without data (planning). */
int shardrt_source_array(int32_t nfields, const char *const *names, const int32_t *dtypes, const int32_t *ndims,
                         const int64_t *shapes, shardrt_buffer *const *buffers, shardrt_source **out);
/* Fields whose samples differ in length: sample i of field f is rows offsets[f][i] to offsets[f][i + 1] of data[f].
 * Both are sources of one field of .npy files or host arrays; the offsets are int64 and one more than the samples.
 * Where offsets[f] is NULL, the samples of data[f] are the samples. EINVAL: fields of different length. EFORMAT:
 * offsets that do not ascend, or leave the data. */
int shardrt_source_ragged(int32_t nfields, const char *const *names, shardrt_source *const *data,
                          shardrt_source *const *offsets, shardrt_source **out);

typedef struct shardrt_token_options {
  int64_t window; /* tokens of a sample */
  int64_t stride; /* from one sample's first token to the next one's */
  int32_t dtype;  /* of whole numbers; < 0: what the file's header says, which has one then */
  shardrt_source_options files;
} shardrt_token_options;
/* A flat file of token numbers, bare or with the header of llm.c's .bin: one field, "tokens". EINVAL: no
 * dtype, and no header that says it. EFORMAT: its header does not fit its length; it begins as a file of another format
 * does, and files.no_header does not say that it is none. EIO. */
int shardrt_source_tokens(const char *path, const shardrt_token_options *options, shardrt_source **out);
/* The samples i of `source` with i % num_shards == index. */
int shardrt_source_shard(shardrt_source *source, int64_t num_shards, int64_t index, shardrt_source **out);
/* `source` with one more field, `name`: int64, a scalar, the sample's number in the file (also after a shard). */
int shardrt_source_enumerate(shardrt_source *source, const char *name, shardrt_source **out);
/* Sources with equal fields, one after the other, as one. `label` (NULL: none) names a field more: int32, a scalar,
 * which of the parts a sample is of. EINVAL: fields that differ. */
int shardrt_source_concat(int32_t nparts, shardrt_source *const *parts, const char *label, shardrt_source **out);
/* Sources with equal fields in given proportions. The weights become whole numbers that add up to a period of at most
 * 65,536 samples; where there are none so exact, to the nearest 65,536ths. Of every `period` samples that follow one
 * another, each part gives exactly its share; of the first n samples, its share to within one. Each part goes through
 * its samples again and again, in the order of each of its own epochs (see shardrt_loader_options), whatever the epochs
 * of the mix are. An epoch has `samples` of them, or with 0 as many as there are before the first part would begin
 * anew. Filtering, packing and sharding are for the parts. EINVAL: no samples, a weight that is not above 0. */
int shardrt_source_mix(int32_t nparts, shardrt_source *const *parts, const double *weights, int64_t samples,
                       const char *label, shardrt_source **out);
int64_t shardrt_source_mix_weight(const shardrt_source *source, int32_t part); /* as a whole number; 0: there is none */
/* The samples of `source` for which all fields of `verdict`, a source of as many samples and of bool fields without
 * dimensions, are true. Every process must call it: each works out its share, once, and all know the outcome.
 * EMISMATCH: their sources differ. What fails in one process fails in all. Under planning all samples are let through.
 */
int shardrt_source_filter(shardrt_job *job, shardrt_source *source, const shardrt_source *verdict,
                          shardrt_source **out);
/* The samples of `source` for which those of `looked`, a source made of it by maps, can be read, and what is to be
 * decoded in them decoded, all of it. A sample is left out where that fails with the data (EFORMAT, EOVERFLOW);
 * whatever else fails is an error, as it would be later. Every process must call it, as shardrt_source_filter, and has
 * the same outcome; it is `source` itself where all can be read. EFORMAT: none can. EMISMATCH. */
int shardrt_source_readable(shardrt_job *job, shardrt_source *source, const shardrt_source *looked,
                            shardrt_source **out);
/* Of what shardrt_source_readable left out below any views of a source: how many samples; and why, of the first
 * thousand of each such call: a message that names file, record and reason, living as long as the source, and the
 * sample's number in the files (may be NULL). NULL beyond the last. */
int64_t shardrt_source_bad_count(const shardrt_source *source);
const char *shardrt_source_bad(const shardrt_source *source, int64_t i, int64_t *number);

enum { SHARDRT_LONGER_ERROR, SHARDRT_LONGER_TRUNCATE, SHARDRT_LONGER_SPLIT };
typedef struct shardrt_pack_options {
  int64_t length;  /* of a row */
  int64_t window;  /* so many sequences, in the order in which they are taken, are put in rows together */
  int32_t longer;  /* what becomes of sequences that are longer than a row: SHARDRT_LONGER_… */
  int32_t shuffle; /* 1: sequences are taken in the order of epoch 0 of `seed`; 0: in the source's */
  uint64_t seed;
} shardrt_pack_options;
/* Sequences of different length, samples of a field whose first dimension alone differs, in rows of fixed length: the
 * samples are the rows, with three fields: the sequences' own field, one after the other and then zeros; "segment_ids",
 * int32: which of the row's sequences an element is of, from 1 on, 0 behind the last; "positions", int32: where in the
 * sequence it stands, from 0 on. Every sequence that is not empty stands in one row, once; the pieces of one that is
 * split are sequences. Which row depends on lengths and options alone. Every process must call it: each looks at the
 * lengths of its share of the samples, once. EINVAL: no such field, a longer sequence. Under planning a row for each
 * sample. */
int shardrt_source_pack(shardrt_job *job, shardrt_source *source, int32_t field, const shardrt_pack_options *options,
                        shardrt_source **out);
/* Of packed rows, the share of elements that are of sequences; negative for a source of anything else. */
double shardrt_source_fill(const shardrt_source *source);
/* Under planning: how many samples there are is not known before data is read, and the most there can be are counted.
 */
bool shardrt_source_is_guessed(const shardrt_source *source);
void shardrt_source_free(shardrt_source *source);
/* The i-th class of a source of the format "folder", whose label is i; lives as long as the source. NULL beyond the
 * last, and in other sources. */
const char *shardrt_source_class(const shardrt_source *source, int64_t i);
int64_t shardrt_source_count(const shardrt_source *source);
int32_t shardrt_source_field_count(const shardrt_source *source);
const shardrt_field *shardrt_source_field(const shardrt_source *source, int32_t field); /* borrowed; NULL: none */
/* How many bytes of one sample a reader of `inner`, a box within it, takes from the storage; 0 for a field that is
 * computed. */
size_t shardrt_source_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner);
/* Reads samples first … first + count of one field into `dst`, C-contiguous. EINVAL: outside the source. */
int shardrt_source_read(const shardrt_source *source, int32_t field, int64_t first, int64_t count, void *dst);
/* One sample of any field, also of one whose samples differ in shape: `shape` (room for SHARDRT_MAX_NDIM) is this
 * one's.
 */
int shardrt_source_value(const shardrt_source *source, int32_t field, int64_t sample, int64_t *shape,
                         shardrt_buffer **out);
/* A number that is equal in processes that see the same data: names, dtypes, shapes, lengths of the files and their
 * first blocks; of host arrays, all they held when the source was made. shardrt_check_source compares it across the
 * job, whatever the job's check is, and on a difference names file (by process 0's path) and processes. */
uint64_t shardrt_source_fingerprint(const shardrt_source *source);
int shardrt_check_source(shardrt_job *job, const shardrt_source *source);
/* What the fingerprint is of, to say what differs: of the files, and of how views choose among what is in them; 0 for
 * what is not there. `hashes` has room for SHARDRT_DATA_KINDS. */
enum {
  SHARDRT_DATA_FILES,
  SHARDRT_DATA_SHARDS,
  SHARDRT_DATA_FILTER,
  SHARDRT_DATA_DAMAGED, /* which samples are left out because they cannot be read */
  SHARDRT_DATA_ROWS,
  SHARDRT_DATA_MIX,
  SHARDRT_DATA_KINDS
};
void shardrt_source_data(const shardrt_source *source, uint64_t *hashes);

/* .npy files as arrays. header: dtype, ndim, shape (which has room for SHARDRT_MAX_NDIM), and a fingerprint (may be
 * NULL) of the file's length and first block. load: the whole of it. fill: gives every shard of an array that is being
 * made, and has the file's dtype and shape, its buffer; reads only this process's distinct boxes, each once, and tells
 * how many bytes these are (*bytes_read may be NULL). save: whole or not at all (a temporary name, synced, renamed). */
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
void shardrt_safetensors_free(shardrt_safetensors *file);
int64_t shardrt_safetensors_count(const shardrt_safetensors *file);
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
 * processes that save different things. EIO. */
int shardrt_safetensors_save(shardrt_job *job, const char *path, int64_t count, const shardrt_saved *entries,
                             int64_t *bytes_written);
/* An array whose boxes would be very many very small runs in the file, scattered between those of other processes
 * (columns of few bytes), is laid out in rows before it is written, over the job's links: *out becomes that sharding,
 * with a count, or NULL for an array that is written as it is. Only an array's layout decides. */
int shardrt_safetensors_rows(const shardrt_sharding *sharding, int32_t dtype, int32_t ndim, const int64_t *shape,
                             int32_t process_count, int32_t devices_per_process, shardrt_sharding **out);

/* ---- transforms: what happens to samples on their way ------------------------------------------------------------ */

/* One transform; it never changes, and may stand in many chains. */
typedef struct shardrt_transform shardrt_transform;
/* `kind` is the name of one; what its numbers and bytes mean stands in the file of that kind in
 * runtime/transform/kind/. They are copied. EINVAL: another name, or numbers that make no sense for it. */
int shardrt_transform_new(const char *kind, int64_t count, const double *numbers, size_t nbytes, const void *bytes,
                          shardrt_transform **out);
void shardrt_transform_free(shardrt_transform *transform);

/* The random numbers that one sample is given, one after the other (transform/draw.h says what they come from). `used`
 * is how many were drawn; needs used < SHARDRT_RANDOM_LIMIT. */
enum { SHARDRT_RANDOM_LIMIT = 1 << 24 };
typedef struct shardrt_random {
  uint64_t seed;
  int64_t epoch;
  int64_t number; /* of the sample, in the files */
  int32_t place;  /* of the transform in its chain */
  uint32_t used;
  uint32_t bits[4]; /* drawn together; the one at used % 4 is next, unless that is 0 */
} shardrt_random;
uint32_t shardrt_random_bits(shardrt_random *random);               /* 32 of them */
double shardrt_random_uniform(shardrt_random *random);              /* in [0, 1), 24 bits of it */
double shardrt_random_below(shardrt_random *random, int64_t count); /* whole, in [0, count); needs 1 <= count <= 2^32 */
double shardrt_random_normal(shardrt_random *random);               /* mean 0, deviation 1; takes two draws */

/* What the Lua state of a worker is shown of the samples that it is to transform (transform/kind/lua.c). */
typedef struct shardrt_sample {
  const void *data;
  void *out;
  double size; /* elements of data, of out */
  double out_size;
  double index; /* the sample's number in the files */
  double epoch;
  int64_t shape[SHARDRT_MAX_NDIM]; /* of data */
  shardrt_random random;
} shardrt_sample;
typedef struct shardrt_samples {
  const shardrt_sample *samples;
  int64_t count;
  int64_t at; /* set by the state: which one it is at */
  int32_t dtype;
  int32_t out_dtype;
  int32_t ndim;
} shardrt_samples;

/* A field of a mapped source: a field of another one through a chain of transforms, perhaps of none. */
typedef struct shardrt_mapped {
  const char *name;
  int32_t field; /* of the source that is mapped */
  int32_t count; /* of transforms */
  shardrt_transform *const *transforms;
} shardrt_mapped;

/* A source of the same samples with these fields. What is random in the transforms depends on the loader's seed, the
 * epoch, and the sample's number in the files, and on nothing else; shardrt_source_read reads with seed and epoch 0.
 * EINVAL: a transform that cannot be used on what comes to it; the message names the field. */
int shardrt_source_map(shardrt_source *source, int32_t nfields, const shardrt_mapped *fields, shardrt_source **out);

/* ---- folders of checkpoints, for one process that keeps them ---------------------------------------------------- */

/* A folder that this process holds: locked while the handle lives (a lock on the folder itself, which ends with the
 * process however that ends; where the file system has none, nobody is kept out). */
typedef struct shardrt_folder shardrt_folder;
/* Opens a folder and makes it, with those above it, where it is not there. Waits up to `seconds` for whoever holds it.
 * EIO: it cannot be made or opened; it stays held by another. */
int shardrt_folder_open(const char *path, double seconds, shardrt_folder **out);
void shardrt_folder_free(shardrt_folder *folder);
/* The names in it, without "." and "..", each with its NUL, in no order; ended by an empty one. */
int shardrt_folder_names(const shardrt_folder *folder, shardrt_buffer **out);
/* A new folder within it. EIO: there is one, the disk is full, … */
int shardrt_folder_make(const shardrt_folder *folder, const char *name);
/* Gives what stands within it another name, at once, and brings that to the disk. EIO: nothing has changed (there may
 * be something of that name), or only that it came to the disk is not sure, which the message then says. */
int shardrt_folder_rename(const shardrt_folder *folder, const char *from, const char *to);
/* Removes a folder within it and the files in that one. EIO: something else is in it, … One that is not there is no
 * error. */
int shardrt_folder_remove(const shardrt_folder *folder, const char *name);

/* Writes a file whole or not at all: a temporary name, synced, renamed in place of any file of that name. EIO. */
int shardrt_file_save(const char *path, const void *data, size_t bytes);
/* Of `bytes` bytes of a file, from `offset` on. EIO: it cannot be read. EFORMAT: it ends before. */
int shardrt_file_fingerprint(const char *path, int64_t offset, int64_t bytes, uint64_t *out);

/* `shardrt run --restarts` hears of every checkpoint: that the step's was `saved`, or that the job goes on from it.
 * Nothing where this process was not started by it. */
void shardrt_launcher_tell(int64_t step, bool saved);

/* ---- computation ------------------------------------------------------------------------------------------------ */

/* Every function here computes what this process holds of a result from what it holds of the operands, without asking
 * other processes. Operands and result lie on the same devices in the same order: what a device gets of the result
 * comes from what it holds. `out` was made by shardrt_array_new and gets its buffers here; a box that several devices
 * hold is computed once. Shapes, axes and indices are those of a shard, not of the whole array. (Sums that are spread
 * over devices and not yet formed are an array with a first dimension more, cut into pieces of 1: where a function only
 * counts out's elements, as it says, such dimensions may be there or not.) EINVAL: other devices, shapes or dtypes than
 * the function takes; EDATA: an operand has no data; ENOMEM. All run on this process's threads, and are called on the
 * main thread. */

/* The same array laid out otherwise: every box of `out` is put together from what this process holds of x. EINVAL: it
 * does not hold all of it. Where nothing changes, the memory is shared. */
int shardrt_regroup(const shardrt_array *x, shardrt_array *out);

/* shardrt_reshard between two operations: the new blocks' memory is of what results have given back, and comes back to
 * it. (Steps of training move many sizes in turn; shardrt_reshard keeps memory for the last one only.) */
int shardrt_reshard_operand(shardrt_job *job, shardrt_array *x, shardrt_sharding *to,
                            const shardrt_reshard_options *options, shardrt_array **out);

/* n >= 0 arrays put into `out`, which all processes do together: out[i + by[k]] = in[k][i], wherever out has that; `by`
 * has a number for each dimension of each array. What no array gives is 0. No two may give one element. An element
 * comes over a link only to a process that does not hold it, and once. Shapes are those of the whole arrays, which may
 * lie in any sharding over out's devices. EINVAL: other devices, dtypes or numbers of dimensions; EDATA; ENOMEM;
 * EMISMATCH where processes differ in what they call. */
int shardrt_assemble(shardrt_job *job, int32_t n, shardrt_array *const *in, const int64_t *by, shardrt_array *out);

/* -- elements, one by one -- */

/* X(name, code, operands). Codes never change. */
#define SHARDRT_OPS(X)                                                                                                 \
  X(CONSTANT, 0, 0)                                                                                                    \
  X(COPY, 1, 1)                                                                                                        \
  X(ADD, 2, 2)                                                                                                         \
  X(SUB, 3, 2)                                                                                                         \
  X(MUL, 4, 2)                                                                                                         \
  X(DIV, 5, 2)                                                                                                         \
  X(POW, 6, 2)                                                                                                         \
  X(MAXIMUM, 7, 2)                                                                                                     \
  X(MINIMUM, 8, 2)                                                                                                     \
  X(ATAN2, 9, 2)                                                                                                       \
  X(FLOOR_DIVIDE, 10, 2)                                                                                               \
  X(REMAINDER, 11, 2)                                                                                                  \
  X(EQ, 12, 2)                                                                                                         \
  X(NE, 13, 2)                                                                                                         \
  X(LT, 14, 2)                                                                                                         \
  X(LE, 15, 2)                                                                                                         \
  X(GT, 16, 2)                                                                                                         \
  X(GE, 17, 2)                                                                                                         \
  X(LOGICAL_AND, 18, 2)                                                                                                \
  X(LOGICAL_OR, 19, 2)                                                                                                 \
  X(LOGICAL_NOT, 20, 1)                                                                                                \
  X(SELECT, 21, 3)                                                                                                     \
  X(NEG, 22, 1)                                                                                                        \
  X(ABS, 23, 1)                                                                                                        \
  X(SIGN, 24, 1)                                                                                                       \
  X(SQUARE, 25, 1)                                                                                                     \
  X(RECIPROCAL, 26, 1)                                                                                                 \
  X(SQRT, 27, 1)                                                                                                       \
  X(RSQRT, 28, 1)                                                                                                      \
  X(EXP, 29, 1)                                                                                                        \
  X(EXPM1, 30, 1)                                                                                                      \
  X(LOG, 31, 1)                                                                                                        \
  X(LOG1P, 32, 1)                                                                                                      \
  X(SIN, 33, 1)                                                                                                        \
  X(COS, 34, 1)                                                                                                        \
  X(TAN, 35, 1)                                                                                                        \
  X(TANH, 36, 1)                                                                                                       \
  X(LOGISTIC, 37, 1)                                                                                                   \
  X(ERF, 38, 1)                                                                                                        \
  X(FLOOR, 39, 1)                                                                                                      \
  X(CEIL, 40, 1)                                                                                                       \
  X(ROUND, 41, 1)                                                                                                      \
  X(ISNAN, 42, 1)                                                                                                      \
  X(ISFINITE, 43, 1)

enum {
#define SHARDRT_OP_CODE(name, code, operands) SHARDRT_OP_##name = code,
  SHARDRT_OPS(SHARDRT_OP_CODE)
#undef SHARDRT_OP_CODE
      SHARDRT_OP_COUNT
};

const char *shardrt_op_name(int32_t op); /* "ADD"; static; NULL for no operation */

/* One step of a program: `op` of the registers a, b, c (as many as it has operands), or, of CONSTANT, `value`. */
typedef struct shardrt_step {
  int32_t op;
  int32_t a;
  int32_t b;
  int32_t c;
  double value;
} shardrt_step;

enum { SHARDRT_MAX_REGISTERS = 256 };

/* Runs a program on every element: registers 0 … nin - 1 are the operands, register nin + i is what step i gives, and
 * the last step gives the result. nin + nsteps <= SHARDRT_MAX_REGISTERS, nsteps >= 1. Each operand's shard is broadcast
 * from the right to out's: its sizes are equal to out's, or 1.
 *
 * All steps compute in one dtype: int32, uint32, int64, uint64, float32 or float64. Operands and constants are
 * converted to it, and the result to out's dtype, as runtime/memory/convert.h says: whole numbers wrap, floats are
 * rounded to the nearest, once, at the end. (So a chain of float16 that is one program is not rounded between its
 * steps, as it is where each step is a program of its own.)
 *
 *   EQ … GE, LOGICAL_…, ISNAN, ISFINITE  give 1 or 0; what is not 0 is true, NaN too.
 *   SELECT        b where a is not 0, else c.
 *   MAXIMUM, MINIMUM  NaN where either is NaN; -0 is less than 0.
 *   SIGN          -1, 0 or 1; of a float, a zero or NaN is itself.
 *   FLOOR_DIVIDE, REMAINDER  the quotient rounded down, and what it leaves, with the sign of b (a zero with that of a).
 *   DIV           of whole numbers rounds towards zero. Whole numbers by 0 give -1, and remainder 0; the lowest by -1
 *                 is the lowest.
 *   POW           of whole numbers by squaring, wrapping; to a negative power what is not 1 or -1 gives 0.
 *   ROUND         to the nearest, ties to even.
 *   LOGISTIC      1 / (1 + e^-a).
 * RECIPROCAL, SQRT … ISFINITE and ATAN2 are of floats only.
 *
 * float32: ADD … DIV, SQRT are rounded correctly, all others within 0.52 ulp of the true value
 * (runtime/compute/elementwise/series.h), over all of float32, denormals included; the same bits on every processor.
 * float64: the C library's functions, LOGISTIC within 3 ulp, RSQRT 1. A value depends on its inputs alone: not on its
 * place, the sharding or the threads. EINVAL: a register that is not known yet, an operation of another dtype, shapes
 * that do not fit. */
int shardrt_elementwise(const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                        shardrt_array *const *in, shardrt_array *out);

/* -- whole axes, products of matrices, and elements that change places -- */

enum {
  SHARDRT_SUM,
  SHARDRT_PROD,
  SHARDRT_MAX,
  SHARDRT_MIN,
  SHARDRT_ANY,
  SHARDRT_ALL,
  SHARDRT_ARGMAX,
  SHARDRT_ARGMIN,
  SHARDRT_REDUCE_COUNT
};

/* x reduced over `naxes` distinct axes of it (0: over none, x converted), which vanish: out's elements are as many as
 * x's other axes have; only they are counted.
 *   SUM, PROD  out of any dtype (a whole one only of a whole or bool x). Whole numbers wrap as out's dtype does;
 *              floats are computed in float32, or float64 where out is float64, by halves, so that a sum's error grows
 *              as log n.
 *   MAX, MIN   out of x's dtype. A NaN among floats is the result; -0 is less than 0. EINVAL over no elements.
 *   ANY, ALL   out bool; true is what is not 0 (NaN is not).
 *   ARGMAX, ARGMIN  out int32: the index, over one axis; over several axes that are neighbours the index in them,
 *              row-major. The first of equal ones; the first NaN before all else. EINVAL over no elements, or where
 *              the axes (without those of size 1) are no neighbours.
 * The result's bits depend on x's shard, its shape and the axes only: not on how many threads there are. */
int shardrt_reduce(int32_t op, const shardrt_array *x, int32_t naxes, const int32_t *axes, shardrt_array *out);

/* out = a b: [.., M, K] x [.., K, N] -> [.., M, N]; transpose_a: a is [.., K, M], transpose_b: b is [.., N, K]. Both
 * have 2 dimensions or more; the leading ones (the shorter list is filled up with 1s) are equal or 1, and are
 * broadcast; of out's leading ones only the elements count. All three have one dtype, not bool; of float16 and bfloat16
 * `out` may be float32. float32 and float64 by OpenBLAS, which is loaded at the first call (EINVAL: it is not
 * installed); float16 and bfloat16 are computed in float32 and rounded at the end; whole numbers wrap. K = 0 gives
 * zeros. Where shards of out have one box, but their operands' boxes differ, the products are parts of one sum, which
 * is what out gets: it is added up over what this process has, each pair of boxes once. The result's bits depend on the
 * shapes, the flags, these parts and the kind of processor, not on how many threads there are. `precision` is how exact
 * a product of float32 is at least: SHARDRT_PRECISION_TF32 lets devices that have TF32 round the operands to its 11
 * significant bits; the host computes in float32. */
enum { SHARDRT_PRECISION_FLOAT32, SHARDRT_PRECISION_TF32, SHARDRT_PRECISIONS };
int shardrt_matmul(const shardrt_array *a, const shardrt_array *b, int32_t transpose_a, int32_t transpose_b,
                   int32_t precision, shardrt_array *out);

/* The axes in another order: dimension d of `out` is dimension permutation[d] of x, which has as many. */
int shardrt_transpose(const shardrt_array *x, const int32_t *permutation, shardrt_array *out);

/* out[i] = x[start + i * step] in every dimension; a step is not 0 and may be negative. EINVAL: it leaves x. */
int shardrt_slice(const shardrt_array *x, const int64_t *start, const int64_t *step, shardrt_array *out);
/* The other way round: zeros, but out[start + i * step] = x[i]. EINVAL: that leaves `out`. */
int shardrt_pad(const shardrt_array *x, const int64_t *start, const int64_t *step, shardrt_array *out);

/* n >= 1 arrays, which differ in nothing but their size along `axis`, one behind the other along it. */
int shardrt_concatenate(int32_t n, shardrt_array *const *in, int32_t axis, shardrt_array *out);

/* x's elements at `indices` (int32 or int64, any shape) along `axis`: out has x's shape with the indices' in place of
 * that axis. A negative index counts from the end. EINVAL: an index outside x; the message names it and the size. */
int shardrt_take(const shardrt_array *x, const shardrt_array *indices, int32_t axis, shardrt_array *out);
/* Its gradient: zeros of the shape that x had, plus dy's elements (of out's shape above) at the indices, in their
 * order: float16 and bfloat16 are added in float32. dy and out have one dtype, not bool. out may have dimensions of 1
 * before x's (sums that are not yet formed); `axis` is counted without them. */
int shardrt_take_add(const shardrt_array *dy, const shardrt_array *indices, int32_t axis, shardrt_array *out);

/* start + step * i, where i is the index in the whole array along `axis`: every shard fills its own part. Computed in
 * float64 and then converted (from whole numbers beyond 2^53 it is rounded); out is not bool. */
int shardrt_iota(double start, double step, int32_t axis, shardrt_array *out);

/* `out` has x's elements in another shape or sharding, and shares x's buffers: the i-th shards have as many elements,
 * and where shards of `out` have one box, x's have. */
int shardrt_alias(const shardrt_array *x, shardrt_array *out);

/* A key of JAX's default generator, Threefry2x32: whoever has it makes the same numbers, in any sharding, on any number
 * of threads. What the two ways to count are stands in compute/random/key.c. */
typedef struct shardrt_key {
  uint32_t words[2];
  int32_t partitionable; /* 0: the older layout, in which a number depends on the size of the whole array, too */
} shardrt_key;
enum { SHARDRT_MAX_KEYS = 1 << 24 };

/* `count` new keys from one, which is not to be used otherwise then. EINVAL: not in [1, SHARDRT_MAX_KEYS]. */
int shardrt_key_split(const shardrt_key *key, int64_t count, shardrt_key *keys);
/* The key's `number`-th other one; out may be key. */
void shardrt_key_fold_in(const shardrt_key *key, uint32_t number, shardrt_key *out);

/* Each fills an array that is being made, every distinct box of this process from its place in the whole array alone.
 * EINVAL: an array of another dtype; one that is too large for the key's layout; numbers that make no sense. */
int shardrt_key_bits(const shardrt_key *key, shardrt_array *out); /* uint8, uint16 or uint32 */
/* float32, in [minval, maxval) but for rounding. EINVAL: minval >= maxval, or the difference is not finite. */
int shardrt_key_uniform(const shardrt_key *key, float minval, float maxval, shardrt_array *out);
int shardrt_key_normal(const shardrt_key *key, shardrt_array *out); /* float32: mean 0, deviation 1 */
/* bool: true with that probability. EINVAL: not in [0, 1]. */
int shardrt_key_bernoulli(const shardrt_key *key, float probability, shardrt_array *out);
/* int32, in [minval, maxval). EINVAL: minval >= maxval, or beyond [-2^31, 2^31]. */
int shardrt_key_randint(const shardrt_key *key, int64_t minval, int64_t maxval, shardrt_array *out);
/* int32: the numbers below its size in random order. EINVAL: not of one dimension, cut, or of 2^31 and more. */
int shardrt_key_permutation(const shardrt_key *key, shardrt_array *out);

/* ---- loader ----------------------------------------------------------------------------------------------------- */

enum { SHARDRT_DROP, SHARDRT_PAD, SHARDRT_ERROR };                /* the rest of an epoch that does not fill a batch */
enum { SHARDRT_PER_PROCESS, SHARDRT_GLOBAL, SHARDRT_PER_DEVICE }; /* who reads what */

typedef struct shardrt_loader shardrt_loader;

typedef struct shardrt_loader_options {
  shardrt_job *job;       /* whose processes read together, and which outlives the loader; NULL: this process alone */
  shardrt_source *source; /* a count is taken */
  shardrt_sharding *const *shardings; /* one for each field, then one for the mask (may be NULL unless PAD) */
  /* One for each field: how a batch is laid out when it is read, before it goes over the links between processes to
   * the layout that is asked for. NULL: it is read as it is asked for. */
  shardrt_sharding *const *load_shardings;
  int64_t batch_size;  /* rows of the global batch */
  uint64_t seed;       /* of the order */
  int64_t epochs;      /* < 0: without end */
  int64_t first_step;  /* the number of the first batch, for messages and for which are checked */
  int32_t shuffle;     /* 0: the source's order */
  int32_t remainder;   /* SHARDRT_DROP, … */
  int32_t pipeline;    /* SHARDRT_PER_PROCESS, … */
  int32_t num_workers; /* 0: chosen from the machine, and from how the steps go */
  int32_t prefetch;    /* batches made ahead; 0: chosen in the same way */
  int64_t read_size;   /* bytes that a worker reads at once, if they are more than a row; 0: chosen from the machine */
  int32_t process;
  int32_t devices_per_process;
} shardrt_loader_options;

/* What is read ahead counts when its batch is handed out. */
typedef struct shardrt_loader_stats {
  int64_t bytes_read;     /* taken from the source's storage by this process */
  int64_t bytes_moved;    /* received from other processes */
  int64_t bytes_uploaded; /* to devices with memory of their own; of batches that have arrived there */
  int64_t samples;        /* rows of the global batches handed out, without padding */
  int64_t steps;
  int64_t steps_checked;       /* in which replicas were compared; 0 where no field has any */
  int64_t bytes_fingerprinted; /* by this process, for that: of fields that have replicas, in steps that are checked */
  double seconds;              /* from the call for the first batch to the last call's end */
  double wait_seconds;         /* of these, spent waiting for a batch */
  double read_seconds;         /* spent reading, by all workers together, */
  double decode_seconds;       /* decoding, */
  double transform_seconds;    /* transforming, */
  double scatter_seconds;      /* copying rows that were read whole to where they belong, */
  double check_seconds;        /* and taking fingerprints of replicas */
  double move_seconds;         /* spent moving, each time from when all processes had come to it */
  double upload_seconds;       /* that these uploads took, by the devices' clocks, each batch's longest, */
  double upload_wait_seconds;  /* and of these, when what was asked of the devices had to wait for them */
  size_t batch_bytes;          /* of this process's shards of one batch */
  size_t budget_bytes;         /* of batches made ahead and handed out, and slack_bytes */
  size_t pinned_bytes;         /* of the host's memory from which batches are uploaded, at most; 0: none are */
  size_t slack_bytes;          /* that batches which the caller let go may take before they are collected */
  int32_t num_workers;         /* these three as they are now */
  int32_t prefetch;
  size_t read_size;
  const char *why;     /* they are so; valid until the loader's next step */
  int64_t bytes_ahead; /* read before the workers needed them, because they were not in the page cache */
  const char *ahead;   /* how: "io_uring", "threads"; NULL: it was not needed yet; "none": cannot be had; "off" */
} shardrt_loader_stats;

/* How a loader goes about it, and what is chosen from how its steps went: for tests, too. */
typedef struct shardrt_pace {
  int32_t workers, most_workers;
  int32_t prefetch, most_prefetch;
  bool workers_fixed, prefetch_fixed;
  int32_t prefetch_before; /* more than so many are being tried; 0: no */
  double waited_before;    /* when they were that many */
} shardrt_pace;
/* After a number of steps; four parts between 0 and 1: of the time that the recipe waited for data, of the time that
 * each of the workers was busy, of the steps which began when all batches that may be made ahead were there, and of the
 * time that the recipe slept. Returns whether anything was changed. */
bool shardrt_pace_look(shardrt_pace *pace, double waited, double busy, double full, double slept);

/* What one whole batch costs a process, by the plans alone. */
typedef struct shardrt_loader_cost {
  int64_t bytes_read;     /* taken from the source's storage */
  int64_t bytes_received; /* from other processes */
  int64_t bytes_sent;     /* to other processes */
} shardrt_loader_cost;
/* For options->process, whichever that is. Nothing is read, nobody is asked. EINVAL where a batch does
 * not divide over a sharding. */
int shardrt_loader_cost_of(const shardrt_loader_options *options, shardrt_loader_cost *out);

/* A loader that moves its batches (load_shardings) makes collective calls in shardrt_loader_next. */
int shardrt_loader_new(const shardrt_loader_options *options, shardrt_loader **out);
void shardrt_loader_free(shardrt_loader *loader); /* joins the workers; arrays already handed out stay valid */
/* The next global batch: writes one array for each field (then the mask, with PAD), each with a count for the caller.
 * Returns 1, or 0 after the last one, or an error. Compares the replicas of the fields (EMISMATCH), with the job's
 * check `sample` in the first ten steps and then one in a hundred; the mask is computed alike everywhere, and not
 * compared. Every process must call it alike: the number of steps was fixed by shardrt_loader_new, and every step is
 * told to shardrt_job_step, so that a process which took others is found. Masks of full batches share one memory. */
int shardrt_loader_next(shardrt_loader *loader, shardrt_array **arrays);
int64_t shardrt_loader_steps_per_epoch(const shardrt_loader *loader);
void shardrt_loader_stats_get(const shardrt_loader *loader, shardrt_loader_stats *out);
/* Where the next batch stands: its epoch and its first row in the epoch's order. seek goes there: O(1). EINVAL:
 * outside the epoch. */
void shardrt_loader_tell(const shardrt_loader *loader, int64_t *epoch, int64_t *row);
int shardrt_loader_seek(shardrt_loader *loader, int64_t epoch, int64_t row);
/* Bytes of buffers that arrays handed out by this loader still hold: lets a garbage collector keep pace. */
size_t shardrt_loader_outstanding(const shardrt_loader *loader);

/* The keyed permutation behind shuffle: which of `count` samples stands at `position` of `epoch`. O(1), no memory; a
 * true permutation of [0, count) for every count, seed and epoch. */
int64_t shardrt_order_index(uint64_t seed, int64_t epoch, int64_t count, int64_t position);

#ifndef SHARDRT_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif
