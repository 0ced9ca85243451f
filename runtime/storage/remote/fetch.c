#include "storage/remote/fetch.h"

#ifndef SHARDRT_WITHOUT_CURL

#include <assert.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/authorities.h"
#include "storage/exchange/exchange.h"
#include "storage/remote/reply.h"
#include "storage/service/service.h"

enum {
  IDLE = 64, /* of those that opened many files at once (view/survey.h), which find connections again for the next */
  REDIRECTS = 10,
  LOOK = 100,   /* milliseconds from one look to the next whether all is given up */
  ALL_TRIES = 4 /* times one attempt's limit, for all of them */
};

static const double CONNECT_SECONDS = 10, FIRST_PAUSE = 0.25;

/* One connection's worth of work. */
struct transfer {
  CURL *easy;
  struct service_request call;   /* the attempt at hand, */
  struct curl_slist *headers;    /* and its headers */
  struct fetch_request *request; /* NULL: idle */
  struct reply reply;
  bool running; /* the library has it */
  bool learned; /* what a server refused was asked for in another way */
  char *moved;  /* where a server sent this attempt, whose headers are only for hosts that the recipe meant; or NULL */
  int32_t moves;
  int32_t tries;
  double begun, next; /* when the first attempt was made; when the next one shall be */
  uint8_t *data;
  size_t room;
  char why[CURL_ERROR_SIZE];
};

struct fetch {
  CURLM *multi;
  double seconds; /* for one attempt */
  uint64_t random;
  int32_t busy; /* transfers that have a request */
  struct transfer transfers[FETCH_IN_FLIGHT];
};

/* ---- set up ----------------------------------------------------------------------------------------------------- */

static void start_library(void) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
}

static double limit_of(double seconds, size_t bytes) {
  return seconds + (double)bytes / FETCH_SLOWEST;
}

double fetch_patience(size_t bytes) {
  double seconds;
  (void)exchange_seconds(&seconds); /* what is wrong with it, who asks a server is told */
  return ALL_TRIES * limit_of(seconds, bytes) + 5;
}

/* Those that nobody has any more: the next one takes over their connections. */
static struct {
  pthread_mutex_t lock;
  struct fetch *list[IDLE];
  int32_t count;
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct fetch *take_idle(void) {
  pthread_mutex_lock(&idle.lock);
  struct fetch *taken = idle.count > 0 ? idle.list[--idle.count] : NULL;
  pthread_mutex_unlock(&idle.lock);
  return taken;
}

static bool keep_idle(struct fetch *self) {
  pthread_mutex_lock(&idle.lock);
  const bool kept = idle.count < IDLE;
  if (kept) idle.list[idle.count++] = self;
  pthread_mutex_unlock(&idle.lock);
  return kept;
}

int fetch_new(struct fetch **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start_library);
  *out = take_idle();
  if (*out != NULL) return SHARDRT_OK;
  struct fetch *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  if (getrandom(&made->random, sizeof made->random, 0) != (ssize_t)sizeof made->random) made->random = 1;
  made->multi = curl_multi_init();
  if (made->multi == NULL) {
    alloc_free(made);
    return error_set(SHARDRT_ENOMEM, "libcurl is out of memory");
  }
  curl_multi_setopt(made->multi, CURLMOPT_MAXCONNECTS, (long)FETCH_IN_FLIGHT);
  *out = made;
  return SHARDRT_OK;
}

static void forget_move(struct transfer *t) {
  alloc_free(t->moved);
  t->moved = NULL;
  t->moves = 0;
}

/* Takes an attempt away from the library. */
static void stop_transfer(struct fetch *self, struct transfer *t) {
  if (t->running) curl_multi_remove_handle(self->multi, t->easy);
  t->running = false;
  curl_slist_free_all(t->headers);
  t->headers = NULL;
  service_request_free(&t->call);
}

void fetch_free(struct fetch *self) {
  if (self == NULL) return;
  for (int32_t i = 0; i < FETCH_IN_FLIGHT; i++) {
    forget_move(&self->transfers[i]);
    alloc_free(self->transfers[i].data);
    self->transfers[i].data = NULL;
    self->transfers[i].room = 0;
  }
  if (keep_idle(self)) return;
  for (int32_t i = 0; i < FETCH_IN_FLIGHT; i++)
    if (self->transfers[i].easy != NULL) curl_easy_cleanup(self->transfers[i].easy);
  curl_multi_cleanup(self->multi);
  alloc_free(self);
}

