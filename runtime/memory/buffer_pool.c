#include "memory/buffer_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "memory/buffer.h"
#include "platform/accelerator.h"
#include "platform/device.h"
#include "system/machine.h"

/* Where a pool's memory comes from. */
struct pool_memory {
  int (*allocate)(size_t bytes, void **out);
  void (*free)(void *memory, size_t bytes);
};

static int allocate_here(size_t bytes, void **out) {
  *out = device_host.allocate(bytes);
  return *out != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static void free_here(void *memory, size_t bytes) {
  (void)bytes;
  device_host.free(memory);
}

static const struct pool_memory host_memory = {allocate_here, free_here};

static int allocate_pinned(size_t bytes, void **out) {
  return accelerator_get()->memory->allocate_pinned(bytes, out);
}

static void free_pinned(void *memory, size_t bytes) {
  accelerator_get()->memory->free_pinned(memory, bytes);
}

static const struct pool_memory pinned_memory = {allocate_pinned, free_pinned};

enum { BINS = 256 }; /* a power of two */

/* One piece of memory: handed out, or in an idle list. */
struct allocation {
  struct allocation *next;
  struct buffer_pool *pool;
  void *data;
  size_t bytes;
};

/* Invariant: `count` is 1 for the owner, until buffer_pool_free, and 1 for each allocation that is handed out; the pool
 * goes with the last. `idle_bytes` is the sum over the idle lists, which what comes back may bring to `keep_bytes` and
 * no further. Allocations of one size are in one list, and what came back last stands first. Buffers that are pooled
 * mostly have few different sizes, so each list is short and searched from its beginning. */
struct buffer_pool {
  const struct pool_memory *memory;
  pthread_mutex_t lock;
  int64_t count;
  size_t keep_bytes;
  size_t idle_bytes;
  size_t outstanding;
  size_t peak; /* the most that `outstanding` was */
  struct allocation *idle[BINS];
};

/* The list of allocations of that size. */
static struct allocation **idle_list(struct buffer_pool *pool, size_t bytes) {
  return &pool->idle[(bytes * UINT64_C(0x9e3779b97f4a7c15)) >> 56];
}

static void allocation_free(struct allocation *gone) {
  gone->pool->memory->free(gone->data, gone->bytes);
  alloc_free(gone);
}

static void allocation_free_list(struct allocation *list) {
  while (list != NULL) {
    struct allocation *next = list->next;
    allocation_free(list);
    list = next;
  }
}

static void destroy(struct buffer_pool *pool) {
  assert(pool->count == 0 && pool->idle_bytes == 0 && pool->outstanding == 0);
  pthread_mutex_destroy(&pool->lock);
  alloc_free(pool);
}

static int pool_of(const struct pool_memory *memory, size_t keep_bytes, struct buffer_pool **out) {
  struct buffer_pool *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  if (pthread_mutex_init(&made->lock, NULL) != 0) {
    alloc_free(made);
    return error_set(SHARDRT_ENOMEM, "no mutex can be made for a pool of buffers");
  }
  made->memory = memory;
  made->count = 1;
  made->keep_bytes = keep_bytes;
  *out = made;
  return SHARDRT_OK;
}

int buffer_pool_new(size_t keep_bytes, struct buffer_pool **out) {
  return pool_of(&host_memory, keep_bytes, out);
}

int buffer_pool_new_pinned(size_t keep_bytes, struct buffer_pool **out) {
  return pool_of(&pinned_memory, keep_bytes, out);
}

int buffer_pool_of_arrays(struct buffer_pool **out) {
  static struct buffer_pool *pool;
  int code = pool == NULL ? buffer_pool_new(machine_memory() / 8, &pool) : SHARDRT_OK;
  *out = pool;
  return code;
}

/* Whether `idle_bytes` is the sum over the idle lists, which may be long: for rare calls. The lock is held. */
static inline bool idle_is_counted(const struct buffer_pool *pool) {
  size_t bytes = 0;
  for (int i = 0; i < BINS; i++)
    for (const struct allocation *one = pool->idle[i]; one != NULL; one = one->next) bytes += one->bytes;
  return bytes == pool->idle_bytes;
}

void buffer_pool_free(struct buffer_pool *pool) {
  if (pool == NULL) return;
  pthread_mutex_lock(&pool->lock);
  assert(idle_is_counted(pool));
  struct allocation *idle[BINS];
  memcpy(idle, pool->idle, sizeof idle);
  memset(pool->idle, 0, sizeof pool->idle);
  pool->idle_bytes = 0;
  pool->keep_bytes = 0; /* what comes back from now on is freed */
  assert(pool->count > 0);
  bool last = --pool->count == 0;
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < BINS; i++) allocation_free_list(idle[i]);
  if (last) destroy(pool);
}

