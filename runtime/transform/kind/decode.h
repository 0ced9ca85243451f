/* decode.h - compressed images: what the transform decode_image asks of each format.
 *
 * An image comes out as uint8, {height, width, channels}: 3 are red, green, blue; 1 is grey. */
#ifndef SHARDRT_TRANSFORM_KIND_DECODE_H
#define SHARDRT_TRANSFORM_KIND_DECODE_H

#include "dataset/value.h"
#include "storage/local/reader.h"

struct decode_format {
  const char *name; /* "JPEG" */
  bool (*is)(const uint8_t *data, size_t bytes);
  /* The size, from the header. EFORMAT, as in all of these; the message does not name the sample. */
  int (*measure)(const uint8_t *data, size_t bytes, int64_t *height, int64_t *width);
  /* Fills the box that `out` (start, shape) asks for, of all channels, perhaps reduced as far as out->reduce allows:
   * see transform_kind.run. */
  int (*run)(struct reader *reader, const uint8_t *data, size_t bytes, struct value *out);
};

extern const struct decode_format jpeg_decode;
extern const struct decode_format png_decode;
extern const struct decode_format webp_decode;

/* Grey of red, green and blue: ITU-R 601-2 luma, as Pillow rounds it. */
static inline uint8_t decode_luma(const uint8_t *rgb) {
  return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 32768) >> 16);
}

#endif
