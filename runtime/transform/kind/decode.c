/* decode.c - decode_image: images in the formats of decode.h, told by their first bytes. numbers[0] is how many
 * channels come out: 3 or 1. What follows in the chain tells which box of the image it needs, and how small: no more is
 * decoded. */
#include "transform/kind/decode.h"

#include "base/error.h"
#include "transform/kinds.h"

/* So many pixels at most: a file of a few kilobytes can ask for gigabytes of memory. */
#define MOST_PIXELS ((int64_t)1 << 28)

static const struct decode_format *const formats[] = {&jpeg_decode, &png_decode, &webp_decode};

static int check_size(int64_t height, int64_t width) {
  if (height > 0 && width > 0 && height <= MOST_PIXELS / width) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "an image of %lld x %lld pixels; at most %lld are decoded", (long long)height,
                   (long long)width, (long long)MOST_PIXELS);
}

/* The format of a file; NULL, with the message of an EFORMAT, where it is none of these. */
static const struct decode_format *find_format(const struct value *in) {
  const uint8_t *data = in->data;
  const size_t bytes = value_bytes(in);
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    if (formats[i]->is(data, bytes)) return formats[i];
  }
  if (bytes < 4)
    error_set(SHARDRT_EFORMAT, "%zu bytes, which are no image", bytes);
  else
    error_set(SHARDRT_EFORMAT, "no JPEG, PNG or WebP: it begins with the bytes %02x %02x %02x %02x", data[0], data[1],
              data[2], data[3]);
  return NULL;
}

static int decode_set(shardrt_transform *self) {
  if (self->count == 1 && (self->numbers[0] == 3 || self->numbers[0] == 1)) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "the number of channels is 3 (red, green, blue) or 1 (grey)");
}

static int decode_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  if (in->dtype != SHARDRT_UINT8 || in->ndim != 1)
    return error_set(SHARDRT_EINVAL, "it takes the bytes of a file, uint8 of one dimension, not %s of %d",
                     shardrt_dtype_name(in->dtype), (int)in->ndim);
  *out = (struct form){.dtype = SHARDRT_UINT8, .ndim = 3, .shape = {-1, -1, (int64_t)self->numbers[0]}};
  return SHARDRT_OK;
}

static int decode_measure(const shardrt_transform *self, struct reader *reader, const struct value *in,
                          int64_t *shape) {
  (void)reader;
  const struct decode_format *format = find_format(in);
  if (format == NULL) return SHARDRT_EFORMAT;
  int code = format->measure(in->data, value_bytes(in), &shape[0], &shape[1]);
  if (code == SHARDRT_OK) code = check_size(shape[0], shape[1]);
  shape[2] = (int64_t)self->numbers[0];
  return code;
}

/* Decodes one image. A box of some of the channels is cut out of one of all. */
static int decode_one(const struct decode_format *format, struct reader *reader, const struct value *in,
                      struct value *out) {
  const uint8_t *data = in->data;
  if (value_bytes(out) == 0) return SHARDRT_OK;
  if (out->shape[2] == out->full[2]) return format->run(reader, data, value_bytes(in), out);
  struct value all = *out;
  all.start[2] = 0;
  all.shape[2] = out->full[2];
  all.data = reader_room(reader, value_bytes(&all));
  int code = all.data != NULL ? format->run(reader, data, value_bytes(in), &all) : SHARDRT_ENOMEM;
  if (code != SHARDRT_OK) return code;
  const int64_t from[3] = {0, 0, out->start[2]}, zero[3] = {0}, extent[3] = {all.shape[0], all.shape[1], out->shape[2]};
  code = shardrt_box_copy(3, 1, extent, out->data, extent, zero, all.data, all.shape, from);
  void *place = out->data;
  *out = all;
  out->data = place;
  out->start[2] = from[2];
  out->shape[2] = extent[2];
  return code;
}

static int decode_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                      const struct value *in, struct value *out, int64_t *failed) {
  (void)self;
  (void)draws;
  for (int64_t i = 0; i < n; i++) {
    *failed = i;
    const struct decode_format *format = find_format(&in[i]);
    if (format == NULL) return SHARDRT_EFORMAT;
    const struct reader_mark mark = reader_mark(reader);
    int code = decode_one(format, reader, &in[i], &out[i]);
    reader_release(reader, mark);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

const struct transform_kind decode_image_kind = {
    .name = "decode_image",
    .stage = READER_DECODE,
    .pieces = true,
    .set = decode_set,
    .form = decode_form,
    .measure = decode_measure,
    .run = decode_run,
};
