#include "storage/service/service.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/service/s3.h"

static bool is_s3(const char *address) {
  return strncasecmp(address, "s3://", 5) == 0;
}

static int http_request_make(const char *address, const char *query, struct service_request *out) {
  out->follows = true;
  out->url = query != NULL ? alloc_text("%s%s%s", address, strchr(address, '?') != NULL ? "&" : "?", query)
                           : alloc_text("%s", address);
  return out->url != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

int service_request_make(const char *address, const char *query, const char *payload, struct service_request *out) {
  *out = (struct service_request){0};
  int code = is_s3(address) ? s3_request_make(address, query, payload, out) : http_request_make(address, query, out);
  if (code != SHARDRT_OK) service_request_free(out);
  return code;
}

void service_request_free(struct service_request *self) {
  for (int32_t i = 0; i < SERVICE_HEADERS; i++) alloc_free(self->headers[i]);
  alloc_free(self->url);
  alloc_free(self->signer);
  alloc_free(self->user);
  *self = (struct service_request){0};
}

bool service_learn(const char *address, const struct refusal *refusal) {
  return is_s3(address) && s3_learn(address, refusal);
}

bool service_is_missing(const char *address, const struct refusal *refusal) {
  if (refusal->status != 404 && refusal->status != 410) return false;
  return !is_s3(address) || strcmp(refusal->code, "NoSuchBucket") != 0;
}

static const char *http_advice(long status) {
  switch (status) {
  case 401:
    return " (it wants a name and a password: name:password@ before the host)";
  case 403:
    return " (it does not allow this)";
  case 408:
  case 504:
    return " (time was up on its side)";
  case 429:
    return " (too many requests)";
  case 500:
    return " (it failed)";
  case 502:
  case 503:
    return " (it cannot serve at the moment)";
  default:
    return "";
  }
}

void service_explain(const char *address, const struct refusal *refusal, char out[SERVICE_ADVICE + 320]) {
  char room[SERVICE_ADVICE];
  const char *advice = is_s3(address)             ? s3_advice(refusal, room, sizeof room)
                       : refusal->code[0] == '\0' ? http_advice(refusal->status)
                                                  : "";
  snprintf(out, SERVICE_ADVICE + 320, "%ld%s%s%s%s%s", refusal->status, refusal->code[0] != '\0' ? " " : "",
           refusal->code, refusal->message[0] != '\0' ? ": " : "", refusal->message, advice);
}
