#include "dataset/audit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/index_file.h"
#include "dataset/magic.h"
#include "dataset/source.h"
#include "storage/restart_table.h"
#include "storage/write/cache.h"
#include "system/machine.h"
#include "system/team.h"

enum { MAX_THREADS = 256, TASK_BYTES = 1 << 20, BAD_MOST = 10000 };

struct audit_bad {
  int64_t offset, bytes;
  char text[640];
};

/* ---- the blocks of a file --------------------------------------------------------------------------------------- */

static int look_at_block(void *own, int64_t part, bool compares, struct reader *reader, struct audit_look *out) {
  const struct stored *file = own;
  (void)reader;
  const size_t first = (size_t)part * GUARD_BLOCK, left = file->bytes - first;
  const size_t bytes = left < GUARD_BLOCK ? left : GUARD_BLOCK;
  out->unknown = guard_known(file->guard, part) == SUMS_UNKNOWN;
  if (compares == out->unknown) return SHARDRT_OK; /* nothing to compare with, or nothing to find out */
  out->bytes = (int64_t)bytes;
  int code = guard_look(file->guard, part, 0, file->map.data + first, bytes);
  if (code < 0) {
    out->offset = (int64_t)first;
    out->damaged = bytes;
  }
  return code;
}

static int save_blocks(void *own) {
  return guard_save(((const struct stored *)own)->guard);
}

static void drop_blocks(void *own) {
  stored_close(own);
  alloc_free(own);
}

static const struct audit_kind blocks_kind = {.look = look_at_block, .save = save_blocks, .drop = drop_blocks};

static int open_blocks(const char *path, const shardrt_source_options *options, bool compares, shardrt_audit *out) {
  struct stored *file = alloc_zeros(1, sizeof *file);
  if (file == NULL) return ALLOC_FAILED;
  out->kind = &blocks_kind;
  out->own = file;
  int code = stored_open(path, options, file);
  if (code == SHARDRT_OK && file->map.remote != NULL)
    code = error_set(SHARDRT_EINVAL, "%s: lies on a server; its parts have checksums in the cache", file->title);
  if (code == SHARDRT_OK) code = stored_guard(file, options, SHARDRT_VERIFY_ALWAYS);
  if (code < 0) return code;
  if (file->guard != NULL) guard_note(file->guard, !compares);
  out->parts = (int64_t)((file->bytes + GUARD_BLOCK - 1) / GUARD_BLOCK);
  out->part_bytes = GUARD_BLOCK;
  out->together = true;
  return SHARDRT_OK;
}

/* ---- the entries of a file's index ------------------------------------------------------------------------------ */

struct indexed {
  struct stored file;
  struct index_file index;
};

static int look_at_entry(void *own, int64_t part, bool compares, struct reader *reader, struct audit_look *out) {
  const struct indexed *self = own;
  const struct index_file *index = &self->index;
  const struct index_entry *entry = &index->entries[part];
  const uint8_t *data = NULL;
  size_t bytes = 0;
  (void)compares;
  out->offset = -1; /* the message says where it is */
  if (entry->offset < 0) return SHARDRT_OK;
  int code = index_file_get(index, &self->file, part / index->columns, (int32_t)(part % index->columns), true, reader,
                            &data, &bytes);
  out->bytes = (int64_t)bytes;
  return code;
}

static void drop_indexed(void *own) {
  struct indexed *self = own;
  index_file_close(&self->index);
  stored_close(&self->file);
  alloc_free(self);
}

static int save_nothing(void *own) {
  (void)own;
  return SHARDRT_OK;
}

static const struct audit_kind indexed_kind = {.look = look_at_entry, .save = save_nothing, .drop = drop_indexed};

static int open_indexed(const char *format, const char *path, const shardrt_source_options *options, bool *there,
                        shardrt_audit *out) {
  struct indexed *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  out->kind = &indexed_kind;
  out->own = self;
  int code = stored_open(path, options, &self->file);
  if (code == SHARDRT_OK && strcmp(format, "mds") != 0) code = magic_unpack(&self->file, options);
  if (code == SHARDRT_OK) code = index_file_find(&self->file, options->cache, &self->index, there);
  if (code < 0) return code;
  out->parts = self->index.rows * self->index.columns;
  return SHARDRT_OK;
}

/* ---- the samples of a source ------------------------------------------------------------------------------------ */

static int look_at_sample(void *own, int64_t part, bool compares, struct reader *reader, struct audit_look *out) {
  const shardrt_source *source = own;
  const int64_t before = reader->bytes_read;
  int code = SHARDRT_OK;
  (void)compares;
  for (int32_t f = 0; f < source->nfields && code == SHARDRT_OK; f++) {
    const struct reader_mark mark = reader_mark(reader);
    struct value value;
    code = source_value(source, f, part, NULL, reader, &value);
    reader_release(reader, mark);
  }
  out->bytes = reader->bytes_read - before;
  out->offset = -1;
  return code;
}

static void drop_source(void *own) {
  shardrt_source_free(own);
}

static const struct audit_kind samples_kind = {.look = look_at_sample, .save = save_nothing, .drop = drop_source};

