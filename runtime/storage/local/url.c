#include "storage/local/url.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"

bool url_is(const char *path) {
  return strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

char *url_shown(const char *url) {
  const char *host = strstr(url, "://") + 3;
  const size_t authority = strcspn(host, "/?#"), rest = strcspn(host, "?#");
  const char *at = memrchr(host, '@', authority);
  const char *from = at != NULL ? at + 1 : host;
  return alloc_text("%.*s%.*s%s", (int)(host - url), url, (int)(host + rest - from), from,
                    host[rest] == '?' ? "?…" : "");
}
