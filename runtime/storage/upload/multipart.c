#include "storage/upload/multipart.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/digest.h"
#include "storage/exchange/markup.h"
#include "storage/exchange/percent.h"
#include "storage/local/url.h"
#include "storage/service/ask.h"

enum {
  COMPLETE_PER_PART = 20 /* parts of which a server puts together that many a second, at least */,
  MD5_BYTES = 16
};

size_t multipart_part_bytes(size_t bytes) {
  const size_t parts = (bytes + MULTIPART_PART - 1) / MULTIPART_PART;
  const size_t times = (parts + MULTIPART_PARTS - 1) / MULTIPART_PARTS;
  return (times > 0 ? times : 1) * (size_t)MULTIPART_PART;
}

/* ---- bodies and answers ----------------------------------------------------------------------------------------- */

static struct markup text_of(const struct exchange_answer *answer) {
  return (struct markup){.at = answer->body, .end = answer->body + answer->bytes};
}

/* Asks with a body, which may be empty. */
static int ask_with(struct ask *ask, const void *body, size_t bytes, struct exchange_answer *out) {
  char payload[DIGEST_ROOM];
  if (digest_of("sha256", body, bytes, payload) != SHARDRT_OK) snprintf(payload, sizeof payload, "UNSIGNED-PAYLOAD");
  ask->payload = payload;
  ask->body = body;
  ask->bytes = bytes;
  int code = ask_server(ask, out);
  ask->payload = NULL;
  return code;
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

int multipart_abort(const char *address, const char *id, int32_t tries) {
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
  if (address != NULL) (void)multipart_abort(address, id, 1);
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

void multipart_abort_left(const char *address, bool all) {
  end_others(address, all, "");
}

/* ---- one by one ------------------------------------------------------------------------------------------------- */

static int ask_to_begin(const char *address, char id[MULTIPART_ID], int32_t *tried) {
  struct exchange_answer answer;
  struct ask ask = {.method = "POST", .address = address, .query = "uploads=", .tried = tried};
  int code = ask_with(&ask, "", 0, &answer);
  if (code != SHARDRT_OK) return code;
  const struct markup all = text_of(&answer);
  char *found = markup_text(&all, "UploadId");
  if (found == NULL || found[0] == '\0' || strlen(found) >= MULTIPART_ID)
    code = misunderstood(address, "names no upload: it does not take objects in parts as S3 does");
  else
    snprintf(id, MULTIPART_ID, "%s", found);
  alloc_free(found);
  exchange_free(&answer);
  return code;
}

int multipart_begin(const char *address, char id[MULTIPART_ID]) {
  int32_t tried = 0;
  id[0] = '\0';
  int code = ask_to_begin(address, id, &tried);
  if (tried > 1) { /* what was asked for before may be open, and only its answer was lost */
    char *message = code != SHARDRT_OK ? alloc_text("%s", shardrt_error_message()) : NULL;
    end_others(address, false, id);
    if (message != NULL) (void)error_set(code, "%s", message);
    alloc_free(message);
  }
  return code;
}

int multipart_put(const char *address, const char *id, int32_t number, const void *data, size_t bytes,
                  const atomic_bool *is_given_up, char tag[MULTIPART_TAG]) {
  struct exchange_answer answer = {0};
  char *query = query_of_upload(id, number);
  struct ask ask = {.method = "PUT", .address = address, .query = query, .is_given_up = is_given_up};
  int code = query != NULL ? ask_with(&ask, data, bytes, &answer) : ALLOC_FAILED;
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

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The ETag that S3 gives an object of these parts, if their ETags are MD5s: the MD5 of these and their number. False:
 * they are not. */
static bool tag_of_whole(int32_t count, const char (*tags)[MULTIPART_TAG], char out[MULTIPART_TAG]) {
  char digits[DIGEST_ROOM];
  uint8_t *all = alloc_array((size_t)count, MD5_BYTES);
  bool is_known = all != NULL;
  for (int32_t i = 0; is_known && i < count; i++) {
    const char *at = tags[i] + (tags[i][0] == '"');
    for (int32_t b = 0; is_known && b < MD5_BYTES; b++) {
      const int high = digit_of(at[0]), low = high >= 0 ? digit_of(at[1]) : -1;
      is_known = low >= 0;
      all[i * MD5_BYTES + b] = (uint8_t)(high * 16 + low);
      at += 2;
    }
  }
  is_known = is_known && digest_of("md5", all, (size_t)count * MD5_BYTES, digits) == SHARDRT_OK;
  if (is_known) snprintf(out, MULTIPART_TAG, "\"%.32s-%d\"", digits, (int)count);
  alloc_free(all);
  return is_known;
}

/* Whether the object that is there is of these parts: an answer that got lost was that it was completed. */
static bool is_completed(const char *address, int32_t count, const char (*tags)[MULTIPART_TAG]) {
  char expected[MULTIPART_TAG];
  struct exchange_answer answer = {0};
  const struct ask ask = {.method = "HEAD", .address = address};
  const bool is_there = tag_of_whole(count, tags, expected) && ask_server(&ask, &answer) == SHARDRT_OK &&
                        strcmp(answer.etag, expected) == 0;
  exchange_free(&answer);
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

static int ask_for_completion(const char *address, const char *query, const char *list, int32_t count, bool *is_gone,
                              bool *again) {
  struct exchange_answer answer = {0};
  struct refusal refused = {0};
  struct ask ask = {.method = "POST",
                    .address = address,
                    .query = query,
                    .more_seconds = (double)count / COMPLETE_PER_PART,
                    .refused = &refused};
  int code = ask_with(&ask, list, strlen(list), &answer);
  *is_gone = refused.status == 404;
  *again = false;
  if (code == SHARDRT_OK) code = read_completion(address, &answer, again);
  exchange_free(&answer);
  return code;
}

int multipart_complete(const char *address, const char *id, int32_t count, const char (*tags)[MULTIPART_TAG]) {
  char *query = query_of_upload(id, 0), *list = list_of_parts(count, tags);
  int code = query != NULL && list != NULL ? SHARDRT_OK : ALLOC_FAILED;
  bool again = code == SHARDRT_OK;
  for (int32_t tries = 1; again && tries <= ASK_TRIES; tries++) {
    bool is_gone;
    code = ask_for_completion(address, query, list, count, &is_gone, &again);
    if (is_gone && is_completed(address, count, tags)) code = SHARDRT_OK;
    if (again && tries < ASK_TRIES) exchange_pause(tries);
  }
  alloc_free(list);
  alloc_free(query);
  return code;
}
