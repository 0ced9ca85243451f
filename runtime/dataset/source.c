// build: -O3
/* source.c - what all formats have in common: holders, checked arguments, fingerprints. */
#include "dataset/source.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "dataset/elements.h"

enum { READ_CHUNK = 512 }; /* samples that shardrt_source_read asks for at once */

void *source_new(const struct source_format *format, size_t bytes) {
  shardrt_source *source = alloc_zeros(1, bytes);
  if (source == NULL) return NULL;
  source->format = format;
  atomic_init(&source->holders, 1);
  source->number_step = 1;
  return source;
}

shardrt_source *source_retain(shardrt_source *source) {
  atomic_fetch_add_explicit(&source->holders, 1, memory_order_relaxed);
  return source;
}

void shardrt_source_free(shardrt_source *source) {
  if (source == NULL) return;
  if (atomic_fetch_sub_explicit(&source->holders, 1, memory_order_acq_rel) != 1) return;
  if (source->format->close != NULL) source->format->close(source);
  for (int32_t b = 0; b < source->nbases; b++) shardrt_source_free(source->bases[b]);
  alloc_free((void *)source->bases);
  alloc_free(source->files);
  alloc_free(source);
}

/* Room for one more at the end of a list of n, which has room for 1, 2, 4, …; NULL when out of memory. */
static void *grow_list(void *list, int32_t n, size_t bytes) {
  if ((n & (n - 1)) != 0) return list;
  void *grown = alloc_array(n > 0 ? 2 * (size_t)n : 1, bytes);
  if (grown == NULL) return NULL;
  if (n > 0) memcpy(grown, list, (size_t)n * bytes);
  alloc_free(list);
  return grown;
}

int source_add(shardrt_source *source, const struct source_file *file) {
  struct source_file *files = grow_list(source->files, source->nfiles, sizeof *files);
  if (files == NULL) return ALLOC_FAILED;
  source->files = files;
  files[source->nfiles++] = *file;
  return SHARDRT_OK;
}

int source_add_file(shardrt_source *source, const char *title, const struct stored *stored, uint64_t fingerprint) {
  const struct source_file file = {.title = title, .stored = stored, .fingerprint = fingerprint};
  return source_add(source, &file);
}