/* Opening the source makes its index, which is there also where its fields cannot be told without `fields`. */
static int make_index(const char *format, const char *path, const shardrt_source_options *options, shardrt_audit *out) {
  shardrt_source *source = NULL;
  bool there = false;
  int code = shardrt_source_files(format, 1, &path, 0, NULL, options, &source);
  shardrt_source_free(source);
  if (code != SHARDRT_EINVAL && code != SHARDRT_EFORMAT) return code;
  const char *why = alloc_text("%s", shardrt_error_message());
  if (why == NULL) return ALLOC_FAILED;
  if (open_indexed(format, path, options, &there, out) == SHARDRT_OK && there) code = SHARDRT_OK;
  if (code < 0) error_set(code, "%s", why);
  alloc_free((char *)why);
  out->parts = 0;
  return code;
}

static int open_samples(const char *format, const char *path, const shardrt_source_options *options,
                        shardrt_audit *out) {
  shardrt_source *source = NULL;
  int code = shardrt_source_files(format, 1, &path, 0, NULL, options, &source);
  if (code < 0) return code;
  out->kind = &samples_kind;
  out->own = source;
  out->parts = source->count;
  return SHARDRT_OK;
}

/* What has an index is compared with it; an ArrayRecord file, whose format has checksums, with these. */
static int open_records(const char *format, const char *path, const shardrt_source_options *options, bool compares,
                        shardrt_audit *out) {
  bool there = true;
  if (!compares) return make_index(format, path, options, out);
  if (strcmp(format, "array_record") == 0) return open_samples(format, path, options, out);
  int code = open_indexed(format, path, options, &there, out);
  if (code < 0 || there) return code;
  return error_set(SHARDRT_EDATA,
                   "%s: has no index, or an older one: there is nothing to compare it with; `shardrt "
                   "index` makes one",
                   path);
}

/* A Parquet file has an index of its pages, which opening it makes, where it does not tell of them itself; else it is
 * gone through as a plain file is. */
static int open_pages(const char *path, const shardrt_source_options *options, bool compares, shardrt_audit *out) {
  bool there = false;
  int code = compares ? SHARDRT_OK : make_index("parquet", path, options, out);
  if (code == SHARDRT_EINVAL) code = SHARDRT_OK; /* `fields` would tell which of its columns can be read */
  if (out->own != NULL) out->kind->drop(out->own);
  out->own = NULL;
  if (code == SHARDRT_OK) code = open_indexed("parquet", path, options, &there, out);
  if (code < 0 || there) {
    if (!compares) out->parts = 0; /* which were all looked at as it was made */
    return code;
  }
  out->kind->drop(out->own);
  out->own = NULL;
  return open_blocks(path, options, compares, out);
}

/* ---- any of them ------------------------------------------------------------------------------------------------ */

