/* utf8.h - UTF-8: https://www.rfc-editor.org/rfc/rfc3629 */
#ifndef SHARDRT_BASE_UTF8_H
#define SHARDRT_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { UTF8_AT_MOST = 4 }; /* bytes of one character */

/* How many bytes the character at `bytes` has, of `count` that are there; 0: it is not well-formed. */
size_t utf8_length(const uint8_t *bytes, size_t count);

/* Writes the character of that code, which is one (no surrogate, at most 0x10FFFF); returns its bytes. */
size_t utf8_put(uint32_t code, char bytes[UTF8_AT_MOST]);

#endif
