/* unicode.h - what a tokenizer asks of characters: their classes, and texts in normalisation form C. Of Unicode 16.0;
 * unicode_tables.py says more. */
#ifndef SHARDRT_TOKENIZER_UNICODE_H
#define SHARDRT_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Classes, as bits; a character may be of several. */
enum {
  UNICODE_LETTER = 1,   /* \p{L} */
  UNICODE_UPPER = 2,    /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
  UNICODE_LOWER = 4,    /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
  UNICODE_NUMBER = 8,   /* \p{N} */
  UNICODE_SPACE = 16,   /* \s */
  UNICODE_NEWLINE = 32, /* [\r\n] */
  UNICODE_WORD = 64,    /* \w, as Rust has it */
  UNICODE_MOVES = 128,  /* form C may change it, or what stands beside it */
  UNICODE_COUNT = 0x110000,
};

/* UNICODE_COUNT bytes: the classes of every character; to be freed by alloc_free. NULL: ENOMEM. */
uint8_t *unicode_classes_new(void);

/* The character at `at`, of a text that is well-formed, and its bytes. */
static inline uint32_t unicode_get(const uint8_t *at, size_t *length) {
  if (at[0] < 0x80) {
    *length = 1;
    return at[0];
  }
  if (at[0] < 0xe0) {
    *length = 2;
    return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
  }
  if (at[0] < 0xf0) {
    *length = 3;
    return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
  }
  *length = 4;
  return (at[0] & 0x07u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

/* Writes the text in form C to `to`, which has room for UNICODE_NFC_GROWS times as many bytes; `room` is
 * UNICODE_NFC_ROOM words for each byte. Returns how many bytes it has. */
enum { UNICODE_NFC_GROWS = 3, UNICODE_NFC_ROOM = 3 };
size_t unicode_nfc(const uint8_t *text, size_t bytes, uint32_t *room, uint8_t *to);

#endif
