#include "storage/service/aws_credentials.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/service/exchange.h"
#include "storage/service/percent.h"

static const double METADATA_SECONDS = 1, TOKEN_SECONDS = 10;
static const time_t EARLY = 300; /* seconds before they expire that new ones are asked for, */
static const time_t REFUSED = 2; /* seconds in which other requests are refused that were sent with the same ones */
static const time_t AGAIN = 20;  /* and between two times that they are, while those that are there hold */

enum { LINE = 4096, FILE_BYTES = 1 << 20, TRIES = 4 };

void aws_credentials_free(struct aws_credentials *self) {
  alloc_free(self->key);
  alloc_free(self->secret);
  alloc_free(self->token);
  *self = (struct aws_credentials){0};
}

const char *aws_variable(const char *name) {
  const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  return value != NULL && value[0] != '\0' ? value : NULL;
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
  const char *named = aws_variable("AWS_PROFILE");
  if (named == NULL) named = aws_variable("AWS_DEFAULT_PROFILE");
  return named != NULL ? named : "default";
}

static char *file_of(const char *named, const char *usual) {
  const char *path = aws_variable(named), *home = aws_variable("HOME");
  if (path == NULL && home == NULL) return NULL;
  return path != NULL ? alloc_text("%s", path) : alloc_text("%s/.aws/%s", home, usual);
}

static char *trimmed(char *text) {
  while (*text == ' ' || *text == '\t') text++;
  size_t n = strlen(text);
  while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL) text[--n] = '\0';
  return text;
}

/* Whether a line is the head of the profile's section: [name], in the file "config" [profile name]. */
static bool is_section(char *line, const char *name, bool *ours) {
  char *end = strchr(line, ']');
  if (line[0] != '[' || end == NULL) return false;
  *end = '\0';
  char *title = trimmed(line + 1);
  if (strncmp(title, "profile ", 8) == 0) title = trimmed(title + 8);
  *ours = strcmp(title, name) == 0;
  return true;
}

/* The value of a name in the profile's section. Owned; NULL: none. *found: there is such a section. */
static char *read_setting(const char *path, const char *name, bool *found) {
  FILE *file = path != NULL ? fopen(path, "re") : NULL;
  char line[LINE], *value = NULL;
  bool ours = false;
  while (file != NULL && value == NULL && fgets(line, sizeof line, file) != NULL) {
    char *text = trimmed(line), *equals = strchr(text, '=');
    if (text[0] == '#' || text[0] == ';' || is_section(text, profile(), &ours)) {
      *found = *found || ours;
      continue;
    }
    if (!ours || equals == NULL) continue;
    *equals = '\0';
    if (strcmp(trimmed(text), name) == 0) value = alloc_text("%s", trimmed(equals + 1));
  }
  if (file != NULL) (void)fclose(file);
  return value;
}

char *aws_setting(const char *name) {
  bool found = false;
  char *path = file_of("AWS_CONFIG_FILE", "config"), *value = read_setting(path, name, &found);
  alloc_free(path);
  return value;
}

static int refuse_half(const char *where) {
  return error_set(SHARDRT_EINVAL,
                   "the credentials for S3 are half there: %s has one of access key and secret key, not both", where);
}