/* The allocation leaves the hands of its user: back to the idle list, or freed. */
static void allocation_give_back(struct allocation *back) {
  struct buffer_pool *pool = back->pool;
  pthread_mutex_lock(&pool->lock);
  assert(pool->count > 0 && pool->outstanding >= back->bytes);
  pool->outstanding -= back->bytes;
  if (back->bytes != 0 && pool->idle_bytes < pool->keep_bytes && back->bytes <= pool->keep_bytes - pool->idle_bytes) {
    struct allocation **list = idle_list(pool, back->bytes);
    back->next = *list;
    *list = back;
    pool->idle_bytes += back->bytes;
    assert(pool->idle_bytes <= pool->keep_bytes);
    back = NULL;
  }
  bool last = --pool->count == 0;
  pthread_mutex_unlock(&pool->lock);
  if (back != NULL) allocation_free(back);
  if (last) destroy(pool);
}

static void release_allocation(void *context, void *data, size_t bytes) {
  (void)data;
  (void)bytes;
  allocation_give_back(context);
}

/* An idle allocation of that size, out of its list; NULL: there is none. */
static struct allocation *take_idle(struct buffer_pool *pool, size_t bytes) {
  for (struct allocation **link = idle_list(pool, bytes); *link != NULL; link = &(*link)->next) {
    if ((*link)->bytes != bytes) continue;
    struct allocation *found = *link;
    *link = found->next;
    assert(pool->idle_bytes >= bytes);
    pool->idle_bytes -= bytes;
    return found;
  }
  return NULL;
}

static int allocation_new(struct buffer_pool *pool, size_t bytes, struct allocation **out) {
  struct allocation *made = alloc_array(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *made = (struct allocation){.pool = pool, .bytes = bytes};
  int code = pool->memory->allocate(bytes, &made->data);
  if (code != SHARDRT_OK) {
    alloc_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

int buffer_pool_take(struct buffer_pool *pool, size_t bytes, shardrt_buffer **out) {
  pthread_mutex_lock(&pool->lock);
  struct allocation *taken = take_idle(pool, bytes);
  pool->outstanding += bytes;
  if (pool->peak < pool->outstanding) pool->peak = pool->outstanding;
  pool->count++;
  pthread_mutex_unlock(&pool->lock);
  int code = taken == NULL ? allocation_new(pool, bytes, &taken) : SHARDRT_OK;
  if (code == SHARDRT_OK) code = shardrt_buffer_wrap(taken->data, bytes, release_allocation, taken, out);
  if (code == SHARDRT_OK) return code;
  if (taken != NULL) {
    allocation_give_back(taken);
    return code;
  }
  pthread_mutex_lock(&pool->lock);
  pool->outstanding -= bytes;
  pool->count--; /* never the last: the caller holds the pool */
  assert(pool->count > 0);
  pthread_mutex_unlock(&pool->lock);
  return code;
}

void buffer_pool_limit(struct buffer_pool *pool, size_t keep_bytes) {
  pthread_mutex_lock(&pool->lock);
  pool->keep_bytes = keep_bytes;
  pthread_mutex_unlock(&pool->lock);
}

void buffer_pool_trim(struct buffer_pool *pool, size_t bytes, int64_t count, size_t spare) {
  struct allocation *gone = NULL;
  pthread_mutex_lock(&pool->lock);
  for (int i = 0; i < BINS; i++)
    for (struct allocation **link = &pool->idle[i]; *link != NULL;) {
      struct allocation *one = *link;
      if (one->bytes == bytes && count > 0) {
        count--;
      } else if (one->bytes <= spare) {
        spare -= one->bytes;
      } else {
        *link = one->next;
        pool->idle_bytes -= one->bytes;
        one->next = gone;
        gone = one;
        continue;
      }
      link = &one->next;
    }
  assert(idle_is_counted(pool));
  pthread_mutex_unlock(&pool->lock);
  allocation_free_list(gone);
}

void buffer_pool_shed(struct buffer_pool *pool, size_t bytes) {
  pthread_mutex_lock(&pool->lock);
  struct allocation *gone = take_idle(pool, bytes);
  pthread_mutex_unlock(&pool->lock);
  if (gone != NULL) allocation_free(gone);
}

size_t buffer_pool_outstanding(const struct buffer_pool *pool) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&pool->lock; /* reading changes nothing but the lock */
  pthread_mutex_lock(lock);
  size_t outstanding = pool->outstanding;
  pthread_mutex_unlock(lock);
  return outstanding;
}

size_t buffer_pool_peak(struct buffer_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  assert(pool->peak >= pool->outstanding);
  size_t peak = pool->peak;
  pool->peak = pool->outstanding;
  pthread_mutex_unlock(&pool->lock);
  return peak;
}
