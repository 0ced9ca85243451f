#include "storage/exchange/aws_signature.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/digest.h"
#include "storage/exchange/signature.h"

enum { LINES = 24, DAY = 8 /* digits of a date */ };

/* What is signed. */
struct signing {
  char *lines[LINES]; /* "name:value" of its headers, sorted */
  int32_t count;
  char *names;     /* of the headers: "host;x-amz-date" */
  char *scope;     /* "20261123/region/s3/aws4_request" */
  char *canonical; /* the request, as AWS calls it */
};

static void clear(struct signing *self) {
  for (int32_t i = 0; i < self->count; i++) alloc_free(self->lines[i]);
  alloc_free(self->names);
  alloc_free(self->scope);
  alloc_free(self->canonical);
}

/* Takes the line; NULL: out of memory. */
static int add_line(struct signing *self, char *line) {
  if (line == NULL) return ALLOC_FAILED;
  if (self->count == LINES) {
    alloc_free(line);
    return error_set(SHARDRT_EINVAL, "a request with more than %d headers", LINES);
  }
  self->lines[self->count++] = line;
  return SHARDRT_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What stands between "://" and the path; *length: its bytes. */
static const char *authority_of(const char *url, size_t *length) {
  const char *mark = strstr(url, "://"), *begin = mark != NULL ? mark + 3 : url;
  *length = strcspn(begin, "/?");
  return begin;
}

char *aws_host(const char *url) {
  const char *own = strncasecmp(url, "https:", 6) == 0 ? ":443" : ":80";
  size_t length, port = strlen(own);
  const char *host = authority_of(url, &length), *at = memrchr(host, '@', length);
  if (at != NULL) {
    length -= (size_t)(at + 1 - host);
    host = at + 1;
  }
  if (length > port && strncmp(host + length - port, own, port) == 0) length -= port;
  if (length > 0 && host[length - 1] == ':') length--;
  return alloc_text("host: %.*s", (int)length, host);
}

static int add_lines(struct signing *self, const struct aws_request *r) {
  int code = SHARDRT_OK;
  for (int32_t i = 0; r->headers[i] != NULL && code == SHARDRT_OK; i++) {
    const char *header = r->headers[i], *value = strstr(header, ": ");
    if (value == NULL) return error_set(SHARDRT_EINVAL, "a header without a value: %s", header);
    code = add_line(self, alloc_text("%.*s:%s", (int)(value - header), header, value + 2));
  }
  qsort(self->lines, (size_t)self->count, sizeof *self->lines, by_name);
  return code;
}

/* `text` and so much of `more`, and `end`, in the place of `text`. */
static int append(char **text, const char *more, size_t length, const char *end) {
  char *longer = alloc_text("%s%.*s%s", *text != NULL ? *text : "", (int)length, more, end);
  alloc_free(*text);
  *text = longer;
  return longer != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static int describe(struct signing *self, const struct aws_request *r) {
  size_t length;
  const char *path = authority_of(r->url, &length);
  path += length;
  const char *query = path + strcspn(path, "?");
  int code = add_lines(self, r);
  if (code != SHARDRT_OK) return code;
  self->canonical = alloc_text("%s\n%.*s\n%s\n", r->method, query > path ? (int)(query - path) : 1,
                               query > path ? path : "/", *query == '?' ? query + 1 : "");
  if (self->canonical == NULL) return ALLOC_FAILED;
  for (int32_t i = 0; i < self->count && code == SHARDRT_OK; i++) {
    const char *line = self->lines[i];
    code = append(&self->canonical, line, strlen(line), "\n");
    if (code == SHARDRT_OK) code = append(&self->names, line, strcspn(line, ":"), i + 1 < self->count ? ";" : "");
  }
  if (code == SHARDRT_OK) code = append(&self->canonical, "\n", 1, self->names);
  if (code == SHARDRT_OK) code = append(&self->canonical, "\n", 1, r->payload);
  return code;
}

/* The key, and each of the words signed with what came before. */
static int sign_chain(const char *key, const char *const *words, size_t count, uint8_t mac[SIGNATURE_MAC]) {
  uint8_t by[SIGNATURE_MAC];
  int code = signature_mac((const uint8_t *)key, strlen(key), words[0], mac);
  for (size_t i = 1; i < count && code == SHARDRT_OK; i++) {
    memcpy(by, mac, sizeof by);
    code = signature_mac(by, sizeof by, words[i], mac);
  }
  return code;
}

static int sign(const struct signing *self, const struct aws_request *r, const char *day,
                char digits[2 * SIGNATURE_MAC + 1]) {
  char digest[DIGEST_ROOM];
  uint8_t mac[SIGNATURE_MAC] = {0};
  int code = digest_of("sha256", (const uint8_t *)self->canonical, strlen(self->canonical), digest);
  if (code != SHARDRT_OK) return code;
  char *key = alloc_text("AWS4%s", r->secret);
  char *text = alloc_text("AWS4-HMAC-SHA256\n%s\n%s\n%s", r->date, self->scope, digest);
  const char *const words[] = {day, r->region, "s3", "aws4_request", text};
  code = key != NULL && text != NULL ? sign_chain(key, words, sizeof words / sizeof *words, mac) : ALLOC_FAILED;
  for (size_t i = 0; i < SIGNATURE_MAC; i++) snprintf(digits + 2 * i, 3, "%02x", mac[i]);
  alloc_free(key);
  alloc_free(text);
  return code;
}

int aws_sign(const struct aws_request *r, char **out) {
  struct signing self = {0};
  char day[DAY + 1], digits[2 * SIGNATURE_MAC + 1];
  *out = NULL;
  snprintf(day, sizeof day, "%.*s", DAY, r->date);
  self.scope = alloc_text("%s/%s/s3/aws4_request", day, r->region);
  int code = self.scope != NULL ? describe(&self, r) : ALLOC_FAILED;
  if (code == SHARDRT_OK) code = sign(&self, r, day, digits);
  if (code == SHARDRT_OK) {
    *out = alloc_text("Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", r->key,
                      self.scope, self.names, digits);
    if (*out == NULL) code = ALLOC_FAILED;
  }
  clear(&self);
  return code;
}
