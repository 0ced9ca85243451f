#include "dataset/concat.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

enum { CONCAT_CHUNK = 256 }; /* samples whose numbers are translated at once, on the stack */

/* The part that a sample is of; `likely` is looked at first. */
static int32_t part_of(const concat_source *c, int64_t sample, int32_t likely) {
  if (sample >= c->firsts[likely] && sample < c->firsts[likely + 1]) return likely;
  int32_t low = 0, high = c->nparts; /* firsts[low] <= sample < firsts[high] */
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (c->firsts[middle] <= sample)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static int32_t field_of(const concat_source *c, int32_t part, int32_t field) {
  return c->fields[part * c->nshared + field];
}

static void gather_labels(const concat_source *c, const int64_t *samples, int64_t n, int32_t *dst) {
  int32_t part = 0;
  for (int64_t i = 0; i < n; i++) dst[i] = part = part_of(c, samples[i], part);
}

/* How many of n samples, from the first on and at most CONCAT_CHUNK, are of part p; translated to the part's own. */
static int64_t run_of(const concat_source *c, int32_t p, const int64_t *samples, int64_t n, int64_t *translated) {
  const int64_t first = c->firsts[p], end = c->firsts[p + 1];
  int64_t run = 0;
  for (; run < CONCAT_CHUNK && run < n && samples[run] >= first && samples[run] < end; run++)
    translated[run] = samples[run] - first;
  return run;
}

/* Neighbours in the order that are of one part are read together. */
int concat_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct reader *reader, void *dst) {
  const concat_source *c = (const concat_source *)source;
  if (field >= c->nshared) {
    gather_labels(c, samples, n, dst);
    return SHARDRT_OK;
  }
  const size_t bytes = source_box_bytes(&source->fields[field], inner);
  const int64_t *epochs = reader->epochs;
  int64_t translated[CONCAT_CHUNK];
  int32_t part = 0;
  int code = SHARDRT_OK;
  for (int64_t done = 0; done < n && code == SHARDRT_OK;) {
    part = part_of(c, samples[done], part);
    const int64_t run = run_of(c, part, samples + done, n - done, translated);
    if (epochs != NULL) reader->epochs = epochs + done;
    code = source_gather(c->parts[part], field_of(c, part, field), translated, run, inner, reader,
                         (uint8_t *)dst + (size_t)done * bytes);
    done += run;
  }
  reader->epochs = epochs;
  return code;
}

int concat_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                   const shardrt_box *inner, struct extents *out) {
  const concat_source *c = (const concat_source *)source;
  int64_t translated[CONCAT_CHUNK];
  int32_t part = 0;
  int code = SHARDRT_OK;
  for (int64_t done = 0; field < c->nshared && done < n && code == SHARDRT_OK;) {
    part = part_of(c, samples[done], part);
    const int64_t run = run_of(c, part, samples + done, n - done, translated);
    code = source_extents(c->parts[part], field_of(c, part, field), translated, run, inner, out);
    done += run;
  }
  return code;
}

int concat_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
                 bool *handled) {
  const concat_source *c = (const concat_source *)source;
  if (field >= c->nshared) return SHARDRT_OK;
  const int32_t part = part_of(c, sample, 0);
  *handled = true;
  return source_value(c->parts[part], field_of(c, part, field), sample - c->firsts[part], NULL, reader, out);
}

const void *concat_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes) {
  const concat_source *c = (const concat_source *)source;
  if (field >= c->nshared) return NULL;
  const int32_t part = part_of(c, sample, 0);
  const shardrt_source *p = c->parts[part];
  if (p->format->find == NULL) return NULL;
  return p->format->find(p, field_of(c, part, field), sample - c->firsts[part], first, bytes);
}

int concat_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const concat_source *c = (const concat_source *)source;
  if (field >= c->nshared) return code;
  const int32_t part = part_of(c, sample, 0);
  return source_error_context(c->parts[part], field_of(c, part, field), sample - c->firsts[part], code);
}

int64_t concat_number(const shardrt_source *source, int64_t sample) {
  const concat_source *c = (const concat_source *)source;
  const int32_t part = part_of(c, sample, 0);
  return c->numbers[part] + source_number(c->parts[part], sample - c->firsts[part]);
}

uint64_t concat_fingerprint(const shardrt_source *source) {
  const concat_source *c = (const concat_source *)source;
  uint64_t hash = hash_number(hash_text(0, "shardrt concat"), c->nparts);
  for (int32_t p = 0; p < c->nparts; p++) hash = hash_number(hash, (int64_t)shardrt_source_fingerprint(c->parts[p]));
  for (int32_t f = c->nshared; f < source->nfields; f++) hash = hash_text(hash, source->fields[f].name);
  return hash;
}

