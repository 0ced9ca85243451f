#include "dataset/record/records.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/search.h"
#include "base/size.h"
#include "comm/job.h"
#include "dataset/magic.h"
#include "dataset/view/survey.h"
#include "storage/local/url.h"

static int64_t run_samples(const struct record_file *file) {
  return source_run_samples(file->rows, file->bytes);
}

int64_t records_block_count(const shardrt_source *source) {
  const struct records *self = (const struct records *)source;
  if (self->nfiles == 0) return 0;
  const struct record_file *last = &self->files[self->nfiles - 1];
  return last->first_block + source_run_count(last->rows, run_samples(last));
}

struct sample_range records_block(const shardrt_source *source, int64_t block) {
  const struct records *self = (const struct records *)source;
  const struct record_file *file =
      &self->files[search_part(&self->files->first_block, sizeof *self->files, self->nfiles, block)];
  struct sample_range run = source_run(file->rows, run_samples(file), block - file->first_block);
  run.first += file->first;
  return run;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static void close_file(struct opened_file *file) {
  if (file == NULL) return;
  index_file_close(&file->index);
  stored_close(&file->stored);
  alloc_free(file->places);
  alloc_free(file);
}

int records_open_file(const struct records *self, int32_t i, struct reader *reader, struct opened_file *out) {
  const struct record_file *file = &self->files[i];
  const struct record_opener *opener = &self->opener;
  const char *cache = self->options.cache;
  int code = stored_open_again(file->path, &self->options, file->changed, reader, &out->stored);
  if (code != SHARDRT_OK) return code;
  bool is_indexed; /* as it lies there: so it is not compressed, and its head is left to whoever reads it for the job */
  code = index_file_look(&out->stored, cache, &is_indexed);
  if (code == SHARDRT_OK && !is_indexed) code = magic_unpack(&out->stored, &self->options);
  if (code != SHARDRT_OK) return code;
  return index_file_open(&out->stored, opener->kind, cache, self->skips, opener->scan, opener->context, &out->index);
}

static int open_file(const struct records *self, int32_t i, struct reader *reader, struct opened_file **out) {
  struct opened_file *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code =
      self->opener.open != NULL ? self->opener.open(self, i, reader, made) : records_open_file(self, i, reader, made);
  if (code == SHARDRT_OK && guard_verify(&self->options, GUARD_DEFAULT_RECORDS) == SHARDRT_VERIFY_ONCE)
    code = index_file_once(&made->index);
  if (code != SHARDRT_OK)
    close_file(made);
  else
    *out = made;
  return code;
}

/* Threads that come at the same time open it each, and the first one's stays. */
int records_open_late(const struct records *self, const struct record_file *file, struct reader *reader,
                      const struct opened_file **out) {
  const int32_t i = (int32_t)(file - self->files);
  struct opened_file *made = NULL, *other = NULL;
  int code = open_file(self, i, reader, &made);
  if (code != SHARDRT_OK && file->unseen) return code;
  if (code != SHARDRT_OK) return error_prefix(code, "%s was there when the source was opened", file->title);
  if ((made->index.crc != file->crc && !file->unseen) || made->index.rows != file->rows ||
      made->stored.bytes != file->bytes) {
    close_file(made);
    return error_set(SHARDRT_EIO,
                     "%s: it is not the file that it was when the source was opened: somebody wrote to it, or put "
                     "another one in its place, or this process sees another one than the process that opened it",
                     file->title);
  }
  const bool is_first = atomic_compare_exchange_strong(&self->files[i].opened, &other, made);
  if (!is_first) close_file(made);
  *out = is_first ? made : other;
  return SHARDRT_OK;
}

static int name_files(struct records *self, int32_t npaths, const char *const *paths,
                      const shardrt_source_options *options, const struct record_opener *opener) {
  self->verify = guard_verify(options, GUARD_DEFAULT_RECORDS) != SHARDRT_VERIFY_NEVER;
  self->skips = options->skips_damage != 0;
  self->options = *options;
  self->options.cache = options->cache != NULL ? alloc_text("%s", options->cache) : NULL;
  self->options.nulls = NULL;
  self->options.told = NULL;
  self->opener = *opener;
  if (options->cache != NULL && self->options.cache == NULL) return ALLOC_FAILED;
  self->files = alloc_zeros((size_t)npaths, sizeof *self->files);
  if (self->files == NULL) return ALLOC_FAILED;
  self->nfiles = npaths;
  for (int32_t i = 0; i < npaths; i++) {
    struct record_file *file = &self->files[i];
    file->path = alloc_text("%s", paths[i]);
    file->title = stored_title(paths[i]);
    if (file->path == NULL || file->title == NULL) return ALLOC_FAILED;
  }
  return SHARDRT_OK;
}

int records_begin(struct records *self, int32_t npaths, const char *const *paths, const shardrt_source_options *options,
                  const struct record_opener *opener) {
  struct opened_file *first = NULL;
  int code = name_files(self, npaths, paths, options, opener);
  if (code != SHARDRT_OK) return code;
  code = npaths > 0 ? open_file(self, 0, NULL, &first) : SHARDRT_OK;
  if (npaths > 0) atomic_store(&self->files[0].opened, first);
  return code;
}

/* ---- many files, by many threads and by all processes together ---- */

enum { TOGETHER_LEAST = 64 }; /* files; fewer are opened faster than processes meet */

/* What processes tell each other of a file. */
struct file_facts {
  uint64_t bytes, fingerprint;
  int64_t changed, rows;
  uint32_t crc;
  uint32_t is_remote : 1;
  uint32_t packed_pages : 31; /* of PAGE_BYTES, of a compressed file that is read where it lies; 0: it is none */
  struct shapes seen[];       /* narrays */
};
enum { PAGE_BYTES = 4096 };

static size_t facts_bytes(const struct records *self) {
  return sizeof(struct file_facts) + (size_t)self->narrays * sizeof(struct shapes);
}

/* Of file i of those that `facts` begin with. */
static struct file_facts *facts_at(const struct records *self, void *facts, int64_t i) {
  return (struct file_facts *)(void *)((uint8_t *)facts + (size_t)i * facts_bytes(self));
}

struct records_opening {
  struct records *self;
  char title[64];
  shardrt_job *job; /* whose processes share the work; NULL: this one does it alone */
};

static uint32_t pages_of(size_t bytes) {
  const size_t pages = bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0);
  return pages < INT32_MAX ? (uint32_t)pages : INT32_MAX;
}

