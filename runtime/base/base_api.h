/* base_api.h - errors, the handles of a program, and what tests and clocks need: a part of shardrt.h. */
#ifndef SHARDRT_BASE_BASE_API_H
#define SHARDRT_BASE_BASE_API_H

#ifndef SHARDRT_CDEF
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

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
  X(EDEVICE, -10, "a device failed")                                                                                   \
  X(EAGAIN, -11, "the slice is over")                                                                                  \
  X(ESTOP, -12, "an orderly end was asked for")

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

/* What a program has in hand. Each is counted, or borrowed from another; what it points to is shardrt's own. */
typedef struct shardrt_job shardrt_job;           /* processes that belong together */
typedef struct shardrt_recipe shardrt_recipe;     /* a recipe that was run and returned its loaders, or one of these */
typedef struct shardrt_batch shardrt_batch;       /* one step's data: an array for each field */
typedef struct shardrt_array shardrt_array;       /* a global array, as one process sees it: its own shards */
typedef struct shardrt_buffer shardrt_buffer;     /* memory that holds a shard */
typedef struct shardrt_sharding shardrt_sharding; /* which box of an array each device holds */
typedef struct shardrt_mesh shardrt_mesh;         /* devices, by named axes */

/* Seconds on the machine's monotonic clock, which is one for all processes of a host. */
double shardrt_clock(void);
/* Takes out of a text, in place, what no message shows: names and passwords of addresses, and what follows their "?".
 */
void shardrt_error_hide(char *text);

/* For tests: the n-th allocation from now (1 = the next) fails once with ENOMEM, on whatever thread; 0 switches this
 * off. Returns how many allocations were counted since the last call. */
int64_t shardrt_alloc_fail_at(int64_t n);
/* For tests: what was gone on without since that call, as an allocation for it failed, in words; NULL: nothing. */
const char *shardrt_alloc_went_without(void);
/* For tests: from now on loops are those of processors of this level at most (0: any x86-64, 1: AVX2, 2: AVX-512, all
 * that are). Returns the level that they have now: not more than this processor's own. */
int32_t shardrt_simd_limit(int32_t level);

#endif