int shardrt_audit_open(const char *kind, const char *path, const shardrt_source_options *options, int32_t compares,
                       shardrt_audit **out) {
  shardrt_source_options always = *options;
  always.verify = SHARDRT_VERIFY_ALWAYS;
  shardrt_audit *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = strcmp(kind, "plain") == 0     ? open_blocks(path, &always, compares != 0, made)
             : strcmp(kind, "zarr") == 0    ? zarr_audit(path, &always, compares != 0, made)
             : strcmp(kind, "parquet") == 0 ? open_pages(path, &always, compares != 0, made)
                                            : open_records(kind, path, &always, compares != 0, made);
  if (code < 0) {
    shardrt_audit_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

void shardrt_audit_free(shardrt_audit *self) {
  if (self == NULL) return;
  if (self->own != NULL) self->kind->drop(self->own);
  alloc_free(self->bad);
  alloc_free(self);
}

int64_t shardrt_audit_parts(const shardrt_audit *self) {
  return self->parts;
}

int64_t shardrt_audit_part_bytes(const shardrt_audit *self) {
  return self->part_bytes;
}

int shardrt_audit_save(shardrt_audit *self) {
  return self->own != NULL ? self->kind->save(self->own) : SHARDRT_OK;
}

const char *shardrt_audit_bad(const shardrt_audit *self, int64_t i, int64_t *offset, int64_t *bytes) {
  if (i < 0 || i >= self->nbad) return NULL;
  *offset = self->bad[i].offset;
  *bytes = self->bad[i].bytes;
  return self->bad[i].text;
}

/* ---- going through them ----------------------------------------------------------------------------------------- */

struct audit_share {
  shardrt_audit *audit;
  bool compares;
  int64_t first, count, each; /* parts; `each` of a task */
  pthread_mutex_t lock;       /* guards all below */
  struct reader *readers;
  int32_t nreaders;
  bool *taken;
  shardrt_audit_found found;
  int code; /* of the first failure that is no damage */
  char message[1024];
};

static struct reader *take_reader(struct audit_share *self, int32_t *number) {
  pthread_mutex_lock(&self->lock);
  for (*number = 0; self->taken[*number];) ++*number; /* there are as many as threads */
  self->taken[*number] = true;
  pthread_mutex_unlock(&self->lock);
  return &self->readers[*number];
}

static void give_reader(struct audit_share *self, int32_t number) {
  pthread_mutex_lock(&self->lock);
  self->taken[number] = false;
  pthread_mutex_unlock(&self->lock);
}

static void keep_bad(struct audit_share *self, const struct audit_look *look) {
  shardrt_audit *audit = self->audit;
  pthread_mutex_lock(&self->lock);
  self->found.damaged++;
  if (audit->bad == NULL) audit->bad = alloc_zeros(BAD_MOST, sizeof *audit->bad);
  if (audit->bad != NULL && audit->nbad < BAD_MOST) {
    struct audit_bad *bad = &audit->bad[audit->nbad++];
    bad->offset = look->offset;
    bad->bytes = (int64_t)look->damaged;
    snprintf(bad->text, sizeof bad->text, "%s", shardrt_error_message());
  }
  pthread_mutex_unlock(&self->lock);
}

static void keep_failure(struct audit_share *self, int code) {
  pthread_mutex_lock(&self->lock);
  if (self->code == SHARDRT_OK) {
    self->code = code;
    snprintf(self->message, sizeof self->message, "%s", shardrt_error_message());
  }
  pthread_mutex_unlock(&self->lock);
}

static void run_task(void *context, int64_t task) {
  struct audit_share *self = context;
  shardrt_audit_found found = {0};
  int32_t number;
  int64_t part = self->first + task * self->each, stop = part + self->each;
  if (stop > self->first + self->count) stop = self->first + self->count;
  struct reader *reader = take_reader(self, &number);
  reader->thorough = true;
  for (; part < stop; part++) {
    struct audit_look look = {0};
    const struct reader_mark mark = reader_mark(reader);
    int code = self->audit->kind->look(self->audit->own, part, self->compares, reader, &look);
    reader_release(reader, mark);
    found.bytes += look.bytes;
    if (look.unknown) found.unknown++;
    if (code == SHARDRT_EFORMAT || code == SHARDRT_EOVERFLOW)
      keep_bad(self, &look);
    else if (code < 0)
      keep_failure(self, code);
  }
  give_reader(self, number);
  pthread_mutex_lock(&self->lock);
  self->found.bytes += found.bytes;
  self->found.unknown += found.unknown;
  pthread_mutex_unlock(&self->lock);
}

static int run_audit_share(struct audit_share *self, int32_t threads) {
  struct team *team = NULL;
  self->readers = alloc_zeros((size_t)threads + 1, sizeof *self->readers);
  self->taken = alloc_zeros((size_t)threads + 1, sizeof *self->taken);
  self->nreaders = threads + 1; /* this thread helps */
  int code = self->readers != NULL && self->taken != NULL ? team_new(threads - 1, &team) : ALLOC_FAILED;
  if (code < 0) return code;
  team_spread(team, run_task, self, (self->count + self->each - 1) / self->each);
  while (team_left(team) > 0)
    if (!team_help(team)) team_stop(team);
  team_free(team);
  return self->code < 0 ? error_set(self->code, "%s", self->message) : SHARDRT_OK;
}

int shardrt_audit_run(shardrt_audit *self, int64_t first, int64_t count, int32_t compares, shardrt_audit_found *found) {
  struct audit_share share = {.audit = self, .compares = compares != 0, .first = first, .count = count};
  *found = (shardrt_audit_found){0};
  if (count <= 0) return SHARDRT_OK;
  share.each = self->part_bytes > 0 && self->part_bytes < TASK_BYTES ? TASK_BYTES / self->part_bytes : 1;
  int32_t threads = machine_cores();
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  if (threads > count / share.each + 1) threads = (int32_t)(count / share.each + 1);
  pthread_mutex_init(&share.lock, NULL);
  int code = run_audit_share(&share, threads);
  pthread_mutex_destroy(&share.lock);
  for (int32_t i = 0; share.readers != NULL && i < share.nreaders; i++) reader_clear(&share.readers[i]);
  alloc_free(share.readers);
  alloc_free(share.taken);
  *found = share.found;
  return code;
}

/* ---- away with what was noted ----------------------------------------------------------------------------------- */

static bool fits_never(const struct mapping *cached, const void *context) {
  (void)cached;
  (void)context;
  return false;
}

int shardrt_audit_remove(const char *path, const char *folder) {
  static const char *const described[] = {"", "/zarr.json", "/.zarray"};
  struct stored file = {0};
  const shardrt_source_options options = {.cache = folder};
  int code = SHARDRT_EIO;
  for (size_t i = 0; i < sizeof described / sizeof *described && code == SHARDRT_EIO; i++) {
    char *about = alloc_text("%s%s", path, described[i]);
    code = about != NULL ? stored_open(about, &options, &file) : ALLOC_FAILED;
    alloc_free(about);
  }
  if (code < 0) return code;
  static const char *const suffixes[] = {".shardrt-index", RESTART_SUFFIX};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && code == SHARDRT_OK; i++) {
    const struct cache_request request = {
        .path = path, .file = &file.map, .folder = folder, .suffix = suffixes[i], .fits = fits_never};
    code = cache_remove(&request);
  }
  stored_close(&file);
  return code;
}
