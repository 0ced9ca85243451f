/* cifar.c - the binary versions of CIFAR-10 and CIFAR-100: https://www.cs.toronto.edu/~kriz/cifar.html
 *
 * Records of one length, one behind the other, and nothing else: the label (of CIFAR-100 the coarse and then the fine
 * one), one byte each, then 3,072 bytes of a picture: 32 rows of 32 red ones, then green, then blue. It is given as it
 * lies there, {3, 32, 32}. Which of the two a file is, its length and its labels tell. It has no checksums: the
 * side-car has one of each record. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/formats.h"
#include "dataset/record/records.h"

enum { SIDE = 32, CHANNELS = 3, IMAGE_BYTES = CHANNELS * SIDE * SIDE, FIELDS_MOST = 3 };

/* One of the versions. */
struct layout {
  const char *name;
  int32_t labels; /* bytes before the picture */
  uint8_t classes[2];
  const char *names[FIELDS_MOST]; /* of the labels, then of the picture */
};

static const struct layout layouts[] = {
    {"CIFAR-10", 1, {10}, {"label", "image"}},
    {"CIFAR-100", 2, {20, 100}, {"coarse_label", "fine_label", "image"}},
};

struct cifar {
  struct records records;
  const struct layout *layout;
  int32_t places[FIELDS_MOST]; /* of each field among its layout's names */
};

static size_t record_bytes(const struct layout *layout) {
  return (size_t)layout->labels + IMAGE_BYTES;
}

/* ---- which it is ------------------------------------------------------------------------------------------------ */

static int refuse_other(const struct stored *file, struct reader *arena) {
  const uint8_t *data = NULL;
  int code = stored_get(file, 0, file->bytes < 2 ? file->bytes : 2, arena, &data);
  if (code != SHARDRT_OK) return code;
  if (file->bytes == 0) return error_set(SHARDRT_EFORMAT, "%s: is empty", file->title);
  if (file->bytes > 1 && data[0] == 0x1f && data[1] == 0x8b)
    return error_set(SHARDRT_EFORMAT, "%s: is gzipped: `tar xzf` it, and name the .bin files that come out",
                     file->title);
  if (file->bytes > 1 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5)
    return error_set(SHARDRT_EFORMAT,
                     "%s: is a pickle, as the version for Python has them; the binary version can be read: "
                     "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, cifar-100-binary.tar.gz",
                     file->title);
  return error_set(SHARDRT_EFORMAT,
                   "%s: has %zu bytes, which are no whole number of records, of CIFAR-10's 3,073 bytes or CIFAR-100's "
                   "3,074: it is cut off, or another file",
                   file->title, file->bytes);
}

/* The first of a record's labels that its layout does not have; -1: it has them all. */
static int32_t wrong_label(const struct layout *layout, const uint8_t *record) {
  for (int32_t i = 0; i < layout->labels; i++)
    if (record[i] >= layout->classes[i]) return record[i];
  return -1;
}

/* The first record of which a label is wrong; their number: there is none. */
static int check_labels(const struct stored *file, const struct layout *layout, struct reader *arena, size_t *wrong,
                        int32_t *label) {
  const size_t count = file->bytes / record_bytes(layout);
  *label = -1;
  for (*wrong = 0; *wrong < count; ++*wrong) {
    const uint8_t *data = NULL;
    const struct reader_mark mark = reader_mark(arena);
    int code = stored_get(file, *wrong * record_bytes(layout), (size_t)layout->labels, arena, &data);
    if (code != SHARDRT_OK) return code;
    *label = wrong_label(layout, data);
    reader_release(arena, mark);
    if (*label >= 0) break;
  }
  return SHARDRT_OK;
}

/* The layout that the length allows, and that more of the first records' labels fit; which need not be all of them
 * where damage is noted. */
static int find_layout(const struct stored *file, struct reader *arena, bool skips, const struct layout **out) {
  size_t right = 0;
  int32_t label = -1;
  bool found = false;
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    const struct layout *layout = &layouts[i];
    size_t wrong = 0;
    int32_t its_label = -1;
    if (file->bytes == 0 || file->bytes % record_bytes(layout) != 0) continue;
    int code = check_labels(file, layout, arena, &wrong, &its_label);
    if (code != SHARDRT_OK) return code;
    if (found && (label < 0 || (its_label >= 0 && wrong <= right))) continue;
    found = true;
    right = wrong;
    label = its_label;
    *out = layout;
  }
  if (!found) return refuse_other(file, arena);
  if (label < 0 || skips) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "%s: record %zu at byte %zu: a label is %d, which %s does not have", file->title,
                   right, right * record_bytes(*out), (int)label, (*out)->name);
}

static int cifar_scan(const struct stored *file, struct reader *arena, struct index_writer *writer,
                      const void *context) {
  static const char *const name = "record";
  const struct layout *layout = &layouts[0];
  (void)context;
  int code = find_layout(file, arena, index_writer_skips(writer), &layout);
  if (code == SHARDRT_OK) code = index_writer_columns(writer, 1, &name);
  for (size_t at = 0; code == SHARDRT_OK && at < file->bytes; at += record_bytes(layout)) {
    const uint8_t *data = NULL;
    const struct reader_mark mark = reader_mark(arena);
    code = stored_get(file, at, record_bytes(layout), arena, &data);
    if (code != SHARDRT_OK) break;
    struct index_entry entry = index_entry_of(at, data, record_bytes(layout));
    if (wrong_label(layout, data) >= 0) entry.note = INDEX_DAMAGED;
    reader_release(arena, mark);
    code = index_writer_add(writer, &entry);
  }
  return code;
}

