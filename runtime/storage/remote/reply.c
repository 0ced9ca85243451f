#include "storage/remote/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

void reply_fail(struct reply *self, int code) {
  self->code = code;
  snprintf(self->message, sizeof self->message, "%s", shardrt_error_message());
}

/* ---- headers ---------------------------------------------------------------------------------------------------- */

/* The value of a header of this name, without the spaces around it; NULL: it is another one. */
static const char *value_of(const char *line, size_t bytes, const char *name, size_t *length) {
  const size_t head = strlen(name);
  if (bytes <= head || strncasecmp(line, name, head) != 0 || line[head] != ':') return NULL;
  const char *at = line + head + 1, *end = line + bytes;
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  while (end > at && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ' || end[-1] == '\t')) end--;
  *length = (size_t)(end - at);
  return at;
}

/* One that is too long to be kept is cut off: it is only ever compared. */
static void keep_value(char *out, const char *line, size_t bytes, const char *name) {
  size_t length = 0;
  const char *value = value_of(line, bytes, name, &length);
  if (value == NULL) return;
  if (length > FETCH_TEXT - 1) length = FETCH_TEXT - 1;
  memcpy(out, value, length);
  out[length] = '\0';
}

/* "bytes 0-99/1000" or, of what is not there, "bytes * /1000"; "*" where the total is not known. */
static void read_part(struct reply *self, const char *text) {
  int at = 0;
  if (sscanf(text, "bytes %" SCNd64 "-%" SCNd64 "/%n", &self->first, &self->last, &at) == 2 && at > 0)
    self->has_part = true;
  else if (strncmp(text, "bytes */", 8) == 0)
    at = 8;
  else
    return;
  char *end;
  const long long total = strtoll(text + at, &end, 10);
  self->total = end != text + at && total >= 0 ? total : -1;
}

static void read_status(struct reply *self, const char *line) {
  struct fetch_request *request = self->request;
  *self = (struct reply){.request = request, .total = -1, .length = -1};
  const char *space = strchr(line, ' ');
  self->status = space != NULL ? strtol(space, NULL, 10) : 0;
}

/* ---- what it means ---------------------------------------------------------------------------------------------- */

static bool end_here(struct reply *self, int code) {
  reply_fail(self, code);
  return false;
}

/* Not an answer to this request; an answer to the next one may be. */
static bool note_mismatch(struct reply *self, const char *what) {
  snprintf(self->wrong, sizeof self->wrong, "the server answers %ld, %s", self->status, what);
  return false;
}

static bool refuse_changed(struct reply *self, const char *what) {
  return end_here(self, error_set(SHARDRT_EIO,
                                  "%s: the file on the server is another one since it was opened (its %s has changed); "
                                  "data of the two is never mixed: start again, with files that stay as they are",
                                  self->request->shown, what));
}

/* Whether it is about the version that is wanted. */
static bool check_version(struct reply *self, int64_t bytes) {
  const struct fetch_version *wanted = self->request->version;
  struct fetch_version *found = &self->request->found;
  *found = (struct fetch_version){.bytes = bytes};
  memcpy(found->etag, self->etag, sizeof found->etag);
  memcpy(found->modified, self->modified, sizeof found->modified);
  if (self->encoded)
    return end_here(self, error_set(SHARDRT_EIO,
                                    "%s: the server sends it compressed (Content-Encoding), though it was not asked "
                                    "to, and so its bytes cannot be counted: it must serve this file as it is",
                                    self->request->shown));
  if (wanted == NULL || fetch_version_same(wanted, found)) return true;
  return refuse_changed(self, wanted->bytes != bytes                   ? "length"
                              : strcmp(wanted->etag, found->etag) != 0 ? "ETag"
                                                                       : "Last-Modified");
}

static bool accept_body(struct reply *self, enum fetch_kind kind, size_t promised) {
  self->request->kind = kind;
  self->kind_known = self->accepted = true;
  self->promised = promised;
  return true;
}

/* Known without a body, of which no more is wanted. */
static bool settle_kind(struct reply *self, enum fetch_kind kind) {
  self->request->kind = kind;
  self->kind_known = self->stopped = true;
  return false;
}

/* 206. */
static bool judge_part(struct reply *self) {
  const struct fetch_request *r = self->request;
  if (r->take != NULL || !self->has_part || self->total < 0)
    return note_mismatch(self, "and not which bytes these are");
  if (!check_version(self, self->total)) return false;
  const int64_t stop = (int64_t)(r->offset + r->bytes) < self->total ? (int64_t)(r->offset + r->bytes) : self->total;
  if (self->first != (int64_t)r->offset || self->last != stop - 1)
    return note_mismatch(self, "with other bytes than asked for");
  return accept_body(self, FETCH_PART, (size_t)(stop - self->first));
}

/* 200. */
static bool judge_whole(struct reply *self) {
  const struct fetch_request *r = self->request;
  if (!check_version(self, self->length)) return false;
  if (r->take != NULL) return accept_body(self, FETCH_WHOLE, self->length < 0 ? SIZE_MAX : (size_t)self->length);
  if (r->version != NULL) return note_mismatch(self, "the whole file, where a part of it was asked for");
  if (self->length >= 0 && (size_t)self->length <= r->bytes)
    return accept_body(self, FETCH_WHOLE, (size_t)self->length);
  return settle_kind(self, FETCH_WHOLE);
}

/* At the end of the headers. */
static bool judge_headers(struct reply *self) {
  struct fetch_request *r = self->request;
  self->ended = true;
  switch (self->status) {
  case 200:
    return judge_whole(self);
  case 206:
    return judge_part(self);
  case 304:
    r->kind = FETCH_SAME;
    self->kind_known = r->known != NULL;
    return true;
  case 404:
  case 410:
    if (r->version != NULL)
      return end_here(
          self, error_set(SHARDRT_EIO, "%s: the file is not on the server any more (%ld)", r->shown, self->status));
    return true; /* its words say what is missing */
  case 416:      /* nothing is there: the file is empty, or shorter than it was */
    if (self->total < 0 && r->version == NULL) return true; /* its words may say which */
    if (!check_version(self, self->total)) return false;
    if (self->total != 0) return note_mismatch(self, "that these bytes are not there");
    r->kind = FETCH_PART;
    self->kind_known = true;
    return true;
  default: /* 1xx and redirects go on; others are errors, told by their status */
    return true;
  }
}

void reply_words(struct reply *self, const char *data, size_t bytes) {
  const size_t left = sizeof self->words - self->nwords, n = bytes < left ? bytes : left;
  memcpy(self->words + self->nwords, data, n);
  self->nwords += n;
}

bool reply_header(struct reply *self, const char *line, size_t bytes) {
  char text[512];
  size_t length = 0;
  snprintf(text, sizeof text, "%.*s", (int)(bytes < sizeof text ? bytes : sizeof text - 1), line);
  if (strncmp(text, "HTTP/", 5) == 0) read_status(self, text);
  if (self->ended) return true; /* trailers */
  if (text[0] == '\r' || text[0] == '\n') return judge_headers(self);
  keep_value(self->etag, line, bytes, "ETag");
  keep_value(self->modified, line, bytes, "Last-Modified");
  refusal_header(line, bytes, &self->refusal);
  const char *value = value_of(text, strlen(text), "Content-Length", &length);
  if (value != NULL) self->length = strtoll(value, NULL, 10);
  value = value_of(text, strlen(text), "Content-Range", &length);
  if (value != NULL) read_part(self, value);
  value = value_of(text, strlen(text), "Content-Encoding", &length);
  if (value != NULL && (length != 8 || strncasecmp(value, "identity", 8) != 0)) self->encoded = true;
  return true;
}
