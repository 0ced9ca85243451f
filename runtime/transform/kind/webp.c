/* webp.c - WebP, by libwebp: https://developers.google.com/speed/webp/docs/api. Transparency is left out.
 *
 * Only the rows and columns that are asked for become pixels. Chroma is interpolated from neighbours, so a little more
 * than these is decoded: the same pixels come out whatever box of the image is asked for. Of a moving picture the first
 * frame is taken, on a black ground where it does not cover all. */
#include <string.h>

#ifndef SHARDRT_WITHOUT_WEBP
#include <webp/decode.h>
#endif

#include "base/error.h"
#include "base/libraries.h"
#include "transform/kind/decode.h"

enum { CHUNK = 8, RIFF = CHUNK + 4 }; /* bytes of a chunk's head, of the file's */

static bool is_webp(const uint8_t *data, size_t bytes) {
  return bytes >= RIFF && memcmp(data, "RIFF", 4) == 0 && memcmp(data + CHUNK, "WEBP", 4) == 0;
}

#ifndef SHARDRT_WITHOUT_WEBP

enum { MARGIN = 2 }; /* in pixels, whole ones of chroma */

static int refuse_webp(VP8StatusCode problem) {
  if (problem == VP8_STATUS_OUT_OF_MEMORY) return error_set(SHARDRT_ENOMEM, "out of memory while decoding a WebP");
  return error_set(SHARDRT_EFORMAT, "a damaged WebP: %s",
                   problem == VP8_STATUS_NOT_ENOUGH_DATA ? "it is cut off" : "what stands in it makes no image");
}

/* A coded image, and where it lies in what is shown. */
struct frame {
  const uint8_t *data;
  size_t bytes;
  int64_t top;
  int64_t left;
  WebPBitstreamFeatures features;
};

static uint32_t read_24(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
}

/* The bytes of a chunk, behind its head. */
static size_t chunk_length(const uint8_t *chunk) {
  return read_24(chunk + 4) | (size_t)chunk[7] << 24;
}

/* Finds the first frame of a moving picture of height x width:
 * https://developers.google.com/speed/webp/docs/riff_container */
static int find_first(const uint8_t *data, size_t bytes, int64_t height, int64_t width, struct frame *out) {
  enum { ANMF = 16 }; /* bytes before the frame's own chunks */
  if (chunk_length(data) > bytes - CHUNK) return refuse_webp(VP8_STATUS_NOT_ENOUGH_DATA);
  for (size_t at = RIFF; bytes - at >= CHUNK;) {
    const uint8_t *chunk = data + at;
    const size_t length = chunk_length(chunk), left = bytes - at - CHUNK;
    if (length > left) return refuse_webp(VP8_STATUS_NOT_ENOUGH_DATA);
    if (memcmp(chunk, "ANMF", 4) == 0 && length >= ANMF) {
      *out = (struct frame){.data = chunk + CHUNK + ANMF, .bytes = length - ANMF};
      out->left = 2 * (int64_t)read_24(chunk + CHUNK);
      out->top = 2 * (int64_t)read_24(chunk + CHUNK + 3);
      const VP8StatusCode problem = WebPGetFeatures(out->data, out->bytes, &out->features);
      if (problem != VP8_STATUS_OK) return refuse_webp(problem);
      const bool fits = out->top + out->features.height <= height && out->left + out->features.width <= width;
      return fits ? SHARDRT_OK : refuse_webp(VP8_STATUS_BITSTREAM_ERROR);
    }
    at += CHUNK + length + (length & 1 & (length < left));
  }
  return refuse_webp(VP8_STATUS_NOT_ENOUGH_DATA);
}

static int measure_webp(const uint8_t *data, size_t bytes, int64_t *height, int64_t *width) {
  WebPBitstreamFeatures features;
  const VP8StatusCode problem = WebPGetFeatures(data, bytes, &features);
  if (problem != VP8_STATUS_OK) return refuse_webp(problem);
  *height = features.height;
  *width = features.width;
  return SHARDRT_OK;
}

/* Where both ranges of a dimension are: *start and *stop become their common part. */
static void intersect(int64_t *start, int64_t *stop, int64_t from, int64_t to) {
  if (*start < from) *start = from;
  if (*stop > to) *stop = to;
}