int source_set_field(shardrt_source *source, int32_t f, const char *name, int32_t dtype, int32_t ndim,
                     const int64_t *shape) {
  assert(f < source->nfields && f < source->nfiles);
  const char *title = source->files[f].title;
  shardrt_field *field = &source->fields[f];
  if (ndim < 1)
    return error_set(SHARDRT_EINVAL, "%s: field \"%s\" is a single number; its first dimension must count the samples",
                     title, name);
  if (f == 0) source->count = shape[0];
  if (shape[0] != source->count)
    return error_set(SHARDRT_EINVAL, "fields of different length: \"%s\" has %lld samples (%s), \"%s\" has %lld (%s)",
                     source->fields[0].name, (long long)source->count, source->files[0].title, name,
                     (long long)shape[0], title);
  size_t sample_bytes; /* also where there are no samples, and so the whole product is 0 */
  if (!size_bytes(ndim - 1, shape + 1, shardrt_dtype_size(dtype), &sample_bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: one sample's shape does not fit in 64 bits", title);
  field->name = alloc_text("%s", name);
  if (field->name == NULL) return ALLOC_FAILED;
  field->dtype = dtype;
  field->ndim = ndim - 1;
  memcpy(field->shape, shape + 1, (size_t)field->ndim * sizeof *shape);
  return SHARDRT_OK;
}

int source_add_base(shardrt_source *source, shardrt_source *base) {
  shardrt_source **bases = grow_list((void *)source->bases, source->nbases, sizeof *bases);
  if (bases == NULL) return ALLOC_FAILED;
  source->bases = bases;
  bases[source->nbases++] = source_retain(base);
  return SHARDRT_OK;
}

int64_t source_length(const shardrt_source *source) {
  return source->mix != NULL ? source->mix->format->length(source->mix) : source->count;
}

struct source_turn source_turn(const shardrt_source *source, int64_t position) {
  assert(source->mix != NULL && position >= 0);
  return source->mix->format->turn(source->mix, position);
}

bool shardrt_source_is_guessed(const shardrt_source *source) {
  return source->guessed;
}

int64_t shardrt_source_count(const shardrt_source *source) {
  return source_length(source);
}

int source_refuse_mix(const shardrt_source *source) {
  if (source->mix == NULL) return SHARDRT_OK;
  return error_set(
      SHARDRT_EINVAL,
      "this is a mix, which has an order of its own; what can be done is to do this to the sources that it "
      "mixes");
}

int32_t shardrt_source_field_count(const shardrt_source *source) {
  return source->nfields;
}

const shardrt_field *shardrt_source_field(const shardrt_source *source, int32_t field) {
  return field >= 0 && field < source->nfields ? &source->fields[field] : NULL;
}

int source_check_names(const char *format, int32_t nfields, const char *const *names) {
  if (nfields < 1) return error_set(SHARDRT_EINVAL, "source.%s: no field is given; it needs at least one", format);
  for (int32_t f = 0; f < nfields; f++) {
    if (names[f] == NULL || names[f][0] == '\0')
      return error_set(SHARDRT_EINVAL, "source.%s: the name of field %d is empty", format, (int)f);
    for (int32_t g = 0; g < f; g++)
      if (strcmp(names[f], names[g]) == 0)
        return error_set(SHARDRT_EINVAL, "source.%s: the field \"%s\" is given twice", format, names[f]);
  }
  return SHARDRT_OK;
}

shardrt_box source_whole(const shardrt_field *field) {
  shardrt_box box = {.ndim = field->ndim};
  for (int32_t d = 0; d < field->ndim; d++) box.stop[d] = field->shape[d];
  return box;
}

size_t source_box_bytes(const shardrt_field *field, const shardrt_box *inner) {
  /* No overflow: the box lies in a sample whose bytes were found to fit. */
  size_t bytes = shardrt_dtype_size(field->dtype);
  for (int32_t d = 0; d < inner->ndim; d++) bytes *= (size_t)(inner->stop[d] - inner->start[d]);
  return bytes;
}

static int check_box(const shardrt_field *field, const shardrt_box *inner) {
  if (inner->ndim != field->ndim)
    return error_set(SHARDRT_EINVAL, "a box of %d dimensions of the field \"%s\", whose samples have %d",
                     (int)inner->ndim, field->name, (int)field->ndim);
  for (int32_t d = 0; d < inner->ndim; d++)
    if (inner->start[d] < 0 || inner->stop[d] < inner->start[d] || inner->stop[d] > field->shape[d])
      return error_set(SHARDRT_EINVAL, "the range %lld to %lld in dimension %d of the field \"%s\", whose size is %lld",
                       (long long)inner->start[d], (long long)inner->stop[d], (int)d, field->name,
                       (long long)field->shape[d]);
  return SHARDRT_OK;
}

bool source_is_ragged(const shardrt_field *field) {
  for (int32_t d = 0; d < field->ndim; d++)
    if (field->shape[d] < 0) return true;
  return false;
}

/* Whether a name stands in a table of Lua as it is: x = …; others do as ["a.b"] = …. */
static bool is_lua_name(const char *name) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
  return (name[0] < '0' || name[0] > '9') && name[0] != '\0' && name[strspn(name, letters)] == '\0';
}

int source_refuse_ragged(const shardrt_field *field) {
  if (!source_is_ragged(field)) return SHARDRT_OK;
  const char *open = is_lua_name(field->name) ? "" : "[\"", *close = open[0] == '\0' ? "" : "\"]";
  /* Bytes are mostly files or texts, which no shape fits. */
  char one[160] = "";
  if (field->dtype != SHARDRT_UINT8)
    snprintf(one, sizeof one,
             "; one shape that all samples have is told as in fields = {%s%s%s = {\"%s\", {3}}} of a source of files",
             open, field->name, close, shardrt_dtype_name(field->dtype));
  return error_set(
      SHARDRT_EINVAL,
      "the field \"%s\" differs in shape from sample to sample; a transform that gives it one shape would "
      "do (pad, crop, resize, a decoder before these), or source:pack, or source:map { %s%s%s = false } to leave it "
      "out%s",
      field->name, open, field->name, close, one);
}

static int check_field(const shardrt_source *source, int32_t field) {
  if (field >= 0 && field < source->nfields) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "field %d of a source of %d fields", (int)field, (int)source->nfields);
}

static int check_sample(const shardrt_source *source, int64_t sample) {
  if (sample >= 0 && sample < source->count) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "sample %lld of a source of %lld samples", (long long)sample,
                   (long long)source->count);
}

