/* png.c - PNG, by libspng: https://libspng.org/docs/. An image is decoded whole: its rows depend on those above them.
 * Transparency is left out, 16 bits become 8. */
#include <stdlib.h>
#include <string.h>

#ifndef SHARDRT_WITHOUT_SPNG
#include <spng.h>
#endif

#include "base/alloc.h"
#include "base/error.h"
#include "base/libraries.h"
#include "transform/kind/decode.h"

static bool is_png(const uint8_t *data, size_t bytes) {
  static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return bytes >= sizeof signature && memcmp(data, signature, sizeof signature) == 0;
}

#ifndef SHARDRT_WITHOUT_SPNG

enum { MOST_CHUNK = 1 << 26 }; /* bytes, of one chunk that is not image data */

/* Whether memory ran out since an image was opened: libspng says other things of it where zlib asked. */
static _Thread_local bool exhausted;

static void *note_memory(void *memory) {
  if (memory == NULL) exhausted = true;
  return memory;
}

static void *png_malloc(size_t bytes) {
  return note_memory(alloc_array(bytes, 1));
}

static void *png_calloc(size_t count, size_t bytes) {
  return note_memory(alloc_zeros(count, bytes));
}

static void *png_realloc(void *memory, size_t bytes) {
  return note_memory(alloc_must_fail(bytes) ? NULL : realloc(memory, bytes));
}

static int refuse_png(int problem) {
  if (exhausted) return error_set(SHARDRT_ENOMEM, "out of memory while decoding a PNG");
  return error_set(SHARDRT_EFORMAT, "a damaged PNG: %s", spng_strerror(problem));
}

/* Opens an image whose size was found in `header`; the context is the caller's. */
static int open_image(const uint8_t *data, size_t bytes, spng_ctx **out, struct spng_ihdr *header) {
  struct spng_alloc memory = {
      .malloc_fn = png_malloc, .realloc_fn = png_realloc, .calloc_fn = png_calloc, .free_fn = alloc_free};
  exhausted = false;
  spng_ctx *context = spng_ctx_new2(&memory, 0);
  if (context == NULL) return ALLOC_FAILED;
  int problem = spng_set_chunk_limits(context, MOST_CHUNK, MOST_CHUNK);
  if (problem == 0) problem = spng_set_png_buffer(context, data, bytes);
  if (problem == 0) problem = spng_get_ihdr(context, header);
  if (problem != 0) {
    spng_ctx_free(context);
    return refuse_png(problem);
  }
  *out = context;
  return SHARDRT_OK;
}

static int measure_png(const uint8_t *data, size_t bytes, int64_t *height, int64_t *width) {
  spng_ctx *context = NULL;
  struct spng_ihdr header = {0};
  int code = open_image(data, bytes, &context, &header);
  if (code != SHARDRT_OK) return code;
  spng_ctx_free(context);
  *height = header.height;
  *width = header.width;
  return SHARDRT_OK;
}

/* Copies the box out of the image's pixels, which are red, green and blue. */
static void copy_png_box(const uint8_t *pixels, const struct value *out) {
  uint8_t *row = out->data;
  const int64_t channels = out->shape[2];
  for (int64_t y = 0; y < out->shape[0]; y++, row += out->shape[1] * channels) {
    const uint8_t *from = pixels + 3 * ((out->start[0] + y) * out->full[1] + out->start[1]);
    if (channels == 3) {
      memcpy(row, from, (size_t)(3 * out->shape[1]));
      continue;
    }
    for (int64_t x = 0; x < out->shape[1]; x++, from += 3) row[x] = decode_luma(from);
  }
}

static int decode_png(struct reader *reader, const uint8_t *data, size_t bytes, struct value *out) {
  spng_ctx *context = NULL;
  struct spng_ihdr header = {0};
  int code = open_image(data, bytes, &context, &header);
  if (code != SHARDRT_OK) return code;
  const size_t size = (size_t)header.width * header.height * 3; /* not too much: `measure` was asked first */
  const bool whole = out->shape[0] == header.height && out->shape[1] == header.width && out->shape[2] == 3;
  uint8_t *pixels = whole ? out->data : reader_room(reader, size);
  int problem = pixels != NULL ? spng_decode_image(context, pixels, size, SPNG_FMT_RGB8, 0) : 0;
  if (problem == 0 && pixels != NULL) problem = spng_decode_chunks(context); /* also the last pixels' checksum */
  spng_ctx_free(context);
  if (pixels == NULL) return ALLOC_FAILED;
  if (problem != 0) return refuse_png(problem);
  out->reduce = 1;
  if (!whole) copy_png_box(pixels, out);
  return SHARDRT_OK;
}

#else

static int measure_png(const uint8_t *data, size_t bytes, int64_t *height, int64_t *width) {
  (void)data, (void)bytes, (void)height, (void)width;
  return libraries_missing("PNG (libspng)");
}

static int decode_png(struct reader *reader, const uint8_t *data, size_t bytes, struct value *out) {
  (void)reader, (void)data, (void)bytes, (void)out;
  return libraries_missing("PNG (libspng)");
}

#endif

const struct decode_format png_decode = {.name = "PNG", .is = is_png, .measure = measure_png, .run = decode_png};
