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
  const char *begin = strstr(url, "://"), *host = begin != NULL ? begin + 3 : url;
  if (!is_http(url)) { /* "?" is a part of a key, and no bucket's name has a secret's marks in it */
    const size_t bucket = strcspn(host, "/"), secret = strcspn(host, ":@");
    return url_is(url) && secret < bucket ? alloc_text("%.*s…", (int)(host - url), url) : alloc_text("%s", url);
  }
  const size_t authority = strcspn(host, "/?#"), rest = strcspn(host, "?#");
  const char *at = memrchr(host, '@', authority);
  const char *from = at != NULL ? at + 1 : host;
  return alloc_text("%.*s%.*s%s", (int)(host - url), url, (int)(host + rest - from), from,
                    host[rest] == '?' ? "?…" : "");
}
