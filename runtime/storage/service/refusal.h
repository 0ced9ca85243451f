/* refusal.h - why a server refused a request, in its own words: S3's, Google's and Azure's XML, the JSON of others. */
#ifndef SHARDRT_STORAGE_SERVICE_REFUSAL_H
#define SHARDRT_STORAGE_SERVICE_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>

enum { REFUSAL_WORDS = 2048 }; /* of the body, that are looked at */

struct refusal {
  long status;
  char code[64];     /* "NoSuchBucket"; empty: it says none */
  char message[192]; /* "The specified bucket does not exist", without line ends; empty */
  bool is_empty;     /* what is asked for has no bytes: S3 says that in its words only */
  char region[32];   /* where the bucket lies, if the server says so; empty */
};

/* `body` need not end in a NUL. `region`: of the header x-amz-bucket-region; "" where there is none. */
void refusal_read(long status, const char *region, const char *body, size_t bytes, struct refusal *out);

/* Whether a later attempt may go well: 408, 429, 5xx. */
bool refusal_passes(const struct refusal *self);

#endif