/* Copies rows of red, green, blue to where they stand in `out`. */
static void copy_rows(const uint8_t *from, int64_t stride, int64_t height, int64_t width, const struct value *out,
                      uint8_t *to) {
  const int64_t channels = out->shape[2];
  for (int64_t y = 0; y < height; y++, from += stride, to += out->shape[1] * channels) {
    if (channels == 3)
      memcpy(to, from, (size_t)(3 * width));
    else
      for (int64_t x = 0; x < width; x++) to[x] = decode_luma(from + 3 * x);
  }
}

/* Decodes what of `out` the frame covers. */
static int decode_frame(struct reader *reader, const struct frame *frame, const struct value *out) {
  int64_t top = out->start[0], left = out->start[1], bottom = top + out->shape[0], right = left + out->shape[1];
  intersect(&top, &bottom, frame->top, frame->top + frame->features.height);
  intersect(&left, &right, frame->left, frame->left + frame->features.width);
  if (top >= bottom || left >= right) return SHARDRT_OK;
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config))
    return error_set(SHARDRT_EINVAL, "the libwebp that is installed is another than shardrt was built with");
  const int64_t y = top - frame->top, x = left - frame->left; /* in the frame; from even places on, as libwebp wants */
  int64_t y0 = (y - MARGIN) & ~1, x0 = (x - MARGIN) & ~1;
  int64_t y1 = y + bottom - top + MARGIN, x1 = x + right - left + MARGIN;
  intersect(&y0, &y1, 0, frame->features.height);
  intersect(&x0, &x1, 0, frame->features.width);
  config.options.use_cropping = 1;
  config.options.crop_top = (int)y0;
  config.options.crop_left = (int)x0;
  config.options.crop_height = (int)(y1 - y0);
  config.options.crop_width = (int)(x1 - x0);
  const int64_t stride = 3 * (x1 - x0);
  const size_t size = (size_t)(stride * (y1 - y0));
  const bool same = y0 == y && x0 == x && top == out->start[0] && left == out->start[1];
  const bool direct = same && out->shape[2] == 3 && y1 - y0 == out->shape[0] && x1 - x0 == out->shape[1];
  uint8_t *pixels = direct ? out->data : reader_room(reader, size);
  if (pixels == NULL) return SHARDRT_ENOMEM;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = (WebPRGBABuffer){.rgba = pixels, .stride = (int)stride, .size = size};
  const VP8StatusCode problem = WebPDecode(frame->data, frame->bytes, &config);
  WebPFreeDecBuffer(&config.output);
  if (problem != VP8_STATUS_OK) return refuse_webp(problem);
  uint8_t *to = (uint8_t *)out->data + ((top - out->start[0]) * out->shape[1] + left - out->start[1]) * out->shape[2];
  if (!direct) copy_rows(pixels + (y - y0) * stride + 3 * (x - x0), stride, bottom - top, right - left, out, to);
  return SHARDRT_OK;
}

static int decode_webp(struct reader *reader, const uint8_t *data, size_t bytes, struct value *out) {
  struct frame frame = {.data = data, .bytes = bytes};
  const VP8StatusCode problem = WebPGetFeatures(data, bytes, &frame.features);
  if (problem != VP8_STATUS_OK) return refuse_webp(problem);
  out->reduce = 1;
  if (frame.features.has_animation) {
    int code = find_first(data, bytes, out->full[0], out->full[1], &frame);
    if (code != SHARDRT_OK) return code;
    memset(out->data, 0, value_bytes(out));
  }
  return decode_frame(reader, &frame, out);
}

#else

static int measure_webp(const uint8_t *data, size_t bytes, int64_t *height, int64_t *width) {
  (void)data, (void)bytes, (void)height, (void)width;
  return libraries_missing("WebP (libwebp)");
}

static int decode_webp(struct reader *reader, const uint8_t *data, size_t bytes, struct value *out) {
  (void)reader, (void)data, (void)bytes, (void)out;
  return libraries_missing("WebP (libwebp)");
}

#endif

const struct decode_format webp_decode = {.name = "WebP", .is = is_webp, .measure = measure_webp, .run = decode_webp};
