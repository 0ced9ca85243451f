/* signature.h - signatures, by OpenSSL: HMAC-SHA256 (RFC 2104) for Amazon and Azure, RS256 (RFC 7518, 3.3) for Google's
 * service accounts; and their base64 (RFC 4648). */
#ifndef SHARDRT_STORAGE_EXCHANGE_SIGNATURE_H
#define SHARDRT_STORAGE_EXCHANGE_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

enum { SIGNATURE_MAC = 32 /* bytes of HMAC-SHA256 */ };

/* EINVAL: this shardrt was built without OpenSSL; ENOMEM. */
int signature_mac(const uint8_t *key, size_t bytes, const char *text, uint8_t out[SIGNATURE_MAC]);
/* In base64; owned. `key`: in base64, too. EINVAL: it is not, or this shardrt was built without OpenSSL; ENOMEM. */
int signature_hmac(const char *key, const char *text, char **out);
/* In base64url without "="; owned. `pem`: a private key of RSA. EINVAL: it is none, or as above; ENOMEM. */
int signature_rsa(const char *pem, const char *text, char **out);
/* A text in base64url without "="; owned; NULL: out of memory. */
char *signature_text(const char *text, size_t bytes);
/* Bytes in base64; owned; NULL: out of memory. */
char *signature_bytes(const uint8_t *data, size_t bytes);

#endif