/* ---- one attempt ------------------------------------------------------------------------------------------------ */

static size_t on_header(char *line, size_t size, size_t n, void *context) {
  struct transfer *t = context;
  return reply_header(&t->reply, line, size * n) ? size * n : 0;
}

static size_t on_data(char *data, size_t size, size_t n, void *context) {
  struct transfer *t = context;
  struct reply *reply = &t->reply;
  const size_t bytes = size * n;
  if (!reply->accepted) { /* the words of an error, which are not long */
    reply_words(reply, data, bytes);
    reply->ignored += bytes;
    reply->stopped = reply->ignored >= (1 << 16);
    return reply->stopped ? 0 : bytes;
  }
  if (t->request->take != NULL) {
    const int code = t->request->take(t->request->context, (const uint8_t *)data, bytes);
    reply->got += bytes;
    if (code != SHARDRT_OK) reply_fail(reply, code);
    return code == SHARDRT_OK ? bytes : 0;
  }
  if (bytes > reply->promised - reply->got) {
    snprintf(reply->wrong, sizeof reply->wrong, "more bytes came than were asked for");
    reply->kind_known = false;
    return 0;
  }
  memcpy(t->data + reply->got, data, bytes);
  reply->got += bytes;
  return bytes;
}

static int add_header(struct transfer *t, const char *line) {
  struct curl_slist *list = curl_slist_append(t->headers, line);
  if (list == NULL) return error_set(SHARDRT_ENOMEM, "libcurl is out of memory");
  t->headers = list;
  return SHARDRT_OK;
}

static const char UNIT[] = "bytes=";

static void write_range(const struct fetch_request *r, char *out, size_t room) {
  snprintf(out, room, "%s%zu-%zu", UNIT, r->offset, r->offset + r->bytes - 1);
}

/* The ETag that If-None-Match has; NULL: it is not sent. */
static const char *known_tag(const struct fetch_request *r) {
  return r->known != NULL && r->known->etag[0] != '\0' ? r->known->etag : NULL;
}

static int set_headers(struct transfer *t) {
  const struct fetch_request *r = t->request;
  char range[64], condition[FETCH_TEXT + 32];
  write_range(r, range, sizeof range);
  curl_easy_setopt(t->easy, CURLOPT_RANGE, r->take == NULL ? range + strlen(UNIT) : NULL);
  int code = SHARDRT_OK;
  /* Not If-Modified-Since: that is true also of another file with an older date, which is put in its place. */
  if (known_tag(r) != NULL) {
    snprintf(condition, sizeof condition, "If-None-Match: %s", known_tag(r));
    code = add_header(t, condition);
  }
  const bool is_meant = t->moved == NULL || service_same_origin(t->moved, t->call.url);
  for (int32_t i = 0; i < SERVICE_HEADERS && is_meant && t->call.headers[i] != NULL && code == SHARDRT_OK; i++)
    code = add_header(t, t->call.headers[i]);
  curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
  return code;
}

static void set_options(const struct fetch *self, struct transfer *t, double left) {
  const struct fetch_request *r = t->request;
  const size_t bytes = r->take != NULL && r->version != NULL ? (size_t)r->version->bytes : r->bytes;
  const double most = limit_of(self->seconds, bytes), limit = left < most ? left : most;
  CURL *easy = t->easy;
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_URL, t->moved != NULL ? t->moved : t->call.url);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "shardrt");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* a proxy's answers are none of the server's */
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, t->call.follows && !t->call.confined ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)REDIRECTS);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* a connection for each in flight */
  const char *authorities = authorities_file();
  if (authorities != NULL) curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                   (long)(1000 * (self->seconds < CONNECT_SECONDS ? self->seconds : CONNECT_SECONDS)));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, limit > 0 ? (long)(1000 * limit) + 1 : 1L); /* 0 would be none */
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L); /* a large one that stands still ends before its time is up */
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)self->seconds + 1);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->why);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
}

