/* decode_bytes.c - bytes, uint8 of one dimension, that are something else: members of archives, records.
 *
 * decode_raw   elements as they lie in memory. Numbers: the dtype, then the sizes, of which one may be open (-1)
 * decode_npy   a .npy file (npy_header.h), its elements and bytes in any order. Numbers: as decode_raw's; any of the
 *              sizes may be open
 * decode_text  a text in UTF-8 (base/utf8.h), brought to one length. Numbers: how many bytes (-1: as many as it has),
 *              and the byte that a shorter one is filled up with. A longer one ends before the character for which
 * there is no room */
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"
#include "codec/npy_header.h"
#include "dataset/elements.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum { DTYPE, SIZES };
enum { TEXT_SIZE, TEXT_FILL, TEXT_NUMBERS };

static const int64_t LARGEST = (int64_t)1 << 53; /* whole number that every double up to it holds exactly */

static int check_bytes(const struct form *in) {
  if (in->dtype == SHARDRT_UINT8 && in->ndim == 1) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "it takes bytes, uint8 of one dimension, not %s of %d",
                   shardrt_dtype_name(in->dtype), (int)in->ndim);
}

/* ---- elements --------------------------------------------------------------------------------------------------- */

static int elements_set(shardrt_transform *self) {
  const int64_t ndim = self->count - SIZES;
  if (ndim < 0 || ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "%lld numbers; it takes a dtype and up to %d sizes", (long long)self->count,
                     SHARDRT_MAX_NDIM);
  int64_t known[SHARDRT_MAX_NDIM], open = 0;
  size_t bytes;
  int code = number_dtype(self, DTYPE);
  for (int64_t d = 0; d < ndim && code == SHARDRT_OK; d++) {
    code = number_whole(self, SIZES + d, "a size", -1, LARGEST);
    known[d] = self->numbers[SIZES + d] < 0 ? 1 : (int64_t)self->numbers[SIZES + d];
    open += self->numbers[SIZES + d] < 0;
  }
  if (code != SHARDRT_OK) return code;
  if (open > 1 && self->kind == &decode_raw_kind)
    return error_set(SHARDRT_EINVAL, "%lld sizes are open; one can be told from the number of bytes", (long long)open);
  if (size_bytes((int32_t)ndim, known, shardrt_dtype_size((int32_t)self->numbers[DTYPE]), &bytes)) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "its sizes multiply to more bytes than 64 bits can count");
}

static int elements_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  int code = check_bytes(in);
  if (code != SHARDRT_OK) return code;
  *out = (struct form){.dtype = (int32_t)self->numbers[DTYPE], .ndim = (int32_t)(self->count - SIZES)};
  for (int32_t d = 0; d < out->ndim; d++) out->shape[d] = (int64_t)self->numbers[SIZES + d];
  return SHARDRT_OK;
}

static int raw_measure(const shardrt_transform *self, struct reader *reader, const struct value *in, int64_t *shape) {
  (void)reader;
  int64_t known = (int64_t)shardrt_dtype_size((int32_t)self->numbers[DTYPE]);
  int64_t *open = NULL;
  const int64_t bytes = (int64_t)value_bytes(in);
  for (int32_t d = 0; d < self->count - SIZES; d++) {
    shape[d] = (int64_t)self->numbers[SIZES + d];
    if (shape[d] < 0)
      open = &shape[d];
    else
      known *= shape[d];
  }
  if (open == NULL && bytes == known) return SHARDRT_OK;
  if (open == NULL)
    return error_set(SHARDRT_EFORMAT, "%lld bytes; its dtype and shape ask for %lld", (long long)bytes,
                     (long long)known);
  if (known == 0 ? bytes != 0 : bytes % known != 0)
    return error_set(SHARDRT_EFORMAT, "%lld bytes; its dtype and shape ask for a multiple of %lld", (long long)bytes,
                     (long long)known);
  *open = known == 0 ? 0 : bytes / known;
  return SHARDRT_OK;
}

static int npy_measure(const shardrt_transform *self, struct reader *reader, const struct value *in, int64_t *shape) {
  (void)reader;
  struct npy_header header;
  int code = npy_header_parse("its bytes", in->data, value_bytes(in), &header);
  if (code != SHARDRT_OK) return code;
  const int32_t dtype = (int32_t)self->numbers[DTYPE], ndim = (int32_t)(self->count - SIZES);
  if (header.dtype != dtype)
    return error_set(SHARDRT_EFORMAT, "an array of %s, not of %s", shardrt_dtype_name(header.dtype),
                     shardrt_dtype_name(dtype));
  if (header.ndim != ndim)
    return error_set(SHARDRT_EFORMAT, "an array of %d dimensions, not of %d", (int)header.ndim, (int)ndim);
  for (int32_t d = 0; d < ndim; d++) {
    shape[d] = header.shape[d];
    if (self->numbers[SIZES + d] >= 0 && shape[d] != (int64_t)self->numbers[SIZES + d])
      return error_set(SHARDRT_EFORMAT, "an array of size %lld in dimension %d, not of %lld; -1 lets sizes differ",
                       (long long)shape[d], (int)d, (long long)self->numbers[SIZES + d]);
  }
  return SHARDRT_OK;
}

