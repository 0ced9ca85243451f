#include "storage/guard.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"

enum { WORD = 64 };
/* A file that was written so short a time ago may be written again and have the same time: as file systems count in
 * ticks of a few ms or, where no part of a second is told, in one second or two. Nanoseconds. */
static const int64_t tick = 100000000, seconds = 2500000000;
/* Every process of a job saves what it noted: a table that is larger is for `shardrt index`. */
enum { TABLE_MOST = 16 * 1024 * 1024 };

struct guard {
  struct checksums *sums;
  struct mapping file; /* a copy of the owner's */
  const char *path;
  bool always; /* else once */
  bool notes;  /* what is not known yet */
  bool asked;  /* to note it, however new it is */
  _Atomic uint64_t *seen;
  _Atomic int64_t unseen; /* parts that are not */
};

int32_t guard_verify(const shardrt_source_options *options, int32_t otherwise) {
  if (options == NULL || options->headers_only != 0) return SHARDRT_VERIFY_NEVER;
  return options->verify == SHARDRT_VERIFY_DEFAULT ? otherwise : options->verify;
}

static bool is_young(int64_t changed) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age = (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec - changed;
  return age < (changed % 1000000000 == 0 ? seconds : tick);
}

int guard_open(const struct checksums_of *of, int32_t verify, struct guard **out) {
  struct guard *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  self->path = of->path;
  self->file = *of->file;
  struct checksums_of own = *of;
  own.file = &self->file;
  self->always = verify == SHARDRT_VERIFY_ALWAYS;
  self->notes = !is_young(of->file->changed) && of->count <= TABLE_MOST / of->width;
  atomic_init(&self->unseen, of->count);
  self->seen = alloc_zeros((size_t)(of->count / WORD + 1), sizeof *self->seen);
  int code = self->seen != NULL ? checksums_open(&own, &self->sums) : ALLOC_FAILED;
  if (code < 0) {
    guard_close(self);
    return code;
  }
  *out = self;
  return SHARDRT_OK;
}

int guard_open_blocks(const char *path, const struct mapping *file, const char *folder, int32_t verify,
                      struct guard **out) {
  const struct checksums_of of = {.path = path,
                                  .file = file,
                                  .folder = folder,
                                  .kind = "blocks",
                                  .count = (int64_t)((file->bytes + GUARD_BLOCK - 1) / GUARD_BLOCK),
                                  .width = 4};
  return guard_open(&of, verify, out);
}

int guard_open_unpacked(const char *path, const struct mapping *unpacked, const shardrt_source_options *options,
                        char **title, struct guard **out) {
  const int32_t verify = guard_verify(options, GUARD_DEFAULT_PLAIN);
  const char *name = mapping_path_at(unpacked->data);
  if (verify == SHARDRT_VERIFY_NEVER || name == NULL || access(name, F_OK) != 0) return SHARDRT_OK;
  *title = alloc_text("%s, unpacked as %s (remove that, and it is unpacked anew)", path, name);
  return *title != NULL ? guard_open_blocks(name, unpacked, options->cache, verify, out) : ALLOC_FAILED;
}

void guard_close(struct guard *self) {
  if (self == NULL) return;
  checksums_close(self->sums);
  alloc_free((void *)self->seen);
  alloc_free(self);
}

uint64_t guard_known(const struct guard *self, int64_t part) {
  return checksums_get(self->sums, part);
}

void guard_note(struct guard *self, bool notes) {
  self->notes = notes;
  self->asked = notes;
}

bool guard_notes(const struct guard *self, int64_t changed) {
  return self->notes && (self->asked || !is_young(changed));
}

int guard_save(struct guard *self) {
  return self != NULL ? checksums_save(self->sums) : SHARDRT_OK;
}

static bool was_seen(const struct guard *self, int64_t part) {
  return (atomic_load_explicit(&self->seen[part / WORD], memory_order_relaxed) >> part % WORD & 1) != 0;
}

bool guard_is_done(const struct guard *self) {
  return !self->always && atomic_load_explicit(&self->unseen, memory_order_relaxed) == 0;
}

/* The rest of a sentence about a part. */
static int refuse_block(const struct guard *self, uint32_t found, uint64_t known) {
  char date[32] = "";
  const time_t made = (time_t)checksums_made(self->sums);
  struct tm parts;
  if (made != 0 && gmtime_r(&made, &parts) != NULL) strftime(date, sizeof date, " (%Y-%m-%d %H:%M UTC)", &parts);
  if (known == SUMS_CONFLICT)
    return error_set(
        SHARDRT_EFORMAT,
        "two processes or jobs read different bytes there%s: memory, a disk or a copy is damaged; once the "
        "file is known to be good, `shardrt index --force` makes its index anew",
        date);
  return error_set(
      SHARDRT_EFORMAT,
      "damaged: its CRC-32C is %08x, and was %08x when its index was made%s; a good copy in its place would "
      "do, or, if the file was changed on purpose with its time kept, `shardrt index --force`",
      found, (uint32_t)known, date);
}

int guard_look(struct guard *self, int64_t part, uint32_t version, const uint8_t *data, size_t bytes) {
  if (!self->always && was_seen(self, part)) return SHARDRT_OK;
  const uint64_t known = checksums_get(self->sums, part);
  const bool other_version = version != 0 && known >> 32 != version && known != SUMS_CONFLICT;
  const bool is_new = known == SUMS_UNKNOWN || other_version;
  if (!is_new || self->notes) {
    const uint32_t crc = crc32c(0, data, bytes);
    const uint64_t entry = version != 0 ? (uint64_t)version << 32 | crc : checksums_entry(crc);
    if (!is_new && known != entry) return refuse_block(self, crc, known);
    int code = is_new ? checksums_put(self->sums, part, entry) : SHARDRT_OK;
    if (code < 0) return code;
    if (is_new) checksums_save_due(self->sums);
  }
  const uint64_t bit = UINT64_C(1) << part % WORD;
  const uint64_t before = atomic_fetch_or_explicit(&self->seen[part / WORD], bit, memory_order_relaxed);
  if ((before & bit) == 0) atomic_fetch_sub_explicit(&self->unseen, 1, memory_order_relaxed);
  return SHARDRT_OK;
}

static int blame_block(const struct guard *self, const char *title, size_t first, size_t bytes, int code) {
  struct stat status;
  if (stat(self->path, &status) == 0 &&
      (int64_t)status.st_mtim.tv_sec * 1000000000 + (int64_t)status.st_mtim.tv_nsec != self->file.changed)
    return error_set(code, "%s: bytes %zu to %zu: somebody wrote to the file after it was opened here: %s", title,
                     first, first + bytes - 1, shardrt_error_message());
  return error_prefix(code, "%s: bytes %zu to %zu", title, first, first + bytes - 1);
}

int guard_check(struct guard *self, const char *title, size_t offset, size_t bytes) {
  if (bytes == 0) return SHARDRT_OK;
  assert(bytes <= self->file.bytes && offset <= self->file.bytes - bytes);
  const int64_t stop = (int64_t)((offset + bytes - 1) / GUARD_BLOCK) + 1;
  for (int64_t b = (int64_t)(offset / GUARD_BLOCK); b < stop; b++) {
    if (!self->always && was_seen(self, b)) continue;
    const size_t first = (size_t)b * GUARD_BLOCK, left = self->file.bytes - first;
    const size_t length = left < GUARD_BLOCK ? left : GUARD_BLOCK;
    int code = guard_look(self, b, 0, self->file.data + first, length);
    if (code < 0) return blame_block(self, title, first, length, code);
  }
  return SHARDRT_OK;
}
