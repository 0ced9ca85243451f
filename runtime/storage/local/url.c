#include "storage/local/url.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"

static bool is_http(const char *path) {
  return strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

bool url_is(const char *path) {
  static const char *const schemes[] = {"s3://", "gs://", "az://", "abfs://", "abfss://", "hf://"};
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
    if (strncasecmp(path, schemes[i], strlen(schemes[i])) == 0) return true;
  return is_http(path);
}

/* Whether what stands before the first slash may be a secret: no bucket's name has such marks. But Azure's address may
 * be "container@account.dfs.core.windows.net", and that of Hugging Face "name@revision". */
static bool has_secret(const char *url, const char *host, size_t length) {
  const bool may_have_at = strncasecmp(url, "a", 1) == 0 || strncasecmp(url, "hf", 2) == 0;
  return strcspn(host, may_have_at ? ":" : ":@") < length;
}

char *url_shown(const char *url) {
  const char *begin = strstr(url, "://"), *host = begin != NULL ? begin + 3 : url;
  if (!is_http(url)) { /* "?" is a part of a key, and no bucket's name has a secret's marks in it */
    return url_is(url) && has_secret(url, host, strcspn(host, "/")) ? alloc_text("%.*s…", (int)(host - url), url)
                                                                    : alloc_text("%s", url);
  }
  const size_t authority = strcspn(host, "/?#"), rest = strcspn(host, "?#");
  const char *at = memrchr(host, '@', authority);
  const char *from = at != NULL ? at + 1 : host;
  return alloc_text("%.*s%.*s%s", (int)(host - url), url, (int)(host + rest - from), from,
                    host[rest] == '?' ? "?…" : "");
}

int url_refuse(int code, const char *address, const char *what) {
  char *shown = url_shown(address);
  code = shown != NULL ? error_set(code, "%s: %s", shown, what) : ALLOC_FAILED;
  alloc_free(shown);
  return code;
}
