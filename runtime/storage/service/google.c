/* google.c - Google Cloud Storage, by the interface that it has in common with S3
 * (https://cloud.google.com/storage/docs/xml-api/overview), at STORAGE_EMULATOR_HOST where that is set. Requests are
 * signed with a key of HMAC, or have a token; of public buckets neither is wanted. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/google_credentials.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/settings.h"
#include "storage/service/body_digest.h"
#include "storage/service/s3.h"
#include "storage/service/services.h"

static char *url_of(const struct s3_address *address, const char *query) {
  const char *named = settings_variable("STORAGE_EMULATOR_HOST");
  const char *host = named != NULL ? named : "https://storage.googleapis.com";
  size_t length = strlen(host);
  while (length > 0 && host[length - 1] == '/') length--;
  char *key = percent_encoded(address->key, "/");
  char *url = key != NULL ? alloc_text("%s%.*s/%s%s%s%s%s", strstr(host, "://") != NULL ? "" : "http://", (int)length,
                                       host, address->bucket, key[0] != '\0' ? "/" : "", key, query != NULL ? "?" : "",
                                       query != NULL ? query : "")
                          : NULL;
  alloc_free(key);
  return url;
}

/* With a token the server takes none of S3's own headers, and compares the body with its MD5. */
static int add_token(const struct service_call *call, const char *token, struct service_request *out) {
  char md5[BODY_MD5];
  int code = service_add_header(out, alloc_text("Authorization: Bearer %s", token));
  if (code == SHARDRT_OK && call->mark != NULL)
    code = service_add_header(out, alloc_text("x-goog-meta-" EXCHANGE_MARK ": %s", call->mark));
  if (code == SHARDRT_OK) code = body_md5(call->body, call->bytes, md5);
  if (code == SHARDRT_OK && md5[0] != '\0') code = service_add_header(out, alloc_text("Content-MD5: %s", md5));
  return code;
}

static int google_request(const struct service_call *call, struct service_request *out) {
  struct s3_address parsed;
  struct google_credentials who = {0};
  int code = s3_parse(call->address, &parsed);
  if (code == SHARDRT_OK && (call->query == NULL || parsed.key[0] != '\0'))
    code = s3_check_key(call->address, parsed.key);
  if (code == SHARDRT_OK) code = google_credentials_get(&who);
  if (code == SHARDRT_OK && (out->url = url_of(&parsed, call->query)) == NULL) code = ALLOC_FAILED;
  if (code == SHARDRT_OK && who.token != NULL)
    code = add_token(call, who.token, out);
  else if (code == SHARDRT_OK && who.key != NULL)
    code = s3_sign(call, who.key, who.secret, NULL, "auto", out);
  google_credentials_free(&who);
  return code;
}

static bool google_learn(const char *address, const struct refusal *refusal) {
  (void)address;
  return refusal->status == 401 && google_credentials_forget();
}

static const char *google_advice(const char *address, const struct refusal *refusal, char *room, size_t bytes) {
  (void)address, (void)room, (void)bytes;
  const char *code = refusal->code;
  if (refusal->status == 401 || refusal->status == 403) {
    struct google_credentials who;
    const bool is_nobody = google_credentials_get(&who) == SHARDRT_OK && who.token == NULL && who.key == NULL;
    const bool has_token = who.token != NULL;
    google_credentials_free(&who);
    if (is_nobody)
      return "; no credentials were found: GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_OAUTH_ACCESS_TOKEN, a key of HMAC in "
             "GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or `gcloud auth application-default login` would do";
    if (refusal->status == 401 && has_token)
      return "; the token is none, or has expired: `gcloud auth print-access-token` prints a new one";
  }
  if (strcmp(code, "InvalidAccessKeyId") == 0 || strcmp(code, "InvalidSecurity") == 0)
    return "; the server does not know this key of HMAC";
  if (strcmp(code, "SignatureDoesNotMatch") == 0) return "; the secret is not this key's";
  if (strcmp(code, "RequestTimeTooSkewed") == 0)
    return "; this machine's clock and the server's differ too much for signatures: set it right (chrony, ntp)";
  if (strcmp(code, "NoSuchBucket") == 0) return "; the bucket's name, or STORAGE_EMULATOR_HOST, is another one";
  return "";
}

const struct service service_google = {
    .request = google_request, .learn = google_learn, .advice = google_advice, .absent = s3_absent, .lists = &s3_lists};
