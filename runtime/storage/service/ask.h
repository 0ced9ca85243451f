/* ask.h - a small request to the server of an address, made again where it fails in a way that may pass, and otherwise
 * refused with the server's own words. */
#ifndef SHARDRT_STORAGE_SERVICE_ASK_H
#define SHARDRT_STORAGE_SERVICE_ASK_H

#include <stdbool.h>

#include "storage/exchange/exchange.h"
#include "storage/exchange/refusal.h"

enum { ASK_TRIES = 6 };

struct ask {
  const char *method;  /* "GET" */
  const char *address; /* as service.h has them, */
  const char *query;   /* and all these */
  const void *body;
  size_t bytes;
  const char *mark;
  int32_t tries;                  /* at most; 0: ASK_TRIES */
  double more_seconds;            /* for each, beyond $SHARDRT_HTTP_TIMEOUT and what the body takes at 1 MB/s */
  const atomic_bool *is_given_up; /* as exchange_request has it */
  struct refusal *refused;        /* becomes why it was refused; its status 0: no answer came. NULL: it is not wanted */
  int32_t *tried;                 /* becomes how often it was asked; NULL: it is not wanted */
  bool may_miss;                  /* that there is nothing by this address (service_is_missing) is an answer, too */
};

/* EIO where it is refused, or no answer came in ASK_TRIES attempts of at most $SHARDRT_HTTP_TIMEOUT seconds each (30);
 * what service_request_make fails with. The answer's status is below 300 otherwise, or of what is missing. */
int ask_server(const struct ask *self, struct exchange_answer *out);

#endif
