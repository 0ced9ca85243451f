/* bytes.c - bytes that become elements, the array of a .npy file, or a text. */
#include "../fuzz.h"

void fuzz_bytes(const uint8_t *data, size_t size) {
  static const struct fuzz_chain chains[] = {
      {{{"decode_raw", 2, {SHARDRT_FLOAT32, -1}}}},
      {{{"decode_raw", 3, {SHARDRT_INT16, -1, 3}}}},
      {{{"decode_npy", 3, {SHARDRT_INT32, -1, -1}}}},
      {{{"decode_npy", 3, {SHARDRT_INT32, 2, 3}}}},
      {{{"decode_npy", 2, {SHARDRT_UINT8, -1}}}},
      {{{"decode_text", 2, {-1, 0}}}},
      {{{"decode_text", 2, {7, 32}}}},
  };
  fuzz_chains(data, size, sizeof chains / sizeof *chains, chains);
}
