#include "storage/local/url.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"

static bool is_http(const char *path) {
  return strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

bool url_is(const char *path) {
  return is_http(path) || strncasecmp(path, "s3://", 5) == 0;
}

char *url_shown(const char *url) {
  if (!is_http(url)) return alloc_text("%s", url); /* without secrets; "?" is a part of a key */
  const char *host = strstr(url, "://") + 3;
  const size_t authority = strcspn(host, "/?#"), rest = strcspn(host, "?#");
  const char *at = memrchr(host, '@', authority);
  const char *from = at != NULL ? at + 1 : host;
  return alloc_text("%.*s%.*s%s", (int)(host - url), url, (int)(host + rest - from), from,
                    host[rest] == '?' ? "?…" : "");
}
