/* tfrecord.c - TFRecord files of tf.train.Example: https://www.tensorflow.org/tutorials/load_data/tfrecord
 *
 * Each record is a 64-bit length, the masked CRC-32C of these 8 bytes, the data, the masked CRC-32C of the data, all
 * little-endian; masked is rotated right by 15 bits plus 0xa282ead8. The file says neither how many there are nor
 * where: the index does.
 *
 * Fields are features by name. A feature of bytes is its first string: as uint8 of any length, or, where a dtype and a
 * shape are asked for, raw elements of exactly that size. Features of floats and ints are float32 and int64; where no
 * shape is asked for the first record's counts: one value is a scalar, more are a row of that many. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "source/example.h"
#include "source/formats.h"
#include "source/gunzip.h"
#include "source/records.h"

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

static uint32_t read_32(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static uint32_t unmask(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return rotated >> 17 | rotated << 15;
}

/* ---- the index -------------------------------------------------------------------------------------------------- */

static int bad_record(const struct stored *file, int64_t record, size_t offset, const char *what) {
  return error_set(SHARDRT_EFORMAT, "%s: record %lld at byte %zu: %s", file->title, (long long)record, offset, what);
}

static int refuse_compressed(const struct stored *file, struct reader *arena) {
  const uint8_t *head;
  if (file->bytes < 2) return SHARDRT_OK;
  int code = stored_get(file, 0, 2, arena, &head);
  if (code != SHARDRT_OK) return code;
  const bool zlib = (head[0] & 0x0f) == 8 && (head[0] << 8 | head[1]) % 31 == 0;
  if (gunzip_is(&file->map))
    return error_set(SHARDRT_EFORMAT, "%s: is gzipped, and so has no random access: `gunzip` it", file->title);
  if (!zlib || file->bytes < HEAD_BYTES) return SHARDRT_OK;
  code = stored_get(file, 0, HEAD_BYTES, arena, &head);
  if (code != SHARDRT_OK || unmask(read_32(head + 8)) == crc32c(0, head, 8)) return code;
  return error_set(SHARDRT_EFORMAT,
                   "%s: is compressed by zlib (TFRecordOptions(\"ZLIB\")), and so has no random access: write it again "
                   "without",
                   file->title);
}

static int scan(const struct stored *file, struct reader *arena, struct index_writer *writer, const void *context) {
  (void)context;
  static const char *const name = "record";
  int code = refuse_compressed(file, arena);
  if (code == SHARDRT_OK) code = index_name(writer, 1, &name);
  size_t at = 0;
  for (int64_t record = 0; at < file->bytes && code == SHARDRT_OK; record++) {
    const struct reader_mark mark = reader_mark(arena);
    const uint8_t *head, *data;
    if (file->bytes - at < HEAD_BYTES) return bad_record(file, record, at, "is cut off within its length");
    code = stored_get(file, at, HEAD_BYTES, arena, &head);
    if (code != SHARDRT_OK) return code;
    const uint64_t length = (uint64_t)read_32(head) | (uint64_t)read_32(head + 4) << 32;
    if (unmask(read_32(head + 8)) != crc32c(0, head, 8))
      return bad_record(file, record, at,
                        record == 0 ? "is no TFRecord file, or its length is damaged (CRC-32C)"
                                    : "its length is damaged (CRC-32C)");
    if (length > file->bytes - at - HEAD_BYTES || file->bytes - at - HEAD_BYTES - length < TAIL_BYTES)
      return bad_record(file, record, at, "is cut off");
    code = stored_get(file, at + HEAD_BYTES, (size_t)length + TAIL_BYTES, arena, &data);
    if (code != SHARDRT_OK) return code;
    const struct index_entry entry = index_entry_of(at + HEAD_BYTES, data, (size_t)length);
    if (entry.crc != unmask(read_32(data + length)))
      return bad_record(file, record, at, "its data is damaged (CRC-32C)");
    code = index_add(writer, &entry);
    at += HEAD_BYTES + (size_t)length + TAIL_BYTES;
    reader_release(arena, mark);
  }
  return code;
}

/* ---- fields ----------------------------------------------------------------------------------------------------- */

static int32_t dtype_of(int32_t kind) {
  return kind == EXAMPLE_FLOATS ? SHARDRT_FLOAT32 : kind == EXAMPLE_INTS ? SHARDRT_INT64 : SHARDRT_UINT8;
}

/* What a field is, from the first record's feature and what was asked for. */
static int set_field(const struct example_feature *feature, const shardrt_field *asked, shardrt_field *out) {
  out->name = asked != NULL ? alloc_text("%s", asked->name)
                            : alloc_text("%.*s", (int)feature->name_bytes, (const char *)feature->name);
  if (out->name == NULL) return ALLOC_FAILED;
  const int32_t kind = feature->kind != 0 ? feature->kind : EXAMPLE_BYTES;
  out->dtype = asked != NULL && asked->dtype >= 0 ? asked->dtype : dtype_of(kind);
  if (kind != EXAMPLE_BYTES && out->dtype != dtype_of(kind))
    return error_set(SHARDRT_EINVAL, "field \"%s\": %s is asked for, and the feature holds %s; transform.cast converts",
                     out->name, shardrt_dtype_name(out->dtype), shardrt_dtype_name(dtype_of(kind)));
  if (asked != NULL && asked->ndim >= 0) {
    out->ndim = asked->ndim;
    memcpy(out->shape, asked->shape, sizeof out->shape);
    return SHARDRT_OK;
  }
  const int64_t count = kind == EXAMPLE_BYTES ? -1 : example_count(feature);
  if (kind != EXAMPLE_BYTES && count < 0) return (int)count;
  out->ndim = count == 1 ? 0 : 1;
  out->shape[0] = count;
  return SHARDRT_OK;
}

