/* google_credentials.h - who one is for Google Cloud Storage, found where Google's own tools look, in this order:
 *
 * 1. a token: GOOGLE_OAUTH_ACCESS_TOKEN, CLOUDSDK_AUTH_ACCESS_TOKEN;
 * 2. GOOGLE_APPLICATION_CREDENTIALS, a file of a service account or of a user;
 * 3. an HMAC key: GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, GCS_KEY and GCS_SECRET, or AWS's variables where the key
 *    begins with GOOG; gs_access_key_id and gs_secret_access_key of ~/.boto ($BOTO_CONFIG);
 * 4. what `gcloud auth application-default login` left in ~/.config/gcloud ($CLOUDSDK_CONFIG);
 * 5. the metadata server ($GCE_METADATA_HOST) of a machine of Google's, unless NO_GCE_CHECK is "true".
 *
 * With STORAGE_EMULATOR_HOST the last two are left out, but for a metadata server that is named. None at all: requests
 * say nothing of who asks, as public buckets want it. Tokens are asked for anew before they expire. */
#ifndef SHARDRT_STORAGE_EXCHANGE_GOOGLE_CREDENTIALS_H
#define SHARDRT_STORAGE_EXCHANGE_GOOGLE_CREDENTIALS_H

#include <stdbool.h>
#include <time.h>

struct google_credentials {
  char *token;        /* for "Authorization: Bearer"; NULL: none */
  char *key, *secret; /* of HMAC; NULL: none */
  time_t expires;     /* 0: never, or it is not known */
};

/* A copy for the caller, of this process's. From any thread. EINVAL: half of them is there, or they are of a kind that
 * is not followed; EIO: a place that is configured gives none; ENOMEM. */
int google_credentials_get(struct google_credentials *out);
void google_credentials_free(struct google_credentials *self); /* any that is zeroed or was got */
/* The next call looks for them anew; false: there is nowhere to get newer ones. */
bool google_credentials_forget(void);

#endif