/* Looks for a wrong one only where there is one. */
static int check_samples(const shardrt_source *source, const int64_t *samples, int64_t n) {
  const uint64_t last = (uint64_t)source->count - 1;
  uint64_t wrong = source->count == 0 && n > 0 ? UINT64_MAX : 0; /* its sign: a sample below 0, or above the last */
  for (int64_t i = 0; i < n; i++) wrong |= (uint64_t)samples[i] | (last - (uint64_t)samples[i]);
  if (wrong >> 63 == 0) return SHARDRT_OK;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) code = check_sample(source, samples[i]);
  return code;
}

/* With arguments that are right. */
static int gather_right(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                        const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct reader_mark mark = reader_mark(reader);
  int code = source->format->gather(source, field, samples, n, inner, reader, dst);
  reader_release(reader, mark);
  const shardrt_field *f = &source->fields[field];
  if (code == SHARDRT_OK && f->dtype == SHARDRT_BOOL) elements_make_bools(dst, source_box_bytes(f, inner) * (size_t)n);
  return code;
}

int source_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct reader *reader, void *dst) {
  int code = check_field(source, field);
  if (code == SHARDRT_OK) code = source_refuse_ragged(&source->fields[field]);
  if (code == SHARDRT_OK) code = check_box(&source->fields[field], inner);
  if (code == SHARDRT_OK) code = check_samples(source, samples, n);
  return code == SHARDRT_OK ? gather_right(source, field, samples, n, inner, reader, dst) : code;
}

static bool is_whole(const shardrt_field *field, const shardrt_box *box) {
  for (int32_t d = 0; d < field->ndim; d++)
    if (box->start[d] != 0 || box->stop[d] != field->shape[d]) return false;
  return box->ndim == field->ndim;
}

/* Where a box begins in a packed sample, in elements; -1: it does not lie there in one piece. */
static int64_t piece_offset(const shardrt_field *field, const shardrt_box *box) {
  bool whole = true; /* in all dimensions behind d */
  int64_t offset = 0, step = 1;
  for (int32_t d = field->ndim - 1; d >= 0; d--) {
    const int64_t extent = box->stop[d] - box->start[d];
    if (!whole && extent > 1) return -1;
    offset += box->start[d] * step;
    step *= field->shape[d];
    whole = whole && extent == field->shape[d];
  }
  return offset;
}

int source_find(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                const shardrt_box *inner, struct reader *reader, const void **at, bool *found) {
  *found = false;
  const shardrt_field *f = &source->fields[field];
  const int64_t offset = source->format->find != NULL ? piece_offset(f, inner) : -1;
  if (offset < 0 || f->dtype == SHARDRT_BOOL) return SHARDRT_OK; /* what a file has as bools may be none */
  const size_t first = (size_t)offset * shardrt_dtype_size(f->dtype);
  for (int64_t i = 0; i < n; i++) {
    int code = check_sample(source, samples[i]);
    if (code < 0) return code;
    const char *sample = source->format->find(source, field, samples[i], first, source_box_bytes(f, inner));
    if (sample == NULL) return SHARDRT_OK;
    at[i] = sample + first;
  }
  reader->bytes_read += (int64_t)source_box_bytes(f, inner) * n;
  *found = true;
  return SHARDRT_OK;
}

static int read_value(const shardrt_source *source, int32_t field, int64_t sample, const shardrt_box *inner,
                      struct reader *reader, struct value *out) {
  int code = check_field(source, field);
  if (code == SHARDRT_OK) code = check_sample(source, sample);
  if (code < 0) return code;
  const shardrt_field *f = &source->fields[field];
  const shardrt_box whole = source_whole(f);
  bool handled = false;
  if (source->format->value != NULL && (inner == NULL || is_whole(f, inner))) {
    code = source->format->value(source, field, sample, reader, out, &handled);
    if (code < 0 || handled) return code;
  }
  code = source_refuse_ragged(f);
  if (inner == NULL) inner = &whole;
  if (code == SHARDRT_OK) code = check_box(f, inner);
  if (code < 0) return code;
  void *room = reader_room(reader, source_box_bytes(f, inner));
  if (room == NULL) return ALLOC_FAILED;
  *out = (struct value){.dtype = f->dtype, .ndim = f->ndim, .reduce = 1, .data = room};
  for (int32_t d = 0; d < f->ndim; d++) {
    out->full[d] = f->shape[d];
    out->start[d] = inner->start[d];
    out->shape[d] = inner->stop[d] - inner->start[d];
  }
  const bool past_caches = reader->past_caches;
  reader->past_caches = false; /* it is soon read */
  code = source->format->gather(source, field, &sample, 1, inner, reader, room);
  reader->past_caches = past_caches;
  return code;
}

