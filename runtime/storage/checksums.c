#include "storage/checksums.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "storage/write/cache.h"

enum {
  PAGE = 4096,
  TAIL = 8 /* number and checksum of a page */,
  KIND_BYTES = 16,
  LEAST_BLOCKS = 65536,
  LEAST_PARTS = 256
};
enum { UNCHECKED, GOOD, BAD }; /* a page of the table */

static const char magic[8] = "shrdsum1";

struct checksums_header {
  char magic[sizeof magic];
  char kind[KIND_BYTES];
  int64_t file_bytes;
  int64_t file_changed;
  int64_t count;
  int64_t made;
  int32_t width;
  uint32_t about;
  uint32_t crc; /* of this, with 0 here */
};

struct checksums {
  struct checksums_of of;
  char *folder;             /* a copy, that of->folder is; NULL as it is */
  struct mapping map;       /* what was found; closed: nothing */
  _Atomic uint8_t *pages;   /* of what was found: UNCHECKED, GOOD or BAD */
  _Atomic(uint8_t *) added; /* entries that were put, once there are some; memory is taken where it is written to */
  _Atomic int64_t unsaved;
  pthread_mutex_t saving;
};

/* The first conflict of this process, for shardrt_verify_finish. */
static pthread_mutex_t trouble_lock = PTHREAD_MUTEX_INITIALIZER;
static char trouble[1024];

static int64_t per_page(int32_t width) {
  return (PAGE - TAIL) / width;
}

static int64_t page_count(const struct checksums_of *of) {
  return (of->count + per_page(of->width) - 1) / per_page(of->width);
}

