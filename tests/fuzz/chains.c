#include <string.h>

#include "fuzz.h"

static shardrt_source *source_of(const uint8_t *data, size_t size) {
  static const char *const name = "bytes";
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

static void run(shardrt_source *source, const struct fuzz_chain *chain) {
  shardrt_transform *transforms[FUZZ_STEPS] = {NULL};
  shardrt_source *mapped = NULL;
  int32_t count = 0;
  for (; count < FUZZ_STEPS && chain->steps[count].kind != NULL; count++) {
    const struct fuzz_step *step = &chain->steps[count];
    if (shardrt_transform_new(step->kind, step->count, step->numbers, 0, NULL, &transforms[count]) < 0)
      fuzz_fault(shardrt_error_message());
  }
  const shardrt_mapped field = {.name = "x", .count = count, .transforms = transforms};
  if (shardrt_source_map(source, 1, &field, &mapped) < 0) fuzz_fault(shardrt_error_message());
  fuzz_opened(SHARDRT_OK, &mapped);
  for (int32_t i = 0; i < count; i++) shardrt_transform_free(transforms[i]);
}

void fuzz_chains(const uint8_t *data, size_t size, int32_t count, const struct fuzz_chain *chains) {
  shardrt_source *source = source_of(data, size);
  for (int32_t i = 0; i < count; i++) run(source, &chains[i]);
  shardrt_source_free(source);
}

void fuzz_image(const uint8_t *data, size_t size, uint64_t height, uint64_t width) {
  enum { FEW = 1 << 20, REFUSED = 1 << 28 };
  static const struct fuzz_chain chains[] = {
      {{{"decode_image", 1, {3}}}},
      {{{"decode_image", 1, {1}}}},
      {{{"decode_image", 1, {3}}, {"crop", 5, {0, 3, 2, 5, 4}}}},
      {{{"decode_image", 1, {1}}, {"crop", 5, {0, 3, 2, 5, 4}}}},
      {{{"decode_image", 1, {3}}, {"resize", 4, {0, 0, 6, 5}}}},
      {{{"decode_image", 1, {3}}, {"random_resized_crop", 8, {0, 0, 7, 7, 0.08, 1, 0.75, 4.0 / 3}}}},
  };
  if (height * width > FEW && height * width <= REFUSED) return;
  fuzz_chains(data, size, sizeof chains / sizeof *chains, chains);
}