int source_value(const shardrt_source *source, int32_t field, int64_t sample, const shardrt_box *inner,
                 struct reader *reader, struct value *out) {
  int code = read_value(source, field, sample, inner, reader, out);
  if (code < 0 || out->dtype != SHARDRT_BOOL || elements_are_bools(out->data, value_bytes(out))) return code;
  void *room = reader_room(reader, value_bytes(out)); /* what it is may lie in a mapped file */
  if (room == NULL) return ALLOC_FAILED;
  memcpy(room, out->data, value_bytes(out));
  elements_make_bools(room, value_bytes(out));
  out->data = room;
  return SHARDRT_OK;
}

int source_gather_values(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct reader *reader, void *dst) {
  static const int64_t zero[SHARDRT_MAX_NDIM] = {0};
  const shardrt_field *f = &source->fields[field];
  const size_t bytes = source_box_bytes(f, inner), element = shardrt_dtype_size(f->dtype);
  int64_t extent[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < inner->ndim; d++) extent[d] = inner->stop[d] - inner->start[d];
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    const struct reader_mark mark = reader_mark(reader);
    struct value value;
    bool handled;
    code = source->format->value(source, field, samples[i], reader, &value, &handled);
    if (code == SHARDRT_OK)
      code = shardrt_box_copy(inner->ndim, element, extent, (char *)dst + (size_t)i * bytes, extent, zero, value.data,
                              value.shape, inner->start);
    reader_release(reader, mark);
  }
  return code;
}

int source_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  return source->format->error_context != NULL ? source->format->error_context(source, field, sample, code) : code;
}

int64_t source_number(const shardrt_source *source, int64_t sample) {
  if (source->format->number != NULL) return source->format->number(source, sample);
  return source->first_number + sample * source->number_step;
}

int source_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                   const shardrt_box *inner, struct extents *out) {
  return source->format->extents != NULL ? source->format->extents(source, field, samples, n, inner, out) : SHARDRT_OK;
}

size_t source_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  if (source->format->bytes != NULL) return source->format->bytes(source, field, inner);
  return source_is_ragged(&source->fields[field]) ? 0 : source_box_bytes(&source->fields[field], inner);
}

int source_prune(const shardrt_source *source, int32_t field, const struct condition *condition, struct pruned *out) {
  return source->format->prune != NULL ? source->format->prune(source, field, condition, out) : SHARDRT_OK;
}

bool shardrt_source_is_computed(const shardrt_source *source, int32_t field) {
  return source->format->is_computed != NULL && source->format->is_computed(source, field);
}

size_t shardrt_source_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  return source_bytes(source, field, inner);
}

/* The sample that stands at a position of a source whose samples are taken in its own order. */
static int64_t sample_at(const shardrt_source *source, int64_t position) {
  if (source->mix == NULL) return position;
  const struct source_turn turn = source_turn(source, position);
  return turn.first + turn.before % turn.count;
}

int shardrt_source_read(const shardrt_source *source, int32_t field, int64_t first, int64_t count, void *dst) {
  int code = check_field(source, field);
  if (code == SHARDRT_OK) code = source_refuse_ragged(&source->fields[field]);
  if (code < 0) return code;
  const shardrt_field *f = &source->fields[field];
  const int64_t length = source_length(source);
  if (first < 0 || count < 0 || count > length || first > length - count)
    return error_set(SHARDRT_EINVAL, "%lld samples from sample %lld on, of a source of %lld samples", (long long)count,
                     (long long)first, (long long)length);
  const shardrt_box whole = source_whole(f);
  const size_t bytes = source_box_bytes(f, &whole);
  int64_t samples[READ_CHUNK];
  struct reader reader = {0};
  for (int64_t done = 0; done < count && code == SHARDRT_OK;) {
    const int64_t n = count - done < READ_CHUNK ? count - done : READ_CHUNK;
    for (int64_t i = 0; i < n; i++) samples[i] = first + done + i;
    for (int64_t i = 0; source->mix != NULL && i < n; i++) samples[i] = sample_at(source, samples[i]);
    code = gather_right(source, field, samples, n, &whole, &reader, (char *)dst + (size_t)done * bytes);
    done += n;
  }
  reader_clear(&reader);
  return code;
}

