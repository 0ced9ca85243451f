#include "dataset/view/concat.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/search.h"
#include "comm/job.h"
#include "dataset/view/heads.h"
#include "dataset/view/pruned.h"
#include "dataset/view/survey.h"
#include "storage/local/url.h"

/* The base that a sample is of; `likely` is looked at first. */
static int32_t concat_part(const struct concat_source *c, int64_t sample, int32_t likely) {
  if (sample >= c->firsts[likely] && sample < c->firsts[likely + 1]) return likely;
  assert(sample >= 0 && sample < c->view.head.count);
  return (int32_t)search_part(c->firsts, sizeof *c->firsts, c->view.head.nbases, sample);
}

/* Neighbours in the order that are of one part are read together. */
int64_t concat_translate(const shardrt_source *source, const int64_t *samples, int64_t n, int32_t *base,
                         int64_t *translated) {
  const struct concat_source *c = (const struct concat_source *)source;
  *base = concat_part(c, samples[0], *base);
  const int64_t first = c->firsts[*base], end = c->firsts[*base + 1];
  int64_t run = 0;
  for (; run < n && samples[run] >= first && samples[run] < end; run++) translated[run] = samples[run] - first;
  return run;
}

void concat_compute(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n, void *dst) {
  (void)field;
  int32_t *labels = dst, part = 0;
  for (int64_t i = 0; i < n; i++)
    labels[i] = part = concat_part((const struct concat_source *)source, samples[i], part);
}

uint64_t concat_fingerprint(const shardrt_source *source) {
  uint64_t hash = hash_number(hash_text(0, "shardrt concat"), source->nbases);
  for (int32_t p = 0; p < source->nbases; p++)
    hash = hash_number(hash, (int64_t)shardrt_source_fingerprint(source->bases[p]));
  for (int32_t f = ((const struct view *)source)->shared; f < source->nfields; f++)
    hash = hash_text(hash, source->fields[f].name);
  return hash;
}

uint64_t concat_transform_hash(const shardrt_source *source) {
  uint64_t hash = 0;
  for (int32_t p = 0; p < source->nbases; p++)
    hash = hash_number(hash, (int64_t)source_transform_hash(source->bases[p]));
  return hash;
}

int64_t concat_block_count(const shardrt_source *source) {
  return ((const struct concat_source *)source)->first_blocks[source->nbases];
}

struct sample_range concat_block(const shardrt_source *source, int64_t block) {
  const struct concat_source *c = (const struct concat_source *)source;
  const int64_t part = search_part(c->first_blocks, sizeof *c->first_blocks, source->nbases, block);
  struct sample_range range = source_block(source->bases[part], block - c->first_blocks[part]);
  range.first += c->firsts[part];
  return range;
}

static int concat_prune(const shardrt_source *source, int32_t field, const struct condition *condition,
                        struct pruned *out) {
  const struct concat_source *c = (const struct concat_source *)source;
  int code = SHARDRT_OK;
  for (int32_t p = 0; p < source->nbases && field < c->view.shared && code == SHARDRT_OK; p++) {
    struct pruned of_part = {0};
    code = source_prune(source->bases[p], c->view.fields[p * c->view.shared + field], condition, &of_part);
    for (int64_t i = 0; i < of_part.count && code == SHARDRT_OK; i++)
      code = pruned_add(out, c->firsts[p] + of_part.ranges[i].first, of_part.ranges[i].count);
    pruned_clear(&of_part);
  }
  return code;
}

void concat_close(shardrt_source *source) {
  alloc_free(((struct concat_source *)source)->firsts);
  alloc_free(((struct concat_source *)source)->first_blocks);
  view_close(source);
}

static const struct source_format concat_format = {
    .name = "concat",
    VIEW_FUNCTIONS,
    .translate = concat_translate,
    .compute = concat_compute,
    .fingerprint = concat_fingerprint,
    .transform_hash = concat_transform_hash,
    .block_count = concat_block_count,
    .block = concat_block,
    .prune = concat_prune,
    .close = concat_close,
};

/* ---- making one ------------------------------------------------------------------------------------------------- */