/* A survey_look. File 0 is open. */
static int open_some(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct records_opening *o = context;
  const struct records *self = o->self;
  for (int64_t i = first; i < first + count; i++) {
    _Atomic(struct opened_file *) *at = &o->self->files[i].opened;
    struct opened_file *file = atomic_load(at);
    int code = file == NULL ? open_file(o->self, (int32_t)i, reader, &file) : SHARDRT_OK;
    if (code < 0) return code;
    atomic_store(at, file);
    if (o->self->opener.check != NULL) code = o->self->opener.check(o->self, (int32_t)i, file);
    if (code < 0) return code;
    struct file_facts *facts = facts_at(self, found, i - first);
    memset(facts, 0, facts_bytes(self));
    facts->bytes = file->stored.bytes;
    facts->changed = file->stored.changed;
    facts->rows = file->index.rows;
    facts->crc = file->index.crc;
    facts->fingerprint = o->job != NULL ? stored_fingerprint(&file->stored) : 0;
    facts->is_remote = stored_is_remote(&file->stored);
    facts->packed_pages = pages_of(stored_packed_bytes(&file->stored));
    if (self->opener.see != NULL) self->opener.see(self, (int32_t)i, file, facts->seen);
  }
  return SHARDRT_OK;
}

/* Whether all processes open the same files for the same fields, see the same first one (on one host, on a network's
 * file system, on a server) and may map them all: what another one opened is mapped later. Copies of a data set on each
 * host's disks are each host's own, and each process opens them all. */
