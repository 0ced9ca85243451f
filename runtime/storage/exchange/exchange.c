#include "storage/exchange/exchange.h"

#include <stdlib.h>

#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"

static const double FIRST_PAUSE = 0.25;

void exchange_pause(int32_t tries) {
  double seconds = FIRST_PAUSE;
  uint32_t random = UINT32_MAX / 2;
  (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
  for (int32_t i = 1; i < tries; i++) seconds *= 2;
  seconds *= 0.5 + 0.5 * (double)random / UINT32_MAX;
  nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))},
            NULL);
}

enum { USUAL_SECONDS = 30, SECONDS_MOST = 86400 };

int exchange_seconds(double *out) {
  const char *text = getenv("SHARDRT_HTTP_TIMEOUT"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  char *end;
  *out = USUAL_SECONDS;
  if (text == NULL || text[0] == '\0') return SHARDRT_OK;
  const double asked = strtod(text, &end);
  if (*end != '\0' || !(asked > 0) || asked > SECONDS_MOST)
    return error_set(SHARDRT_EINVAL, "SHARDRT_HTTP_TIMEOUT is \"%s\"; it is a number of seconds, above 0 and up to %d",
                     text, SECONDS_MOST);
  *out = asked;
  return SHARDRT_OK;
}

void exchange_free(struct exchange_answer *self) {
  alloc_free(self->body);
  *self = (struct exchange_answer){0};
}

/* What gives something to all processes of a job may have too much to do. */
int exchange_patiently(const struct exchange_request *request, int32_t most, struct exchange_answer *out) {
  for (int32_t tries = 1;; tries++) {
    const int code = exchange(request, out);
    const bool passes = code == SHARDRT_OK ? out->status == 429 || out->status >= 500 : code == SHARDRT_EIO;
    if (!passes || tries == most) return code;
    exchange_free(out);
    exchange_pause(tries);
  }
}

#ifndef SHARDRT_WITHOUT_CURL

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "storage/exchange/authorities.h"

enum { REDIRECTS = 10, LINE = 8192 /* of headers */ };

struct exchange_under_way {
  const struct exchange_request *request;
  struct exchange_answer *answer;
  size_t room, sent;
  bool out_of_memory, too_long;
};

static size_t on_body(char *data, size_t size, size_t n, void *context) {
  struct exchange_under_way *now = context;
  struct exchange_answer *answer = now->answer;
  const size_t bytes = size * n;
  now->too_long = bytes > EXCHANGE_ANSWER - answer->bytes;
  if (now->too_long) return 0;
  if (now->room < answer->bytes + bytes + 1) {
    const size_t room = 2 * (answer->bytes + bytes) + 1;
    char *larger = alloc_array(room, 1);
    now->out_of_memory = larger == NULL;
    if (larger == NULL) return 0;
    if (answer->bytes > 0) memcpy(larger, answer->body, answer->bytes);
    alloc_free(answer->body);
    answer->body = larger;
    now->room = room;
  }
  memcpy(answer->body + answer->bytes, data, bytes);
  answer->bytes += bytes;
  answer->body[answer->bytes] = '\0';
  return bytes;
}

static void keep_header(const char *line, const char *name, char *out, size_t room) {
  const size_t head = strlen(name);
  if (strncasecmp(line, name, head) != 0 || line[head] != ':') return;
  const char *value = line + head + 1;
  while (*value == ' ') value++;
  snprintf(out, room, "%.*s", (int)strcspn(value, "\r\n"), value);
}

/* <https://host/x?cursor=y>; rel="next". False: it does not fit, and a listing would end there without a word. */
static bool keep_next(const char *line, char *out, size_t room) {
  char links[LINE] = "";
  keep_header(line, "Link", links, sizeof links);
  const char *rel = strstr(links, "rel=\"next\""), *begin = NULL;
  for (const char *at = links; rel != NULL && at < rel; at++)
    if (*at == '<') begin = at + 1;
  if (begin == NULL) return true;
  const size_t length = strcspn(begin, ">");
  snprintf(out, room, "%.*s", (int)length, begin);
  return length < room;
}

static size_t on_header(char *data, size_t size, size_t n, void *context) {
  struct exchange_answer *answer = context;
  char line[LINE];
  snprintf(line, sizeof line, "%.*s", (int)(size * n), data);
  if (size * n >= sizeof line && strncasecmp(line, "Link:", 5) == 0) return 0;
  if (strncmp(line, "HTTP/", 5) == 0) { /* the one before was a redirect's */
    answer->etag[0] = answer->mark[0] = answer->next[0] = '\0';
    answer->refusal = (struct refusal_headers){0};
  }
  refusal_header(data, size * n, &answer->refusal);
  keep_header(line, "ETag", answer->etag, sizeof answer->etag);
  keep_header(line, "x-amz-meta-" EXCHANGE_MARK, answer->mark, sizeof answer->mark);
  keep_header(line, "x-goog-meta-" EXCHANGE_MARK, answer->mark, sizeof answer->mark);
  return keep_next(line, answer->next, sizeof answer->next) ? size * n : 0;
}

static size_t on_read(char *data, size_t size, size_t n, void *context) {
  struct exchange_under_way *now = context;
  const size_t left = now->request->bytes - now->sent, bytes = left < size * n ? left : size * n;
  memcpy(data, (const char *)now->request->body + now->sent, bytes);
  now->sent += bytes;
  return bytes;
}

static int on_seek(void *context, curl_off_t offset, int origin) {
  struct exchange_under_way *now = context;
  if (origin != SEEK_SET) return CURL_SEEKFUNC_FAIL;
  now->sent = (size_t)offset;
  return CURL_SEEKFUNC_OK;
}

static struct curl_slist *list_of_headers(const struct exchange_request *request, bool *whole) {
  struct curl_slist *list = NULL;
  *whole = true;
  for (int32_t i = 0; i < EXCHANGE_HEADERS && request->headers[i] != NULL && *whole; i++) {
    struct curl_slist *longer = curl_slist_append(list, request->headers[i]);
    *whole = longer != NULL;
    if (*whole) list = longer;
  }
  return list;
}

static int on_progress(void *context, curl_off_t all, curl_off_t came, curl_off_t size, curl_off_t sent) {
  (void)all, (void)came, (void)size, (void)sent;
  return *((const struct exchange_request *)context)->is_given_up;
}

static void set_body(CURL *easy, struct exchange_under_way *now) {
  const struct exchange_request *request = now->request;
  const bool is_get = strcmp(request->method, "GET") == 0;
  if (request->body != NULL) {
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(easy, CURLOPT_READDATA, now);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, now);
    curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->bytes);
  } else if (strcmp(request->method, "HEAD") == 0) {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  }
  if (!is_get) curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static void set_request(CURL *easy, struct exchange_under_way *now, struct curl_slist *headers, char *why) {
  const struct exchange_request *request = now->request;
  const char *authorities = authorities_file();
  curl_easy_setopt(easy, CURLOPT_URL, request->url);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, request->follows ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)REDIRECTS);
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "shardrt");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  if (authorities != NULL) curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(1000 * request->seconds) + 1);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, now->answer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, now);
  if (request->is_given_up != NULL) {
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, request);
  }
  set_body(easy, now);
}

