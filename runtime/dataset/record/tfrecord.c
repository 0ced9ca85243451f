/* tfrecord.c - TFRecord files of tf.train.Example: https://www.tensorflow.org/tutorials/load_data/tfrecord
 *
 * Each record is a 64-bit length, the masked CRC-32C of these 8 bytes, the data, the masked CRC-32C of the data, all
 * little-endian; masked is rotated right by 15 bits plus 0xa282ead8. The file says neither how many there are nor
 * where: the index does. Fields are features (example_fields.h). */
#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "dataset/formats.h"
#include "dataset/magic.h"
#include "dataset/record/example_fields.h"
#include "dataset/record/records.h"

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

struct tfrecord {
  struct records records;
  struct example_kinds kinds;
};

static uint32_t unmask_crc(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return rotated >> 17 | rotated << 15;
}

/* ---- the index -------------------------------------------------------------------------------------------------- */

static int bad_record(const struct stored *file, int64_t record, size_t offset, const char *what) {
  return error_set(SHARDRT_EFORMAT, "%s: record %lld at byte %zu: %s", file->title, (long long)record, offset, what);
}

/* A length may begin with the bytes of another format (magic.h): its checksum tells. */
static int refuse_other(const struct stored *file, struct reader *arena) {
  const size_t bytes = file->bytes < MAGIC_BYTES ? file->bytes : MAGIC_BYTES;
  const uint8_t *head;
  if (bytes < HEAD_BYTES) return SHARDRT_OK;
  int code = stored_get(file, 0, bytes, arena, &head);
  if (code != SHARDRT_OK || unmask_crc(little_endian_32(head + 8)) == crc32c(0, head, 8)) return code;
  const struct magic *magic = magic_find(head, bytes, file->bytes);
  if (magic != NULL)
    return error_set(SHARDRT_EFORMAT, "%s: is %s, and no TFRecord file: %s", file->title, magic->what, magic->advice);
  return SHARDRT_OK;
}

/* The record at *at, which goes past it; unless it is damaged such that where it ends is not known. */
static int scan_record(const struct stored *file, struct reader *arena, struct index_writer *writer, int64_t record,
                       size_t *at) {
  const size_t start = *at;
  const uint8_t *head, *data;
  if (file->bytes - start < HEAD_BYTES) return bad_record(file, record, start, "is cut off within its length");
  int code = stored_get(file, start, HEAD_BYTES, arena, &head);
  if (code != SHARDRT_OK) return code;
  const uint64_t length = little_endian_64(head);
  if (unmask_crc(little_endian_32(head + 8)) != crc32c(0, head, 8))
    return bad_record(file, record, start,
                      record == 0 ? "is no TFRecord file, or its length is damaged (CRC-32C)"
                                  : "its length is damaged (CRC-32C)");
  if (length > file->bytes - start - HEAD_BYTES || file->bytes - start - HEAD_BYTES - length < TAIL_BYTES)
    return bad_record(file, record, start, "is cut off");
  code = stored_get(file, start + HEAD_BYTES, (size_t)length + TAIL_BYTES, arena, &data);
  if (code != SHARDRT_OK) return code;
  struct index_entry entry = index_entry_of(start + HEAD_BYTES, data, (size_t)length);
  if (entry.crc != unmask_crc(little_endian_32(data + length))) {
    if (!index_writer_skips(writer)) return bad_record(file, record, start, "its data is damaged (CRC-32C)");
    entry.note = INDEX_DAMAGED;
  }
  *at += HEAD_BYTES + (size_t)length + TAIL_BYTES;
  return index_writer_add(writer, &entry);
}

static int tfrecord_scan(const struct stored *file, struct reader *arena, struct index_writer *writer,
                         const void *context) {
  (void)context;
  static const char *const name = "record";
  int code = refuse_other(file, arena);
  if (code == SHARDRT_OK) code = index_writer_columns(writer, 1, &name);
  size_t at = 0;
  for (int64_t record = 0; at < file->bytes && code == SHARDRT_OK; record++) {
    const struct reader_mark mark = reader_mark(arena);
    code = scan_record(file, arena, writer, record, &at);
    if (code == SHARDRT_EFORMAT) return index_writer_lose_rest(writer, file, at, code);
    reader_release(arena, mark);
  }
  return code;
}

static int open_tfrecord(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                         const shardrt_source_options *options, shardrt_source **out) {
  static const struct record_opener opener = {.kind = "tfrecord", .scan = tfrecord_scan};
  struct records *self = source_new(&tfrecord_format, sizeof(struct tfrecord));
  if (self == NULL) return ALLOC_FAILED;
  int code = records_open(self, npaths, paths, options, &opener);
  struct reader arena = {0};
  const uint8_t *data;
  size_t bytes;
  int64_t first;
  if (code == SHARDRT_OK && self->base.count == 0)
    code = error_set(SHARDRT_EFORMAT, "%s%s: holds no record", self->files[0].title,
                     npaths > 1 ? ", and the files after it" : "");
  if (code == SHARDRT_OK) code = records_first(self, 0, &arena, &first, &data, &bytes);
  if (code == SHARDRT_OK) {
    code = example_fields(&self->base, nfields, fields, data, bytes, &((struct tfrecord *)self)->kinds);
    if (code != SHARDRT_OK) records_error_context(self, first, 0, code);
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

static int tfrecord_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                          struct value *out, bool *handled) {
  const struct records *self = (const struct records *)source;
  const uint8_t *data;
  size_t bytes;
  *handled = true;
  int code = records_get(self, sample, 0, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  code = example_value(source, &((const struct tfrecord *)source)->kinds, field, data, bytes, reader, out);
  return code == SHARDRT_OK ? code : records_error_context(self, sample, 0, code);
}

static int tfrecord_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                            const shardrt_box *inner, struct extents *out) {
  (void)field; /* of whichever, the record */
  (void)inner;
  return records_extents((const struct records *)source, 0, samples, n, out);
}

static void tfrecord_close(shardrt_source *source) {
  example_kinds_clear(&((struct tfrecord *)source)->kinds);
  records_close(source);
}

const struct source_format tfrecord_format = {
    .name = "tfrecord",
    .open_files = open_tfrecord,
    .gather = source_gather_values,
    .value = tfrecord_value,
    .error_context = records_source_error_context,
    .extents = tfrecord_extents,
    RECORDS_BLOCKS,
    .close = tfrecord_close,
};
