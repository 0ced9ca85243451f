#include "storage/exchange/refusal.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "storage/exchange/markup.h"

static void keep(const char *line, size_t bytes, const char *name, char *out, size_t room) {
  const size_t head = strlen(name);
  if (bytes <= head || strncasecmp(line, name, head) != 0 || line[head] != ':') return;
  const char *at = line + head + 1, *end = line + bytes;
  while (at < end && *at == ' ') at++;
  while (end > at && ((unsigned char)end[-1] <= ' ')) end--;
  snprintf(out, room, "%.*s", (int)(end - at), at);
}

void refusal_header(const char *line, size_t bytes, struct refusal_headers *out) {
  keep(line, bytes, "x-amz-bucket-region", out->region, sizeof out->region);
  keep(line, bytes, "X-Error-Code", out->code, sizeof out->code);
}

/* A message that was cut off within a character is none. */
static bool is_utf8(const char *text) {
  const uint8_t *at = (const uint8_t *)text, *end = at + strlen(text);
  while (at < end) {
    const size_t length = utf8_length(at, (size_t)(end - at));
    if (length == 0) return false;
    at += length;
  }
  return true;
}

/* Puts a text in, unless one is there, and frees it. */
static void put(char *text, char *out, size_t room) {
  if (text != NULL && out[0] == '\0') {
    size_t n = 0;
    for (const char *at = text; *at != '\0' && n + 1 < room; at++)
      out[n++] = (unsigned char)*at < ' ' || *at == 127 ? ' ' : *at;
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = '\0';
    if (!is_utf8(out)) out[0] = '\0';
  }
  alloc_free(text);
}

void refusal_read(long status, const struct refusal_headers *headers, const char *body, size_t bytes,
                  struct refusal *out) {
  const size_t n = bytes < REFUSAL_WORDS ? bytes : REFUSAL_WORDS;
  const struct markup all = {.at = body, .end = body + n};
  *out = (struct refusal){.status = status};
  snprintf(out->region, sizeof out->region, "%s", headers->region);
  snprintf(out->code, sizeof out->code, "%s", headers->code);
  if (n == 0) return;
  put(markup_text(&all, "Code"), out->code, sizeof out->code);
  put(markup_text(&all, "Message"), out->message, sizeof out->message);
  put(markup_text(&all, "Region"), out->region, sizeof out->region);
  put(markup_member(body, n, "error_description"), out->message, sizeof out->message); /* OAuth 2.0 */
  put(markup_member(body, n, "message"), out->message, sizeof out->message);
  put(markup_member(body, n, "error"), out->message, sizeof out->message);
}

bool refusal_passes(const struct refusal *self) {
  return self->status == 408 || self->status == 429 || self->status >= 500;
}

bool refusal_is_of_empty(const struct refusal *self) {
  return self->status == 416 && strcmp(self->code, "InvalidRange") == 0;
}