/* ---- fields ----------------------------------------------------------------------------------------------------- */

static int check_asked(const struct cifar *self, const shardrt_field *asked, const shardrt_field *is) {
  if (asked->dtype >= 0 && asked->dtype != is->dtype)
    return error_set(SHARDRT_EINVAL, "field \"%s\": %s is asked for, and it is uint8; transform.cast converts",
                     asked->name, shardrt_dtype_name(asked->dtype));
  bool same = asked->ndim < 0 || asked->ndim == is->ndim;
  for (int32_t d = 0; same && d < asked->ndim; d++) same = asked->shape[d] < 0 || asked->shape[d] == is->shape[d];
  if (same) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "field \"%s\": a label of %s has no dimensions, and an image {3, 32, 32}",
                   asked->name, self->layout->name);
}

static int add_cifar_field(struct cifar *self, const char *name, const shardrt_field *asked) {
  const int32_t f = self->records.base.nfields, last = self->layout->labels;
  shardrt_field *field = &self->records.base.fields[f];
  int32_t place = 0;
  while (place <= last && strcmp(self->layout->names[place], name) != 0) place++;
  if (place > last)
    return error_set(SHARDRT_EINVAL, "%s: %s has no \"%s\"; it has %s", self->records.files[0].title,
                     self->layout->name, name,
                     last == 1 ? "\"image\" and \"label\"" : "\"image\", \"coarse_label\" and \"fine_label\"");
  *field = (shardrt_field){.name = alloc_text("%s", name), .dtype = SHARDRT_UINT8};
  if (field->name == NULL) return ALLOC_FAILED;
  self->records.base.nfields++;
  self->places[f] = place;
  if (place == last) {
    field->ndim = 3;
    field->shape[0] = CHANNELS;
    field->shape[1] = field->shape[2] = SIDE;
  }
  return asked != NULL ? check_asked(self, asked, field) : SHARDRT_OK;
}

static const struct layout *layout_of(const struct opened_file *file) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    if (file->index.rows > 0 && (size_t)file->index.entries[0].bytes == record_bytes(&layouts[i])) return &layouts[i];
  return NULL;
}

/* As the first file. */
static int check_layout(const struct records *self, int32_t i, const struct opened_file *file) {
  const struct layout *first = layout_of(records_first_file(self));
  if (first != NULL && layout_of(file) == first) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s is of CIFAR-10 and %s of CIFAR-100, or the other way around",
                   self->files[0].title, self->files[i].title);
}

static int set_cifar_fields(struct cifar *self, int32_t nfields, const shardrt_field *asked) {
  self->layout = layout_of(records_first_file(&self->records));
  const int32_t count = nfields > 0 ? nfields : self->layout->labels + 1;
  if (count > FIELDS_MOST) return error_set(SHARDRT_EINVAL, "%s has no %d fields", self->layout->name, (int)count);
  self->records.base.fields = alloc_zeros((size_t)count, sizeof *self->records.base.fields);
  if (self->records.base.fields == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < count && code == SHARDRT_OK; f++) {
    const int32_t sorted = self->layout->labels == 1 ? 1 - f : f; /* "image" stands before "label" */
    code = nfields > 0 ? add_cifar_field(self, asked[f].name, &asked[f])
                       : add_cifar_field(self, self->layout->names[sorted], NULL);
  }
  return code;
}

static int open_cifar(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                      const shardrt_source_options *options, shardrt_source **out) {
  static const struct record_opener opener = {.kind = "cifar", .scan = cifar_scan, .check = check_layout};
  struct cifar *made = source_new(&cifar_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = records_open(&made->records, npaths, paths, options, &opener);
  if (code == SHARDRT_OK) code = set_cifar_fields(made, nfields, fields);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->records.base);
    return code;
  }
  *out = &made->records.base;
  return SHARDRT_OK;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static int cifar_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                       struct value *out, bool *handled) {
  const struct cifar *self = (const struct cifar *)source;
  const shardrt_field *f = &source->fields[field];
  const uint8_t *data = NULL;
  size_t bytes;
  *handled = true;
  int code = records_get(&self->records, sample, 0, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(f->dtype, f->ndim, f->shape);
  out->data = (void *)(data + self->places[field]); /* who reads a value does not write to it */
  return SHARDRT_OK;
}

static int cifar_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct extents *out) {
  (void)field; /* of whichever, the whole record: its checksum is of all of it */
  (void)inner;
  return records_extents((const struct records *)source, 0, samples, n, out);
}

const struct source_format cifar_format = {
    .name = "cifar",
    .open_files = open_cifar,
    .gather = source_gather_values,
    .value = cifar_value,
    .error_context = records_source_error_context,
    .extents = cifar_extents,
    RECORDS_BLOCKS,
    .close = records_close,
};
