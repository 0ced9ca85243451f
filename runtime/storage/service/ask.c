#include "storage/service/ask.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/local/url.h"
#include "storage/service/service.h"

static const double SLOWEST = 1e6; /* bytes of a body each second: slower ones are given up */

static int attempt(const struct ask *self, const char *shown, struct exchange_answer *out) {
  const struct service_call asks = {.method = self->method,
                                    .address = self->address,
                                    .query = self->query,
                                    .body = self->body,
                                    .bytes = self->bytes,
                                    .mark = self->mark};
  struct service_request call;
  double seconds;
  int code = exchange_seconds(&seconds);
  if (code == SHARDRT_OK) code = service_request_make(&asks, &call);
  if (code != SHARDRT_OK) return code;
  struct exchange_request request = {.method = self->method,
                                     .url = call.url,
                                     .shown = shown,
                                     .body = self->body,
                                     .bytes = self->bytes,
                                     .follows = call.follows && !call.confined,
                                     .seconds = seconds + self->more_seconds + (double)self->bytes / SLOWEST,
                                     .is_given_up = self->is_given_up};
  for (int32_t i = 0; i < SERVICE_HEADERS; i++) request.headers[i] = call.headers[i];
  code = exchange(&request, out);
  service_request_free(&call);
  return code;
}

static int refuse(const struct ask *self, const char *shown, const struct refusal *refusal, int32_t tries) {
  char why[SERVICE_ADVICE + 320];
  service_explain(self->address, refusal, why);
  return error_set(SHARDRT_EIO, "%s: the server answers %s (%d %s)", shown, why, (int)tries,
                   tries == 1 ? "try" : "tries");
}

static int ask_shown(const struct ask *self, const char *shown, struct exchange_answer *out) {
  const int32_t most = self->tries > 0 ? self->tries : ASK_TRIES;
  bool learned = false;
  for (int32_t tries = 1;; tries++) {
    struct refusal refusal = {0};
    if (self->tried != NULL) *self->tried = tries;
    int code = attempt(self, shown, out);
    const bool answered = code == SHARDRT_OK;
    if (answered && out->status >= 200 && out->status < 300) return SHARDRT_OK;
    const bool is_last = tries >= most || (self->is_given_up != NULL && *self->is_given_up);
    if (self->refused != NULL) *self->refused = refusal;
    if (!answered && (code != SHARDRT_EIO || is_last)) return code;
    if (answered) {
      refusal_read(out->status, &out->refusal, out->body, out->bytes, &refusal);
      if (self->may_miss && service_is_missing(self->address, &refusal)) return SHARDRT_OK;
      exchange_free(out);
      if (self->refused != NULL) *self->refused = refusal;
      const bool learns = !learned && service_learn(self->address, &refusal);
      learned = learned || learns;
      if (!learns && (!refusal_passes(&refusal) || is_last)) return refuse(self, shown, &refusal, tries);
      if (learns) continue;
    }
    exchange_pause(tries);
  }
}

int ask_server(const struct ask *self, struct exchange_answer *out) {
  char *shown = url_shown(self->address);
  *out = (struct exchange_answer){0};
  int code = shown != NULL ? ask_shown(self, shown, out) : ALLOC_FAILED;
  alloc_free(shown);
  return code;
}
