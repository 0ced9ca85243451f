/* service.c - what servers answer to small requests (storage/exchange/exchange.h): listings, refusals, credentials. The
 * input: a byte whose lower half says how credentials are found, and whose upper half which server is asked; the file
 * in which credentials stand; and the answers, one after the other, each "STATUS REGION NEXT", an end of line and its
 * body. No network is asked: the linker puts what stands here in the place of exchange, exchange_patiently,
 * exchange_pause and time (tests/fuzz/fuzz.mk). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../fuzz.h"
#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/aws_credentials.h"
#include "storage/exchange/exchange.h"
#include "storage/storage_api.h"

int __wrap_exchange(const struct exchange_request *request, struct exchange_answer *out);
int __wrap_exchange_patiently(const struct exchange_request *request, int32_t tries, struct exchange_answer *out);
void __wrap_exchange_pause(int32_t tries);
time_t __wrap_time(time_t *out);
time_t __real_time(time_t *out);

enum { ANSWERS = 12 };
static struct fuzz_part parts[ANSWERS + 1];
static int32_t answers, answered;
static time_t later; /* seconds by which it is later than it is */

static void read_head(const struct fuzz_part *part, struct exchange_answer *out, size_t *body) {
  char head[128];
  const uint8_t *end = part->size > 0 ? memchr(part->data, '\n', part->size) : NULL;
  out->status = 200;
  *body = 0;
  if (end == NULL) return;
  *body = (size_t)(end + 1 - part->data);
  snprintf(head, sizeof head, "%.*s", (int)*body, (const char *)part->data);
  sscanf(head, "%3ld %31s %90s", &out->status, out->refusal.region, out->next);
}

int __wrap_exchange(const struct exchange_request *request, struct exchange_answer *out) {
  *out = (struct exchange_answer){0};
  if (request->url == NULL || request->shown == NULL) fuzz_fault("a request to nobody");
  if (answered == answers) return error_set(SHARDRT_EIO, "%s: nobody answers", request->shown);
  const struct fuzz_part *part = &parts[1 + answered++];
  size_t head;
  read_head(part, out, &head);
  out->bytes = part->size - head;
  out->body = alloc_array(out->bytes + 1, 1);
  if (out->body == NULL) return ALLOC_FAILED;
  memcpy(out->body, part->data + head, out->bytes);
  out->body[out->bytes] = '\0';
  return SHARDRT_OK;
}

int __wrap_exchange_patiently(const struct exchange_request *request, int32_t tries, struct exchange_answer *out) {
  for (;; tries--) {
    const int code = __wrap_exchange(request, out);
    if (code != SHARDRT_OK || tries == 1 || out->status < 500) return code;
    exchange_free(out);
  }
}

void __wrap_exchange_pause(int32_t tries) {
  (void)tries;
}

time_t __wrap_time(time_t *out) {
  const time_t now = __real_time(NULL) + later;
  if (out != NULL) *out = now;
  return now;
}

/* Names of variables, and what they say; NULL: the path of the input's file. */
static const struct {
  const char *name, *value;
} ways[][3] = {
    {{"AWS_EC2_METADATA_DISABLED", "true"}},
    {{"AWS_SHARED_CREDENTIALS_FILE", NULL}, {"AWS_CONFIG_FILE", NULL}, {"AWS_EC2_METADATA_DISABLED", "true"}},
    {{"AWS_WEB_IDENTITY_TOKEN_FILE", NULL}, {"AWS_ROLE_ARN", "arn:aws:iam::1:role/x"}},
    {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/x"}, {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", NULL}},
    {{"HOME", "/nowhere"}}, /* the instance's metadata */
    {{"GOOGLE_APPLICATION_CREDENTIALS", NULL}},
    {{"BOTO_CONFIG", NULL}, {"NO_GCE_CHECK", "true"}},
    {{"HF_TOKEN_PATH", NULL}, {"AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=a2V5"}},
    {{"AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint=https://a.blob.core.windows.net/;SharedAccessSignature=sig=b"}},
};

static void choose_way(size_t way, const char *path) {
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
    for (size_t v = 0; v < 3 && ways[i][v].name != NULL; v++) unsetenv(ways[i][v].name);
  for (size_t v = 0; v < 3 && ways[way][v].name != NULL; v++)
    setenv(ways[way][v].name, ways[way][v].value != NULL ? ways[way][v].value : path, 1);
}

static void list(const char *prefix, int32_t deep) {
  shardrt_listing *listing = NULL;
  const int code = shardrt_listing_new(prefix, deep, &listing);
  fuzz_check(code);
  if (code < 0) return;
  for (int64_t i = 0; i < shardrt_listing_count(listing); i++) {
    if (strncmp(shardrt_listing_address(listing, i), prefix, strlen(prefix)) != 0)
      fuzz_fault("a listing has an object that was not asked for");
    if (shardrt_listing_bytes(listing, i) < 0) fuzz_fault("a listing has an object of a negative length");
  }
  shardrt_listing_free(listing);
}

/* An address of each kind of server, of which all is listed, and one of which a folder is. */
static const char *const servers[][2] = {
    {"s3://bucket/web/part ", "s3://in.bucket/"},
    {"gs://bucket/web/part ", "gs://in.bucket/"},
    {"az://container/web/part ", "az://container/"},
    {"hf://datasets/org/name/web/", "hf://datasets/org/name@main/"},
    {"abfss://container@a.dfs.core.chinacloudapi.cn/web/part ", "abfss://container@b.z01.dfs.storage.azure.net/"},
    {"hf://datasets/org/name@refs/convert/parquet/web/", "hf://datasets/org/name@refs/pr/7/"},
};

void fuzz_service(const uint8_t *data, size_t size) {
  if (size == 0) return;
  answers = fuzz_split(data + 1, size - 1, parts, ANSWERS + 1) - 1;
  answered = 0;
  later += 3600;
  aws_credentials_forget();
  choose_way(data[0] % 16 % (sizeof ways / sizeof *ways), fuzz_write("credentials", parts[0].data, parts[0].size));
  const size_t server = data[0] / 16 % (sizeof servers / sizeof *servers);
  list(servers[server][0], 1);
  list(servers[server][1], 0);
}