/* Of one file; leaves `out` empty where it has none. */
static int read_profile(const char *path, bool *found, struct aws_credentials *out) {
  char *key = read_setting(path, "aws_access_key_id", found),
       *secret = read_setting(path, "aws_secret_access_key", found);
  char *token = read_setting(path, "aws_session_token", found);
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

/* The text of a member of a flat object, "Name": "…", or of an element, <Name>…</Name>. Owned; NULL: it is not there,
 * or memory is exhausted. */
static char *member(const char *body, const char *name) {
  char quoted[64], element[64];
  snprintf(quoted, sizeof quoted, "\"%s\"", name);
  snprintf(element, sizeof element, "<%s>", name);
  const char *at = strstr(body, element);
  if (at != NULL) {
    at += strlen(element);
    return alloc_text("%.*s", (int)strcspn(at, "<"), at);
  }
  at = strstr(body, quoted);
  if (at == NULL) return NULL;
  at += strlen(quoted);
  at += strspn(at, " \t\r\n:");
  if (*at != '"') return NULL;
  return alloc_text("%.*s", (int)strcspn(at + 1, "\""), at + 1);
}

/* "2026-11-23T12:00:00Z"; 0: it is none. */
static time_t time_of(const char *text) {
  struct tm when = {0};
  if (text == NULL || sscanf(text, "%d-%d-%dT%d:%d:%d", &when.tm_year, &when.tm_mon, &when.tm_mday, &when.tm_hour,
                             &when.tm_min, &when.tm_sec) != 6)
    return 0;
  when.tm_year -= 1900;
  when.tm_mon -= 1;
  return timegm(&when);
}

/* Asks, again where whoever gives credentials to all processes of a job has too much to do. */
static int ask_patiently(const struct exchange_request *request, struct exchange_answer *out) {
  for (int32_t tries = 1;; tries++) {
    const int code = exchange(request, out);
    const bool passes = code == SHARDRT_OK ? out->status == 429 || out->status >= 500 : code == SHARDRT_EIO;
    if (!passes || tries == TRIES) return code;
    exchange_free(out);
    exchange_pause(tries);
  }
}

/* Asks, and takes credentials out of the answer. */
static int ask(const struct exchange_request *request, const char *key_name, const char *token_name,
               struct aws_credentials *out) {
  struct exchange_answer answer;
  int code = ask_patiently(request, &answer);
  if (code != SHARDRT_OK) return code;
  char *key = member(answer.body, key_name), *secret = member(answer.body, "SecretAccessKey");
  char *token = member(answer.body, token_name), *expires = member(answer.body, "Expiration");
  if (answer.status == 200 && key != NULL && secret != NULL)
    code = set_credentials(key, secret, token, out);
  else
    code = error_set(SHARDRT_EIO, "%s: it gives no credentials for S3 (it answers %ld)", request->shown, answer.status);
  out->expires = time_of(expires);
  alloc_free(key);
  alloc_free(secret);
  alloc_free(token);
  alloc_free(expires);
  exchange_free(&answer);
  return code;
}

/* The first line of a file of a token. Owned. */
static int read_token(const char *path, char **out) {
  FILE *file = fopen(path, "re");
  char *line = file != NULL ? alloc_zeros(1, FILE_BYTES) : NULL;
  int code = SHARDRT_OK;
  if (file == NULL)
    code = error_set(SHARDRT_EIO, "%s, which should hold a token for S3: %s", path, strerror(errno));
  else if (line == NULL)
    code = ALLOC_FAILED;
  else if (fgets(line, FILE_BYTES, file) == NULL)
    code = error_set(SHARDRT_EIO, "%s, which should hold a token for S3, is empty", path);
  if (file != NULL) (void)fclose(file);
  if (code == SHARDRT_OK) *out = alloc_text("%s", trimmed(line));
  alloc_free(line);
  return code == SHARDRT_OK && *out == NULL ? ALLOC_FAILED : code;
}

static int ask_sts(const char *role, const char *token, struct aws_credentials *out) {
  const char *region = aws_variable("AWS_REGION"), *endpoint = aws_variable("AWS_ENDPOINT_URL_STS");
  const char *session = aws_variable("AWS_ROLE_SESSION_NAME");
  char *coded_role = percent_encoded(role, ""), *coded_token = percent_encoded(token, ""), *host = NULL, *url = NULL;
  if (region == NULL) region = aws_variable("AWS_DEFAULT_REGION");
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
  const char *role = aws_variable("AWS_ROLE_ARN");
  char *token = NULL;
  if (role == NULL) return error_set(SHARDRT_EINVAL, "AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
  int code = read_token(path, &token);
  if (code == SHARDRT_OK) code = ask_sts(role, token, out);
  alloc_free(token);
  return code;
}

static int from_container(const char *relative, const char *full, struct aws_credentials *out) {
  const char *given = aws_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const char *path = aws_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  char *url = relative != NULL ? alloc_text("http://169.254.170.2%s", relative) : alloc_text("%s", full);
  char *token = NULL, *header = NULL;
  int code = url == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK && path != NULL) code = read_token(path, &token);
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
    text = alloc_text("%s", trimmed(answer.body));
  exchange_free(&answer);
  alloc_free(url);
  return text;
}

/* Leaves `out` empty where this is no instance with a role. */
static int from_instance(struct aws_credentials *out) {
  static const char roles[] = "/latest/meta-data/iam/security-credentials/";
  const char *disabled = aws_variable("AWS_EC2_METADATA_DISABLED"),
             *named = aws_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
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
  const char *key = aws_variable("AWS_ACCESS_KEY_ID"), *secret = aws_variable("AWS_SECRET_ACCESS_KEY");
  if ((key == NULL) != (secret == NULL)) return refuse_half("the environment");
  if (key != NULL) return set_credentials(key, secret, aws_variable("AWS_SESSION_TOKEN"), out);
  const char *token_file = aws_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  if (token_file != NULL) return from_web_identity(token_file, out);
  int code = from_profile(out);
  if (code != SHARDRT_OK || out->key != NULL) return code;
  const char *relative = aws_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const char *full = aws_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative != NULL || full != NULL) return from_container(relative, full, out);
  return from_instance(out);
}

static struct {
  pthread_mutex_t lock;
  bool known;
  time_t asked; /* when they were looked for */
  struct aws_credentials now;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

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

void aws_credentials_forget(void) {
  pthread_mutex_lock(&process.lock);
  if (time(NULL) >= process.asked + REFUSED) process.known = false;
  pthread_mutex_unlock(&process.lock);
}
