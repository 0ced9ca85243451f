#include "base/secret.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static const char hidden[] = "…";

/* Where an address ends that begins here: at a space or a quote, or before punctuation that stands before one. */
static size_t address_length(const char *text) {
  size_t length = strcspn(text, " \t\n\"'");
  while (length > 0 && strchr(":,;.)", text[length - 1]) != NULL) length--;
  return length;
}

static void cut_out(char *from, size_t bytes) {
  memmove(from, from + bytes, strlen(from + bytes) + 1);
}

/* Of an address from its host on; returns how long it is then. */
static size_t hide_in(char *host) {
  const char *at = memrchr(host, '@', strcspn(host, "/?# \t\n"));
  if (at != NULL) cut_out(host, (size_t)(at + 1 - host));
  const size_t length = address_length(host), before = strcspn(host, "?");
  const size_t shown = sizeof hidden - 1;
  if (before >= length || length - before - 1 < shown) return length; /* so short is no secret */
  memcpy(host + before + 1, hidden, shown);
  cut_out(host + before + 1 + shown, length - before - 1 - shown);
  return before + 1 + shown;
}

void secret_hide(char *text) {
  static const char *const schemes[] = {"http://", "https://"};
  for (char *at = strcasestr(text, "http"); at != NULL; at = strcasestr(at, "http")) {
    size_t scheme = 0;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
      if (strncasecmp(at, schemes[i], strlen(schemes[i])) == 0) scheme = strlen(schemes[i]);
    at += scheme > 0 ? scheme : 1;
    if (scheme > 0) at += hide_in(at);
  }
}
