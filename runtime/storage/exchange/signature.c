#include "storage/exchange/signature.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/libraries.h"

/* Owned; NULL: out of memory. */
static char *encoded(const uint8_t *data, size_t bytes, bool for_urls) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *out = alloc_array((bytes + 2) / 3 * 4 + 1, 1), *at = out;
  if (out == NULL) return NULL;
  for (size_t i = 0; i < bytes; i += 3) {
    const size_t n = bytes - i < 3 ? bytes - i : 3;
    const uint32_t word =
        (uint32_t)data[i] << 16 | (n > 1 ? (uint32_t)data[i + 1] << 8 : 0) | (n > 2 ? (uint32_t)data[i + 2] : 0);
    for (size_t j = 0; j < 4; j++) {
      const char digit = digits[word >> (18 - 6 * j) & 63];
      if (j <= n) *at++ = !for_urls ? digit : digit == '+' ? '-' : digit == '/' ? '_' : digit;
      if (j > n && !for_urls) *at++ = '=';
    }
  }
  *at = '\0';
  return out;
}

char *signature_text(const char *text, size_t bytes) {
  return encoded((const uint8_t *)text, bytes, true);
}

char *signature_bytes(const uint8_t *data, size_t bytes) {
  return encoded(data, bytes, false);
}

#ifndef SHARDRT_WITHOUT_OPENSSL

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

enum { KEY_BYTES = 1024 };

int signature_mac(const uint8_t *key, size_t bytes, const char *text, uint8_t out[SIGNATURE_MAC]) {
  unsigned int length = 0;
  const unsigned char *signs = (const unsigned char *)text;
  if (HMAC(EVP_sha256(), key, (int)bytes, signs, strlen(text), out, &length) == NULL)
    return error_set(SHARDRT_ENOMEM, "OpenSSL cannot sign a request");
  return SHARDRT_OK;
}

int signature_hmac(const char *key, const char *text, char **out) {
  uint8_t secret[KEY_BYTES], mac[SIGNATURE_MAC];
  const size_t digits = strlen(key);
  const int bytes = digits > 0 && digits % 4 == 0 && digits / 4 * 3 <= sizeof secret
                        ? EVP_DecodeBlock(secret, (const unsigned char *)key, (int)digits)
                        : -1;
  if (bytes <= 0) return error_set(SHARDRT_EINVAL, "it is not in base64, as its account shows it");
  const int padding = key[digits - 1] != '=' ? 0 : key[digits - 2] != '=' ? 1 : 2;
  const int code = signature_mac(secret, (size_t)(bytes - padding), text, mac);
  if (code != SHARDRT_OK) return code;
  *out = encoded(mac, sizeof mac, false);
  return *out != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static int sign_with(EVP_PKEY *key, const char *text, char **out) {
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  size_t length = (size_t)EVP_PKEY_get_size(key);
  uint8_t *made = alloc_array(length, 1);
  int code = context != NULL && made != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (code == SHARDRT_OK && (EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) != 1 ||
                             EVP_DigestSign(context, made, &length, (const unsigned char *)text, strlen(text)) != 1))
    code = error_set(SHARDRT_EINVAL, "OpenSSL cannot sign with it");
  if (code == SHARDRT_OK) {
    *out = encoded(made, length, true);
    if (*out == NULL) code = ALLOC_FAILED;
  }
  alloc_free(made);
  EVP_MD_CTX_free(context);
  return code;
}

int signature_rsa(const char *pem, const char *text, char **out) {
  BIO *memory = BIO_new_mem_buf(pem, -1);
  EVP_PKEY *key = memory != NULL ? PEM_read_bio_PrivateKey(memory, NULL, NULL, "") : NULL;
  int code = key == NULL || EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA
                 ? error_set(SHARDRT_EINVAL, "it is no private key of RSA in PEM")
                 : sign_with(key, text, out);
  EVP_PKEY_free(key);
  BIO_free(memory);
  return code;
}

#else

static const char WHAT[] = "OpenSSL (libcrypto), which signs requests";

int signature_mac(const uint8_t *key, size_t bytes, const char *text, uint8_t out[SIGNATURE_MAC]) {
  (void)key, (void)bytes, (void)text, (void)out;
  return libraries_missing(WHAT);
}

int signature_hmac(const char *key, const char *text, char **out) {
  (void)key, (void)text, (void)out;
  return libraries_missing(WHAT);
}

int signature_rsa(const char *pem, const char *text, char **out) {
  (void)pem, (void)text, (void)out;
  return libraries_missing(WHAT);
}

#endif