/* Which field of part p is the first one's field f, of the same dtype and shape. */
static int match_field(struct concat_source *c, const char *what, int32_t p, int32_t f) {
  const shardrt_source *part = c->view.head.bases[p];
  const shardrt_field *first = &c->view.head.fields[f];
  const int32_t found = view_find_field(part, first->name);
  if (found < 0)
    return error_set(SHARDRT_EINVAL, "%s: source %d has no field \"%s\", which source 1 has", what, (int)p + 1,
                     first->name);
  const shardrt_field *other = &part->fields[found];
  if (other->dtype != first->dtype)
    return error_set(SHARDRT_EINVAL, "%s: the field \"%s\" is %s in source 1 and %s in source %d", what, first->name,
                     shardrt_dtype_name(first->dtype), shardrt_dtype_name(other->dtype), (int)p + 1);
  bool same = other->ndim == first->ndim;
  for (int32_t d = 0; d < first->ndim && same; d++) same = other->shape[d] == first->shape[d];
  if (!same)
    return error_set(SHARDRT_EINVAL, "%s: the field \"%s\" has another shape in source %d than in source 1", what,
                     first->name, (int)p + 1);
  c->view.fields[p * c->view.shared + f] = found;
  return SHARDRT_OK;
}

static int match_part(struct concat_source *c, const char *what, int32_t p, bool mixes) {
  const shardrt_source *part = c->view.head.bases[p];
  int64_t *numbers = c->view.numbers;
  if (part->mix != NULL && !mixes)
    return error_set(SHARDRT_EINVAL, "%s: source %d is a mix, which has an order of its own: do this to what it mixes",
                     what, (int)p + 1);
  if (part->nfields != c->view.shared)
    return error_set(SHARDRT_EINVAL, "%s: source 1 has %d fields, source %d has %d", what, (int)c->view.shared,
                     (int)p + 1, (int)part->nfields);
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < c->view.shared && code == SHARDRT_OK; f++) code = match_field(c, what, p, f);
  if (code < 0) return code;
  c->first_blocks[p + 1] = c->first_blocks[p] + source_block_count(part); /* no more than samples */
  const int64_t end = part->count > 0 ? source_number(part, part->count - 1) + 1 : 0;
  if (__builtin_add_overflow(c->firsts[p], part->count, &c->firsts[p + 1]) ||
      (p + 1 < c->view.head.nbases && __builtin_add_overflow(numbers[p], end, &numbers[p + 1])))
    return error_set(SHARDRT_EOVERFLOW, "%s: the samples are more than 64 bits count", what);
  return SHARDRT_OK;
}

static int add_label(struct concat_source *c, const char *what, const char *label) {
  if (label == NULL) return SHARDRT_OK;
  if (label[0] == '\0') return error_set(SHARDRT_EINVAL, "%s: the name of the field for the source is empty", what);
  if (view_find_field(c->view.head.bases[0], label) >= 0)
    return error_set(SHARDRT_EINVAL, "%s: the sources have a field \"%s\" already", what, label);
  return view_add_field(&c->view, label, SHARDRT_INT32);
}

static int fill_concat(struct concat_source *c, const char *what, const char *label, bool mixes) {
  const int32_t nparts = c->view.head.nbases;
  const size_t n = (size_t)nparts;
  c->firsts = alloc_zeros(n + 1, sizeof *c->firsts);
  if (c->firsts == NULL) return ALLOC_FAILED;
  c->first_blocks = alloc_zeros(n + 1, sizeof *c->first_blocks);
  if (c->first_blocks == NULL) return ALLOC_FAILED;
  c->view.numbers = alloc_zeros(n, sizeof *c->view.numbers);
  if (c->view.numbers == NULL) return ALLOC_FAILED;
  c->view.fields = alloc_zeros(n * (size_t)c->view.shared, sizeof *c->view.fields);
  if (c->view.fields == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t p = 0; p < nparts && code == SHARDRT_OK; p++) code = match_part(c, what, p, mixes);
  if (code == SHARDRT_OK) code = add_label(c, what, label);
  c->view.head.count = c->firsts[nparts];
  return code;
}

