#include "system/huge_pages.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/alloc.h"

enum {
  ALIGNMENT = 64,
  HUGE_PAGE = 2 << 20,
  LARGE = 2 * HUGE_PAGE,
  GRAIN = 16 * 1024, /* rooms are so many bytes, or a multiple; smaller ones are malloc's */
  GRAINS = 512,      /* of a slab */
  WORD = 64,
  SLAB = GRAIN * GRAINS,
  SLABS = 64, /* at most; what has no room in them is malloc's */
  SPARE = 4   /* empty ones that stay: to get a slab again means to clear it, which takes as long as to decode */
};

/* The sanitizer sees what is read or written beyond a room in memory of malloc's only. */
#ifdef __SANITIZE_ADDRESS__
enum { LARGEST = 0 };
#else
enum { LARGEST = LARGE };
#endif

void *huge_alloc(size_t bytes) {
  if (bytes < LARGE) return alloc_aligned(ALIGNMENT, bytes);
  void *memory = alloc_aligned(HUGE_PAGE, bytes);
  if (memory != NULL) madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a wish; whole pages only */
  return memory;
}

/* ---- rooms ------------------------------------------------------------------------------------------------------ */

struct slab {
  uint8_t *memory; /* NULL: it is not there */
  size_t used;     /* grains: */
  uint64_t taken[GRAINS / WORD];
};

static struct {
  pthread_mutex_t lock;
  struct slab slabs[SLABS];
  int32_t empty; /* of those that are there */
} rooms = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_taken(const struct slab *slab, size_t grain) {
  return (slab->taken[grain / WORD] >> grain % WORD & 1) != 0;
}

static void set_taken(struct slab *slab, size_t first, size_t count, bool taken) {
  for (size_t g = first; g < first + count; g++) {
    const uint64_t bit = UINT64_C(1) << g % WORD;
    assert(is_taken(slab, g) != taken);
    slab->taken[g / WORD] = taken ? slab->taken[g / WORD] | bit : slab->taken[g / WORD] & ~bit;
  }
  rooms.empty -= slab->used == 0;
  slab->used = taken ? slab->used + count : slab->used - count;
  rooms.empty += slab->used == 0;
}

/* The first of so many grains in a row that are free; GRAINS: there are none. */
static size_t find_free(const struct slab *slab, size_t count) {
  size_t run = 0;
  if (GRAINS - slab->used < count) return GRAINS;
  for (size_t g = 0; g < GRAINS; g++) {
    run = is_taken(slab, g) ? 0 : run + 1;
    if (run == count) return g + 1 - count;
  }
  return GRAINS;
}

/* Memory of the system's that begins at a huge page; false: it has none. */
static bool map_slab(struct slab *slab) {
  uint8_t *all =
      mmap(NULL, SLAB + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return false;
  const size_t before = -(uintptr_t)all % HUGE_PAGE;
  if (before > 0) munmap(all, before);
  munmap(all + before + SLAB, HUGE_PAGE - before);
  madvise(all + before, SLAB, MADV_HUGEPAGE);
  slab->memory = all + before;
  rooms.empty++;
  return true;
}

static void unmap_slab(struct slab *slab) {
  munmap(slab->memory, SLAB);
  slab->memory = NULL;
  rooms.empty--;
}

/* Room of a slab that is there, if `is_there`, or of a new one; NULL: there is none. Under the lock. */
static void *take_grains(size_t count, bool is_there) {
  for (struct slab *slab = rooms.slabs; slab < rooms.slabs + SLABS; slab++) {
    if ((slab->memory != NULL) != is_there) continue;
    if (!is_there && !map_slab(slab)) return NULL;
    const size_t first = find_free(slab, count);
    if (first == GRAINS) continue;
    set_taken(slab, first, count, true);
    return slab->memory + first * GRAIN;
  }
  return NULL;
}

static void *take_room(size_t count) {
  pthread_mutex_lock(&rooms.lock);
  void *room = take_grains(count, true);
  if (room == NULL) room = take_grains(count, false);
  pthread_mutex_unlock(&rooms.lock);
  return room;
}

/* Whether it was a room of a slab. */
static bool give_room(const uint8_t *room, size_t count) {
  struct slab *slab = rooms.slabs;
  pthread_mutex_lock(&rooms.lock);
  while (slab < rooms.slabs + SLABS && (slab->memory == NULL || room < slab->memory || room >= slab->memory + SLAB))
    slab++;
  const bool found = slab < rooms.slabs + SLABS;
  if (found) {
    set_taken(slab, (size_t)(room - slab->memory) / GRAIN, count, false);
    if (slab->used == 0 && rooms.empty > SPARE) unmap_slab(slab);
  }
  pthread_mutex_unlock(&rooms.lock);
  return found;
}

static bool is_shared(size_t bytes) {
  return bytes >= GRAIN && bytes <= LARGEST;
}

size_t huge_room_size(size_t bytes) {
  return is_shared(bytes) ? (bytes + GRAIN - 1) / GRAIN * GRAIN : bytes;
}

void *huge_room(size_t bytes) {
  if (!is_shared(bytes)) return huge_alloc(bytes);
  if (alloc_must_fail(bytes)) return NULL;
  void *room = take_room(huge_room_size(bytes) / GRAIN);
  return room != NULL ? room : alloc_aligned(ALIGNMENT, bytes);
}

void huge_room_free(void *room, size_t bytes) {
  if (room != NULL && (!is_shared(bytes) || !give_room(room, huge_room_size(bytes) / GRAIN))) alloc_free(room);
}
