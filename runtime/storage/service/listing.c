/* listing.c - which objects a bucket has: ListObjectsV2
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html), page by page. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "shardrt.h"
#include "storage/service/ask.h"
#include "storage/service/listing.h"
#include "storage/service/percent.h"

struct object {
  char *address;
  int64_t bytes;
};

struct shardrt_listing {
  struct object *objects;
  int64_t count, room;
};

void shardrt_listing_free(shardrt_listing *self) {
  if (self == NULL) return;
  for (int64_t i = 0; i < self->count; i++) alloc_free(self->objects[i].address);
  alloc_free(self->objects);
  alloc_free(self);
}

int64_t shardrt_listing_count(const shardrt_listing *self) {
  return self->count;
}

const char *shardrt_listing_address(const shardrt_listing *self, int64_t i) {
  return self->objects[i].address;
}

int64_t shardrt_listing_bytes(const shardrt_listing *self, int64_t i) {
  return self->objects[i].bytes;
}

/* ---- a page ----------------------------------------------------------------------------------------------------- */

/* What stands between <name> and </name> from `at` on and before `end`; owned; NULL: nothing does, or memory is
 * exhausted. */
static char *element(const char *at, const char *end, const char *name) {
  char *begin = alloc_text("<%s>", name), *stop = alloc_text("</%s>", name), *out = NULL;
  const char *first = begin != NULL && stop != NULL ? strstr(at, begin) : NULL;
  const char *last = first != NULL ? strstr(first, stop) : NULL;
  if (last != NULL && last < end) {
    first += strlen(begin);
    out = alloc_text("%.*s", (int)(last - first), first);
  }
  alloc_free(begin);
  alloc_free(stop);
  return out;
}

static int add_object(shardrt_listing *self, char *address, int64_t bytes) {
  if (self->count == self->room) {
    const int64_t room = self->room > 0 ? 2 * self->room : 64;
    struct object *larger = alloc_array((size_t)room, sizeof *larger);
    if (larger == NULL) return ALLOC_FAILED;
    if (self->count > 0) memcpy(larger, self->objects, (size_t)self->count * sizeof *larger);
    alloc_free(self->objects);
    self->objects = larger;
    self->room = room;
  }
  self->objects[self->count++] = (struct object){.address = address, .bytes = bytes};
  return SHARDRT_OK;
}

/* What one of XML's references of a byte stands for, as &amp; and &#39;, and its length; 0: it is none. */
static char referred(const char *text, size_t *length) {
  static const struct {
    const char *text;
    char meaning;
  } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    *length = strlen(names[i].text);
    if (strncmp(text, names[i].text, *length) == 0) return names[i].meaning;
  }
  if (strncmp(text, "&#", 2) != 0) return 0;
  char *end;
  const bool is_hex = text[2] == 'x';
  const long number = strtol(text + 2 + is_hex, &end, is_hex ? 16 : 10);
  *length = (size_t)(end + 1 - text);
  return *end == ';' && number > 0 && number < 128 ? (char)number : 0;
}

/* In place. */
static void xml_decode(char *text) {
  char *out = text;
  size_t length;
  while (*text != '\0') {
    const char meaning = *text == '&' ? referred(text, &length) : (char)0;
    *out++ = meaning != 0 ? meaning : *text;
    text += meaning != 0 ? length : 1;
  }
  *out = '\0';
}

/* `bucket`: "s3://bucket/". `is_coded`: the server does with keys what encoding-type=url asks for, which not all do. */
static int add_contents(shardrt_listing *self, const char *bucket, const char *at, const char *end, bool is_coded) {
  char *key = element(at, end, "Key"), *size = element(at, end, "Size");
  if (key != NULL) xml_decode(key);
  if (key != NULL && is_coded) percent_decode(key);
  char *address = key != NULL ? alloc_text("%s%s", bucket, key) : NULL;
  int code = address != NULL && size != NULL ? add_object(self, address, strtoll(size, NULL, 10)) : ALLOC_FAILED;
  if (code != SHARDRT_OK) alloc_free(address);
  alloc_free(key);
  alloc_free(size);
  return code;
}