static int run_exchange(CURL *easy, struct exchange_under_way *now) {
  bool whole;
  char why[CURL_ERROR_SIZE] = "";
  struct curl_slist *headers = list_of_headers(now->request, &whole);
  CURLcode result = CURLE_OUT_OF_MEMORY;
  if (whole) {
    set_request(easy, now, headers, why);
    result = curl_easy_perform(easy);
  }
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &now->answer->status);
  curl_slist_free_all(headers);
  if (now->out_of_memory) return ALLOC_FAILED;
  if (!whole || result == CURLE_OUT_OF_MEMORY) return error_set(SHARDRT_ENOMEM, "libcurl is out of memory");
  if (now->too_long)
    return error_set(SHARDRT_EIO, "%s: the server's answer is longer than %d MiB", now->request->shown,
                     EXCHANGE_ANSWER >> 20);
  if (result == CURLE_OK) return SHARDRT_OK;
  return error_set(SHARDRT_EIO, "%s: %s", now->request->shown, why[0] != '\0' ? why : curl_easy_strerror(result));
}

int exchange(const struct exchange_request *request, struct exchange_answer *out) {
  struct exchange_under_way now = {.request = request, .answer = out};
  *out = (struct exchange_answer){0};
  CURL *easy = curl_easy_init();
  if (easy == NULL) return error_set(SHARDRT_ENOMEM, "libcurl is out of memory");
  int code = run_exchange(easy, &now);
  curl_easy_cleanup(easy);
  if (code == SHARDRT_OK && out->body == NULL) {
    out->body = alloc_text("%s", "");
    if (out->body == NULL) code = ALLOC_FAILED;
  }
  if (code != SHARDRT_OK) exchange_free(out);
  return code;
}

#else

#include "base/libraries.h"

int exchange(const struct exchange_request *request, struct exchange_answer *out) {
  (void)request;
  *out = (struct exchange_answer){0};
  return libraries_missing("curl (libcurl), which reads from HTTP servers");
}

#endif
