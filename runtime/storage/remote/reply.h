/* reply.h - what a server's answer to one attempt of a request (fetch.h) says in its headers, and whether its body is
 * what was asked for. */
#ifndef SHARDRT_STORAGE_REMOTE_REPLY_H
#define SHARDRT_STORAGE_REMOTE_REPLY_H

#include "storage/exchange/refusal.h"
#include "storage/remote/fetch_request.h"

/* All zeros but for the request: nothing has come yet. */
struct reply {
  struct fetch_request *request;
  long status;
  bool ended;          /* the headers */
  int64_t first, last; /* Content-Range; */
  bool has_part;       /* it is there and could be read */
  int64_t total;       /* of the file; -1: it does not say */
  int64_t length;      /* Content-Length; -1 */
  bool encoded;        /* the body is compressed */
  char etag[FETCH_TEXT], modified[FETCH_TEXT];
  struct refusal_headers refusal;

  bool kind_known; /* the request's `kind` and `found` are set */
  bool accepted;   /* the body is data, */
  size_t promised; /* so many bytes of it, SIZE_MAX: it does not say, */
  size_t got;      /* of which these have come */
  bool stopped;    /* enough is known: the transfer was ended from here */
  size_t ignored;  /* bytes of a body that is no data, */
  char words[REFUSAL_WORDS];
  size_t nwords;      /* of which these are the first */
  char wrong[128];    /* not empty: the answer does not fit the request, and another may */
  int code;           /* a failure of ours that no other attempt would mend, */
  char message[1024]; /* and what it said */
};

/* Takes one line of the headers, with its end. False: no more of this answer is wanted. */
bool reply_header(struct reply *self, const char *line, size_t bytes);

/* Notes a failure of ours, whose message is this thread's. */
void reply_fail(struct reply *self, int code);

/* Keeps what a refusal says. */
void reply_words(struct reply *self, const char *data, size_t bytes);

#endif
