/* audio.c - a sound: all of it, some of its frames and channels, as whole numbers. One of very many frames, but not so
 * many that it is refused, is only cut: under the sanitizers, memory for all of it takes seconds. */
#include <string.h>

#include "../../fuzz.h"

/* How many frames a FLAC file tells of: of the formats, the one in which no bytes of the file stand for them. */
static uint64_t count_frames(const uint8_t *data, size_t size) {
  enum { COUNT = 21, END = 26 };
  uint64_t count = 0;
  if (size < END || memcmp(data, "fLaC", 4) != 0) return 0;
  for (size_t at = COUNT; at < END; at++) count = count << 8 | (at == COUNT ? data[at] & 15 : data[at]);
  return count;
}

void fuzz_audio(const uint8_t *data, size_t size) {
  enum { FEW = 1 << 20 };
  static const struct fuzz_chain cut[] = {
      {{{"decode_audio", 3, {SHARDRT_FLOAT32, -1, -1}}, {"crop", 5, {0, 3, 0, 50, 1}}}},
      {{{"decode_audio", 3, {SHARDRT_INT16, 1, 8000}}, {"crop", 3, {0, 900, 20}}}},
  };
  static const struct fuzz_chain whole[] = {
      {{{"decode_audio", 3, {SHARDRT_FLOAT32, -1, -1}}}},
      {{{"decode_audio", 3, {SHARDRT_INT16, -1, -1}}}},
  };
  fuzz_chains(data, size, sizeof cut / sizeof *cut, cut);
  if (count_frames(data, size) <= FEW) fuzz_chains(data, size, sizeof whole / sizeof *whole, whole);
}
