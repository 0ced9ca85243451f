/* fetch_request.h - one part of a file on an HTTP server that is wanted, and what came of it: what fetch.c, which asks,
 * and reply.c, which reads the answer, both know. */
#ifndef SHARDRT_STORAGE_REMOTE_FETCH_REQUEST_H
#define SHARDRT_STORAGE_REMOTE_FETCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FETCH_TEXT = 256 };

/* What a server says a file is: another one if anything differs. Texts are empty where it does not say. */
struct fetch_version {
  int64_t bytes; /* -1: it does not say */
  char etag[FETCH_TEXT];
  char modified[FETCH_TEXT]; /* Last-Modified */
};

static inline bool fetch_version_same(const struct fetch_version *a, const struct fetch_version *b) {
  return a->bytes == b->bytes && strcmp(a->etag, b->etag) == 0 && strcmp(a->modified, b->modified) == 0;
}

/* Takes what comes of a whole file, in order; no bytes: it begins anew. A code. */
typedef int fetch_take(void *context, const uint8_t *data, size_t bytes);

enum fetch_kind {
  FETCH_PART,    /* what was asked for, or less where the file ends */
  FETCH_SAME,    /* no data: the file is still the one of `known` */
  FETCH_WHOLE,   /* the server does not give parts; the data is the whole file, if it is no longer than was asked for,
                    and else there is none */
  FETCH_MISSING, /* there is no such file: 404, 410 */
};

struct fetch_request {
  /* What is wanted. */
  const char *url;
  const char *shown; /* for messages */
  size_t offset, bytes;
  const struct fetch_version *version; /* what the file must be; NULL: any, and `bytes` may lead beyond its end */
  const struct fetch_version *known;   /* with no version: what it was, if it is known */
  fetch_take *take;                    /* not NULL: the whole file, for this */
  void *context;                       /* the caller's */
  /* What came of it. */
  enum fetch_kind kind;
  struct fetch_version found;
  const uint8_t *data; /* until `ended` returns */
  size_t got;
};

#endif