/* Copies the box that `out` asks for from all elements at `data`, which lie as a header says. */
static void copy_decoded_box(const uint8_t *data, const struct npy_header *header, struct value *out) {
  const struct elements all = {.dtype = out->dtype,
                               .ndim = out->ndim,
                               .shape = out->full,
                               .data = data,
                               .fortran = header->fortran,
                               .big_endian = header->big_endian};
  out->reduce = 1;
  elements_box(&all, out->start, out->shape, out->data);
}

static int elements_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                        const struct value *in, struct value *out, int64_t *failed) {
  (void)reader;
  (void)draws;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) { /* they were measured */
    struct npy_header header = {0};
    *failed = i;
    if (self->kind == &decode_npy_kind) code = npy_header_parse("its bytes", in[i].data, value_bytes(&in[i]), &header);
    if (code == SHARDRT_OK) copy_decoded_box((const uint8_t *)in[i].data + header.data_offset, &header, &out[i]);
  }
  return code;
}

const struct transform_kind decode_raw_kind = {
    .name = "decode_raw",
    .stage = READER_DECODE,
    .pieces = true,
    .set = elements_set,
    .form = elements_form,
    .measure = raw_measure,
    .run = elements_run,
};

const struct transform_kind decode_npy_kind = {
    .name = "decode_npy",
    .stage = READER_DECODE,
    .pieces = true,
    .set = elements_set,
    .form = elements_form,
    .measure = npy_measure,
    .run = elements_run,
};

/* ---- texts ------------------------------------------------------------------------------------------------------ */

static int text_set(shardrt_transform *self) {
  int code = number_expect(self, TEXT_NUMBERS);
  if (code == SHARDRT_OK) code = number_whole(self, TEXT_SIZE, "the length", -1, LARGEST);
  return code == SHARDRT_OK ? number_whole(self, TEXT_FILL, "the byte to fill up with", 0, UINT8_MAX) : code;
}

static int text_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  int code = check_bytes(in);
  *out = (struct form){.dtype = SHARDRT_UINT8, .ndim = 1, .shape = {(int64_t)self->numbers[TEXT_SIZE]}};
  return code;
}

static int text_measure(const shardrt_transform *self, struct reader *reader, const struct value *in, int64_t *shape) {
  (void)reader;
  shape[0] = self->numbers[TEXT_SIZE] < 0 ? (int64_t)value_bytes(in) : (int64_t)self->numbers[TEXT_SIZE];
  return SHARDRT_OK;
}

/* Looks at all of a text; *fits becomes how many of its first `most` bytes are whole characters. */
static int check_text(const uint8_t *data, size_t bytes, size_t most, size_t *fits) {
  *fits = 0;
  for (size_t at = 0; at < bytes;) {
    const size_t length = utf8_length(data + at, bytes - at);
    if (length == 0)
      return error_set(SHARDRT_EFORMAT, "no text in UTF-8: byte %zu of its %zu is %02x; decode_raw takes any bytes", at,
                       bytes, data[at]);
    at += length;
    if (at <= most) *fits = at;
  }
  return SHARDRT_OK;
}

static int text_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                    const struct value *in, struct value *out, int64_t *failed) {
  (void)reader;
  (void)draws;
  for (int64_t i = 0; i < n; i++) {
    size_t fits;
    *failed = i;
    int code = check_text(in[i].data, value_bytes(&in[i]), (size_t)out[i].full[0], &fits);
    if (code != SHARDRT_OK) return code;
    const size_t start = (size_t)out[i].start[0], room = (size_t)out[i].shape[0];
    const size_t left = fits > start ? fits - start : 0, count = left < room ? left : room;
    out[i].reduce = 1;
    if (count > 0) memcpy(out[i].data, (const uint8_t *)in[i].data + start, count);
    if (count < room) memset((uint8_t *)out[i].data + count, (int)self->numbers[TEXT_FILL], room - count);
  }
  return SHARDRT_OK;
}

const struct transform_kind decode_text_kind = {
    .name = "decode_text",
    .stage = READER_DECODE,
    .pieces = true,
    .set = text_set,
    .form = text_form,
    .measure = text_measure,
    .run = text_run,
};