int shardrt_source_value(const shardrt_source *source, int32_t field, int64_t sample, int64_t *shape,
                         shardrt_buffer **out) {
  struct reader reader = {0};
  struct value value;
  shardrt_buffer *made = NULL;
  int code = SHARDRT_OK;
  if (sample < 0 || sample >= source_length(source))
    code = error_set(SHARDRT_EINVAL, "sample %lld of a source of %lld samples", (long long)sample,
                     (long long)source_length(source));
  if (code == SHARDRT_OK) code = source_value(source, field, sample_at(source, sample), NULL, &reader, &value);
  if (code == SHARDRT_OK) code = shardrt_buffer_new(value_bytes(&value), &made);
  if (code == SHARDRT_OK) {
    memcpy(shardrt_buffer_data(made), value.data, value_bytes(&value));
    memcpy(shape, value.shape, (size_t)value.ndim * sizeof *shape);
    *out = made;
  }
  reader_clear(&reader);
  return code;
}

int32_t source_file_count(const shardrt_source *source) {
  int32_t files = source->nfiles;
  for (int32_t b = 0; b < source->nbases; b++) files += source_file_count(source->bases[b]);
  return files;
}

/* The file number *file, counted down as others are passed; NULL: there are fewer. */
static struct source_file *find_file(const shardrt_source *source, int32_t *file) {
  if (*file < source->nfiles) return &source->files[*file];
  *file -= source->nfiles;
  struct source_file *found = NULL;
  for (int32_t b = 0; b < source->nbases && found == NULL; b++) found = find_file(source->bases[b], file);
  return found;
}

const char *source_file_name(const shardrt_source *source, int32_t file) {
  return find_file(source, &file)->title;
}

uint64_t source_file_fingerprint(const shardrt_source *source, int32_t file) {
  const struct source_file *found = find_file(source, &file);
  return found->stored == NULL || found->is_told ? found->fingerprint : stored_fingerprint(found->stored);
}

uint64_t source_file_identity(const shardrt_source *source, int32_t file, bool *is_read) {
  const struct source_file *found = find_file(source, &file);
  *is_read = found->stored != NULL && found->stored->map.remote == NULL && found->stored->restart == NULL;
  if (*is_read) return mapping_identity(&found->stored->map);
  return found->stored != NULL ? stored_fingerprint(found->stored) : found->fingerprint;
}

uint64_t source_file_read(const shardrt_source *source, int32_t file) {
  const struct source_file *found = find_file(source, &file);
  return found->stored != NULL ? stored_fingerprint(found->stored) : found->fingerprint;
}

void source_file_tell(const shardrt_source *source, int32_t file, uint64_t fingerprint) {
  struct source_file *found = find_file(source, &file);
  found->fingerprint = fingerprint;
  found->is_told = true;
}

void source_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  if (source->format->selection_hash != NULL) {
    source->format->selection_hash(source, hashes);
    return;
  }
  for (int32_t b = 0; b < source->nbases; b++) source_selection_hash(source->bases[b], hashes);
}

void shardrt_source_data(const shardrt_source *source, uint64_t *hashes) {
  memset(hashes, 0, SHARDRT_DATA_KINDS * sizeof *hashes);
  const int32_t files = source_file_count(source);
  for (int32_t i = 0; i < files; i++)
    hashes[SHARDRT_DATA_FILES] = hash_number(hashes[SHARDRT_DATA_FILES], (int64_t)source_file_fingerprint(source, i));
  source_selection_hash(source, hashes);
}

uint64_t source_transform_hash(const shardrt_source *source) {
  if (source->format->transform_hash != NULL) return source->format->transform_hash(source);
  return source->nbases == 1 ? source_transform_hash(source->bases[0]) : 0;
}

uint64_t shardrt_source_fingerprint(const shardrt_source *source) {
  return source->format->fingerprint != NULL ? source->format->fingerprint(source) : source_files_fingerprint(source);
}

uint64_t source_files_fingerprint(const shardrt_source *source) {
  uint64_t hash = hash_text(0, "shardrt source");
  hash = hash_number(hash, source->count);
  hash = hash_number(hash, source->first_number);
  hash = hash_number(hash, source->number_step);
  hash = hash_number(hash, source->nfields);
  for (int32_t f = 0; f < source->nfields; f++) {
    const shardrt_field *field = &source->fields[f];
    hash = hash_text(hash, field->name);
    hash = hash_number(hash, field->dtype);
    hash = hash_number(hash, field->ndim);
    for (int32_t d = 0; d < field->ndim; d++) hash = hash_number(hash, field->shape[d]);
  }
  const int32_t files = source_file_count(source);
  for (int32_t i = 0; i < files; i++) hash = hash_number(hash, (int64_t)source_file_fingerprint(source, i));
  return hash;
}
