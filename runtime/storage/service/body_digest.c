#include "storage/service/body_digest.h"

#include <stdio.h>

#include "base/alloc.h"
#include "shardrt.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/signature.h"

enum { MD5_BYTES = 16 };

void body_sha256(const void *body, size_t bytes, char out[DIGEST_ROOM]) {
  static const char nothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  if (body == NULL)
    snprintf(out, DIGEST_ROOM, "%s", nothing);
  else if (digest_of("sha256", body, bytes, out) != SHARDRT_OK)
    snprintf(out, DIGEST_ROOM, "UNSIGNED-PAYLOAD");
}

int body_md5(const void *body, size_t bytes, char out[BODY_MD5]) {
  char digits[DIGEST_ROOM];
  uint8_t sum[MD5_BYTES];
  out[0] = '\0';
  if (body == NULL || bytes == 0 || digest_of("md5", body, bytes, digits) != SHARDRT_OK) return SHARDRT_OK;
  for (int32_t i = 0; i < MD5_BYTES; i++)
    sum[i] = (uint8_t)(percent_digit(digits[2 * i]) * 16 + percent_digit(digits[2 * i + 1]));
  char *text = signature_bytes(sum, sizeof sum);
  if (text != NULL) snprintf(out, BODY_MD5, "%s", text);
  alloc_free(text);
  return text != NULL ? SHARDRT_OK : ALLOC_FAILED;
}
