#include "storage/exchange/google_credentials.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/exchange.h"
#include "storage/exchange/markup.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/settings.h"
#include "storage/exchange/signature.h"
#include "storage/exchange/times.h"

static const double METADATA_SECONDS = 1, TOKEN_SECONDS = 10;
static const time_t EARLY = 225; /* seconds before they expire that new ones are asked for, */
static const time_t AGAIN = 20;  /* and between two times that they are, while those that are there hold */
static const time_t REFUSED = 2; /* seconds in which other requests are refused that were sent with the same ones */
static const time_t HOUR = 3600; /* as long as a service account's statement holds */
static const char HOLDS_KEY[] = "which should hold Google's credentials";

enum { TRIES = 4 };

void google_credentials_free(struct google_credentials *self) {
  alloc_free(self->token);
  alloc_free(self->key);
  alloc_free(self->secret);
  *self = (struct google_credentials){0};
}

static int copy(const struct google_credentials *from, struct google_credentials *out) {
  out->token = from->token != NULL ? alloc_text("%s", from->token) : NULL;
  out->key = from->key != NULL ? alloc_text("%s", from->key) : NULL;
  out->secret = from->secret != NULL ? alloc_text("%s", from->secret) : NULL;
  out->expires = from->expires;
  const bool whole = (out->token != NULL) == (from->token != NULL) && (out->key != NULL) == (from->key != NULL) &&
                     (out->secret != NULL) == (from->secret != NULL);
  return whole ? SHARDRT_OK : ALLOC_FAILED;
}

/* ---- keys of HMAC ----------------------------------------------------------------------------------------------- */

static int keep_pair(const char *key, const char *secret, const char *where, struct google_credentials *out) {
  if ((key == NULL) != (secret == NULL))
    return error_set(SHARDRT_EINVAL, "the credentials for gs:// are half there: %s has one of key and secret, not both",
                     where);
  return key != NULL ? copy(&(struct google_credentials){.key = (char *)key, .secret = (char *)secret}, out)
                     : SHARDRT_OK;
}

/* Leaves `out` empty where there is none. */
static int from_key(struct google_credentials *out) {
  static const char *const names[][2] = {
      {"GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY"},
      {"GCS_KEY", "GCS_SECRET"},
      {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *key = settings_variable(names[i][0]), *secret = settings_variable(names[i][1]);
    if (strncmp(names[i][0], "AWS", 3) == 0 && (key == NULL || strncmp(key, "GOOG", 4) != 0)) continue;
    if (key != NULL || secret != NULL) return keep_pair(key, secret, "the environment", out);
  }
  const char *named = settings_variable("BOTO_CONFIG"), *home = settings_variable("HOME");
  if (named == NULL && home == NULL) return SHARDRT_OK;
  char *path = named != NULL ? alloc_text("%s", named) : alloc_text("%s/.boto", home);
  if (path == NULL) return ALLOC_FAILED;
  bool found = false;
  char *key = settings_value(path, "Credentials", "gs_access_key_id", &found);
  char *secret = settings_value(path, "Credentials", "gs_secret_access_key", &found);
  int code = keep_pair(key, secret, path, out);
  alloc_free(key);
  alloc_free(secret);
  alloc_free(path);
  return code;
}

/* ---- tokens ----------------------------------------------------------------------------------------------------- */

/* Takes a token out of {"access_token": …, "expires_in": …}. */
static int take_token(const struct exchange_request *request, const struct exchange_answer *answer,
                      struct google_credentials *out) {
  struct refusal refusal;
  char *seconds = markup_member(answer->body, answer->bytes, "expires_in");
  out->token = markup_member(answer->body, answer->bytes, "access_token");
  const time_t now = time(NULL), until = seconds != NULL ? times_after(now, seconds) : 0;
  out->expires = until != 0 ? until : now + HOUR;
  alloc_free(seconds);
  if (answer->status == 200 && out->token != NULL) return SHARDRT_OK;
  refusal_read(answer->status, &answer->refusal, answer->body, answer->bytes, &refusal);
  google_credentials_free(out);
  return error_set(SHARDRT_EIO, "%s: it gives no token for gs:// (it answers %ld%s%s)", request->shown, answer->status,
                   refusal.message[0] != '\0' ? ": " : "", refusal.message);
}

static int ask_token(const char *url, const char *form, const char *shown, struct google_credentials *out) {
  struct exchange_answer answer;
  const struct exchange_request request = {.method = "POST",
                                           .url = url,
                                           .shown = shown,
                                           .headers = {"Content-Type: application/x-www-form-urlencoded"},
                                           .body = form,
                                           .bytes = strlen(form),
                                           .seconds = TOKEN_SECONDS};
  int code = exchange_patiently(&request, TRIES, &answer);
  if (code != SHARDRT_OK) return code;
  code = take_token(&request, &answer, out);
  exchange_free(&answer);
  return code;
}

/* A file's JSON. */
struct key_file {
  const char *path;
  char *text;
  size_t bytes;
};

/* A member that must be there. Owned. */
static int need(const struct key_file *file, const char *name, char **out) {
  *out = markup_member(file->text, file->bytes, name);
  if (*out != NULL) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s, %s, has no \"%s\"", file->path, HOLDS_KEY, name);
}

