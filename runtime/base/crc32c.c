#include "base/crc32c.h"

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