/* How long all attempts may take. */
static double seconds_in_all(const struct fetch *self, const struct fetch_request *r) {
  const size_t bytes = r->take != NULL && r->version != NULL ? (size_t)r->version->bytes : r->bytes;
  return ALL_TRIES * limit_of(self->seconds, bytes);
}

static int start_transfer(struct fetch *self, struct transfer *t) {
  struct fetch_request *r = t->request;
  int code = r->take != NULL ? r->take(r->context, NULL, 0) : SHARDRT_OK;
  if (code != SHARDRT_OK) return code;
  t->why[0] = '\0';
  t->reply = (struct reply){.request = r};
  t->tries++;
  char range[64];
  write_range(r, range, sizeof range);
  code = service_request_part(r->url, r->take == NULL ? range : NULL, known_tag(r), &t->call);
  if (code != SHARDRT_OK) return code;
  set_options(self, t, t->begun + seconds_in_all(self, r) - shardrt_clock());
  code = set_headers(t);
  if (code != SHARDRT_OK) return code;
  if (curl_multi_add_handle(self->multi, t->easy) != CURLM_OK)
    return error_set(SHARDRT_ENOMEM, "libcurl cannot begin a request");
  t->running = true;
  return SHARDRT_OK;
}

static int take_up(struct fetch *self, struct transfer *t, struct fetch_request *request) {
  if (t->easy == NULL) t->easy = curl_easy_init();
  if (t->easy == NULL) return error_set(SHARDRT_ENOMEM, "libcurl is out of memory");
  if (request->take == NULL && t->room < request->bytes) {
    alloc_free(t->data);
    t->room = 0;
    t->data = alloc_array(request->bytes, 1);
    if (t->data == NULL) return ALLOC_FAILED;
    t->room = request->bytes;
  }
  t->request = request;
  self->busy++;
  t->tries = 0;
  t->learned = false;
  forget_move(t);
  t->begun = shardrt_clock();
  return start_transfer(self, t);
}

/* ---- how it went ------------------------------------------------------------------------------------------------ */

/* What the library has to say against a server or the way to it will not change for another attempt. */
static bool is_final(CURLcode result) {
  return result == CURLE_URL_MALFORMAT || result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_TOO_MANY_REDIRECTS ||
         result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CACERT_BADFILE ||
         result == CURLE_OUT_OF_MEMORY;
}

/* Whole seconds; 0: it does not say. */
static double retry_after(CURL *easy) {
  curl_off_t seconds = 0;
  curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &seconds);
  return seconds > 0 ? (double)seconds : 0;
}

static int give_up(const struct transfer *t, const char *why, const char *more) {
  const struct fetch_request *r = t->request;
  char where[80] = "the whole file";
  if (r->take == NULL) snprintf(where, sizeof where, "bytes %zu to %zu", r->offset, r->offset + r->bytes - 1);
  return error_set(SHARDRT_EIO, "%s: %s: %s%s (%d %s, %.1f s)", r->shown, where, why, more, (int)t->tries,
                   t->tries == 1 ? "try" : "tries", shardrt_clock() - t->begun);
}

/* Has the attempt made again after a pause, if there is still one, and time for it. */
static int try_again(struct fetch *self, struct transfer *t, int32_t tries, const char *why) {
  const double now = shardrt_clock(), end = t->begun + seconds_in_all(self, t->request);
  const double asked = retry_after(t->easy);
  double most = FIRST_PAUSE;
  for (int32_t i = 1; i < t->tries; i++) most *= 2;
  self->random = self->random * 6364136223846793005u + 1442695040888963407u;
  const double pause = asked > 0 ? asked : most * (0.5 + 0.5 * (double)(self->random >> 33) / 2147483648.0);
  forget_move(t);
  if (t->tries >= tries) return give_up(t, why, "");
  if (now + pause >= end)
    return give_up(t, why, asked > 0 ? ", and wants to be asked later than there is time for" : ", until time was up");
  t->next = now + pause;
  return SHARDRT_OK;
}

/* Where an attempt is sent on that follows redirects by itself, as its headers must not come to other hosts: is asked
 * there at once. *done stays false. */