static bool has(const char *at, const char *end, const char *mark) {
  const char *found = strstr(at, mark);
  return found != NULL && found < end;
}

static int refuse_page(const char *shown, const char *why) {
  return error_set(SHARDRT_EIO, "%s: the server's listing of the bucket %s", shown, why);
}

/* Takes a page's objects; *next: where the next page begins, owned; NULL: it was the last. */
static int take_page(shardrt_listing *self, const char *bucket, const char *shown, const char *body, char **next) {
  static const char open[] = "<Contents>", close[] = "</Contents>";
  *next = NULL;
  const char *all = body + strlen(body);
  const bool is_coded = strstr(body, "<EncodingType>url</EncodingType>") != NULL;
  if (strstr(body, "<ListBucketResult") == NULL) return refuse_page(shown, "is none: it speaks another language");
  if (strstr(body, "</ListBucketResult>") == NULL) return refuse_page(shown, "ends in the middle");
  int code = SHARDRT_OK;
  for (const char *at = strstr(body, open); at != NULL && code == SHARDRT_OK; at = strstr(at + 1, open)) {
    const char *end = strstr(at, close);
    if (end == NULL || !has(at, end, "<Key>") || !has(at, end, "<Size>"))
      return refuse_page(shown, "has an object without key or size");
    code = add_contents(self, bucket, at, end, is_coded);
  }
  char *truncated = element(body, all, "IsTruncated");
  const bool goes_on = truncated != NULL && strcmp(truncated, "true") == 0;
  alloc_free(truncated);
  if (code != SHARDRT_OK || !goes_on) return code;
  *next = element(body, all, "NextContinuationToken");
  if (*next != NULL) xml_decode(*next);
  return *next != NULL ? SHARDRT_OK : refuse_page(shown, "goes on, and does not say where");
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

/* Names in ascending order, as signatures want them. */
static char *query_of(const char *prefix, bool deep, const char *next) {
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

static int fill_listing(shardrt_listing *self, const char *bucket, const char *prefix, bool deep, const char *shown) {
  char *next = NULL;
  int code = SHARDRT_OK;
  do {
    struct exchange_answer answer = {0};
    char *from = next, *query = query_of(prefix, deep, from);
    next = NULL;
    code = query != NULL ? ask_server(&(struct ask){.method = "GET", .address = bucket, .query = query}, &answer)
                         : ALLOC_FAILED;
    if (code == SHARDRT_OK) code = take_page(self, bucket, shown, answer.body, &next);
    if (code == SHARDRT_OK && from != NULL && next != NULL && strcmp(from, next) == 0)
      code = refuse_page(shown, "goes on where it is, without end");
    alloc_free(from);
    exchange_free(&answer);
    alloc_free(query);
  } while (code == SHARDRT_OK && next != NULL);
  alloc_free(next);
  return code;
}

int shardrt_listing_new(const char *prefix, int32_t deep, shardrt_listing **out) {
  const char *host = strstr(prefix, "://");
  const char *slash = host != NULL ? strchr(host + 3, '/') : NULL;
  *out = NULL;
  if (slash == NULL) return error_set(SHARDRT_EINVAL, "%s: a bucket's name, and a slash, stand behind ://", prefix);
  shardrt_listing *made = alloc_zeros(1, sizeof *made);
  char *bucket = alloc_text("%.*s", (int)(slash + 1 - prefix), prefix);
  int code = made != NULL && bucket != NULL ? fill_listing(made, bucket, slash + 1, deep != 0, prefix) : ALLOC_FAILED;
  alloc_free(bucket);
  if (code == SHARDRT_OK)
    *out = made;
  else
    shardrt_listing_free(made);
  return code;
}

/* ---- of another process ----------------------------------------------------------------------------------------- */

shardrt_listing *listing_empty(void) {
  shardrt_listing *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) (void)ALLOC_FAILED;
  return made;
}

int listing_add(shardrt_listing *self, const char *address, int64_t bytes) {
  char *copy = alloc_text("%s", address);
  int code = copy != NULL ? add_object(self, copy, bytes) : ALLOC_FAILED;
  if (code != SHARDRT_OK) alloc_free(copy);
  return code;
}
