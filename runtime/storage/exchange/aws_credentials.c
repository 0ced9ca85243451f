#include "storage/exchange/aws_credentials.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/exchange.h"
#include "storage/exchange/markup.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/settings.h"
#include "storage/exchange/times.h"

static const double METADATA_SECONDS = 1, TOKEN_SECONDS = 10;
static const time_t EARLY = 300; /* seconds before they expire that new ones are asked for, */
static const time_t REFUSED = 2; /* seconds in which other requests are refused that were sent with the same ones */
static const time_t AGAIN = 20;  /* and between two times that they are, while those that are there hold */

static const char HOLDS_TOKEN[] = "which should hold a token for S3";

enum { TRIES = 4 };

void aws_credentials_free(struct aws_credentials *self) {
  alloc_free(self->key);
  alloc_free(self->secret);
  alloc_free(self->token);
  *self = (struct aws_credentials){0};
}

static int set_credentials(const char *key, const char *secret, const char *token, struct aws_credentials *out) {
  out->key = alloc_text("%s", key);
  out->secret = alloc_text("%s", secret);
  out->token = token != NULL && token[0] != '\0' ? alloc_text("%s", token) : NULL;
  const bool whole =
      out->key != NULL && out->secret != NULL && (out->token != NULL || token == NULL || token[0] == '\0');
  return whole ? SHARDRT_OK : ALLOC_FAILED;
}

/* ---- files of profiles ------------------------------------------------------------------------------------------ */

static const char *profile(void) {
  const char *named = settings_variable("AWS_PROFILE");
  if (named == NULL) named = settings_variable("AWS_DEFAULT_PROFILE");
  return named != NULL ? named : "default";
}

static char *file_of(const char *named, const char *usual) {
  const char *path = settings_variable(named), *home = settings_variable("HOME");
  if (path == NULL && home == NULL) return NULL;
  return path != NULL ? alloc_text("%s", path) : alloc_text("%s/.aws/%s", home, usual);
}

static int refuse_half(const char *where) {
  return error_set(SHARDRT_EINVAL,
                   "the credentials for S3 are half there: %s has one of access key and secret key, not both", where);
}

/* Of one file; leaves `out` empty where it has none. */
static int read_profile(const char *path, bool *found, struct aws_credentials *out) {
  char *key = settings_value(path, profile(), "aws_access_key_id", found),
       *secret = settings_value(path, profile(), "aws_secret_access_key", found);
  char *token = settings_value(path, profile(), "aws_session_token", found);
  int code = SHARDRT_OK;
  if ((key == NULL) != (secret == NULL))
    code = refuse_half(path);
  else if (key != NULL)
    code = set_credentials(key, secret, token, out);
  alloc_free(key);
  alloc_free(secret);
  alloc_free(token);
  return code;
}

static int from_profile(struct aws_credentials *out) {
  char *shared = file_of("AWS_SHARED_CREDENTIALS_FILE", "credentials"), *config = file_of("AWS_CONFIG_FILE", "config");
  bool found = false;
  int code = read_profile(shared, &found, out);
  if (code == SHARDRT_OK && out->key == NULL) code = read_profile(config, &found, out);
  if (code == SHARDRT_OK && !found && strcmp(profile(), "default") != 0)
    code = error_set(SHARDRT_EINVAL, "AWS_PROFILE is \"%s\", and neither %s nor %s has such a profile", profile(),
                     shared != NULL ? shared : "~/.aws/credentials", config != NULL ? config : "~/.aws/config");
  alloc_free(shared);
  alloc_free(config);
  return code;
}

/* ---- places that give them -------------------------------------------------------------------------------------- */

/* The text of a member of JSON, or of an element of XML: STS speaks the latter. Owned; NULL: it is not there, or memory
 * is exhausted. */
static char *text_in(const struct exchange_answer *answer, const char *name) {
  char *text = markup_member(answer->body, answer->bytes, name);
  return text != NULL ? text
                      : markup_text(&(struct markup){.at = answer->body, .end = answer->body + answer->bytes}, name);
}