static int follow(struct transfer *t) {
  char *to = NULL;
  curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
  char *copy = to != NULL ? alloc_text("%s", to) : NULL;
  if (to == NULL || ++t->moves > REDIRECTS) {
    alloc_free(copy);
    return give_up(t, to == NULL ? "the server sends on to nowhere" : "the server sends on and on", "");
  }
  alloc_free(t->moved);
  t->moved = copy;
  t->tries--; /* it is the same one */
  t->next = 0;
  return copy != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static bool was_sent_on(const struct transfer *t) {
  long redirects = 0;
  curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_COUNT, &redirects);
  return redirects > 0 || t->moved != NULL;
}

/* A link to which a server sent this attempt may have expired on the way: it is asked for another one, once. */
static bool wants_new_link(const struct transfer *t, long status) {
  return (status == 400 || status == 401 || status == 403 || status == 410) && was_sent_on(t);
}

/* After a server refused. */
static int settle_refusal(struct fetch *self, struct transfer *t, int32_t tries, bool *done) {
  const struct reply *reply = &t->reply;
  struct fetch_request *r = t->request;
  struct refusal refusal;
  char why[SERVICE_ADVICE + 384] = "the server answers ";
  refusal_read(reply->status, &reply->refusal, reply->words, reply->nwords, &refusal);
  if (r->offset == 0 && refusal_is_of_empty(&refusal)) {
    r->kind = FETCH_PART;
    r->found = (struct fetch_version){.bytes = 0};
    r->got = 0;
    *done = true;
    return SHARDRT_OK;
  }
  if (!t->learned && wants_new_link(t, refusal.status)) {
    t->learned = true;
    forget_move(t);
    t->next = 0;
    return SHARDRT_OK;
  }
  if (service_is_missing(r->url, &refusal)) {
    r->kind = FETCH_MISSING;
    *done = true;
    return SHARDRT_OK;
  }
  if (!t->learned && service_learn(r->url, &refusal)) {
    t->learned = true;
    t->next = 0;
    return SHARDRT_OK;
  }
  service_explain(r->url, &refusal, why + strlen(why));
  return refusal_passes(&refusal) ? try_again(self, t, tries, why) : give_up(t, why, "");
}

