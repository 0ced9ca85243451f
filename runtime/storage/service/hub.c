/* hub.c - Hugging Face (https://huggingface.co/docs/hub/api), at HF_ENDPOINT where that is set.
 *
 * "hf://datasets/OWNER/NAME@revision/path", "hf://spaces/…", and "hf://OWNER/NAME/path" of a model. A revision is a
 * branch, a tag or a commit, in which "/" is written "%2F", but in those of Hugging Face's own, "refs/convert/NAME" and
 * "refs/pr/NUMBER", as its HfFileSystem has it; without one it is "main". This process asks once which
 * commit a revision is, and reads that one from then on, whatever is pushed meanwhile.
 *
 * Who one is stands where Hugging Face's own tools look: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, else the file HF_TOKEN_PATH,
 * $HF_HOME/token or ~/.cache/huggingface/token, unless HF_HUB_DISABLE_IMPLICIT_TOKEN is set. Files lie on other hosts,
 * to which the server sends on; libcurl does not take the token along. */
#include "storage/service/hub.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/json.h"
#include "storage/exchange/markup.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/settings.h"
#include "storage/local/url.h"
#include "storage/service/s3.h"
#include "storage/service/services.h"

enum { KIND = 16, REPOSITORY = 256, COMMIT = HUB_COMMIT, TRIES = 4 };

/* ---- addresses -------------------------------------------------------------------------------------------------- */

struct hub_address {
  char kind[KIND];             /* "datasets", "spaces", "models" */
  char repository[REPOSITORY]; /* "OWNER/NAME" */
  char revision[REPOSITORY];   /* decoded */
  const char *path;            /* in the address */
};

static int refuse_address(const char *address) {
  char *shown = url_shown(address);
  const int code =
      shown == NULL ? ALLOC_FAILED
                    : error_set(SHARDRT_EINVAL,
                                "%s: owner and name stand behind ://, as in hf://datasets/OWNER/NAME@revision/path, or "
                                "hf://OWNER/NAME/path of a model",
                                shown);
  alloc_free(shown);
  return code;
}

/* How long the revision is with which a text begins. */
static size_t revision_length(const char *text) {
  static const char in_words[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  static const struct { const char *begin, *then; } own[] = {{"refs/convert/", in_words}, {"refs/pr/", "0123456789"}};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    const size_t length = strlen(own[i].begin);
    const size_t then = strncmp(text, own[i].begin, length) == 0 ? strspn(text + length, own[i].then) : 0;
    if (then > 0 && strchr("/", text[length + then]) != NULL) return length + then;
  }
  return strcspn(text, "/");
}

static int parse_address(const char *address, struct hub_address *out) {
  static const char in_names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
  static const char *const kinds[] = {"datasets", "spaces", "models"};
  const char *at = strstr(address, "://") + 3;
  *out = (struct hub_address){.kind = "models", .revision = "main", .path = at};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const size_t length = strlen(kinds[i]);
    if (strncmp(at, kinds[i], length) != 0 || at[length] != '/') continue;
    snprintf(out->kind, sizeof out->kind, "%s", kinds[i]);
    at += length + 1;
    break;
  }
  const size_t owner = strspn(at, in_names), name = at[owner] == '/' ? strspn(at + owner + 1, in_names) : 0;
  const size_t all = owner + 1 + name;
  if (owner == 0 || name == 0 || all >= REPOSITORY || strchr("@/", at[all]) == NULL) return refuse_address(address);
  snprintf(out->repository, sizeof out->repository, "%.*s", (int)all, at);
  at += all;
  if (*at == '@') {
    const size_t length = revision_length(at + 1);
    if (length == 0 || length >= REPOSITORY) return refuse_address(address);
    snprintf(out->revision, sizeof out->revision, "%.*s", (int)length, at + 1);
    percent_decode(out->revision, false);
    at += 1 + length;
  }
  out->path = *at == '/' ? at + 1 : at;
  return SHARDRT_OK;
}

/* Owned; NULL: out of memory. */
static char *endpoint(void) {
  const char *named = settings_variable("HF_ENDPOINT");
  const char *host = named != NULL ? named : "https://huggingface.co";
  size_t length = strlen(host);
  while (length > 0 && host[length - 1] == '/') length--;
  return alloc_text("%.*s", (int)length, host);
}

/* ---- who one is ------------------------------------------------------------------------------------------------- */

