/* body_digest.h - what a request says of its body, so that the server refuses other bytes. */
#ifndef SHARDRT_STORAGE_SERVICE_BODY_DIGEST_H
#define SHARDRT_STORAGE_SERVICE_BODY_DIGEST_H

#include "codec/digest.h"

enum { BODY_MD5 = 25 /* room of an MD5 in base64, with a NUL */ };

/* The SHA-256 of a body, of nothing where it is NULL, in small hexadecimal digits, as x-amz-content-sha256 wants it;
 * UNSIGNED-PAYLOAD in a shardrt that was built without OpenSSL. */
void body_sha256(const void *body, size_t bytes, char out[DIGEST_ROOM]);

/* The MD5 of a body in base64, as Content-MD5 wants it (RFC 1864); "": there is nothing in it, or nothing that computes
 * it. ENOMEM. */
int body_md5(const void *body, size_t bytes, char out[BODY_MD5]);

#endif
