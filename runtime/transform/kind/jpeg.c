/* jpeg.c - JPEG, by libjpeg-turbo: https://github.com/libjpeg-turbo/libjpeg-turbo/blob/main/doc/libjpeg.txt
 *
 * Only the rows and columns that are asked for are decoded, and where they may be smaller, at 1/2, 1/4 or 1/8 of their
 * size, which costs less. Chroma is interpolated from neighbours, so a little more than the columns is decoded: the
 * same pixels come out whatever box of the image is asked for. Where libjpeg guesses at what a progressive image does
 * not say, all of it is decoded, for the same reason. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#ifndef SHARDRT_WITHOUT_JPEG
#include <jerror.h>
#include <jpeglib.h>
#endif

#include "base/error.h"
#include "base/libraries.h"
#include "transform/kind/decode.h"

static bool is_jpeg(const uint8_t *data, size_t bytes) {
  return bytes >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff;
}

#ifndef SHARDRT_WITHOUT_JPEG

enum { MARGIN = 4, MOST_SCANS = 500 }; /* in pixels; scans of a progressive image, each of which costs a whole pass */

/* libjpeg ends a failed call by a jump, and only warns of data that is cut off or damaged: here that is an error, but
 * for what other readers accept in silence and what changes no pixel. */
struct jpeg {
  struct jpeg_decompress_struct info;
  struct jpeg_error_mgr errors;
  struct jpeg_progress_mgr progress;
  jmp_buf failed;
  char message[JMSG_LENGTH_MAX];
};

static void jpeg_fail(j_common_ptr info) {
  struct jpeg *self = info->client_data;
  info->err->format_message(info, self->message);
  longjmp(self->failed, 1);
}

static void jpeg_warn(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
  if (level < 0 && !harmless) jpeg_fail(info); /* trace messages have levels from 0 on */
}

static void be_silent(j_common_ptr info) {
  (void)info;
}

static void jpeg_watch(j_common_ptr info) {
  struct jpeg *self = info->client_data;
  if (self->info.input_scan_number <= MOST_SCANS) return;
  snprintf(self->message, sizeof self->message, "more than %d scans", MOST_SCANS);
  longjmp(self->failed, 1);
}

/* To be called first; jpeg_destroy_decompress undoes it. */
static void jpeg_start(struct jpeg *self) {
  memset(self, 0, sizeof *self);
  self->info.err = jpeg_std_error(&self->errors);
  self->errors.error_exit = jpeg_fail;
  self->errors.emit_message = jpeg_warn;
  self->errors.output_message = be_silent;
  self->progress.progress_monitor = jpeg_watch;
  self->info.client_data = self;
}

/* Ends a failed one. */
static int refuse_jpeg(struct jpeg *self) {
  jpeg_destroy_decompress(&self->info);
  return error_set(SHARDRT_EFORMAT, "a damaged JPEG: %s", self->message);
}

static void read_jpeg_header(struct jpeg *self, const uint8_t *data, size_t bytes) {
  jpeg_create_decompress(&self->info);
  self->info.client_data = self;
  self->info.progress = &self->progress;
  jpeg_mem_src(&self->info, data, bytes);
  jpeg_read_header(&self->info, TRUE);
}

/* The functions that call setjmp have no variables of their own that change after it. */
static int try_header(struct jpeg *self, const uint8_t *data, size_t bytes) {
  if (setjmp(self->failed)) return refuse_jpeg(self);
  read_jpeg_header(self, data, bytes);
  return SHARDRT_OK;
}

static int measure_jpeg(const uint8_t *data, size_t bytes, int64_t *height, int64_t *width) {
  struct jpeg self;
  jpeg_start(&self);
  int code = try_header(&self, data, bytes);
  if (code != SHARDRT_OK) return code;
  *height = self.info.image_height;
  *width = self.info.image_width;
  jpeg_destroy_decompress(&self.info);
  return SHARDRT_OK;
}