void concat_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  const concat_source *c = (const concat_source *)source;
  for (int32_t p = 0; p < c->nparts; p++) source_selection_hash(c->parts[p], hashes);
}

uint64_t concat_transform_hash(const shardrt_source *source) {
  const concat_source *c = (const concat_source *)source;
  uint64_t hash = 0;
  for (int32_t p = 0; p < c->nparts; p++) hash = hash_number(hash, (int64_t)source_transform_hash(c->parts[p]));
  return hash;
}

/* Parts are mostly files of one kind; where they differ, plans count the most. */
size_t concat_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const concat_source *c = (const concat_source *)source;
  size_t most = 0;
  for (int32_t p = 0; field < c->nshared && p < c->nparts; p++) {
    const size_t bytes = source_bytes(c->parts[p], field_of(c, p, field), inner);
    if (bytes > most) most = bytes;
  }
  return most;
}

int32_t concat_parts(const shardrt_source *source, shardrt_source *const **parts) {
  const concat_source *c = (const concat_source *)source;
  *parts = c->parts;
  return c->nparts;
}

int32_t concat_file_count(const shardrt_source *source) {
  const concat_source *c = (const concat_source *)source;
  int32_t files = 0;
  for (int32_t p = 0; p < c->nparts; p++) files += source_file_count(c->parts[p]);
  return files;
}

/* The part that has this file, and which of its own files it is. */
static const shardrt_source *part_with_file(const concat_source *c, int32_t *file) {
  int32_t p = 0;
  for (int32_t files; *file >= (files = source_file_count(c->parts[p])); p++) *file -= files;
  return c->parts[p];
}

const char *concat_file_name(const shardrt_source *source, int32_t file) {
  const shardrt_source *part = part_with_file((const concat_source *)source, &file);
  return source_file_name(part, file);
}

uint64_t concat_file_fingerprint(const shardrt_source *source, int32_t file) {
  const shardrt_source *part = part_with_file((const concat_source *)source, &file);
  return source_file_fingerprint(part, file);
}

void concat_close(shardrt_source *source) {
  concat_source *c = (concat_source *)source;
  if (source->fields != NULL && source->nfields > c->nshared)
    alloc_free((char *)source->fields[source->nfields - 1].name);
  alloc_free(source->fields);
  alloc_free(c->fields);
  alloc_free(c->numbers);
  alloc_free(c->firsts);
  for (int32_t p = 0; c->parts != NULL && p < c->nparts; p++) shardrt_source_free(c->parts[p]);
  alloc_free((void *)c->parts);
}

static const source_format concat_format = {
    .name = "concat",
    .gather = concat_gather,
    .extents = concat_extents,
    .value = concat_value,
    .find = concat_find,
    .error_context = concat_error_context,
    .fingerprint = concat_fingerprint,
    .selection_hash = concat_selection_hash,
    .transform_hash = concat_transform_hash,
    .number = concat_number,
    .bytes = concat_bytes,
    .parts = concat_parts,
    .file_count = concat_file_count,
    .file_name = concat_file_name,
    .file_fingerprint = concat_file_fingerprint,
    .close = concat_close,
};

/* ---- making one ------------------------------------------------------------------------------------------------- */

static int32_t find_field(const shardrt_source *source, const char *name) {
  for (int32_t f = 0; f < source->nfields; f++)
    if (strcmp(source->fields[f].name, name) == 0) return f;
  return -1;
}

/* Which field of part p is the first one's field f, of the same dtype and shape. */
static int match_field(concat_source *c, const char *what, int32_t p, int32_t f) {
  const shardrt_field *first = &c->head.fields[f];
  const int32_t found = find_field(c->parts[p], first->name);
  if (found < 0)
    return error_set(SHARDRT_EINVAL, "%s: source %d has no field \"%s\", which source 1 has", what, (int)p + 1,
                     first->name);
  const shardrt_field *other = &c->parts[p]->fields[found];
  if (other->dtype != first->dtype)
    return error_set(SHARDRT_EINVAL, "%s: the field \"%s\" is %s in source 1 and %s in source %d", what, first->name,
                     shardrt_dtype_name(first->dtype), shardrt_dtype_name(other->dtype), (int)p + 1);
  bool same = other->ndim == first->ndim;
  for (int32_t d = 0; d < first->ndim && same; d++) same = other->shape[d] == first->shape[d];
  if (!same)
    return error_set(SHARDRT_EINVAL, "%s: the field \"%s\" has another shape in source %d than in source 1", what,
                     first->name, (int)p + 1);
  c->fields[p * c->nshared + f] = found;
  return SHARDRT_OK;
}

