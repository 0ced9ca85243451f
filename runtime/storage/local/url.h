/* url.h - addresses of files that lie on a server. */
#ifndef SHARDRT_STORAGE_LOCAL_URL_H
#define SHARDRT_STORAGE_LOCAL_URL_H

#include <stdbool.h>

/* Does a path begin with http://, https://, s3://, gs://, az://, abfs://, abfss:// or hf://, in letters of any case? */
bool url_is(const char *path);

/* The address for messages: without a user's name and password, and without what follows a "?", which may be a
 * signature. Owned by the caller; NULL when out of memory. */
char *url_shown(const char *url);

/* A message that begins with url_shown's text: the address, then `what`. Returns `code`. ENOMEM. */
int url_refuse(int code, const char *address, const char *what);

#endif
