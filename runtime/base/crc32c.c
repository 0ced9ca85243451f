#include "base/crc32c.h"

#ifndef SHARDRT_WITHOUT_ISAL

#include <isa-l/crc.h>

enum { AT_MOST = 1 << 30 }; /* bytes; libisal counts them in an int */

uint32_t crc32c(uint32_t before, const void *data, size_t bytes) {
  uint32_t state = ~before;
  for (const char *at = data; bytes > 0;) {
    const size_t piece = bytes < AT_MOST ? bytes : AT_MOST;
    state = crc32_iscsi((unsigned char *)at, (int)piece, state); /* which does not write to it */
    at += piece;
    bytes -= piece;
  }
  return ~state;
}

#else /* slower: by the processor's own instruction, 8 bytes after 8, or bit by bit */

#include <string.h>

enum { WORD = 8 };

static const uint32_t POLYNOMIAL = 0x82F63B78; /* its bits reversed */

static uint32_t by_bits(uint32_t state, const uint8_t *at, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    state ^= at[i];
    for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (state & 1 ? POLYNOMIAL : 0);
  }
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_words(uint32_t state, const uint8_t *at, size_t bytes) {
  uint64_t wide = state;
  for (; bytes >= WORD; at += WORD, bytes -= WORD) {
    uint64_t word;
    memcpy(&word, at, WORD);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  state = (uint32_t)wide;
  for (; bytes > 0; at++, bytes--) state = __builtin_ia32_crc32qi(state, *at);
  return state;
}
#endif

uint32_t crc32c(uint32_t before, const void *data, size_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_words(~before, data, bytes);
#endif
  return ~by_bits(~before, data, bytes);
}

#endif
