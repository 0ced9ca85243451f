/* service.h - which kind of server an address is of, and how that one wants to be asked.
 *
 *   http://host/x, https://host/x             as it stands, with the headers that a recipe gives
 *   s3://bucket/key                           Amazon S3, or what speaks like it at AWS_ENDPOINT_URL (s3.c)
 *   gs://bucket/key                           Google Cloud Storage, or what speaks like it (google.c)
 *   az://container/blob                       Azure's Blob Storage (azure.c); abfs://, abfss:// are the same
 *   hf://datasets/OWNER/NAME@revision/path    Hugging Face; hf://OWNER/NAME/path is a model's (hub.c)
 *
 * The addresses of objects are written as they are called: a key's spaces, "+", "%" and "?" stand for themselves. */
#ifndef SHARDRT_STORAGE_SERVICE_SERVICE_H
#define SHARDRT_STORAGE_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "storage/exchange/refusal.h"

enum { SERVICE_HEADERS = 16, SERVICE_ADVICE = 400 };

/* How a server is asked once: texts are owned. */
struct service_request {
  char *url;
  char *headers[SERVICE_HEADERS]; /* "Name: value"; NULL: no more */
  bool follows;                   /* redirects lead to the same file. To other hosts libcurl does not take the header
                                     Authorization along, */
  bool confined;                  /* and these headers must not come there, either */
};

/* What is asked. */
struct service_call {
  const char *method; /* "GET" */
  const char *address;
  const char *query; /* what follows "?", encoded, its names sorted; NULL: nothing */
  const void *body;  /* NULL: none. What comes is compared with its digest, where the server does that */
  size_t bytes;
  const char *mark;  /* is kept with the object that is begun (exchange_answer has it); NULL: none is */
  const char *range; /* "bytes=0-99"; NULL: all. Whoever asks sends it, */
  const char *known; /* and the value of If-None-Match; NULL: there is none */
};

/* EINVAL: no bucket, or credentials that cannot be; EIO: credentials that cannot be had; ENOMEM. */
int service_request_make(const struct service_call *call, struct service_request *out);
/* The same for a part of an object. `range`, `known`: as above. */
int service_request_part(const char *address, const char *range, const char *known, struct service_request *out);
void service_request_free(struct service_request *self); /* any that is zeroed or was made */

/* Whether two addresses of HTTP are of one host, port and protocol. */
bool service_same_origin(const char *a, const char *b);

/* Takes in what a refusal tells: another region, credentials that have expired. True: the next request is another one,
 * which may go well. */
bool service_learn(const char *address, const struct refusal *refusal);

/* What there is to say of a refusal, with its code and words: "403 AccessDenied: Access Denied; …". */
void service_explain(const char *address, const struct refusal *refusal, char out[SERVICE_ADVICE + 320]);

/* Whether a refusal means that there is no such file, rather than that it cannot be had. */
bool service_is_missing(const char *address, const struct refusal *refusal);

#endif