/* The largest reduction that libjpeg does and `most` allows. */
static int32_t choose_reduction(int32_t most) {
  return most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

/* What a box is in units of `reduce` pixels: all that it touches. */
static void reduce_value(struct value *out, int32_t reduce) {
  out->reduce = reduce;
  for (int32_t d = 0; d < 2 && reduce > 1; d++) {
    const int64_t stop = (out->start[d] + out->shape[d] + reduce - 1) / reduce;
    out->start[d] /= reduce;
    out->shape[d] = stop - out->start[d];
  }
}

/* a * b / 255, rounded. */
static unsigned part_of(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

/* Whether libjpeg makes other channels than are asked for: of CMYK it makes no others; and grey of colours is that of
 * the colours as Pillow's convert("L") has it, not the file's own luma, which draft("L") takes. */
static bool is_converted(const struct jpeg_decompress_struct *info, const struct value *out) {
  return info->out_color_space == JCS_CMYK || info->output_components != out->shape[2];
}

/* One row of red, green, blue as grey. */
static void convert_rgb(const uint8_t *row, int64_t width, uint8_t *out) {
  for (int64_t x = 0; x < width; x++, row += 3) out[x] = decode_luma(row);
}

/* One row of CMYK as red, green, blue or grey. As Pillow has it: all files hold it as Adobe's do, inverted (255 is no
 * ink), and the rounding is the same. */
static void convert_cmyk(const uint8_t *row, int64_t width, int64_t channels, uint8_t *out) {
  for (int64_t x = 0; x < width; x++, row += 4) {
    uint8_t rgb[3];
    for (int32_t c = 0; c < 3; c++) rgb[c] = (uint8_t)(row[3] - part_of(255u - row[c], row[3]));
    if (channels == 3)
      memcpy(out + 3 * x, rgb, 3);
    else
      out[x] = decode_luma(rgb);
  }
}

/* Whether a progressive image lacks scans that would say the low frequencies exactly: then libjpeg guesses them from
 * the blocks around, of which a part of the image has others. */
static bool is_smoothed(const struct jpeg_decompress_struct *info) {
  enum { LOW = 10 };
  if (!info->progressive_mode || info->coef_bits == NULL) return false;
  for (int32_t c = 0; c < info->num_components; c++)
    for (int32_t i = 1; i < LOW; i++)
      if (info->coef_bits[c][i] != 0) return true;
  return false;
}

/* Leaves out columns that are not wanted; returns how many stand before the wanted ones in a decoded line. */
static int64_t crop_columns(struct jpeg_decompress_struct *info, const struct value *piece) {
  const int64_t stop = piece->start[1] + piece->shape[1];
  if (is_smoothed(info)) return piece->start[1];
  JDIMENSION first = piece->start[1] > MARGIN ? (JDIMENSION)(piece->start[1] - MARGIN) : 0;
  JDIMENSION columns = info->output_width - first;
  if (stop + MARGIN < (int64_t)info->output_width) columns = (JDIMENSION)(stop + MARGIN) - first;
  if (columns < info->output_width) jpeg_crop_scanline(info, &first, &columns);
  return piece->start[1] - (int64_t)first;
}

/* Decodes the rows of `out`, whose columns stand from `skipped` on in a decoded line: in their place, where the pixels
 * before and behind them fall on others of `out`. Those behind are written afterwards; those before are put back from
 * `line`, which has room for one. */
static void read_rows(struct jpeg *self, int64_t skipped, uint8_t *line, const struct value *out) {
  struct jpeg_decompress_struct *info = &self->info;
  const size_t pixel = (size_t)info->output_components, bytes = (size_t)(out->shape[1] * out->shape[2]);
  const size_t before = (size_t)skipped * pixel, decoded = info->output_width * pixel;
  const size_t all = (size_t)out->shape[0] * bytes;
  uint8_t *pixels = out->data;
  if (is_smoothed(info))
    for (int64_t y = 0; y < out->start[0]; y++) jpeg_read_scanlines(info, &line, 1);
  else if (out->start[0] > 0)
    jpeg_skip_scanlines(info, (JDIMENSION)out->start[0]);
  for (size_t at = 0; at < all; at += bytes) {
    if (is_converted(info, out)) {
      jpeg_read_scanlines(info, &line, 1);
      if (info->out_color_space == JCS_CMYK)
        convert_cmyk(line + before, out->shape[1], out->shape[2], pixels + at);
      else
        convert_rgb(line + before, out->shape[1], pixels + at);
    } else if (at >= before && at - before + decoded <= all) {
      uint8_t *place = pixels + at - before;
      memcpy(line, place, before);
      jpeg_read_scanlines(info, &place, 1);
      memcpy(place, line, before);
    } else {
      jpeg_read_scanlines(info, &line, 1);
      memcpy(pixels + at, line + before, bytes);
    }
  }
}

/* Decodes `piece`, which is in units of what is made; the header has been read. */
static int try_rows(struct jpeg *self, struct reader *reader, const struct value *piece) {
  if (setjmp(self->failed)) return refuse_jpeg(self);
  struct jpeg_decompress_struct *info = &self->info;
  const bool cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
  const bool grey = info->jpeg_color_space == JCS_GRAYSCALE && piece->shape[2] == 1;
  info->out_color_space = cmyk ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
  info->scale_num = 1;
  info->scale_denom = (unsigned)piece->reduce;
  jpeg_start_decompress(info);
  const int64_t skipped = crop_columns(info, piece);
  uint8_t *line = reader_room(reader, (size_t)info->output_width * (size_t)info->output_components + 1);
  /* One byte further: libjpeg-turbo writes lines that are aligned past the caches, and this one is read at once. */
  if (line != NULL) read_rows(self, skipped, line + 1, piece);
  jpeg_destroy_decompress(info); /* what stands behind the rows is not looked at */
  return line != NULL ? SHARDRT_OK : SHARDRT_ENOMEM;
}

static int decode_jpeg(struct reader *reader, const uint8_t *data, size_t bytes, struct value *out) {
  struct jpeg self;
  jpeg_start(&self);
  int code = try_header(&self, data, bytes);
  if (code != SHARDRT_OK) return code;
  reduce_value(out, choose_reduction(out->reduce));
  return try_rows(&self, reader, out);
}

#else

static int measure_jpeg(const uint8_t *data, size_t bytes, int64_t *height, int64_t *width) {
  (void)data, (void)bytes, (void)height, (void)width;
  return libraries_missing("JPEG (libjpeg-turbo)");
}

static int decode_jpeg(struct reader *reader, const uint8_t *data, size_t bytes, struct value *out) {
  (void)reader, (void)data, (void)bytes, (void)out;
  return libraries_missing("JPEG (libjpeg-turbo)");
}

#endif

const struct decode_format jpeg_decode = {.name = "JPEG", .is = is_jpeg, .measure = measure_jpeg, .run = decode_jpeg};