/* After the library has ended an attempt. */
static int settle_transfer(struct fetch *self, struct transfer *t, CURLcode result, int32_t tries, bool *done) {
  char why[CURL_ERROR_SIZE + 64];
  struct reply *reply = &t->reply;
  struct fetch_request *r = t->request;
  const bool confined = t->call.confined;
  stop_transfer(self, t);
  *done = false;
  if (reply->code != SHARDRT_OK) return error_set(reply->code, "%s", reply->message);
  if (reply->kind_known && (result == CURLE_OK || reply->stopped)) {
    const bool is_short = reply->accepted && reply->got != reply->promised && reply->promised != SIZE_MAX;
    if (!is_short) {
      r->data = t->data;
      r->got = reply->accepted ? reply->got : 0;
      *done = true;
      return SHARDRT_OK;
    }
    snprintf(why, sizeof why, "%zu bytes came, not %zu", reply->got, reply->promised);
    return try_again(self, t, tries, why);
  }
  if (reply->wrong[0] != '\0') return try_again(self, t, tries, reply->wrong);
  if (result == CURLE_OK && confined && reply->status > 300 && reply->status < 309 && reply->status != 304)
    return follow(t);
  if (result == CURLE_OK || (result == CURLE_WRITE_ERROR && !reply->accepted))
    return settle_refusal(self, t, tries, done);
  const char *said = t->why[0] != '\0' ? t->why : curl_easy_strerror(result);
  if (result == CURLE_OPERATION_TIMEDOUT) /* without the library's milliseconds: processes then say the same */
    said = reply->status != 0 ? "the server's answer did not come whole in time (SHARDRT_HTTP_TIMEOUT)"
                              : "no answer came in time (SHARDRT_HTTP_TIMEOUT)";
  snprintf(why, sizeof why, "%s", said);
  const char *advice = result == CURLE_SSL_CACERT_BADFILE ? "; CURL_CA_BUNDLE names a file of certificates" : "";
  return is_final(result) ? give_up(t, why, advice) : try_again(self, t, tries, why);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

bool fetch_is_free(const struct fetch *self) {
  return self->busy < FETCH_IN_FLIGHT;
}

bool fetch_is_busy(const struct fetch *self) {
  return self->busy > 0;
}

int fetch_begin(struct fetch *self, struct fetch_request *request) {
  struct transfer *t = self->transfers;
  assert(fetch_is_free(self));
  while (t->request != NULL) t++;
  const int code = exchange_seconds(&self->seconds);
  return code == SHARDRT_OK ? take_up(self, t, request) : code;
}

/* Makes again what was to wait until now; *pause: until the next one that waits, ms, if that is sooner. */
static int begin_again(struct fetch *self, int *pause) {
  const double now = shardrt_clock();
  for (int32_t i = 0; i < FETCH_IN_FLIGHT; i++) {
    struct transfer *t = &self->transfers[i];
    if (t->request == NULL || t->running) continue;
    const double wait = 1000 * (t->next - now);
    if (wait > 0 && wait < *pause) *pause = (int)wait + 1;
    const int code = wait > 0 ? SHARDRT_OK : start_transfer(self, t);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

/* *any: an attempt has ended. */
static int take_ended(struct fetch *self, const struct fetch_rules *rules, bool *any) {
  int left;
  *any = false;
  for (CURLMsg *m = curl_multi_info_read(self->multi, &left); m != NULL; m = curl_multi_info_read(self->multi, &left)) {
    struct transfer *t = NULL;
    if (m->msg != CURLMSG_DONE) continue;
    const CURLcode result = m->data.result;
    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
    *any = true;
    bool done;
    int code = settle_transfer(self, t, result, rules->tries, &done);
    if (code == SHARDRT_OK && done) {
      code = rules->ended(rules->context, t->request);
      t->request = NULL;
      self->busy--;
    }
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

int fetch_go_on(struct fetch *self, const struct fetch_rules *rules, int most) {
  int running, pause = rules->given_up == NULL || most < LOOK ? most : LOOK;
  bool any;
  if (rules->given_up != NULL && atomic_load(rules->given_up))
    return error_set(SHARDRT_ECOMM, "nobody waits for it any more");
  int code = begin_again(self, &pause);
  if (code != SHARDRT_OK) return code;
  curl_multi_perform(self->multi, &running);
  code = take_ended(self, rules, &any);
  if (code == SHARDRT_OK && !any && fetch_is_busy(self)) curl_multi_poll(self->multi, NULL, 0, pause, NULL);
  return code;
}

void fetch_stop(struct fetch *self) {
  for (int32_t i = 0; i < FETCH_IN_FLIGHT; i++) {
    stop_transfer(self, &self->transfers[i]);
    self->transfers[i].request = NULL;
  }
  self->busy = 0;
}

int fetch_run(struct fetch *self, struct fetch_request *requests, int64_t n, const struct fetch_rules *rules) {
  int64_t begun = 0;
  int code = SHARDRT_OK;
  while ((begun < n || fetch_is_busy(self)) && code == SHARDRT_OK) {
    while (begun < n && fetch_is_free(self) && code == SHARDRT_OK) code = fetch_begin(self, &requests[begun++]);
    if (code == SHARDRT_OK) code = fetch_go_on(self, rules, FETCH_WAIT);
  }
  if (code != SHARDRT_OK) fetch_stop(self); /* some may still run */
  return code;
}

#else

#include "base/libraries.h"

int fetch_new(struct fetch **out) {
  (void)out;
  return libraries_missing("curl (libcurl), which reads from HTTP servers");
}

/* There is none to call these with. */
void fetch_free(struct fetch *self) {
  (void)self;
}

bool fetch_is_free(const struct fetch *self) {
  (void)self;
  return false;
}

bool fetch_is_busy(const struct fetch *self) {
  (void)self;
  return false;
}

int fetch_begin(struct fetch *self, struct fetch_request *request) {
  (void)self, (void)request;
  return libraries_missing("curl (libcurl)");
}

int fetch_go_on(struct fetch *self, const struct fetch_rules *rules, int most) {
  (void)self, (void)rules, (void)most;
  return libraries_missing("curl (libcurl)");
}

void fetch_stop(struct fetch *self) {
  (void)self;
}

int fetch_run(struct fetch *self, struct fetch_request *requests, int64_t n, const struct fetch_rules *rules) {
  (void)self, (void)requests, (void)n, (void)rules;
  return libraries_missing("curl (libcurl)");
}

double fetch_patience(size_t bytes) {
  (void)bytes;
  return 0;
}

#endif
