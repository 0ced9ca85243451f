/* http.c - servers of HTTP: files as they stand, with the headers that recipes give for them; links that expire. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/times.h"
#include "storage/local/url.h"
#include "storage/service/services.h"

/* ---- headers of recipes ----------------------------------------------------------------------------------------- */

enum { BUCKETS = 4096 };

/* Those of an address, and of what lies below it. */
struct given_headers {
  char *address;
  char *lines[SERVICE_HEADERS]; /* NULL: no more */
  struct given_headers *next;
};

static struct {
  pthread_mutex_t lock;
  bool any;
  struct given_headers *buckets[BUCKETS]; /* by the address's hash */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct given_headers **bucket_of(const char *address, size_t length) {
  return &process.buckets[hash_bytes(0, address, length) % BUCKETS];
}

static void free_given(struct given_headers *self) {
  if (self == NULL) return;
  for (int32_t i = 0; i < SERVICE_HEADERS; i++) alloc_free(self->lines[i]);
  alloc_free(self->address);
  alloc_free(self);
}

/* Takes the place of what was given for the same address. */
static void enter(struct given_headers *made) {
  struct given_headers *old = NULL, **bucket = bucket_of(made->address, strlen(made->address));
  pthread_mutex_lock(&process.lock);
  for (struct given_headers **at = bucket; *at != NULL; at = &(*at)->next) {
    if (strcmp((*at)->address, made->address) != 0) continue;
    old = *at;
    *at = old->next;
    break;
  }
  made->next = *bucket;
  *bucket = made;
  process.any = true;
  pthread_mutex_unlock(&process.lock);
  free_given(old);
}

static int check_line(const char *line) {
  static const char *const ours[] = {"Range",           "If-None-Match", "If-Match",       "If-Modified-Since",
                                     "Accept-Encoding", "Host",          "Content-Length", "Transfer-Encoding",
                                     "Connection"};
  const size_t name = strcspn(line, ":");
  static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  if (line[name] != ':' || name == 0 || strspn(line, token) < name)
    return error_set(SHARDRT_EINVAL, "a header's name has letters, digits and hyphens, and no others");
  if (strpbrk(line, "\r\n") != NULL)
    return error_set(SHARDRT_EINVAL, "the header %.*s has the end of a line in its value", (int)name, line);
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (strlen(ours[i]) == name && strncasecmp(line, ours[i], name) == 0)
      return error_set(SHARDRT_EINVAL, "the header %s is shardrt's own", ours[i]);
  return SHARDRT_OK;
}

int shardrt_http_headers(const char *address, int32_t n, const char *const *lines) {
  if (n < 0 || n > SERVICE_HEADERS)
    return error_set(SHARDRT_EINVAL, "%d headers; at most %d can be sent", (int)n, SERVICE_HEADERS);
  for (int32_t i = 0; i < n; i++) {
    const int code = check_line(lines[i]);
    if (code != SHARDRT_OK) return code;
  }
  struct given_headers *made = alloc_zeros(1, sizeof *made);
  bool whole = made != NULL;
  if (whole) made->address = alloc_text("%s", address);
  whole = whole && made->address != NULL;
  for (int32_t i = 0; i < n && whole; i++) {
    made->lines[i] = alloc_text("%s", lines[i]);
    whole = made->lines[i] != NULL;
  }
  if (whole)
    enter(made);
  else
    free_given(made);
  return whole ? SHARDRT_OK : ALLOC_FAILED;
}

/* What was given for the first `length` bytes of an address; NULL: nothing. Locked. */
static const struct given_headers *find_given(const char *address, size_t length) {
  const struct given_headers *at = *bucket_of(address, length);
  while (at != NULL && (strncmp(at->address, address, length) != 0 || at->address[length] != '\0')) at = at->next;
  return at;
}

static size_t origin_length(const char *url) {
  const char *host = strstr(url, "://");
  return host != NULL ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : strlen(url);
}

static int add_given(const char *address, struct service_request *out) {
  const size_t least = origin_length(address);
  const struct given_headers *best = NULL;
  int code = SHARDRT_OK;
  pthread_mutex_lock(&process.lock);
  for (size_t length = strcspn(address, "?#"); process.any && best == NULL && length >= least; length--)
    if (strchr("/?#", address[length]) != NULL) best = find_given(address, length);
  for (int32_t i = 0; best != NULL && i < SERVICE_HEADERS && best->lines[i] != NULL && code == SHARDRT_OK; i++) {
    out->headers[i] = alloc_text("%s", best->lines[i]);
    out->confined = true;
    if (out->headers[i] == NULL) code = ALLOC_FAILED;
  }
  pthread_mutex_unlock(&process.lock);
  return code;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static int http_request(const struct service_call *call, struct service_request *out) {
  const char *address = call->address, *query = call->query;
  out->follows = true;
  out->url = query != NULL ? alloc_text("%s%s%s", address, strchr(address, '?') != NULL ? "&" : "?", query)
                           : alloc_text("%s", address);
  return out->url != NULL ? add_given(address, out) : ALLOC_FAILED;
}

bool service_same_origin(const char *a, const char *b) {
  const size_t length = origin_length(a);
  return length == origin_length(b) && strncasecmp(a, b, length) == 0;
}

/* ---- links that expire ------------------------------------------------------------------------------------------ */

/* The value of one of the query's names, decoded; owned; NULL: it has none. */
static char *parameter(const char *address, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = strchr(address, '?'); at != NULL; at = strchr(at + 1, '&')) {
    if (strncmp(at + 1, name, length) != 0 || at[1 + length] != '=') continue;
    const char *value = at + 2 + length;
    char *text = alloc_text("%.*s", (int)strcspn(value, "&#"), value);
    if (text != NULL) percent_decode(text, true);
    return text;
  }
  return NULL;
}

/* "20261123T120000Z" and seconds from then on; 0: they are none. */
static time_t signed_until(const char *address, const char *date_name, const char *seconds_name) {
  char *date = parameter(address, date_name), *seconds = parameter(address, seconds_name);
  const time_t begin = date != NULL ? times_read(date) : 0;
  const time_t until = begin != 0 && seconds != NULL ? times_after(begin, seconds) : 0;
  alloc_free(date);
  alloc_free(seconds);
  return until;
}

/* When a link ends by what stands in it: AWS's, Google's, Azure's, CloudFront's; 0: it does not say. */
static time_t link_ends(const char *address) {
  time_t until = signed_until(address, "X-Amz-Date", "X-Amz-Expires");
  if (until == 0) until = signed_until(address, "X-Goog-Date", "X-Goog-Expires");
  if (until != 0) return until;
  char *azure = parameter(address, "se"), *plain = parameter(address, "Expires");
  if (azure != NULL) until = times_read(azure);
  if (until == 0 && plain != NULL && strspn(plain, "0123456789") == strlen(plain)) until = times_after(0, plain);
  alloc_free(azure);
  alloc_free(plain);
  return until;
}

static const char *http_advice(const char *address, const struct refusal *refusal, char *room, size_t bytes) {
  const time_t until =
      refusal->status == 400 || refusal->status == 401 || refusal->status == 403 ? link_ends(address) : 0;
  if (until != 0 && until < time(NULL)) {
    char when[TIMES_ROOM];
    times_show(until, when);
    snprintf(room, bytes,
             "; this link expired at %s: a new one is needed, or an address whose links need not be signed", when);
    return room;
  }
  if (refusal->code[0] != '\0') return "";
  switch (refusal->status) {
  case 401:
    return " (it wants to know who asks: name:password@ before the host, or headers = { Authorization = … })";
  case 403:
    return " (it does not allow this)";
  case 408:
  case 504:
    return " (time was up on its side)";
  case 429:
    return " (too many requests)";
  case 500:
    return " (it failed)";
  case 502:
  case 503:
    return " (it cannot serve at the moment)";
  default:
    return "";
  }
}

const struct service service_http = {.request = http_request, .advice = http_advice};
