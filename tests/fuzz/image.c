/* image.c - an image from memory through chains of transforms: as it is; smaller; a box of it; and all at random. */
#include <string.h>

#include "fuzz.h"

enum { CHAIN = 2 }; /* transforms of one at most */

static shardrt_transform *make(const char *kind, int64_t count, const double *numbers) {
  shardrt_transform *made = NULL;
  if (shardrt_transform_new(kind, count, numbers, 0, NULL, &made) < 0) fuzz_fault(shardrt_error_message());
  return made;
}

static shardrt_source *source_of(const uint8_t *data, size_t size) {
  static const char *const name = "image";
  static const int32_t dtype = SHARDRT_UINT8, ndim = 2;
  const int64_t shape[] = {1, (int64_t)size};
  shardrt_buffer *buffer = NULL;
  shardrt_source *source = NULL;
  if (shardrt_buffer_new(size, &buffer) < 0) fuzz_fault(shardrt_error_message());
  if (size > 0) memcpy(shardrt_buffer_data(buffer), data, size);
  if (shardrt_source_array(1, &name, &dtype, &ndim, shape, &buffer, &source) < 0) fuzz_fault(shardrt_error_message());
  shardrt_buffer_free(buffer);
  return source;
}

void fuzz_image(const uint8_t *data, size_t size) {
  static const double three[] = {3}, one[] = {1}, crop[] = {0, 3, 2, 5, 4}, small[] = {0, 0, 6, 5};
  static const double random[] = {0, 0, 7, 7, 0.08, 1, 0.75, 1.3333333333333333};
  shardrt_source *source = source_of(data, size), *mapped = NULL;
  shardrt_transform *const grey = make("decode_image", 1, one), *const colour = make("decode_image", 1, three);
  shardrt_transform *const cut = make("crop", 5, crop), *const resized = make("resize", 4, small);
  shardrt_transform *const drawn = make("random_resized_crop", 8, random);
  shardrt_transform *const chains[][CHAIN] = {{colour, NULL}, {grey, NULL},      {colour, cut},
                                              {grey, cut},    {colour, resized}, {colour, drawn}};
  enum { CHAINS = sizeof chains / sizeof *chains };
  static const char *const names[CHAINS] = {"colour", "grey", "cut", "grey cut", "resized", "drawn"};
  shardrt_mapped fields[CHAINS];
  for (int32_t i = 0; i < CHAINS; i++)
    fields[i] = (shardrt_mapped){.name = names[i], .count = chains[i][1] != NULL ? CHAIN : 1, .transforms = chains[i]};
  int code = shardrt_source_map(source, CHAINS, fields, &mapped);
  if (code < 0) fuzz_fault(shardrt_error_message());
  fuzz_opened(code, &mapped);
  shardrt_source_free(source);
  shardrt_transform *const all[] = {grey, colour, cut, resized, drawn};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) shardrt_transform_free(all[i]);
}
