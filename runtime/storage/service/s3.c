#include "storage/service/s3.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/aws_credentials.h"
#include "storage/exchange/aws_signature.h"
#include "storage/exchange/markup.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/settings.h"
#include "storage/exchange/times.h"
#include "storage/local/url.h"
#include "storage/service/body_digest.h"
#include "storage/service/services.h"

enum { BUCKET = S3_BUCKET, KNOWN = 64 };

static const char in_hosts[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
static const char in_names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";

static int refuse_bucket(const char *address) {
  char *shown = url_shown(address);
  const int code = shown == NULL
                       ? ALLOC_FAILED
                       : error_set(SHARDRT_EINVAL,
                                   "%s: the name of a bucket stands behind ://, of up to %d letters, digits, points, "
                                   "hyphens and underscores; keys and secrets stand where the service's own tools look",
                                   shown, BUCKET - 1);
  alloc_free(shown);
  return code;
}

int s3_parse(const char *address, struct s3_address *out) {
  const char *bucket = strstr(address, "://") + 3;
  const size_t length = strcspn(bucket, "/");
  *out = (struct s3_address){.key = ""};
  if (length == 0 || length >= BUCKET || strspn(bucket, in_names) < length || strspn(bucket, ".") >= length)
    return refuse_bucket(address);
  snprintf(out->bucket, sizeof out->bucket, "%.*s", (int)length, bucket);
  out->key = bucket[length] == '/' ? bucket + length + 1 : "";
  return SHARDRT_OK;
}

/* libcurl takes such parts out of an address, which is then another object's. */
int s3_check_key(const char *address, const char *key) {
  if (key[0] == '\0') return url_refuse(SHARDRT_EINVAL, address, "it names a bucket, and no object in it");
  for (const char *part = key; part != NULL;) {
    const size_t length = strcspn(part, "/"), points = strspn(part, ".");
    if (points == length && (length == 1 || length == 2))
      return url_refuse(SHARDRT_EINVAL, address,
                        length == 1 ? "objects with a part \".\" in their keys cannot be asked for"
                                    : "objects with a part \"..\" in their keys cannot be asked for");
    part = part[length] == '/' ? part + length + 1 : NULL;
  }
  return SHARDRT_OK;
}

/* ---- regions ---------------------------------------------------------------------------------------------------- */

/* Of buckets that turned out to lie elsewhere than the region that is set. */
static struct {
  pthread_mutex_t lock;
  int32_t count;
  struct {
    char bucket[BUCKET], region[32];
  } list[KNOWN];
} moved = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char *moved_region(const char *bucket) {
  char *region = NULL;
  pthread_mutex_lock(&moved.lock);
  for (int32_t i = 0; i < moved.count && region == NULL; i++)
    if (strcmp(moved.list[i].bucket, bucket) == 0) region = alloc_text("%s", moved.list[i].region);
  pthread_mutex_unlock(&moved.lock);
  return region;
}

/* Owned; NULL when out of memory. */
static char *region_of(const char *bucket) {
  const char *named = settings_variable("AWS_REGION");
  char *region = moved_region(bucket);
  if (named == NULL) named = settings_variable("AWS_DEFAULT_REGION");
  if (region == NULL && named != NULL) return alloc_text("%s", named);
  if (region == NULL) region = aws_region();
  return region != NULL ? region : alloc_text("us-east-1");
}

static bool note_region(const char *bucket, const char *region) {
  bool is_new = true;
  pthread_mutex_lock(&moved.lock);
  int32_t i = 0;
  while (i < moved.count && strcmp(moved.list[i].bucket, bucket) != 0) i++;
  if (i < moved.count) is_new = strcmp(moved.list[i].region, region) != 0;
  if (i == KNOWN) i = 0;
  if (is_new) {
    snprintf(moved.list[i].bucket, BUCKET, "%s", bucket);
    snprintf(moved.list[i].region, sizeof moved.list[i].region, "%s", region);
    if (i >= moved.count) moved.count = i + 1;
  }
  pthread_mutex_unlock(&moved.lock);
  return is_new;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Owned; NULL: Amazon's own. */
static char *endpoint_setting(void) {
  const char *named = settings_variable("AWS_ENDPOINT_URL_S3");
  if (named == NULL) named = settings_variable("AWS_ENDPOINT_URL");
  char *endpoint = named != NULL ? alloc_text("%s", named) : aws_endpoint();
  for (size_t n = endpoint != NULL ? strlen(endpoint) : 0; n > 0 && endpoint[n - 1] == '/'; n--) endpoint[n - 1] = '\0';
  return endpoint;
}

/* A bucket stands before the host where its name can be part of one, and else in the path. */
static char *url_of(const struct s3_address *address, const char *region, const char *query) {
  char *endpoint = endpoint_setting(), *key = percent_encoded(address->key, "/"), *url = NULL;
  const char *mark = query != NULL ? "?" : "", *rest = query != NULL ? query : "";
  const char *country = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
  if (key == NULL)
    url = NULL;
  else if (endpoint != NULL)
    url = alloc_text("%s/%s/%s%s%s", endpoint, address->bucket, key, mark, rest);
  else if (strspn(address->bucket, in_hosts) < strlen(address->bucket))
    url = alloc_text("https://s3.%s.amazonaws.com%s/%s/%s%s%s", region, country, address->bucket, key, mark, rest);
  else
    url = alloc_text("https://%s.s3.%s.amazonaws.com%s/%s%s%s", address->bucket, region, country, key, mark, rest);
  alloc_free(endpoint);
  alloc_free(key);
  return url;
}

int s3_sign(const struct service_call *call, const char *key, const char *secret, const char *token, const char *region,
            struct service_request *out) {
  char payload[DIGEST_ROOM], date[TIMES_ROOM], *authorization = NULL;
  body_sha256(call->body, call->bytes, payload);
  times_compact(time(NULL), date);
  int code = service_add_header(out, aws_host(out->url));
  if (code == SHARDRT_OK) code = service_add_header(out, alloc_text("x-amz-content-sha256: %s", payload));
  if (code == SHARDRT_OK) code = service_add_header(out, alloc_text("x-amz-date: %s", date));
  if (code == SHARDRT_OK && call->mark != NULL)
    code = service_add_header(out, alloc_text("x-amz-meta-" EXCHANGE_MARK ": %s", call->mark));
  if (code == SHARDRT_OK && token != NULL)
    code = service_add_header(out, alloc_text("x-amz-security-token: %s", token));
  if (code == SHARDRT_OK)
    code = aws_sign(&(struct aws_request){.method = call->method,
                                          .url = out->url,
                                          .headers = out->headers,
                                          .date = date,
                                          .payload = payload,
                                          .key = key,
                                          .secret = secret,
                                          .region = region},
                    &authorization);
  return code == SHARDRT_OK ? service_add_header(out, authorization) : code;
}

static int s3_request(const struct service_call *call, struct service_request *out) {
  struct s3_address parsed;
  struct aws_credentials who = {0};
  char *region = NULL;
  int code = s3_parse(call->address, &parsed);
  if (code == SHARDRT_OK && (call->query == NULL || parsed.key[0] != '\0'))
    code = s3_check_key(call->address, parsed.key);
  if (code == SHARDRT_OK) code = aws_credentials_get(&who);
  if (code == SHARDRT_OK) {
    region = region_of(parsed.bucket);
    out->url = region != NULL ? url_of(&parsed, region, call->query) : NULL;
    code = out->url != NULL ? SHARDRT_OK : ALLOC_FAILED;
  }
  if (code == SHARDRT_OK && who.key != NULL) code = s3_sign(call, who.key, who.secret, who.token, region, out);
  alloc_free(region);
  aws_credentials_free(&who);
  return code;
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

static bool has_expired(const struct refusal *refusal) {
  return strcmp(refusal->code, "ExpiredToken") == 0 || strcmp(refusal->code, "ExpiredTokenException") == 0 ||
         strcmp(refusal->code, "RequestExpired") == 0;
}

static bool s3_learn(const char *address, const struct refusal *refusal) {
  struct s3_address parsed;
  if (s3_parse(address, &parsed) != SHARDRT_OK) return false;
  if (has_expired(refusal)) {
    aws_credentials_forget();
    return true;
  }
  const bool elsewhere = refusal->status == 301 || refusal->status == 307 || refusal->status == 400;
  const size_t length = strlen(refusal->region);
  if (!elsewhere || length == 0 || strspn(refusal->region, in_hosts) < length) return false;
  char *now = region_of(parsed.bucket);
  const bool differs = now != NULL && strcmp(now, refusal->region) != 0;
  alloc_free(now);
  return differs && note_region(parsed.bucket, refusal->region);
}

static bool is_anonymous(void) {
  struct aws_credentials who;
  const bool none = aws_credentials_get(&who) == SHARDRT_OK && who.key == NULL;
  aws_credentials_free(&who);
  return none;
}

static const char *s3_advice(const char *address, const struct refusal *refusal, char *room, size_t bytes) {
  (void)address;
  const char *code = refusal->code;
  if (refusal->status == 403 && is_anonymous())
    return "; no credentials were found: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY would do, or a profile in "
           "~/.aws/credentials";
  if (strcmp(code, "InvalidAccessKeyId") == 0)
    return "; the server does not know this access key: AWS_ACCESS_KEY_ID or the profile names another one";
  if (strcmp(code, "SignatureDoesNotMatch") == 0)
    return "; the secret key is not this access key's: AWS_SECRET_ACCESS_KEY or the profile has another one";
  if (has_expired(refusal)) return "; the credentials have expired, and no newer ones were found: get new ones";
  if (strcmp(code, "RequestTimeTooSkewed") == 0)
    return "; this machine's clock and the server's differ too much for signatures: set it right (chrony, ntp)";
  if (strcmp(code, "NoSuchBucket") == 0) return "; the bucket's name, or AWS_ENDPOINT_URL, is another one";
  if (refusal->region[0] != '\0' && (refusal->status == 301 || refusal->status == 307 || refusal->status == 400)) {
    snprintf(room, bytes, "; the bucket lies in the region %s: AWS_REGION says so", refusal->region);
    return room;
  }
  return "";
}

/* ---- listings ---------------------------------------------------------------------------------------------------
 *
 * ListObjectsV2 (https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html). */

static size_t s3_root(const char *address) {
  const char *host = strstr(address, "://"), *slash = host != NULL ? strchr(host + 3, '/') : NULL;
  return slash != NULL && slash > host + 3 ? (size_t)(slash + 1 - address) : 0;
}

/* Names in ascending order, as signatures want them. */
static char *list_query(const char *prefix, bool deep, const char *next) {
  char *coded_prefix = percent_encoded(prefix, ""), *coded_next = next != NULL ? percent_encoded(next, "") : NULL;
  char *query = NULL;
  if (coded_prefix != NULL && (next == NULL || coded_next != NULL))
    query =
        alloc_text("%s%s%s%sencoding-type=url&list-type=2&prefix=%s", next != NULL ? "continuation-token=" : "",
                   next != NULL ? coded_next : "", next != NULL ? "&" : "", deep ? "" : "delimiter=%2F&", coded_prefix);
  alloc_free(coded_prefix);
  alloc_free(coded_next);
  return query;
}

/* `is_coded`: the server does with keys what encoding-type=url asks for, which not all do. */
static int add_contents(shardrt_listing *out, const char *root, const char *shown, const struct markup *contents,
                        bool is_coded) {
  struct markup place;
  if (!markup_find(contents, "Key", &place) || !markup_find(contents, "Size", &place))
    return listing_refuse(shown, "has an object without key or size");
  char *key = markup_text(contents, "Key"), *size = markup_text(contents, "Size");
  if (key != NULL && is_coded) percent_decode(key, true);
  int code = key != NULL && size != NULL ? listing_add(out, alloc_text("%s%s", root, key), strtoll(size, NULL, 10))
                                         : ALLOC_FAILED;
  alloc_free(key);
  alloc_free(size);
  return code;
}

static int take_page(shardrt_listing *out, const char *root, const char *shown, const struct exchange_answer *page,
                     char **next) {
  const struct markup all = {.at = page->body, .end = page->body + page->bytes};
  struct markup list, contents = {.end = NULL};
  if (!markup_find(&all, "ListBucketResult", &list))
    return listing_refuse(shown, strstr(page->body, "<ListBucketResult") != NULL
                                     ? "ends in the middle"
                                     : "is none: it speaks another language");
  const bool is_coded = markup_is(&list, "EncodingType", "url");
  int code = SHARDRT_OK;
  bool more = markup_find(&list, "Contents", &contents);
  for (; more && code == SHARDRT_OK; more = markup_next(&list, "Contents", &contents))
    code = add_contents(out, root, shown, &contents, is_coded);
  if (code != SHARDRT_OK || !markup_is(&list, "IsTruncated", "true")) return code;
  *next = markup_text(&list, "NextContinuationToken");
  return *next != NULL ? SHARDRT_OK : listing_refuse(shown, "goes on, and does not say where");
}

const struct service_lists s3_lists = {.root = s3_root, .query = list_query, .take = take_page};

const char *const s3_absent[] = {"NoSuchBucket", NULL};

const struct service service_s3 = {
    .request = s3_request, .learn = s3_learn, .advice = s3_advice, .absent = s3_absent, .lists = &s3_lists};