uint64_t checksums_entry(uint32_t crc) {
  return crc > SUMS_CONFLICT ? crc : crc + 2; /* two of four thousand million share an entry with another one */
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static bool read_sums_header(const struct mapping *map, struct checksums_header *out) {
  if (map->bytes < PAGE) return false;
  memcpy(out, map->data, sizeof *out);
  struct checksums_header unsigned_one = *out;
  unsigned_one.crc = 0;
  return memcmp(out->magic, magic, sizeof magic) == 0 && crc32c(0, &unsigned_one, sizeof unsigned_one) == out->crc;
}

/* Whether a table is of the file as it is, whatever is said about its parts. */
static bool is_of(const struct checksums_header *header, const struct checksums_of *of) {
  return strncmp(header->kind, of->kind, KIND_BYTES) == 0 && header->file_bytes == (int64_t)of->file->bytes &&
         header->file_changed == of->file->changed;
}

static bool checksums_fit(const struct mapping *cached, const void *context) {
  const struct checksums_of *of = context;
  struct checksums_header header;
  if (!read_sums_header(cached, &header) || !is_of(&header, of)) return false;
  if (header.about != of->about) return true; /* which checksums_open refuses */
  return header.count == of->count && header.width == of->width &&
         cached->bytes == (size_t)PAGE * (size_t)(1 + page_count(of));
}

static const uint8_t *page_at(const struct mapping *map, int64_t page) {
  return map->data + (size_t)PAGE * (size_t)(1 + page);
}

static bool check_page(const struct mapping *map, int64_t page) {
  uint32_t tail[2];
  const uint8_t *at = page_at(map, page);
  memcpy(tail, at + PAGE - TAIL, sizeof tail);
  return tail[0] == (uint32_t)page && tail[1] == crc32c(0, at, PAGE - sizeof tail[1]);
}

/* Where the same or another process wrote while this one reads: a whole entry, or the one before it. */
static uint64_t load_sum(const uint8_t *table, int64_t at, int32_t width) {
  return width == 4 ? __atomic_load_n((const uint32_t *)(const void *)table + at, __ATOMIC_RELAXED)
                    : __atomic_load_n((const uint64_t *)(const void *)table + at, __ATOMIC_RELAXED);
}

static void store_entry(uint8_t *table, int64_t at, int32_t width, uint64_t entry) {
  if (width == 4)
    __atomic_store_n((uint32_t *)(void *)table + at, (uint32_t)entry, __ATOMIC_RELAXED);
  else
    __atomic_store_n((uint64_t *)(void *)table + at, entry, __ATOMIC_RELAXED);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static struct cache_request request_of(const struct checksums_of *of) {
  return (struct cache_request){.path = of->path,
                                .file = of->file,
                                .folder = of->folder,
                                .suffix = ".shardrt-index",
                                .work_bytes = (size_t)of->count * (size_t)of->width,
                                .fits = checksums_fit,
                                .context = of};
}

static int check_about(const struct checksums *self) {
  struct checksums_header header;
  if (self->map.data == NULL || !read_sums_header(&self->map, &header) || header.about == self->of.about)
    return SHARDRT_OK;
  return error_set(
      SHARDRT_EFORMAT,
      "%s: what describes it is damaged: its CRC-32C is %08x, and was %08x when its index was made; a copy "
      "of it would do, or, if it was changed on purpose, `shardrt index --force`",
      self->of.path, self->of.about, header.about);
}

static int make_sums(struct checksums *self) {
  if (self->of.folder != NULL) {
    self->folder = alloc_text("%s", self->of.folder);
    if (self->folder == NULL) return ALLOC_FAILED;
    self->of.folder = self->folder;
  }
  const struct cache_request request = request_of(&self->of);
  int code = cache_find(&request, &self->map);
  if (code == SHARDRT_OK) code = check_about(self);
  if (code < 0) return code;
  self->pages = alloc_zeros((size_t)page_count(&self->of), sizeof *self->pages);
  return self->pages != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static void drop_table(struct checksums *self) {
  mapping_close(&self->map);
  alloc_free((void *)self->pages);
  alloc_free(atomic_load(&self->added));
  pthread_mutex_destroy(&self->saving);
  alloc_free(self->folder);
  alloc_free(self);
}

int checksums_open(const struct checksums_of *of, struct checksums **out) {
  struct checksums *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  pthread_mutex_init(&self->saving, NULL);
  self->of = *of;
  int code = make_sums(self);
  if (code < 0) {
    drop_table(self);
    return code;
  }
  *out = self;
  return SHARDRT_OK;
}

int64_t checksums_made(const struct checksums *self) {
  struct checksums_header header;
  return self->map.data != NULL && read_sums_header(&self->map, &header) ? header.made : 0;
}

/* What was found; a page that is damaged says nothing. */
static uint64_t entry_of(const struct checksums *self, int64_t part) {
  if (self->map.data == NULL) return SUMS_UNKNOWN;
  const int64_t each = per_page(self->of.width), page = part / each;
  uint8_t state = atomic_load_explicit(&self->pages[page], memory_order_relaxed);
  if (state == UNCHECKED) {
    state = check_page(&self->map, page) ? GOOD : BAD;
    atomic_store_explicit(&self->pages[page], state, memory_order_relaxed);
  }
  return state == GOOD ? load_sum(page_at(&self->map, page), part % each, self->of.width) : SUMS_UNKNOWN;
}

uint64_t checksums_get(const struct checksums *self, int64_t part) {
  const uint8_t *added = atomic_load_explicit(&self->added, memory_order_acquire);
  const uint64_t entry = added != NULL ? load_sum(added, part, self->of.width) : SUMS_UNKNOWN;
  return entry != SUMS_UNKNOWN ? entry : entry_of(self, part);
}

/* Room for entries; NULL when out of memory. */
static uint8_t *room_for_added(struct checksums *self) {
  uint8_t *added = atomic_load_explicit(&self->added, memory_order_acquire);
  if (added != NULL) return added;
  uint8_t *made = alloc_zeros((size_t)self->of.count, (size_t)self->of.width);
  if (made == NULL) return NULL;
  if (atomic_compare_exchange_strong(&self->added, &added, made)) return made;
  alloc_free(made); /* another thread was faster */
  return added;
}

int checksums_put(struct checksums *self, int64_t part, uint64_t entry) {
  uint8_t *added = room_for_added(self);
  if (added == NULL) return ALLOC_FAILED;
  store_entry(added, part, self->of.width, entry);
  atomic_fetch_add_explicit(&self->unsaved, 1, memory_order_relaxed);
  return SHARDRT_OK;
}

/* Blocks are small, and what else has parts are not. */
static bool is_due(const struct checksums *self) {
  const int64_t eighth = self->of.count / 8, least = self->of.width == 4 ? LEAST_BLOCKS : LEAST_PARTS;
  return atomic_load_explicit(&self->unsaved, memory_order_relaxed) >= (eighth > least ? eighth : least);
}

/* ---- saving ----------------------------------------------------------------------------------------------------- */

static void note_trouble(const struct checksums *self, int64_t part) {
  pthread_mutex_lock(&trouble_lock);
  if (trouble[0] == '\0')
    snprintf(trouble, sizeof trouble,
             "%s: another process or job read other bytes than this one, in %s %lld of its index: memory, a disk or a "
             "copy is damaged; what was computed from it is not to be trusted. A copy of the file would do, and "
             "`shardrt index --force`",
             self->of.path, strcmp(self->of.kind, "blocks") == 0 ? "block" : "chunk", (long long)part);
  pthread_mutex_unlock(&trouble_lock);
}

int shardrt_verify_finish(void) {
  pthread_mutex_lock(&trouble_lock);
  int code = trouble[0] != '\0' ? error_set(SHARDRT_EFORMAT, "%s", trouble) : SHARDRT_OK;
  trouble[0] = '\0';
  pthread_mutex_unlock(&trouble_lock);
  return code;
}

/* One entry of the new table, of ours and of that which lies there now. Of another version of a part the newer one
 * counts, which is ours. */
static uint64_t join_sums(const struct checksums *self, int64_t part, uint64_t ours, uint64_t theirs) {
  if (ours == SUMS_UNKNOWN || ours == theirs) return theirs;
  if (theirs == SUMS_UNKNOWN || theirs == SUMS_CONFLICT) return theirs == SUMS_UNKNOWN ? ours : theirs;
  if (self->of.width == 8 && theirs >> 32 != ours >> 32) return ours;
  note_trouble(self, part);
  return SUMS_CONFLICT;
}

struct saved {
  const struct checksums *self;
  const struct mapping *there; /* the table in the place; closed: none */
};

static int write_page(const struct saved *s, int64_t page, struct newfile *out) {
  _Alignas(8) uint8_t room[PAGE] = {0};
  const struct checksums *self = s->self;
  const uint8_t *added = atomic_load_explicit(&self->added, memory_order_acquire); /* something was put */
  const int64_t each = per_page(self->of.width), first = page * each;
  const bool there = s->there->data != NULL && check_page(s->there, page);
  for (int64_t i = 0; i < each && first + i < self->of.count; i++) {
    const uint64_t theirs = there ? load_sum(page_at(s->there, page), i, self->of.width) : SUMS_UNKNOWN;
    const uint64_t ours = load_sum(added, first + i, self->of.width);
    store_entry(room, i, self->of.width, join_sums(self, first + i, ours, theirs));
  }
  const uint32_t number = (uint32_t)page;
  memcpy(room + PAGE - TAIL, &number, sizeof number);
  const uint32_t crc = crc32c(0, room, PAGE - sizeof crc);
  memcpy(room + PAGE - sizeof crc, &crc, sizeof crc);
  return newfile_write(out, room, sizeof room);
}

/* Whether the table in the place says all that was put, as another process of the job may have saved the same. */
static bool says_all(const struct checksums *self, const struct mapping *there) {
  const uint8_t *added = atomic_load_explicit(&self->added, memory_order_acquire);
  const int64_t each = per_page(self->of.width);
  for (int64_t page = 0; page < page_count(&self->of); page++) {
    if (!check_page(there, page)) return false;
    for (int64_t i = 0; i < each && page * each + i < self->of.count; i++) {
      const uint64_t ours = load_sum(added, page * each + i, self->of.width);
      if (ours != SUMS_UNKNOWN && ours != load_sum(page_at(there, page), i, self->of.width)) return false;
    }
  }
  return true;
}

static int write_table(struct newfile *out, const struct mapping *there, const void *context) {
  const struct checksums *self = context;
  const struct saved s = {.self = self, .there = there};
  uint8_t room[PAGE] = {0};
  struct checksums_header before;
  if (there->data != NULL && read_sums_header(there, &before) && before.about != self->of.about)
    return error_set(SHARDRT_EFORMAT, "%s: what describes it changed, and its time did not", self->of.path);
  if (there->data != NULL && says_all(self, there)) return CACHE_AS_IT_IS;
  struct checksums_header header = {.file_bytes = (int64_t)self->of.file->bytes,
                                    .file_changed = self->of.file->changed,
                                    .count = self->of.count,
                                    .made = (int64_t)time(NULL),
                                    .width = self->of.width,
                                    .about = self->of.about};
  memcpy(header.magic, magic, sizeof magic);
  snprintf(header.kind, sizeof header.kind, "%s", self->of.kind);
  header.crc = crc32c(0, &header, sizeof header);
  memcpy(room, &header, sizeof header);
  int code = newfile_write(out, room, sizeof room);
  for (int64_t page = 0; page < page_count(&self->of) && code == SHARDRT_OK; page++) code = write_page(&s, page, out);
  return code;
}

/* With the lock on `saving`. */
static int save_sums(struct checksums *self) {
  const int64_t unsaved = atomic_load_explicit(&self->unsaved, memory_order_relaxed);
  if (unsaved == 0) return SHARDRT_OK;
  const struct cache_request request = request_of(&self->of);
  int code = cache_update(&request, write_table, self);
  atomic_fetch_sub_explicit(&self->unsaved, code < 0 ? unsaved - 1 : unsaved, memory_order_relaxed);
  return code;
}

int checksums_save(struct checksums *self) {
  pthread_mutex_lock(&self->saving);
  int code = save_sums(self);
  pthread_mutex_unlock(&self->saving);
  return code;
}

/* What cannot be kept is found out again. */
static void keep(int code) {
  if (code == SHARDRT_ENOMEM) alloc_do_without("keeping checksums");
}

void checksums_save_due(struct checksums *self) {
  if (!is_due(self) || pthread_mutex_trylock(&self->saving) != 0) return;
  if (is_due(self)) keep(save_sums(self));
  pthread_mutex_unlock(&self->saving);
}

void checksums_close(struct checksums *self) {
  if (self == NULL) return;
  keep(checksums_save(self));
  drop_table(self);
}
