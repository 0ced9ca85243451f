#include "storage/service/refusal.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

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

/* What stands between <name> and </name>, or behind "name": in quotes. */
static void find_words(const char *body, const char *begin, const char *end, char *out, size_t room) {
  const char *at = strstr(body, begin);
  if (at == NULL || out[0] != '\0') return;
  at += strlen(begin);
  while (*at == ' ') at++;
  if (end[0] == '"' && *at++ != '"') return;
  const char *stop = strstr(at, end);
  if (stop == NULL) return;
  size_t n = 0;
  for (; at < stop && n + 1 < room; at++) out[n++] = (unsigned char)*at < ' ' || *at == 127 ? ' ' : *at;
  while (n > 0 && out[n - 1] == ' ') n--;
  out[n] = '\0';
}

void refusal_read(long status, const char *region, const char *body, size_t bytes, struct refusal *out) {
  char text[REFUSAL_WORDS + 1];
  const size_t n = bytes < REFUSAL_WORDS ? bytes : REFUSAL_WORDS;
  *out = (struct refusal){.status = status};
  memcpy(text, body, n);
  text[n] = '\0';
  snprintf(out->region, sizeof out->region, "%s", region);
  find_words(text, "<Code>", "</Code>", out->code, sizeof out->code);
  find_words(text, "<Message>", "</Message>", out->message, sizeof out->message);
  find_words(text, "<Region>", "</Region>", out->region, sizeof out->region);
  out->is_empty = strstr(text, "<ActualObjectSize>0</ActualObjectSize>") != NULL;
  find_words(text, "\"message\":", "\"", out->message, sizeof out->message);
  find_words(text, "\"error\":", "\"", out->message, sizeof out->message);
  if (!is_utf8(out->message)) out->message[0] = '\0';
}

bool refusal_passes(const struct refusal *self) {
  return self->status == 408 || self->status == 429 || self->status >= 500;
}