static int meet_others(struct records_opening *o, shardrt_job *job, int code) {
  const struct records *self = o->self;
  const bool has_room = mapping_has_room(2 * (int64_t)self->nfiles); /* each file, and its index */
  bool differs = false, *others = alloc_array((size_t)shardrt_job_info_get(job)->process_count, sizeof *others);
  uint64_t hash = hash_number(hash_number(hash_text(0, self->opener.kind), self->skips), has_room);
  if (code == SHARDRT_OK) {
    for (int32_t i = 0; i < self->nfiles; i++) hash = hash_text(hash, self->files[i].path);
    hash = hash_number(hash, self->narrays);
    for (int32_t f = 0; f < self->base.nfields; f++) hash = hash_text(hash, self->base.fields[f].name);
    const struct opened_file *first = records_first_file(self);
    const struct stored *stored = &first->stored;
    hash = hash_number(hash, first->index.crc);
    hash = hash_number(hash, (int64_t)stored_identity(stored));
    if (others == NULL) code = ALLOC_FAILED;
  }
  code = job_compare(job, o->title, code, hash, others, &differs);
  if (code == SHARDRT_OK && !differs && has_room) o->job = job;
  alloc_free(others);
  return code;
}

/* Counts samples and runs; the source reads files that are told of all as told, in each process alike. */
static int take_facts(struct records *self, void *all, bool told) {
  int64_t blocks = 0;
  int code = SHARDRT_OK;
  if (self->narrays > 0) {
    self->seen = alloc_zeros((size_t)self->nfiles * (size_t)self->narrays, sizeof *self->seen);
    if (self->seen == NULL) return ALLOC_FAILED;
  }
  for (int32_t i = 0; i < self->nfiles && code == SHARDRT_OK; i++) {
    struct record_file *file = &self->files[i];
    const struct opened_file *opened = atomic_load(&file->opened);
    const struct file_facts *facts = facts_at(self, all, i);
    file->bytes = facts->bytes;
    file->changed = facts->changed;
    file->rows = facts->rows;
    file->crc = facts->crc;
    for (int32_t a = 0; a < self->narrays; a++) self->seen[(size_t)i * (size_t)self->narrays + a] = facts->seen[a];
    file->first = self->base.count;
    file->first_block = blocks;
    self->base.count += file->rows;
    blocks += source_run_count(file->rows, run_samples(file));
    const struct source_file of_told = {.title = file->title,
                                        .fingerprint = facts->fingerprint,
                                        .bytes = file->bytes,
                                        .packed_bytes = (size_t)facts->packed_pages * PAGE_BYTES,
                                        .is_remote = facts->is_remote != 0};
    code = told ? source_add(&self->base, &of_told)
                : source_add_file(&self->base, opened->stored.title, &opened->stored, 0);
  }
  return code;
}

static struct records_opening opening_of(struct records *self) {
  struct records_opening o = {.self = self};
  snprintf(o.title, sizeof o.title, "opening the files of source.%s", self->base.format->name);
  return o;
}

int records_refuse(struct records *self, const shardrt_source_options *options, int code) {
  const struct records_opening o = opening_of(self);
  return job_is_alone(options->job) ? code : job_join(options->job, o.title, code, NULL, 0, NULL);
}

int records_go_on(struct records *self, int code) {
  struct records_opening o = opening_of(self);
  const bool many = self->nfiles >= TOGETHER_LEAST;
  if (many && !job_is_alone(self->options.job)) code = meet_others(&o, self->options.job, code);
  self->options.job = NULL;
  if (code < 0) return code;
  const bool is_remote = self->nfiles > 0 && records_first_file(self)->stored.map.remote != NULL;
  void *facts = NULL;
  if (many || is_remote) {
    const struct survey survey = {.job = o.job,
                                  .what = o.title,
                                  .items = self->nfiles,
                                  .item_bytes = facts_bytes(self),
                                  .chunk = 1,
                                  .threads = is_remote ? SURVEY_ON_SERVERS : 0,
                                  .look = open_some,
                                  .context = &o};
    code = survey_run(&survey, &facts);
  } else {
    facts = alloc_zeros((size_t)self->nfiles, facts_bytes(self));
    if (facts == NULL) return ALLOC_FAILED;
    code = open_some(&o, NULL, 0, self->nfiles, facts);
  }
  if (code == SHARDRT_OK && facts != NULL) code = take_facts(self, facts, o.job != NULL);
  alloc_free(facts);
  return code;
}