static int match_part(concat_source *c, const char *what, int32_t p, bool mixes) {
  const shardrt_source *part = c->parts[p];
  if (part->mix != NULL && !mixes)
    return error_set(SHARDRT_EINVAL, "%s: source %d is a mix, which has an order of its own: do this to what it mixes",
                     what, (int)p + 1);
  if (part->nfields != c->nshared)
    return error_set(SHARDRT_EINVAL, "%s: source 1 has %d fields, source %d has %d", what, (int)c->nshared, (int)p + 1,
                     (int)part->nfields);
  c->head.guessed = c->head.guessed || part->guessed;
  if (part->places > c->head.places) c->head.places = part->places;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < c->nshared && code == SHARDRT_OK; f++) code = match_field(c, what, p, f);
  if (code < 0) return code;
  const int64_t end = part->count > 0 ? source_number(part, part->count - 1) + 1 : 0;
  if (__builtin_add_overflow(c->firsts[p], part->count, &c->firsts[p + 1]) ||
      (p + 1 < c->nparts && __builtin_add_overflow(c->numbers[p], end, &c->numbers[p + 1])))
    return error_set(SHARDRT_EOVERFLOW, "%s: the samples are more than 64 bits count", what);
  return SHARDRT_OK;
}

static int add_label(concat_source *c, const char *what, const char *label) {
  if (label == NULL) return SHARDRT_OK;
  if (label[0] == '\0') return error_set(SHARDRT_EINVAL, "%s: the name of the field for the source is empty", what);
  if (find_field(c->parts[0], label) >= 0)
    return error_set(SHARDRT_EINVAL, "%s: the sources have a field \"%s\" already", what, label);
  char *copy = alloc_text("%s", label);
  if (copy == NULL) return ALLOC_FAILED;
  c->head.fields[c->head.nfields++] = (shardrt_field){.name = copy, .dtype = SHARDRT_INT32};
  return SHARDRT_OK;
}

int concat_fill(concat_source *c, const char *what, int32_t nparts, shardrt_source *const *parts, const char *label,
                bool mixes) {
  if (nparts < 1) return error_set(SHARDRT_EINVAL, "%s: it takes at least one source", what);
  const size_t n = (size_t)nparts;
  c->nshared = c->head.nfields = parts[0]->nfields;
  c->parts = alloc_zeros(n, sizeof(shardrt_source *));
  if (c->parts == NULL) return ALLOC_FAILED;
  for (; c->nparts < nparts; c->nparts++) c->parts[c->nparts] = source_retain(parts[c->nparts]);
  c->firsts = alloc_zeros(n + 1, sizeof *c->firsts);
  if (c->firsts == NULL) return ALLOC_FAILED;
  c->numbers = alloc_zeros(n, sizeof *c->numbers);
  if (c->numbers == NULL) return ALLOC_FAILED;
  c->fields = alloc_zeros(n * (size_t)c->nshared, sizeof *c->fields);
  if (c->fields == NULL) return ALLOC_FAILED;
  c->head.fields = alloc_zeros((size_t)c->nshared + 1, sizeof *c->head.fields);
  if (c->head.fields == NULL) return ALLOC_FAILED;
  /* Their names live as long as the first part. */
  memcpy(c->head.fields, parts[0]->fields, (size_t)c->nshared * sizeof *c->head.fields);
  int code = SHARDRT_OK;
  for (int32_t p = 0; p < nparts && code == SHARDRT_OK; p++) code = match_part(c, what, p, mixes);
  if (code == SHARDRT_OK) code = add_label(c, what, label);
  c->head.count = c->firsts[nparts];
  return code;
}

int shardrt_source_concat(int32_t nparts, shardrt_source *const *parts, const char *label, shardrt_source **out) {
  concat_source *made = source_new(&concat_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = concat_fill(made, "concat", nparts, parts, label, false);
  if (code < 0) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}

int concat_files(concat_open *open, int32_t npaths, const char *const *paths, int32_t nfields,
                 const shardrt_field *fields, const shardrt_source_options *options, shardrt_source **out) {
  if (npaths == 1) return open(paths[0], nfields, fields, options, out);
  shardrt_source **opened = alloc_zeros((size_t)npaths, sizeof(shardrt_source *));
  if (opened == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < npaths && code == SHARDRT_OK; i++)
    code = open(paths[i], nfields, fields, options, &opened[i]);
  if (code == SHARDRT_OK) code = shardrt_source_concat(npaths, opened, NULL, out);
  for (int32_t i = 0; i < npaths; i++) shardrt_source_free(opened[i]);
  alloc_free((void *)opened);
  return code;
}