/* Where the token lies; owned; NULL: nowhere, or out of memory. */
static char *token_path(void) {
  const char *path = settings_variable("HF_TOKEN_PATH"), *folder = settings_variable("HF_HOME");
  const char *caches = settings_variable("XDG_CACHE_HOME"), *home = settings_variable("HOME");
  if (path != NULL) return alloc_text("%s", path);
  if (folder != NULL) return alloc_text("%s/token", folder);
  if (caches != NULL) return alloc_text("%s/huggingface/token", caches);
  return home != NULL ? alloc_text("%s/.cache/huggingface/token", home) : NULL;
}

static struct {
  pthread_mutex_t lock;
  bool is_known;
  char *token; /* NULL: none */
} token = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the lock. */
static int find_token(void) {
  const char *named = settings_variable("HF_TOKEN"), *denied = settings_variable("HF_HUB_DISABLE_IMPLICIT_TOKEN");
  if (token.is_known) return SHARDRT_OK;
  if (named == NULL) named = settings_variable("HUGGING_FACE_HUB_TOKEN");
  char *found = named != NULL ? alloc_text("%s", named) : NULL;
  if (named != NULL && found == NULL) return ALLOC_FAILED;
  const bool is_denied = denied != NULL && strcmp(denied, "0") != 0;
  char *path = named == NULL && !is_denied ? token_path() : NULL;
  int code = SHARDRT_OK;
  if (path != NULL && access(path, R_OK) == 0)
    code = settings_line(path, "which should hold Hugging Face's token", &found);
  alloc_free(path);
  if (code != SHARDRT_OK) return code;
  token.token = found;
  token.is_known = true;
  return SHARDRT_OK;
}

/* *out: owned; NULL: there is none. */
static int make_header(char **out) {
  *out = NULL;
  pthread_mutex_lock(&token.lock);
  int code = find_token();
  if (code == SHARDRT_OK && token.token != NULL) {
    *out = alloc_text("Authorization: Bearer %s", token.token);
    if (*out == NULL) code = ALLOC_FAILED;
  }
  pthread_mutex_unlock(&token.lock);
  return code;
}

static bool is_anonymous(void) {
  pthread_mutex_lock(&token.lock);
  const bool is = token.token == NULL;
  pthread_mutex_unlock(&token.lock);
  return is;
}

/* ---- commits ---------------------------------------------------------------------------------------------------- */

/* What revisions are, as long as this process lives. */
static struct {
  pthread_mutex_t lock;
  int64_t count, room;
  struct pin {
    char *revision; /* "datasets/OWNER/NAME@main" */
    char commit[COMMIT + 1];
  } * list;
} pins = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_commit(const char *text) {
  return strlen(text) == COMMIT && strspn(text, "0123456789abcdef") == COMMIT;
}

static int note_pin(char *revision, const char *commit) {
  if (pins.count == pins.room) {
    const int64_t room = pins.room > 0 ? 2 * pins.room : 8;
    struct pin *larger = alloc_array((size_t)room, sizeof *larger);
    if (larger == NULL) {
      alloc_free(revision);
      return ALLOC_FAILED;
    }
    if (pins.count > 0) memcpy(larger, pins.list, (size_t)pins.count * sizeof *larger);
    alloc_free(pins.list);
    pins.list = larger;
    pins.room = room;
  }
  struct pin *pin = &pins.list[pins.count++];
  pin->revision = revision;
  snprintf(pin->commit, sizeof pin->commit, "%s", commit);
  return SHARDRT_OK;
}

static int refuse_revision(const char *address, const struct exchange_answer *answer) {
  struct refusal refusal;
  char why[SERVICE_ADVICE + 320], *shown = url_shown(address);
  refusal_read(answer->status, &answer->refusal, answer->body, answer->bytes, &refusal);
  service_explain(address, &refusal, why);
  const int code = shown == NULL ? ALLOC_FAILED
                   : answer->status < 300
                       ? error_set(SHARDRT_EIO, "%s: the server does not say which commit this is", shown)
                       : error_set(SHARDRT_EIO, "%s: asked which commit this is, the server answers %s", shown, why);
  alloc_free(shown);
  return code;
}

static int ask_commit(const char *address, const struct hub_address *parsed, const char *header, char out[COMMIT + 1]) {
  struct exchange_answer answer = {0};
  double seconds;
  char *host = endpoint(), *revision = percent_encoded(parsed->revision, ""), *shown = url_shown(address), *url = NULL;
  if (host != NULL && revision != NULL && shown != NULL)
    url = alloc_text("%s/api/%s/%s/revision/%s", host, parsed->kind, parsed->repository, revision);
  int code = url != NULL ? exchange_seconds(&seconds) : ALLOC_FAILED;
  if (code == SHARDRT_OK) {
    const struct exchange_request request = {
        .method = "GET", .url = url, .shown = shown, .headers = {header}, .seconds = seconds, .follows = true};
    code = exchange_patiently(&request, TRIES, &answer);
  }
  if (code == SHARDRT_OK) {
    char *commit = answer.status == 200 ? markup_member(answer.body, answer.bytes, "sha") : NULL;
    if (commit != NULL && is_commit(commit))
      snprintf(out, COMMIT + 1, "%s", commit);
    else
      code = refuse_revision(address, &answer);
    alloc_free(commit);
  }
  exchange_free(&answer);
  alloc_free(host);
  alloc_free(revision);
  alloc_free(shown);
  alloc_free(url);
  return code;
}