int records_open(struct records *self, int32_t npaths, const char *const *paths, const shardrt_source_options *options,
                 const struct record_opener *opener) {
  return records_go_on(self, records_begin(self, npaths, paths, options, opener));
}

int records_open_known(struct records *self, int32_t npaths, const char *const *paths,
                       const shardrt_source_options *options, const struct record_opener *opener,
                       const struct record_file_known *known) {
  int code = name_files(self, npaths, paths, options, opener);
  self->options.job = NULL;
  if (code != SHARDRT_OK) return code;
  void *facts = alloc_zeros((size_t)npaths, facts_bytes(self));
  if (facts == NULL) return ALLOC_FAILED;
  for (int32_t i = 0; i < npaths; i++) {
    struct file_facts *of = facts_at(self, facts, i);
    of->bytes = known[i].bytes;
    of->rows = known[i].rows;
    of->fingerprint = known[i].fingerprint;
    of->is_remote = 1;
    self->files[i].unseen = true;
  }
  code = take_facts(self, facts, true);
  alloc_free(facts);
  return code;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

const struct record_file *records_find(const struct records *self, int64_t sample, int64_t *row) {
  assert(sample >= 0 && sample < self->base.count);
  const struct record_file *file =
      &self->files[search_part(&self->files->first, sizeof *self->files, self->nfiles, sample)];
  *row = sample - file->first;
  return file;
}

const struct index_entry *records_entry(const struct records *self, int64_t sample, int32_t column) {
  int64_t row;
  const struct opened_file *file =
      atomic_load_explicit(&records_find(self, sample, &row)->opened, memory_order_acquire);
  return file != NULL ? &file->index.entries[row * file->index.columns + column] : NULL;
}

int records_get(const struct records *self, int64_t sample, int32_t column, struct reader *reader, const uint8_t **out,
                size_t *bytes) {
  int64_t row;
  const struct opened_file *file;
  int code = records_opened(self, records_find(self, sample, &row), reader, &file);
  if (code < 0) return code;
  return index_file_get(&file->index, &file->stored, row, column, self->verify, reader, out, bytes);
}

int records_first(const struct records *self, int32_t column, struct reader *reader, int64_t *sample,
                  const uint8_t **out, size_t *bytes) {
  *sample = 0;
  int code = records_get(self, 0, column, reader, out, bytes);
  while (code == SHARDRT_EFORMAT && *sample + 1 < self->base.count)
    code = records_get(self, ++*sample, column, reader, out, bytes);
  return code;
}

/* ---- ahead ---- */

/* Files that are not open here, by their numbers. */
struct records_missing {
  const struct records *self;
  int32_t count;
  int32_t *list;
};

/* A survey_look, which never fails: who reads of the file is told. */
static int open_missing(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct records_missing *missing = context;
  (void)found;
  for (int64_t i = first; i < first + count; i++) {
    const struct opened_file *file;
    (void)records_opened(missing->self, &missing->self->files[missing->list[i]], reader, &file);
  }
  return SHARDRT_OK;
}

/* Opens those on a server that these samples are of, many at once. Without memory they are opened one by one. */
static void open_ahead(const struct records *self, const int64_t *samples, int64_t n) {
  if (self->nfiles < 2 || !url_is(self->files[0].path)) return;
  struct records_missing missing = {.self = self};
  for (int64_t i = 0; i < n; i++) {
    int64_t row;
    const struct record_file *file = records_find(self, samples[i], &row);
    if (atomic_load_explicit(&file->opened, memory_order_acquire) != NULL) continue;
    if (missing.list == NULL) missing.list = alloc_array((size_t)n, sizeof *missing.list);
    if (missing.list == NULL) return;
    const int32_t number = (int32_t)(file - self->files);
    int32_t at = 0;
    while (at < missing.count && missing.list[at] != number) at++;
    if (at == missing.count) missing.list[missing.count++] = number;
  }
  const struct survey survey = {.what = "opening files ahead",
                                .items = missing.count,
                                .item_bytes = 1,
                                .chunk = 1,
                                .threads = SURVEY_ON_SERVERS,
                                .look = open_missing,
                                .context = &missing};
  void *found = NULL;
  if (missing.count > 1) (void)survey_run(&survey, &found);
  alloc_free(found);
  alloc_free(missing.list);
}

int records_extents(const struct records *self, int32_t column, const int64_t *samples, int64_t n,
                    struct extents *out) {
  int code = SHARDRT_OK;
  open_ahead(self, samples, n);
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    int64_t row;
    const struct opened_file *file;
    if (records_opened(self, records_find(self, samples[i], &row), NULL, &file) < 0) continue; /* who reads it fails */
    const struct index_entry *entry = &file->index.entries[row * file->index.columns + column];
    if (entry->offset >= 0) code = stored_extents(&file->stored, (size_t)entry->offset, (size_t)entry->bytes, out);
  }
  return code;
}