int concat_make(const struct source_format *format, size_t bytes, const char *what, int32_t nparts,
                shardrt_source *const *parts, const char *label, bool mixes, struct concat_source **out) {
  if (nparts < 1) return error_set(SHARDRT_EINVAL, "%s: it takes at least one source", what);
  struct concat_source *made = view_new(format, bytes, nparts, parts, 1);
  if (made == NULL) return ALLOC_FAILED;
  int code = fill_concat(made, what, label, mixes);
  if (code < 0) {
    shardrt_source_free(&made->view.head);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

int shardrt_source_concat(int32_t nparts, shardrt_source *const *parts, const char *label, shardrt_source **out) {
  struct concat_source *made = NULL;
  int code = concat_make(&concat_format, sizeof *made, "concat", nparts, parts, label, false, &made);
  if (code == SHARDRT_OK) *out = &made->view.head;
  return code;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static int open_file_of(const struct source_format *format, size_t bytes, concat_open *open, const char *path,
                        int32_t nfields, const shardrt_field *fields, const shardrt_source_options *options,
                        shardrt_source **out) {
  shardrt_source *made = source_new(format, bytes);
  if (made == NULL) return ALLOC_FAILED;
  int code = open(made, path, nfields, fields, options);
  if (code < 0) {
    shardrt_source_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

/* Files that are opened, each a source of its own. */
struct concat_files {
  const struct source_format *format;
  size_t bytes;
  concat_open *open;
  const char *const *paths;
  int32_t nfields;
  const shardrt_field *fields;
  const shardrt_source_options *options;
  shardrt_source **opened;
};

/* A survey_look. */
static int open_some(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct concat_files *c = context;
  (void)reader;
  (void)found;
  int code = c->opened != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int64_t i = first; i < first + count && code == SHARDRT_OK; i++)
    code = open_file_of(c->format, c->bytes, c->open, c->paths[i], c->nfields, c->fields, c->options, &c->opened[i]);
  return code;
}

/* Those on servers many at once. */
static int open_many(const struct concat_files *c, int32_t npaths) {
  if (!url_is(c->paths[0])) return open_some(c, NULL, 0, npaths, NULL);
  const struct survey survey = {.what = "opening files on a server",
                                .items = npaths,
                                .item_bytes = 1,
                                .chunk = 1,
                                .threads = SURVEY_ON_SERVERS,
                                .look = open_some,
                                .context = c};
  void *found = NULL;
  int code = survey_run(&survey, &found);
  alloc_free(found);
  return code;
}

static int open_alone(const struct concat_files *c, int32_t npaths, size_t tail) {
  const struct shardrt_told nothing = {.ends = tail > 0};
  shardrt_source_options options = *c->options;
  struct concat_files asked = *c;
  options.told = &nothing;
  asked.options = &options;
  return open_many(&asked, npaths);
}

/* Of many files in a job, the processes share what there is to ask of servers; then each opens all of them. */
static int open_all(const struct concat_files *c, int32_t npaths, size_t tail) {
  struct heads heads;
  int code = c->opened != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (npaths < HEADS_TOGETHER || !url_is(c->paths[0]) || job_is_alone(c->options->job))
    return code == SHARDRT_OK ? open_alone(c, npaths, tail) : code;
  code = heads_open(c->format->name, npaths, c->paths, tail, c->options, code, &heads);
  if (code < 0) return code;
  struct concat_files told = *c;
  told.options = &heads.options;
  return heads_close(&heads, open_many(&told, npaths));
}

int concat_files(const struct source_format *format, size_t bytes, concat_open *open, size_t tail, int32_t npaths,
                 const char *const *paths, int32_t nfields, const shardrt_field *fields,
                 const shardrt_source_options *options, shardrt_source **out) {
  if (npaths == 1) return open_file_of(format, bytes, open, paths[0], nfields, fields, options, out);
  shardrt_source **opened = alloc_zeros((size_t)npaths, sizeof(shardrt_source *));
  const struct concat_files all = {.format = format,
                                   .bytes = bytes,
                                   .open = open,
                                   .paths = paths,
                                   .nfields = nfields,
                                   .fields = fields,
                                   .options = options,
                                   .opened = opened};
  int code = open_all(&all, npaths, tail);
  if (code == SHARDRT_OK) code = shardrt_source_concat(npaths, opened, NULL, out);
  for (int32_t i = 0; opened != NULL && i < npaths; i++) shardrt_source_free(opened[i]);
  alloc_free((void *)opened);
  return code;
}
