/* hash.h - XXH3, 64 bits: https://github.com/Cyan4973/xxHash */
#ifndef SHARDRT_BASE_HASH_H
#define SHARDRT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash of `bytes` bytes, the same in every process. Several pieces become one hash by giving each the hash of
 * those before it as `seed`; the first one gets 0. `data` may be NULL where bytes is 0. */
uint64_t hash_bytes(uint64_t seed, const void *data, size_t bytes);
uint64_t hash_number(uint64_t seed, int64_t number);
/* With the end of the text, so that "ab" "c" and "a" "bc" differ. */
uint64_t hash_text(uint64_t seed, const char *text);

#endif
