/* bucket_parts.c - multipart uploads of S3 (https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html),
 * which Google has, too (https://cloud.google.com/storage/docs/multipart-uploads). */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/markup.h"
#include "storage/exchange/percent.h"
#include "storage/local/url.h"
#include "storage/service/ask.h"
#include "storage/upload/multipart_kind.h"

enum { LOOKS = 2 /* tries, to see what became of an upload */ };

/* ---- queries and answers ---------------------------------------------------------------------------------------- */

static struct markup text_of(const struct exchange_answer *answer) {
  return (struct markup){.at = answer->body, .end = answer->body + answer->bytes};
}

static int misunderstood(const char *address, const char *what) {
  char *shown = url_shown(address);
  int code = shown != NULL ? error_set(SHARDRT_EIO, "%s: the server's answer %s", shown, what) : ALLOC_FAILED;
  alloc_free(shown);
  return code;
}

/* Names in ascending order, as signatures want them. */
static char *query_of_upload(const char *id, int32_t number) {
  char *coded = percent_encoded(id, ""), *query = NULL;
  if (coded != NULL)
    query = number > 0 ? alloc_text("partNumber=%d&uploadId=%s", (int)number, coded) : alloc_text("uploadId=%s", coded);
  alloc_free(coded);
  return query;
}

static int end(const char *address, const char *id, int32_t tries) {
  struct exchange_answer answer = {0};
  struct refusal refused = {0};
  char *query = query_of_upload(id, 0);
  const struct ask ask = {.method = "DELETE", .address = address, .query = query, .tries = tries, .refused = &refused};
  int code = query != NULL ? ask_server(&ask, &answer) : ALLOC_FAILED;
  exchange_free(&answer);
  alloc_free(query);
  return refused.status == 404 ? SHARDRT_OK : code;
}

/* ---- what is left open ---- */

/* "s3://bucket/" of "s3://bucket/key"; owned. */
static char *bucket_of(const char *address, const char **key) {
  const char *slash = strchr(strstr(address, "://") + 3, '/');
  *key = slash != NULL ? slash + 1 : "";
  return slash != NULL ? alloc_text("%.*s", (int)(*key - address), address) : alloc_text("%s/", address);
}

/* `upload`: what stands within <Upload>, in any order. */
static void abort_one(const char *bucket, const char *key, bool all, const char *but, const struct markup *upload) {
  char *found = markup_text(upload, "Key"), *id = markup_text(upload, "UploadId"), *address = NULL;
  const bool is_one =
      found != NULL && id != NULL && (all ? strncmp(found, key, strlen(key)) == 0 : strcmp(found, key) == 0);
  if (is_one && strcmp(id, but) != 0) address = alloc_text("%s%s", bucket, found);
  if (address != NULL) (void)end(address, id, 1);
  alloc_free(address);
  alloc_free(id);
  alloc_free(found);
}

/* Those of one page, except the one with the name `but`. */
static void end_others(const char *address, bool all, const char *but) {
  const char *key;
  struct exchange_answer answer = {0};
  char *bucket = bucket_of(address, &key), *coded = percent_encoded(key, "");
  char *query = coded != NULL ? alloc_text("prefix=%s&uploads=", coded) : NULL;
  const struct ask ask = {.method = "GET", .address = bucket, .query = query, .tries = 1};
  if (bucket != NULL && query != NULL && ask_server(&ask, &answer) == SHARDRT_OK) {
    const struct markup list = text_of(&answer);
    struct markup upload;
    for (bool more = markup_find(&list, "Upload", &upload); more; more = markup_next(&list, "Upload", &upload))
      abort_one(bucket, key, all, but, &upload);
  }
  exchange_free(&answer);
  alloc_free(query);
  alloc_free(coded);
  alloc_free(bucket);
}

static void end_left(const char *address, bool all) {
  end_others(address, all, "");
}

/* ---- one by one ------------------------------------------------------------------------------------------------- */

static int ask_to_begin(const char *address, struct multipart *upload, int32_t *tried) {
  struct exchange_answer answer;
  const struct ask ask = {.method = "POST",
                          .address = address,
                          .query = "uploads=",
                          .body = "", /* of no bytes, which some servers want to be told */
                          .mark = upload->mark,
                          .tried = tried};
  int code = ask_server(&ask, &answer);
  if (code != SHARDRT_OK) return code;
  const struct markup all = text_of(&answer);
  char *found = markup_text(&all, "UploadId");
  if (found == NULL || found[0] == '\0' || strlen(found) >= MULTIPART_ID)
    code = misunderstood(address, "names no upload: it does not take objects in parts as S3 does");
  else
    snprintf(upload->id, sizeof upload->id, "%s", found);
  alloc_free(found);
  exchange_free(&answer);
  return code;
}

static int begin(const char *address, struct multipart *upload) {
  int32_t tried = 0;
  int code = ask_to_begin(address, upload, &tried);
  if (tried > 1) { /* what was asked for before may be open, and only its answer was lost */
    char *message = code != SHARDRT_OK ? alloc_text("%s", shardrt_error_message()) : NULL;
    end_others(address, false, upload->id);
    if (message != NULL) (void)error_set(code, "%s", message);
    alloc_free(message);
  }
  return code;
}