static char *revision_text(const struct hub_address *parsed) {
  return alloc_text("%s/%s@%s", parsed->kind, parsed->repository, parsed->revision);
}

/* NULL: it is not known yet. Under the lock. */
static const struct pin *find_pin(const char *revision) {
  for (int64_t i = 0; i < pins.count; i++)
    if (strcmp(pins.list[i].revision, revision) == 0) return &pins.list[i];
  return NULL;
}

/* Under the lock. Others that want the same wait for the answer. */
static int find_commit(const char *address, const struct hub_address *parsed, const char *header,
                       char out[COMMIT + 1]) {
  if (is_commit(parsed->revision)) {
    snprintf(out, COMMIT + 1, "%s", parsed->revision);
    return SHARDRT_OK;
  }
  char *revision = revision_text(parsed);
  if (revision == NULL) return ALLOC_FAILED;
  const struct pin *known = find_pin(revision);
  if (known != NULL) {
    snprintf(out, COMMIT + 1, "%s", known->commit);
    alloc_free(revision);
    return SHARDRT_OK;
  }
  int code = ask_commit(address, parsed, header, out);
  if (code == SHARDRT_OK) return note_pin(revision, out);
  alloc_free(revision);
  return code;
}

/* *header: owned. */
static int commit_of(const char *address, const struct hub_address *parsed, char **header, char out[COMMIT + 1]) {
  int code = make_header(header);
  if (code != SHARDRT_OK) return code;
  pthread_mutex_lock(&pins.lock);
  code = find_commit(address, parsed, *header, out);
  pthread_mutex_unlock(&pins.lock);
  return code;
}

/* ---- of the job ------------------------------------------------------------------------------------------------- */

