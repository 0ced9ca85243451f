#include "base/utf8.h"

/* The table of well-formed sequences in RFC 3629, section 4: the first byte tells the length, and which second bytes
 * would be too long a form, a surrogate, or beyond the last code. */
size_t utf8_length(const uint8_t *bytes, size_t count) {
  if (count == 0) return 0;
  const uint8_t first = bytes[0];
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first <= 0xDF ? 2 : (first & 0xF0) == 0xE0 ? 3 : 4;
  if (first < 0xC2 || first > 0xF4 || length > count) return 0;
  const uint8_t lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (bytes[1] < lowest || bytes[1] > highest) return 0;
  for (size_t i = 2; i < length; i++)
    if ((bytes[i] & 0xC0) != 0x80) return 0;
  return length;
}

size_t utf8_put(uint32_t code, char bytes[UTF8_AT_MOST]) {
  if (code < 0x80) {
    bytes[0] = (char)code;
    return 1;
  }
  const size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const uint8_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = length; i > 1; i--) {
    bytes[i - 1] = (char)(0x80 | (code & 0x3F));
    code >>= 6;
  }
  bytes[0] = (char)(first[length] | code);
  return length;
}