/* Asks, and takes credentials out of the answer. */
static int ask(const struct exchange_request *request, const char *key_name, const char *token_name,
               struct aws_credentials *out) {
  struct exchange_answer answer;
  int code = exchange_patiently(request, TRIES, &answer);
  if (code != SHARDRT_OK) return code;
  char *key = text_in(&answer, key_name), *secret = text_in(&answer, "SecretAccessKey");
  char *token = text_in(&answer, token_name), *expires = text_in(&answer, "Expiration");
  if (answer.status == 200 && key != NULL && secret != NULL)
    code = set_credentials(key, secret, token, out);
  else
    code = error_set(SHARDRT_EIO, "%s: it gives no credentials for S3 (it answers %ld)", request->shown, answer.status);
  out->expires = expires != NULL ? times_read(expires) : 0;
  alloc_free(key);
  alloc_free(secret);
  alloc_free(token);
  alloc_free(expires);
  exchange_free(&answer);
  return code;
}

static int ask_sts(const char *role, const char *token, struct aws_credentials *out) {
  const char *region = settings_variable("AWS_REGION"), *endpoint = settings_variable("AWS_ENDPOINT_URL_STS");
  const char *session = settings_variable("AWS_ROLE_SESSION_NAME");
  char *coded_role = percent_encoded(role, ""), *coded_token = percent_encoded(token, ""), *host = NULL, *url = NULL;
  if (region == NULL) region = settings_variable("AWS_DEFAULT_REGION");
  host = endpoint != NULL
             ? alloc_text("%s", endpoint)
             : alloc_text("https://sts.%s%samazonaws.com%s", region != NULL ? region : "", region != NULL ? "." : "",
                          region != NULL && strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
  if (coded_role != NULL && coded_token != NULL && host != NULL)
    url = alloc_text("%s/?Action=AssumeRoleWithWebIdentity&RoleArn=%s&RoleSessionName=%s&Version=2011-06-15"
                     "&WebIdentityToken=%s",
                     host, coded_role, session != NULL ? session : "shardrt", coded_token);
  int code = url == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK) {
    const struct exchange_request request = {
        .method = "GET", .url = url, .shown = "STS, for AWS_ROLE_ARN", .seconds = TOKEN_SECONDS};
    code = ask(&request, "AccessKeyId", "SessionToken", out);
  }
  alloc_free(coded_role);
  alloc_free(coded_token);
  alloc_free(host);
  alloc_free(url);
  return code;
}

static int from_web_identity(const char *path, struct aws_credentials *out) {
  const char *role = settings_variable("AWS_ROLE_ARN");
  char *token = NULL;
  if (role == NULL) return error_set(SHARDRT_EINVAL, "AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
  int code = settings_line(path, HOLDS_TOKEN, &token);
  if (code == SHARDRT_OK) code = ask_sts(role, token, out);
  alloc_free(token);
  return code;
}

static int from_container(const char *relative, const char *full, struct aws_credentials *out) {
  const char *given = settings_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const char *path = settings_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  char *url = relative != NULL ? alloc_text("http://169.254.170.2%s", relative) : alloc_text("%s", full);
  char *token = NULL, *header = NULL;
  int code = url == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK && path != NULL) code = settings_line(path, HOLDS_TOKEN, &token);
  if (code == SHARDRT_OK && (token != NULL || given != NULL)) {
    header = alloc_text("Authorization: %s", token != NULL ? token : given);
    if (header == NULL) code = ALLOC_FAILED;
  }
  if (code == SHARDRT_OK) {
    const struct exchange_request request = {.method = "GET",
                                             .url = url,
                                             .shown = "the container's credentials (AWS_CONTAINER_CREDENTIALS_…)",
                                             .headers = {header},
                                             .seconds = TOKEN_SECONDS};
    code = ask(&request, "AccessKeyId", "Token", out);
  }
  alloc_free(url);
  alloc_free(token);
  alloc_free(header);
  return code;
}

/* The text of an address of the instance's; NULL: there is no such instance, or none with a role. Owned. */
static char *metadata(const char *method, const char *endpoint, const char *path, const char *header) {
  char *url = alloc_text("%s%s", endpoint, path), *text = NULL;
  struct exchange_answer answer = {0};
  const struct exchange_request request = {.method = method,
                                           .url = url,
                                           .shown = "the instance's metadata",
                                           .headers = {header},
                                           .seconds = METADATA_SECONDS};
  if (url != NULL && exchange(&request, &answer) == SHARDRT_OK && answer.status == 200)
    text = alloc_text("%s", settings_trimmed(answer.body));
  exchange_free(&answer);
  alloc_free(url);
  return text;
}