int hub_revision(const char *address, char **out) {
  struct hub_address parsed;
  *out = NULL;
  if (service_of(address) != &service_hub) return SHARDRT_OK;
  int code = parse_address(address, &parsed);
  if (code != SHARDRT_OK || is_commit(parsed.revision)) return code;
  *out = revision_text(&parsed);
  return *out != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

int hub_commit(const char *address, char out[COMMIT + 1]) {
  struct hub_address parsed;
  char *header = NULL;
  int code = parse_address(address, &parsed);
  if (code == SHARDRT_OK) code = commit_of(address, &parsed, &header, out);
  alloc_free(header);
  return code;
}

int hub_pin(const char *address, const char *commit) {
  char *revision = NULL;
  int code = is_commit(commit) ? hub_revision(address, &revision)
                               : url_refuse(SHARDRT_EINVAL, address, "what was told of it is no commit");
  if (revision == NULL) return code;
  pthread_mutex_lock(&pins.lock);
  const bool is_known = find_pin(revision) != NULL;
  code = is_known ? SHARDRT_OK : note_pin(revision, commit);
  pthread_mutex_unlock(&pins.lock);
  if (is_known) alloc_free(revision);
  return code;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static char *url_of(const struct hub_address *address, const char *commit, const char *query) {
  char *host = endpoint(), *path = percent_encoded(address->path, "/"), *url = NULL;
  const bool is_model = strcmp(address->kind, "models") == 0;
  size_t length = path != NULL ? strlen(path) : 0;
  while (query != NULL && length > 0 && path[length - 1] == '/') length--;
  if (host != NULL && path != NULL && query != NULL)
    url = alloc_text("%s/api/%s/%s/tree/%s%s%.*s?%s", host, address->kind, address->repository, commit,
                     length > 0 ? "/" : "", (int)length, path, query);
  else if (host != NULL && path != NULL)
    url = alloc_text("%s/%s%s%s/resolve/%s/%s", host, is_model ? "" : address->kind, is_model ? "" : "/",
                     address->repository, commit, path);
  alloc_free(host);
  alloc_free(path);
  return url;
}

static int hub_request(const struct service_call *call, struct service_request *out) {
  struct hub_address parsed;
  char commit[COMMIT + 1];
  int code = parse_address(call->address, &parsed);
  if (code == SHARDRT_OK && call->query == NULL && parsed.path[0] == '\0')
    code = url_refuse(SHARDRT_EINVAL, call->address, "it names a repository, and no file in it");
  if (code == SHARDRT_OK && call->query == NULL) code = s3_check_key(call->address, parsed.path);
  if (code != SHARDRT_OK) return code;
  code = commit_of(call->address, &parsed, &out->headers[0], commit);
  if (code != SHARDRT_OK) return code;
  out->follows = true;
  out->url = url_of(&parsed, commit, call->query);
  return out->url != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

static const char *hub_advice(const char *address, const struct refusal *refusal, char *room, size_t bytes) {
  (void)address;
  const char *code = refusal->code;
  const bool is_nobody = is_anonymous();
  if (strcmp(code, "RevisionNotFound") == 0) return "; the repository has no such branch, tag or commit";
  if (strcmp(code, "GatedRepo") == 0)
    return is_nobody ? "; its owner wants to know who reads it: HF_TOKEN, or `hf auth login`, of somebody with access"
                     : "; its owner wants its conditions to be accepted, on the repository's page";
  if (refusal->status == 401 || strcmp(code, "RepoNotFound") == 0) {
    snprintf(room, bytes, "; there is no such repository (datasets stand behind hf://datasets/), or it is private%s",
             is_nobody ? ", and no token was found: HF_TOKEN, or `hf auth login`, would do"
                       : ", and the token is not of somebody who may read it");
    return room;
  }
  return refusal->status == 403 && !is_nobody ? "; the token does not allow this" : "";
}

/* ---- listings --------------------------------------------------------------------------------------------------- */

/* "hf://datasets/OWNER/NAME@revision/". */
static size_t hub_root(const char *address) {
  struct hub_address parsed;
  if (parse_address(address, &parsed) != SHARDRT_OK || parsed.path[-1] != '/') return 0;
  return (size_t)(parsed.path - address);
}

static char *list_query(const char *prefix, bool deep, const char *next) {
  (void)prefix; /* folders are listed whole */
  return next != NULL ? alloc_text("%s", next) : alloc_text("recursive=%s", deep ? "true" : "false");
}

struct hub_page {
  shardrt_listing *out;
  const char *root;
  bool is_file;
  char *path;
  int64_t bytes;
};

static int take_member(struct json_reader *r, const char *name, void *context) {
  struct hub_page *page = context;
  char room[32];
  struct json_text text = {.bytes = room, .room = sizeof room};
  int code = SHARDRT_OK;
  if (strcmp(name, "type") == 0) {
    code = json_text_read(r, "a text", &text);
    page->is_file = code == SHARDRT_OK && text.length < sizeof room && strcmp(room, "file") == 0;
    return code;
  }
  if (strcmp(name, "size") == 0) return json_number_read(r, "a number of bytes", &page->bytes);
  if (strcmp(name, "path") != 0 || page->path != NULL) return json_skip(r);
  return markup_text_of(r, &page->path);
}

static int take_entry(struct json_reader *r, int32_t i, void *context) {
  struct hub_page *page = context;
  (void)i;
  page->path = NULL;
  page->bytes = 0;
  page->is_file = false;
  int code = json_object_read(r, "an object", take_member, page);
  if (code == SHARDRT_OK && page->is_file && page->path != NULL)
    code = listing_add(page->out, alloc_text("%s%s", page->root, page->path), page->bytes);
  alloc_free(page->path);
  return code;
}

/* [{"type": "file", "path": …, "size": …}, …], and Link: <…?cursor=…>; rel="next". */
static int take_page(shardrt_listing *out, const char *root, const char *shown, const struct exchange_answer *answer,
                     char **next) {
  struct hub_page page = {.out = out, .root = root};
  const uint8_t *begin = (const uint8_t *)answer->body;
  struct json_reader r = {.path = shown, .what = "listing", .begin = begin, .at = begin, .end = begin + answer->bytes};
  int code = json_list_read(&r, "a list of files", take_entry, &page);
  if (code == SHARDRT_EFORMAT)
    code = listing_refuse(shown, r.at == r.end ? "ends in the middle" : "is none: it speaks another language");
  const char *query = code == SHARDRT_OK ? strchr(answer->next, '?') : NULL; /* its host does not matter */
  if (query == NULL) return code;
  *next = alloc_text("%s", query + 1);
  return *next != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static const struct service_lists hub_lists = {
    .root = hub_root, .by_folder = true, .query = list_query, .take = take_page};

static const char *const hub_absent[] = {"RepoNotFound", "RevisionNotFound", "GatedRepo", NULL};

const struct service service_hub = {
    .request = hub_request, .advice = hub_advice, .absent = hub_absent, .lists = &hub_lists};