int records_error_context(const struct records *self, int64_t sample, int32_t column, int code) {
  int64_t row;
  const struct record_file *file = records_find(self, sample, &row);
  const struct index_entry *entry = records_entry(self, sample, column);
  if (entry == NULL) return error_prefix(code, "%s: record %lld", file->title, (long long)row);
  return error_prefix(code, "%s: record %lld at byte %lld", file->title, (long long)row, (long long)entry->offset);
}

int records_shape(const shardrt_field *field, int64_t elements, int64_t *shape) {
  int64_t sizes[SHARDRT_MAX_NDIM], known;
  int32_t open = -1;
  for (int32_t d = 0; d < field->ndim; d++) {
    shape[d] = field->shape[d];
    sizes[d] = shape[d] < 0 ? 1 : shape[d];
    if (shape[d] >= 0) continue;
    if (open >= 0)
      return error_set(SHARDRT_EFORMAT, "the shape of \"%s\" leaves dimensions %d and %d open; one can be told",
                       field->name, (int)open, (int)d);
    open = d;
  }
  if (!size_elements(field->ndim, sizes, &known))
    return error_set(SHARDRT_EFORMAT, "the shape of \"%s\" has more elements than 64 bits can count", field->name);
  if (open >= 0 && known > 0 && elements % known == 0) {
    shape[open] = elements / known;
    return SHARDRT_OK;
  }
  if (open < 0 && elements == known) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT,
                   "\"%s\" holds %lld elements of %s, which is not the shape of the others; `fields` can "
                   "say {-1} for a length that differs",
                   field->name, (long long)elements, shardrt_dtype_name(field->dtype));
}

int records_place(struct value *out, const uint8_t *data, struct reader *reader) {
  if ((uintptr_t)data % shardrt_dtype_size(out->dtype) == 0) {
    out->data = (void *)data;
    return SHARDRT_OK;
  }
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  memcpy(out->data, data, value_bytes(out));
  return SHARDRT_OK;
}

int records_elements(const shardrt_field *field, const uint8_t *data, size_t bytes, struct reader *reader,
                     struct value *out) {
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  const size_t element = shardrt_dtype_size(field->dtype);
  if (bytes % element != 0)
    return error_set(SHARDRT_EFORMAT, "\"%s\" has %zu bytes, which are no whole number of %s", field->name, bytes,
                     shardrt_dtype_name(field->dtype));
  int code = records_shape(field, (int64_t)(bytes / element), shape);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(field->dtype, field->ndim, shape);
  return records_place(out, data, reader);
}

int records_source_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  (void)field;
  return records_error_context((const struct records *)source, sample, 0, code);
}

void records_close(shardrt_source *source) {
  struct records *self = (struct records *)source;
  for (int32_t i = 0; i < self->nfiles; i++) {
    close_file(atomic_load(&self->files[i].opened));
    alloc_free(self->files[i].title);
    alloc_free(self->files[i].path);
  }
  alloc_free(self->files);
  alloc_free(self->seen);
  alloc_free((char *)self->options.cache);
  for (int32_t f = 0; source->fields != NULL && f < source->nfields; f++) alloc_free((char *)source->fields[f].name);
  alloc_free(source->fields);
}
