#include "base/hash.h"

#include <assert.h>
#include <string.h>

#ifndef SHARDRT_WITHOUT_XXHASH

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t xxh3(uint64_t seed, const uint8_t *data, size_t bytes) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

#else /* the same numbers, slower: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md (XXH3) */

#include "base/little_endian.h"

enum { STRIPE = 64, LANES = 8, SECRET = 192, LEAST_SECRET = 136, SHORT = 240, STRIPES = (SECRET - STRIPE) / 8 };

static const uint64_t P32_1 = 0x9E3779B1, P32_2 = 0x85EBCA77, P32_3 = 0xC2B2AE3D;
static const uint64_t P64_1 = 0x9E3779B185EBCA87, P64_2 = 0xC2B2AE3D27D4EB4F, P64_3 = 0x165667B19E3779F9,
                      P64_4 = 0x85EBCA77C2B2AE63, P64_5 = 0x27D4EB2F165667C5;

static const uint8_t secret[SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static uint64_t rotate_left(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

static uint64_t fold_product(uint64_t a, uint64_t b) {
  const unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t avalanche(uint64_t x) {
  x = (x ^ x >> 37) * 0x165667919E3779F9;
  return x ^ x >> 32;
}

static uint64_t avalanche_64(uint64_t x) { /* XXH64's */
  x = (x ^ x >> 33) * P64_2;
  x = (x ^ x >> 29) * P64_3;
  return x ^ x >> 32;
}

static uint64_t of_up_to_16(uint64_t seed, const uint8_t *data, size_t bytes) {
  if (bytes > 8) {
    const uint64_t low =
        little_endian_64(data) ^ ((little_endian_64(secret + 24) ^ little_endian_64(secret + 32)) + seed);
    const uint64_t high =
        little_endian_64(data + bytes - 8) ^ ((little_endian_64(secret + 40) ^ little_endian_64(secret + 48)) - seed);
    return avalanche(bytes + __builtin_bswap64(low) + high + fold_product(low, high));
  }
  if (bytes >= 4) {
    seed ^= (uint64_t)__builtin_bswap32((uint32_t)seed) << 32;
    const uint64_t both = little_endian_32(data + bytes - 4) + ((uint64_t)little_endian_32(data) << 32);
    uint64_t x = both ^ ((little_endian_64(secret + 8) ^ little_endian_64(secret + 16)) - seed);
    x ^= rotate_left(x, 49) ^ rotate_left(x, 24);
    x *= 0x9FB21C651E98DF25;
    x ^= (x >> 35) + bytes;
    x *= 0x9FB21C651E98DF25;
    return x ^ x >> 28;
  }
  if (bytes == 0) return avalanche_64(seed ^ little_endian_64(secret + 56) ^ little_endian_64(secret + 64));
  const uint32_t all =
      (uint32_t)data[0] << 16 | (uint32_t)data[bytes >> 1] << 24 | data[bytes - 1] | (uint32_t)bytes << 8;
  return avalanche_64(all ^ ((little_endian_32(secret) ^ little_endian_32(secret + 4)) + seed));
}

static uint64_t mix_16(uint64_t seed, const uint8_t *data, const uint8_t *key) {
  return fold_product(little_endian_64(data) ^ (little_endian_64(key) + seed),
                      little_endian_64(data + 8) ^ (little_endian_64(key + 8) - seed));
}

static uint64_t of_up_to_240(uint64_t seed, const uint8_t *data, size_t bytes) {
  uint64_t sum = bytes * P64_1;
  if (bytes <= 128) { /* from both ends towards the middle */
    for (size_t i = 0; i < (bytes + 31) / 32; i++) {
      sum += mix_16(seed, data + 16 * i, secret + 32 * i);
      sum += mix_16(seed, data + bytes - 16 * (i + 1), secret + 32 * i + 16);
    }
    return avalanche(sum);
  }
  for (size_t i = 0; i < 8; i++) sum += mix_16(seed, data + 16 * i, secret + 16 * i);
  sum = avalanche(sum);
  for (size_t i = 8; i < bytes / 16; i++) sum += mix_16(seed, data + 16 * i, secret + 16 * (i - 8) + 3);
  return avalanche(sum + mix_16(seed, data + bytes - 16, secret + LEAST_SECRET - 17));
}

static void add_stripe(uint64_t *sums, const uint8_t *data, const uint8_t *key) {
  for (int i = 0; i < LANES; i++) {
    const uint64_t value = little_endian_64(data + 8 * i), mixed = value ^ little_endian_64(key + 8 * i);
    sums[i ^ 1] += value;
    sums[i] += (mixed & UINT32_MAX) * (mixed >> 32);
  }
}

static uint64_t of_many(uint64_t seed, const uint8_t *data, size_t bytes) {
  uint64_t sums[LANES] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
  uint8_t key[SECRET]; /* of this seed */
  for (int i = 0; i < SECRET; i += 16) {
    for (int byte = 0; byte < 8; byte++) {
      key[i + byte] = (uint8_t)((little_endian_64(secret + i) + seed) >> 8 * byte);
      key[i + 8 + byte] = (uint8_t)((little_endian_64(secret + i + 8) - seed) >> 8 * byte);
    }
  }
  const size_t stripes = (bytes - 1) / STRIPE;
  for (size_t n = 0; n < stripes; n++) {
    add_stripe(sums, data + n * STRIPE, key + 8 * (n % STRIPES));
    if (n % STRIPES != STRIPES - 1) continue;
    for (int i = 0; i < LANES; i++)
      sums[i] = (sums[i] ^ sums[i] >> 47 ^ little_endian_64(key + SECRET - STRIPE + 8 * i)) * P32_1;
  }
  add_stripe(sums, data + bytes - STRIPE, key + SECRET - STRIPE - 7);
  uint64_t result = bytes * P64_1;
  for (int i = 0; i < LANES; i += 2)
    result +=
        fold_product(sums[i] ^ little_endian_64(key + 11 + 8 * i), sums[i + 1] ^ little_endian_64(key + 19 + 8 * i));
  return avalanche(result);
}

static uint64_t xxh3(uint64_t seed, const uint8_t *data, size_t bytes) {
  return bytes <= 16      ? of_up_to_16(seed, data, bytes)
         : bytes <= SHORT ? of_up_to_240(seed, data, bytes)
                          : of_many(seed, data, bytes);
}

#endif

uint64_t hash_bytes(uint64_t seed, const void *data, size_t bytes) {
  assert(data != NULL || bytes == 0);
  return xxh3(seed, bytes != 0 ? data : (const void *)"", bytes);
}

uint64_t hash_number(uint64_t seed, int64_t number) {
  return hash_bytes(seed, &number, sizeof number);
}

uint64_t hash_text(uint64_t seed, const char *text) {
  return hash_bytes(seed, text, strlen(text) + 1);
}
