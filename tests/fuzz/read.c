/* read.c - reads what can be read of a source, and compares it with itself. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "dataset/source.h"
#include "fuzz.h"
#include "storage/local/extents.h"

enum { READ_AT_MOST = 1 << 20 /* bytes of a box */, SAMPLES = 4, BOX = 3 };

/* A field of a source, and one of its samples. */
struct place {
  const shardrt_source *source;
  int32_t field;
  int64_t sample;
  struct reader *reader;
};

static const shardrt_field *field_of(const struct place *p) {
  return shardrt_source_field(p->source, p->field);
}

/* Whether a box is small enough to be read, and how large it is. */
static bool box_size(const struct place *p, const shardrt_box *box, size_t *bytes) {
  int64_t shape[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < box->ndim; d++) shape[d] = box->stop[d] - box->start[d];
  return size_bytes(box->ndim, shape, shardrt_dtype_size(field_of(p)->dtype), bytes) && *bytes <= READ_AT_MOST;
}

/* The box's contents, or NULL where it cannot be read. It is read into memory of two kinds, which must not show. */
static uint8_t *read_box(const struct place *p, const shardrt_box *box, size_t bytes) {
  uint8_t *first = malloc(bytes + 1), *second = malloc(bytes + 1);
  if (first == NULL || second == NULL) fuzz_fault("out of memory");
  memset(first, 0x00, bytes + 1);
  memset(second, 0xff, bytes + 1);
  int code = source_gather(p->source, p->field, &p->sample, 1, box, p->reader, first);
  fuzz_check(code);
  const int again = source_gather(p->source, p->field, &p->sample, 1, box, p->reader, second);
  if (again != code) fuzz_fault("a box is read once and refused once");
  if (code == SHARDRT_OK && memcmp(first, second, bytes) != 0)
    fuzz_fault("a box is not the same when it is read again");
  free(second);
  if (code == SHARDRT_OK) return first;
  free(first);
  return NULL;
}

/* A few elements from the middle on. */
static shardrt_box small_box(const shardrt_field *field) {
  shardrt_box box = {.ndim = field->ndim};
  for (int32_t d = 0; d < field->ndim; d++) {
    box.start[d] = field->shape[d] / 2;
    box.stop[d] = field->shape[d] - box.start[d] > BOX ? box.start[d] + BOX : field->shape[d];
  }
  return box;
}

/* Whether `part`, the contents of a box, is what `all` has there. */
static bool is_part(const shardrt_field *field, const shardrt_box *box, const uint8_t *part, const uint8_t *all) {
  const size_t element = shardrt_dtype_size(field->dtype);
  int64_t elements = 1;
  for (int32_t d = 0; d < box->ndim; d++) elements *= box->stop[d] - box->start[d];
  for (int64_t i = 0; i < elements; i++) {
    int64_t rest = i, at = 0, stride = 1;
    for (int32_t d = box->ndim - 1; d >= 0; d--) {
      const int64_t size = box->stop[d] - box->start[d];
      at += (box->start[d] + rest % size) * stride;
      stride *= field->shape[d];
      rest /= size;
    }
    if (memcmp(part + (size_t)i * element, all + (size_t)at * element, element) != 0) return false;
  }
  return true;
}

static void read_boxes(const struct place *p) {
  const shardrt_field *field = field_of(p);
  const shardrt_box whole = source_whole(field), small = small_box(field);
  size_t bytes;
  uint8_t *all = box_size(p, &whole, &bytes) ? read_box(p, &whole, bytes) : NULL;
  uint8_t *part = box_size(p, &small, &bytes) ? read_box(p, &small, bytes) : NULL;
  if (all != NULL && part == NULL) fuzz_fault("a sample is read, and a box of it is refused");
  if (all != NULL && !is_part(field, &small, part, all)) fuzz_fault("a box is not what it is in the whole");
  free(part);
  free(all);
}

static void read_value(const struct place *p) {
  const shardrt_field *field = field_of(p);
  shardrt_buffer *buffers[2] = {NULL, NULL};
  int64_t shapes[2][SHARDRT_MAX_NDIM] = {{0}};
  size_t bytes[2] = {0, 0};
  for (int32_t i = 0; i < 2; i++) {
    int code = shardrt_source_value(p->source, p->field, p->sample, shapes[i], &buffers[i]);
    fuzz_check(code);
    if (code < 0) break;
    if (!size_bytes(field->ndim, shapes[i], shardrt_dtype_size(field->dtype), &bytes[i]))
      fuzz_fault("a value whose elements cannot be counted");
    for (int32_t d = 0; d < field->ndim; d++)
      if (field->shape[d] >= 0 && shapes[i][d] != field->shape[d])
        fuzz_fault("a value that is not of its field's shape");
  }
  if ((buffers[0] == NULL) != (buffers[1] == NULL)) fuzz_fault("a value is read once and refused once");
  if (buffers[0] != NULL &&
      (bytes[0] != bytes[1] || memcmp(shardrt_buffer_data(buffers[0]), shardrt_buffer_data(buffers[1]), bytes[0]) != 0))
    fuzz_fault("a value is not the same when it is read again");
  for (int32_t i = 0; i < 2; i++) shardrt_buffer_free(buffers[i]);
}

/* What is read ahead lies in its file. */
static void list_extents(const struct place *p) {
  struct extents list;
  const shardrt_box whole = source_whole(field_of(p));
  if (extents_set(1, &list) < 0) fuzz_fault("out of memory");
  fuzz_check(source_extents(p->source, p->field, &p->sample, 1, source_is_ragged(field_of(p)) ? NULL : &whole, &list));
  for (int64_t i = 0; i < list.count; i++)
    if (list.list[i].offset > list.list[i].file->bytes ||
        list.list[i].bytes > list.list[i].file->bytes - list.list[i].offset)
      fuzz_fault("what is to be read ahead lies outside its file");
  extents_clear(&list);
}

static void read_sample(const struct place *p) {
  const shardrt_field *field = field_of(p);
  const bool ragged = source_is_ragged(field);
  const shardrt_box whole = source_whole(field);
  size_t bytes;
  const bool small = ragged || box_size(p, &whole, &bytes);
  if (!ragged) read_boxes(p);
  if (small) read_value(p);
  if (small) list_extents(p);
}

static void check_field(const shardrt_field *field) {
  if (field == NULL || field->name == NULL || shardrt_dtype_size(field->dtype) == 0 || field->ndim < 0 ||
      field->ndim > SHARDRT_MAX_NDIM)
    fuzz_fault("a field that is none");
  for (int32_t d = 0; d < field->ndim; d++)
    if (field->shape[d] < -1) fuzz_fault("a field of a negative size");
}

void fuzz_read(const shardrt_source *source) {
  const int64_t count = shardrt_source_count(source), samples[SAMPLES] = {0, 1, count / 2, count - 1};
  struct reader reader = {0};
  if (count < 0) fuzz_fault("a negative number of samples");
  for (int32_t f = 0; f < shardrt_source_field_count(source); f++) {
    check_field(shardrt_source_field(source, f));
    for (int32_t i = 0; i < SAMPLES; i++) {
      bool done = samples[i] < 0 || samples[i] >= count;
      for (int32_t before = 0; before < i; before++) done = done || samples[before] == samples[i];
      if (!done) read_sample(&(struct place){source, f, samples[i], &reader});
    }
  }
  shardrt_source_fingerprint(source);
  reader_clear(&reader);
}
