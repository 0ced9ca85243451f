#include "storage/exchange/percent.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"

static bool is_unreserved(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         (c != '\0' && strchr("-._~", c) != NULL);
}

char *percent_encoded(const char *text, const char *kept) {
  static const char digits[] = "0123456789ABCDEF";
  char *out = alloc_array(3 * strlen(text) + 1, 1), *at = out;
  if (out == NULL) return NULL;
  for (; *text != '\0'; text++) {
    const unsigned char byte = (unsigned char)*text;
    if (is_unreserved(*text) || strchr(kept, *text) != NULL) {
      *at++ = *text;
      continue;
    }
    *at++ = '%';
    *at++ = digits[byte >> 4];
    *at++ = digits[byte & 15];
  }
  *at = '\0';
  return out;
}

int percent_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void percent_decode(char *text, bool has_plus) {
  char *out = text;
  for (; *text != '\0'; text++) {
    const int high = *text == '%' ? percent_digit(text[1]) : -1, low = high >= 0 ? percent_digit(text[2]) : -1;
    if (low >= 0) {
      *out++ = (char)(high * 16 + low);
      text += 2;
    } else {
      *out++ = has_plus && *text == '+' ? ' ' : *text;
    }
  }
  *out = '\0';
}