/* By name: an example's features stand in no order. */
static int compare_fields(const void *a, const void *b) {
  return strcmp(((const shardrt_field *)a)->name, ((const shardrt_field *)b)->name);
}

/* The fields that were asked for, or all of the first record's. */
static int set_fields(records *self, int32_t nfields, const shardrt_field *asked, const uint8_t *data, size_t bytes) {
  struct example_feature feature = {0};
  size_t at = 0;
  int32_t count = nfields;
  if (nfields == 0) {
    int more;
    while ((more = example_next(data, bytes, &at, &feature)) == 1) count++;
    if (more < 0) return more;
  }
  if (count == 0) return error_set(SHARDRT_EFORMAT, "an example without features");
  self->base.fields = alloc_zeros((size_t)count, sizeof *self->base.fields);
  if (self->base.fields == NULL) return ALLOC_FAILED;
  at = 0;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < count && code == SHARDRT_OK; f++) {
    const int found =
        nfields == 0 ? example_next(data, bytes, &at, &feature) : example_find(data, bytes, asked[f].name, &feature);
    if (found < 0) return found;
    if (found == 0) return error_set(SHARDRT_EINVAL, "it has no feature \"%s\"", asked[f].name);
    self->base.nfields++;
    code = set_field(&feature, nfields == 0 ? NULL : &asked[f], &self->base.fields[f]);
  }
  if (code == SHARDRT_OK && nfields == 0)
    qsort(self->base.fields, (size_t)count, sizeof *self->base.fields, compare_fields);
  return code;
}

static int open_tfrecord(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                         const shardrt_source_options *options, shardrt_source **out) {
  records *self;
  int code = records_open(&tfrecord_format, sizeof *self, npaths, paths, options, "tfrecord", scan, NULL, &self);
  if (code != SHARDRT_OK) return code;
  struct reader arena = {0};
  const uint8_t *data;
  size_t bytes;
  if (self->base.count == 0)
    code = error_set(SHARDRT_EFORMAT, "%s%s: holds no record", self->files[0].stored.title,
                     npaths > 1 ? ", and the files after it" : "");
  if (code == SHARDRT_OK) code = records_get(self, 0, 0, &arena, &data, &bytes);
  if (code == SHARDRT_OK) {
    code = set_fields(self, nfields, fields, data, bytes);
    if (code != SHARDRT_OK) records_blame(self, 0, 0, code);
  }
  reader_clear(&arena);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&self->base);
    return code;
  }
  *out = &self->base;
  return SHARDRT_OK;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static int read_feature(const shardrt_field *field, const struct example_feature *feature, struct reader *reader,
                        struct value *out) {
  int64_t count = example_count(feature), shape[SHARDRT_MAX_NDIM];
  if (count < 0) return (int)count;
  const uint8_t *data = NULL;
  size_t bytes = 0;
  const size_t element = shardrt_dtype_size(field->dtype);
  if (feature->kind == EXAMPLE_BYTES) {
    if (count > 0) example_bytes(feature, &data, &bytes);
    if (bytes % element != 0)
      return error_set(SHARDRT_EFORMAT, "the feature \"%s\" has %zu bytes, which are no whole number of %s",
                       field->name, bytes, shardrt_dtype_name(field->dtype));
    count = (int64_t)(bytes / element);
  } else if (feature->kind != 0 && dtype_of(feature->kind) != field->dtype) {
    return error_set(SHARDRT_EFORMAT, "the feature \"%s\" holds %s here, and %s in the first record", field->name,
                     shardrt_dtype_name(dtype_of(feature->kind)), shardrt_dtype_name(field->dtype));
  }
  int code = records_shape(field, count, shape);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(field->dtype, field->ndim, shape);
  if (data != NULL) return records_place(out, data, reader);
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  if (feature->kind == EXAMPLE_FLOATS) example_floats(feature, out->data);
  if (feature->kind == EXAMPLE_INTS) example_ints(feature, out->data);
  return SHARDRT_OK;
}

static int tfrecord_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                          struct value *out, bool *handled) {
  const records *self = (const records *)source;
  const uint8_t *data;
  size_t bytes;
  *handled = true;
  int code = records_get(self, sample, 0, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  struct example_feature feature;
  code = example_find(data, bytes, source->fields[field].name, &feature);
  if (code == 0)
    code = error_set(SHARDRT_EFORMAT, "it has no feature \"%s\"", source->fields[field].name);
  else if (code > 0)
    code = read_feature(&source->fields[field], &feature, reader, out);
  return code == SHARDRT_OK ? code : records_blame(self, sample, 0, code);
}

static int tfrecord_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                            const shardrt_box *inner, struct extents *out) {
  (void)field; /* of whichever, the record */
  (void)inner;
  return records_extents((const records *)source, 0, samples, n, out);
}

static size_t tfrecord_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const shardrt_field *f = &source->fields[field];
  return source_is_ragged(f) ? 0 : source_box_bytes(f, inner);
}

const source_format tfrecord_format = {
    .name = "tfrecord",
    .open_files = open_tfrecord,
    .gather = source_gather_values,
    .value = tfrecord_value,
    .extents = tfrecord_extents,
    .bytes = tfrecord_bytes,
    .file_count = records_file_count,
    .file_name = records_file_name,
    .file_fingerprint = records_file_fingerprint,
    .close = records_close,
};
