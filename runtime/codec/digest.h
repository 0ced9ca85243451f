/* digest.h - hashes of whole files, by the names that Python's hashlib and xxhash give them. */
#ifndef SHARDRT_CODEC_DIGEST_H
#define SHARDRT_CODEC_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_ROOM = 129 }; /* of the longest one's digits, with a NUL */

/* Whether a hash of that name ("sha1", "xxh3_64") can be computed, or could where its library is. */
bool digest_is_known(const char *name);

/* Writes a known hash of these bytes in small hexadecimal digits. ENOMEM. EINVAL: this shardrt
 * was built without what computes it. */
int digest_of(const char *name, const uint8_t *data, size_t bytes, char out[DIGEST_ROOM]);

#endif