static int put(const char *address, const char *id, int32_t number, const void *data, size_t bytes,
               const atomic_bool *is_given_up, char tag[MULTIPART_TAG]) {
  struct exchange_answer answer = {0};
  char *query = query_of_upload(id, number);
  const struct ask ask = {
      .method = "PUT", .address = address, .query = query, .body = data, .bytes = bytes, .is_given_up = is_given_up};
  int code = query != NULL ? ask_server(&ask, &answer) : ALLOC_FAILED;
  if (code == SHARDRT_OK && (answer.etag[0] == '\0' || strlen(answer.etag) >= MULTIPART_TAG))
    code = misunderstood(address, "to a part of it has no ETag");
  if (code == SHARDRT_OK) snprintf(tag, MULTIPART_TAG, "%s", answer.etag);
  exchange_free(&answer);
  alloc_free(query);
  return code;
}

/* ---- its end ---------------------------------------------------------------------------------------------------- */

static char *list_of_parts(int32_t count, const char (*tags)[MULTIPART_TAG]) {
  static const char begin[] = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  static const char end[] = "</CompleteMultipartUpload>";
  static const char row[] = "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>";
  const size_t room = sizeof begin + sizeof end + (size_t)count * (sizeof row + MULTIPART_TAG + 12);
  char *text = alloc_array(room, 1);
  if (text == NULL) return NULL;
  size_t used = (size_t)snprintf(text, room, "%s", begin);
  for (int32_t i = 0; i < count; i++) used += (size_t)snprintf(text + used, room - used, row, (int)i + 1, tags[i]);
  snprintf(text + used, room - used, "%s", end);
  return text;
}

/* Whether the object that is there is what this upload became: it has its mark. So the answer got lost that it was
 * completed. (Its ETag need not tell: with SSE-KMS, or of Google's, it is no MD5.) This thread's message stays. */
static bool is_completed(const char *address, const struct multipart *upload) {
  struct exchange_answer answer = {0};
  char *message = alloc_text("%s", shardrt_error_message());
  const struct ask ask = {.method = "HEAD", .address = address, .tries = LOOKS};
  const bool is_there = ask_server(&ask, &answer) == SHARDRT_OK && strcmp(answer.mark, upload->mark) == 0;
  exchange_free(&answer);
  if (message != NULL) (void)error_set(SHARDRT_EIO, "%s", message);
  alloc_free(message);
  return is_there;
}

/* S3 says 200 before it knows; *again: what it says then may pass. */
static int read_completion(const char *address, const struct exchange_answer *answer, bool *again) {
  struct refusal refusal;
  char what[sizeof refusal.code + sizeof refusal.message + 64];
  *again = false;
  if (strstr(answer->body, "CompleteMultipartUploadResult") != NULL) return SHARDRT_OK;
  refusal_read(answer->status, &answer->refusal, answer->body, answer->bytes, &refusal);
  const bool is_error = strstr(answer->body, "<Error") != NULL;
  *again = strcmp(refusal.code, "InternalError") == 0 || strcmp(refusal.code, "SlowDown") == 0 ||
           strcmp(refusal.code, "ServiceUnavailable") == 0 || strcmp(refusal.code, "RequestTimeout") == 0;
  snprintf(what, sizeof what, "is 200, and %s%s%s%s", is_error ? "then " : "no completed upload", refusal.code,
           refusal.message[0] != '\0' ? ": " : "", refusal.message);
  return misunderstood(address, what);
}

static int ask_for_completion(const char *address, const char *query, const char *list, int32_t count, bool *again) {
  struct exchange_answer answer = {0};
  const struct ask ask = {.method = "POST",
                          .address = address,
                          .query = query,
                          .body = list,
                          .bytes = strlen(list),
                          .more_seconds = (double)count / MULTIPART_PER_SECOND};
  int code = ask_server(&ask, &answer);
  *again = false;
  if (code == SHARDRT_OK) code = read_completion(address, &answer, again);
  exchange_free(&answer);
  return code;
}

static int complete(const char *address, const struct multipart *upload, int32_t count,
                    const char (*tags)[MULTIPART_TAG]) {
  char *query = query_of_upload(upload->id, 0), *list = list_of_parts(count, tags);
  int code = query != NULL && list != NULL ? SHARDRT_OK : ALLOC_FAILED;
  bool again = code == SHARDRT_OK;
  for (int32_t tries = 1; again && tries <= ASK_TRIES; tries++) {
    code = ask_for_completion(address, query, list, count, &again);
    if (again && tries < ASK_TRIES) exchange_pause(tries);
  }
  if (code == SHARDRT_EIO && is_completed(address, upload)) code = SHARDRT_OK;
  alloc_free(list);
  alloc_free(query);
  return code;
}

const struct multipart_kind bucket_parts = {
    .begin = begin, .put = put, .complete = complete, .abort = end, .abort_left = end_left};
