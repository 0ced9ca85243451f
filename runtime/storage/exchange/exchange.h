/* exchange.h - one small request to a server and its whole answer, both in memory: for listings, credentials and the
 * parts of an upload. (Parts of large files: storage/remote/fetch.h.) */
#ifndef SHARDRT_STORAGE_EXCHANGE_EXCHANGE_H
#define SHARDRT_STORAGE_EXCHANGE_EXCHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/exchange/refusal.h"

/* How a mark is called among an object's metadata, behind "x-amz-meta-" or "x-goog-meta-". */
#define EXCHANGE_MARK "shardrt-upload"

enum { EXCHANGE_MARK_ROOM = 33 /* of its digits, with a NUL */ };
enum { EXCHANGE_HEADERS = 16, EXCHANGE_ETAG = 256, EXCHANGE_ANSWER = 64 << 20 /* bytes, at most */ };

/* The caller's, during the call. */
struct exchange_request {
  const char *method;                    /* "GET" */
  const char *url;                       /* http:// or https:// */
  const char *shown;                     /* for messages */
  const char *headers[EXCHANGE_HEADERS]; /* "Name: value"; NULL: no more */
  const void *body;                      /* NULL: none */
  size_t bytes;
  double seconds;                 /* for all of it; also the most for the connection */
  const atomic_bool *is_given_up; /* EIO, soon, when that is true; NULL: never */
  bool follows;                   /* redirects, with the header Authorization on the same host only */
};

struct exchange_answer {
  long status;
  char *body; /* ends in a NUL, which `bytes` does not count; owned */
  size_t bytes;
  char etag[EXCHANGE_ETAG];
  char mark[EXCHANGE_MARK_ROOM]; /* that is kept with the object; "": none is */
  struct refusal_headers refusal;
  char next[4096]; /* Link: <…>; rel="next" */
};

/* How long one attempt to ask a server may take, seconds: $SHARDRT_HTTP_TIMEOUT, or 30. EINVAL: that is no such number;
 * *out is 30. */
int exchange_seconds(double *out);

/* EIO: no answer came, and why. Any status is an answer. ENOMEM. */
int exchange(const struct exchange_request *request, struct exchange_answer *out);
/* The same, up to `tries` times where none comes, or the server has too much to do. */
int exchange_patiently(const struct exchange_request *request, int32_t tries, struct exchange_answer *out);
void exchange_free(struct exchange_answer *self); /* any that is zeroed or was answered */

/* Waits before a request is made again that was made `tries` times: up to 0.25, 0.5, 1, … seconds, chosen at random so
 * that many processes do not come back together. */
void exchange_pause(int32_t tries);

#endif
