/* refusal.h - why a server refused a request, in its own words: S3's, Google's and Azure's XML, the JSON of others,
 * Hugging Face's headers. */
#ifndef SHARDRT_STORAGE_EXCHANGE_REFUSAL_H
#define SHARDRT_STORAGE_EXCHANGE_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>

enum { REFUSAL_WORDS = 2048 }; /* of the body, that are looked at */

/* What headers say; empty where they do not. */
struct refusal_headers {
  char region[32]; /* x-amz-bucket-region */
  char code[64];   /* X-Error-Code */
};

struct refusal {
  long status;
  char code[64];     /* "NoSuchBucket"; empty: it says none */
  char message[192]; /* "The specified bucket does not exist", without line ends; empty */
  char region[32];   /* where the bucket lies, if the server says so; empty */
};

/* Keeps the value of a line of the headers, if it is one of these. */
void refusal_header(const char *line, size_t bytes, struct refusal_headers *out);

/* `body` need not end in a NUL. */
void refusal_read(long status, const struct refusal_headers *headers, const char *body, size_t bytes,
                  struct refusal *out);

/* Whether a later attempt may go well: 408, 429, 5xx. */
bool refusal_passes(const struct refusal *self);

/* Of a request for what stands from byte 0 on: that nothing stands there. */
bool refusal_is_of_empty(const struct refusal *self);

#endif