/* application/x-www-form-urlencoded, of texts in turn: names as they are, values encoded; ends in NULL. Owned. */
static char *form_of(const char *const *pairs) {
  char *form = alloc_text("%s", "");
  for (size_t i = 0; pairs[i] != NULL && form != NULL; i += 2) {
    char *value = percent_encoded(pairs[i + 1], ""), *before = form;
    form = value != NULL ? alloc_text("%s%s%s=%s", before, i > 0 ? "&" : "", pairs[i], value) : NULL;
    alloc_free(value);
    alloc_free(before);
  }
  return form;
}

/* RFC 6749, 6. */
static int from_user(const struct key_file *file, struct google_credentials *out) {
  char *id = NULL, *secret = NULL, *refresh = NULL, *url = markup_member(file->text, file->bytes, "token_uri");
  int code = need(file, "client_id", &id);
  if (code == SHARDRT_OK) code = need(file, "client_secret", &secret);
  if (code == SHARDRT_OK) code = need(file, "refresh_token", &refresh);
  if (code == SHARDRT_OK) {
    const char *const pairs[] = {
        "client_id", id, "client_secret", secret, "grant_type", "refresh_token", "refresh_token", refresh, NULL};
    char *form = form_of(pairs);
    code = form == NULL ? ALLOC_FAILED
                        : ask_token(url != NULL ? url : "https://oauth2.googleapis.com/token", form,
                                    "the token of Google's user", out);
    alloc_free(form);
  }
  alloc_free(id);
  alloc_free(secret);
  alloc_free(refresh);
  alloc_free(url);
  return code;
}

/* What a service account says of itself, signed (RFC 7523;
 * https://developers.google.com/identity/protocols/oauth2/service-account). Owned. */
static int make_statement(const struct key_file *file, const char *mail, const char *url, const char *pem, char **out) {
  static const char head[] = "{\"alg\":\"RS256\",\"typ\":\"JWT\"}";
  static const char scope[] = "https://www.googleapis.com/auth/devstorage.read_write";
  const long long now = time(NULL);
  char *claims = alloc_text("{\"iss\":\"%s\",\"scope\":\"%s\",\"aud\":\"%s\",\"iat\":%lld,\"exp\":%lld}", mail, scope,
                            url, now, now + (long long)HOUR);
  char *first = signature_text(head, strlen(head)),
       *second = claims != NULL ? signature_text(claims, strlen(claims)) : NULL;
  char *text = first != NULL && second != NULL ? alloc_text("%s.%s", first, second) : NULL, *signature = NULL;
  int code = text == NULL ? ALLOC_FAILED : signature_rsa(pem, text, &signature);
  if (code == SHARDRT_EINVAL) code = error_prefix(code, "%s, %s, has a private_key, and", file->path, HOLDS_KEY);
  if (code == SHARDRT_OK) {
    *out = alloc_text("%s.%s", text, signature);
    if (*out == NULL) code = ALLOC_FAILED;
  }
  alloc_free(claims);
  alloc_free(first);
  alloc_free(second);
  alloc_free(text);
  alloc_free(signature);
  return code;
}

static int from_service_account(const struct key_file *file, struct google_credentials *out) {
  char *mail = NULL, *pem = NULL, *url = NULL, *statement = NULL, *form = NULL;
  int code = need(file, "client_email", &mail);
  if (code == SHARDRT_OK) code = need(file, "private_key", &pem);
  if (code == SHARDRT_OK) code = need(file, "token_uri", &url);
  if (code == SHARDRT_OK) code = make_statement(file, mail, url, pem, &statement);
  if (code == SHARDRT_OK) {
    const char *const pairs[] = {"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion", statement,
                                 NULL};
    form = form_of(pairs);
    code = form != NULL ? ask_token(url, form, "the token of Google's service account", out) : ALLOC_FAILED;
  }
  alloc_free(mail);
  alloc_free(pem);
  alloc_free(url);
  alloc_free(statement);
  alloc_free(form);
  return code;
}

static int from_file(const char *path, struct google_credentials *out) {
  struct key_file file = {.path = path};
  char *type = NULL;
  int code = settings_file(path, HOLDS_KEY, &file.text, &file.bytes);
  if (code == SHARDRT_OK) code = need(&file, "type", &type);
  if (code == SHARDRT_OK && strcmp(type, "service_account") == 0)
    code = from_service_account(&file, out);
  else if (code == SHARDRT_OK && strcmp(type, "authorized_user") == 0)
    code = from_user(&file, out);
  else if (code == SHARDRT_OK)
    code =
        error_set(SHARDRT_EINVAL,
                  "%s, %s, is of the type \"%.64s\", which is not followed; service_account and authorized_user are, "
                  "and a token in GOOGLE_OAUTH_ACCESS_TOKEN, as `gcloud auth print-access-token` prints it",
                  path, HOLDS_KEY, type);
  alloc_free(type);
  alloc_free(file.text);
  return code;
}