/* Leaves `out` empty where this is no instance with a role. */
static int from_instance(struct aws_credentials *out) {
  static const char roles[] = "/latest/meta-data/iam/security-credentials/";
  const char *disabled = settings_variable("AWS_EC2_METADATA_DISABLED"),
             *named = settings_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (disabled != NULL && strcmp(disabled, "true") == 0) return SHARDRT_OK;
  const char *endpoint = named != NULL ? named : "http://169.254.169.254";
  char *token = metadata("PUT", endpoint, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600");
  char *header = token != NULL ? alloc_text("X-aws-ec2-metadata-token: %s", token) : NULL;
  char *role = header != NULL ? metadata("GET", endpoint, roles, header) : NULL;
  char *url = role != NULL ? alloc_text("%s%s%.*s", endpoint, roles, (int)strcspn(role, "\r\n"), role) : NULL;
  int code = SHARDRT_OK;
  if (url != NULL) {
    const struct exchange_request request = {
        .method = "GET", .url = url, .shown = "the instance's role", .headers = {header}, .seconds = TOKEN_SECONDS};
    code = ask(&request, "AccessKeyId", "Token", out);
  }
  alloc_free(token);
  alloc_free(header);
  alloc_free(role);
  alloc_free(url);
  return code;
}

/* ---- all of these ----------------------------------------------------------------------------------------------- */

static int find_credentials(struct aws_credentials *out) {
  const char *key = settings_variable("AWS_ACCESS_KEY_ID"), *secret = settings_variable("AWS_SECRET_ACCESS_KEY");
  if ((key == NULL) != (secret == NULL)) return refuse_half("the environment");
  if (key != NULL) return set_credentials(key, secret, settings_variable("AWS_SESSION_TOKEN"), out);
  const char *token_file = settings_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  if (token_file != NULL) return from_web_identity(token_file, out);
  int code = from_profile(out);
  if (code != SHARDRT_OK || out->key != NULL) return code;
  const char *relative = settings_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const char *full = settings_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative != NULL || full != NULL) return from_container(relative, full, out);
  return from_instance(out);
}

static struct {
  pthread_mutex_t lock;
  bool known;
  time_t asked; /* when they were looked for */
  struct aws_credentials now;
  char *region, *endpoint; /* of the profile, as old as they are; NULL: it does not say */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void read_settings(void) {
  bool found = false;
  char *path = file_of("AWS_CONFIG_FILE", "config");
  alloc_free(process.region);
  alloc_free(process.endpoint);
  process.region = settings_value(path, profile(), "region", &found);
  process.endpoint = settings_value(path, profile(), "endpoint_url", &found);
  alloc_free(path);
}

static int renew(void) {
  const time_t now = time(NULL), expires = process.now.expires;
  const bool holds = process.known && (expires == 0 || now < expires);
  if (holds && (expires == 0 || now < expires - EARLY || now < process.asked + AGAIN)) return SHARDRT_OK;
  struct aws_credentials found = {0};
  process.asked = now;
  int code = find_credentials(&found);
  if (code == SHARDRT_OK && found.key == NULL && process.now.key != NULL) /* not that all are nobody from here on */
    code = error_set(SHARDRT_EIO, "the credentials for S3 have expired, and where they came from gives none");
  if (code == SHARDRT_OK) {
    aws_credentials_free(&process.now);
    process.now = found;
    process.known = true;
    read_settings();
    return code;
  }
  aws_credentials_free(&found);
  /* What is there still holds for a while. */
  return holds ? SHARDRT_OK : code;
}

int aws_credentials_get(struct aws_credentials *out) {
  *out = (struct aws_credentials){0};
  pthread_mutex_lock(&process.lock);
  int code = renew();
  if (code == SHARDRT_OK && process.now.key != NULL)
    code = set_credentials(process.now.key, process.now.secret, process.now.token, out);
  pthread_mutex_unlock(&process.lock);
  if (code != SHARDRT_OK) aws_credentials_free(out);
  return code;
}

char *aws_region(void) {
  pthread_mutex_lock(&process.lock);
  char *region = process.region != NULL ? alloc_text("%s", process.region) : NULL;
  pthread_mutex_unlock(&process.lock);
  return region;
}

char *aws_endpoint(void) {
  pthread_mutex_lock(&process.lock);
  char *endpoint = process.endpoint != NULL ? alloc_text("%s", process.endpoint) : NULL;
  pthread_mutex_unlock(&process.lock);
  return endpoint;
}

void aws_credentials_forget(void) {
  pthread_mutex_lock(&process.lock);
  if (time(NULL) >= process.asked + REFUSED) process.known = false;
  pthread_mutex_unlock(&process.lock);
}
