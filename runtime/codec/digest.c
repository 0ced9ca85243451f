#include "codec/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifndef SHARDRT_WITHOUT_OPENSSL
#include <openssl/evp.h>
#endif
#ifndef SHARDRT_WITHOUT_XXHASH
#include <xxhash.h>
#endif

#include "base/error.h"
#include "base/libraries.h"

/* hashlib's names, and OpenSSL's for the same. */
static const struct digest_name {
  const char *name;
  const char *openssl;
} names[] = {
    {"md5", "MD5"},
    {"sha1", "SHA1"},
    {"sha224", "SHA224"},
    {"sha256", "SHA256"},
    {"sha384", "SHA384"},
    {"sha512", "SHA512"},
    {"sha512_224", "SHA512-224"},
    {"sha512_256", "SHA512-256"},
    {"sha3_224", "SHA3-224"},
    {"sha3_256", "SHA3-256"},
    {"sha3_384", "SHA3-384"},
    {"sha3_512", "SHA3-512"},
    {"blake2b", "BLAKE2B-512"},
    {"blake2s", "BLAKE2S-256"},
    {"md5-sha1", "MD5-SHA1"},
    {"ripemd160", "RIPEMD160"},
    {"sm3", "SM3"},
};

#ifndef SHARDRT_WITHOUT_OPENSSL

/* OpenSSL's hash of hashlib's name, to be freed; NULL: there is none. A system may have switched some off. */
static EVP_MD *find_digest(const char *name) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i].name, name) == 0) return EVP_MD_fetch(NULL, names[i].openssl, NULL);
  return NULL;
}

static bool openssl_has(const char *name) {
  EVP_MD *md = find_digest(name);
  EVP_MD_free(md);
  return md != NULL;
}

static int openssl_digest(const char *name, const uint8_t *data, size_t bytes, char *out) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_MD *md = find_digest(name);
  const bool done = md != NULL && EVP_Digest(data, bytes, hash, &length, md, NULL) == 1;
  EVP_MD_free(md);
  if (!done) return error_set(SHARDRT_ENOMEM, "the hash \"%s\" of %zu bytes: OpenSSL fails", name, bytes);
  for (unsigned int i = 0; i < length; i++) snprintf(out + (size_t)2 * i, 3, "%02x", hash[i]);
  return SHARDRT_OK;
}

#endif

#ifndef SHARDRT_WITHOUT_XXHASH

/* One of XXH's; false: it has another name. */
static bool xxh(const char *name, const uint8_t *data, size_t bytes, char *out, size_t room) {
  if (strcmp(name, "xxh32") == 0) {
    snprintf(out, room, "%08" PRIx32, XXH32(data, bytes, 0));
  } else if (strcmp(name, "xxh64") == 0) {
    snprintf(out, room, "%016" PRIx64, (uint64_t)XXH64(data, bytes, 0));
  } else if (strcmp(name, "xxh3_64") == 0) {
    snprintf(out, room, "%016" PRIx64, (uint64_t)XXH3_64bits(data, bytes));
  } else if (strcmp(name, "xxh128") == 0 || strcmp(name, "xxh3_128") == 0) { /* these are one */
    const XXH128_hash_t hash = XXH3_128bits(data, bytes);
    snprintf(out, room, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
  } else {
    return false;
  }
  return true;
}

#endif

/* The library of a hash that this shardrt was built without; NULL: it is not known, or there. */
static const char *lacking(const char *name) {
#ifdef SHARDRT_WITHOUT_XXHASH
  if (strncmp(name, "xxh", 3) == 0) return "xxHash (libxxhash)";
#endif
#ifdef SHARDRT_WITHOUT_OPENSSL
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i].name, name) == 0) return "OpenSSL (libcrypto)";
#endif
  (void)name;
  return NULL;
}

bool digest_is_known(const char *name) {
#ifndef SHARDRT_WITHOUT_XXHASH
  char digits[DIGEST_ROOM];
  if (xxh(name, (const uint8_t *)"", 0, digits, sizeof digits)) return true;
#endif
#ifndef SHARDRT_WITHOUT_OPENSSL
  if (openssl_has(name)) return true;
#endif
  return lacking(name) != NULL;
}

int digest_of(const char *name, const uint8_t *data, size_t bytes, char out[DIGEST_ROOM]) {
  const char *library = lacking(name);
  if (library != NULL) return error_prefix(libraries_missing(library), "the hash \"%s\"", name);
#ifndef SHARDRT_WITHOUT_XXHASH
  if (xxh(name, data, bytes, out, DIGEST_ROOM)) return SHARDRT_OK;
#endif
#ifndef SHARDRT_WITHOUT_OPENSSL
  return openssl_digest(name, data, bytes, out);
#else
  return error_set(SHARDRT_EINVAL, "the hash \"%s\" of %zu bytes is not known", name, bytes);
#endif
}