/* Leaves `out` empty where nobody has logged in. */
static int from_login(struct google_credentials *out) {
  const char *named = settings_variable("CLOUDSDK_CONFIG"), *home = settings_variable("HOME");
  if (named == NULL && home == NULL) return SHARDRT_OK;
  char *path = alloc_text("%s%s/application_default_credentials.json", named != NULL ? named : home,
                          named != NULL ? "" : "/.config/gcloud");
  if (path == NULL) return ALLOC_FAILED;
  int code = access(path, F_OK) == 0 ? from_file(path, out) : SHARDRT_OK;
  alloc_free(path);
  return code;
}

/* Leaves `out` empty where this is none of Google's machines. */
static int from_machine(const char *host, struct google_credentials *out) {
  struct exchange_answer answer = {0};
  char *url = alloc_text("http://%s/computeMetadata/v1/instance/service-accounts/default/token",
                         host != NULL ? host : "169.254.169.254");
  if (url == NULL) return ALLOC_FAILED;
  const struct exchange_request request = {.method = "GET",
                                           .url = url,
                                           .shown = "Google's metadata server",
                                           .headers = {"Metadata-Flavor: Google"},
                                           .seconds = METADATA_SECONDS};
  int code = host != NULL ? exchange_patiently(&request, TRIES, &answer) : exchange(&request, &answer);
  if (code == SHARDRT_OK && (host != NULL || answer.status == 200)) code = take_token(&request, &answer, out);
  exchange_free(&answer);
  alloc_free(url);
  return host != NULL || code == SHARDRT_ENOMEM ? code : SHARDRT_OK;
}

/* ---- all of these ----------------------------------------------------------------------------------------------- */

static int find_credentials(struct google_credentials *out) {
  static const char *const tokens[] = {"GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    const char *token = settings_variable(tokens[i]);
    if (token != NULL) return copy(&(struct google_credentials){.token = (char *)token}, out);
  }
  const char *file = settings_variable("GOOGLE_APPLICATION_CREDENTIALS");
  if (file != NULL) return from_file(file, out);
  const bool is_emulated = settings_variable("STORAGE_EMULATOR_HOST") != NULL;
  const char *host = settings_variable("GCE_METADATA_HOST"), *none = settings_variable("NO_GCE_CHECK");
  int code = from_key(out);
  if (code == SHARDRT_OK && out->key == NULL && !is_emulated) code = from_login(out);
  if (code != SHARDRT_OK || out->key != NULL || out->token != NULL) return code;
  if ((is_emulated && host == NULL) || (none != NULL && strcasecmp(none, "true") == 0)) return code;
  return from_machine(host, out);
}

static struct {
  pthread_mutex_t lock;
  bool known;
  time_t asked;   /* when they were looked for */
  time_t refused; /* when a server last said that they have expired */
  struct google_credentials now;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int renew(void) {
  const time_t now = time(NULL), expires = process.now.expires;
  const bool holds = process.known && (expires == 0 || now < expires);
  if (holds && (expires == 0 || now < expires - EARLY || now < process.asked + AGAIN)) return SHARDRT_OK;
  struct google_credentials found = {0};
  process.asked = now;
  int code = find_credentials(&found);
  const bool was_somebody = process.now.token != NULL || process.now.key != NULL;
  if (code == SHARDRT_OK && was_somebody && found.token == NULL &&
      found.key == NULL) /* all would be nobody from here */
    code = error_set(SHARDRT_EIO, "the token for gs:// has expired, and where it came from gives none");
  if (code != SHARDRT_OK) {
    google_credentials_free(&found);
    return holds ? SHARDRT_OK : code; /* what is there still holds for a while */
  }
  google_credentials_free(&process.now);
  process.now = found;
  process.known = true;
  return code;
}

int google_credentials_get(struct google_credentials *out) {
  *out = (struct google_credentials){0};
  pthread_mutex_lock(&process.lock);
  int code = renew();
  if (code == SHARDRT_OK) code = copy(&process.now, out);
  pthread_mutex_unlock(&process.lock);
  if (code != SHARDRT_OK) google_credentials_free(out);
  return code;
}

bool google_credentials_forget(void) {
  pthread_mutex_lock(&process.lock);
  const bool renews = process.now.expires != 0;
  const time_t now = time(NULL);
  if (renews && now >= process.refused + REFUSED) {
    process.known = false;
    process.refused = now;
  }
  pthread_mutex_unlock(&process.lock);
  return renews;
}
