/* gather_texts.c - what every process has to say, brought to process 0: for a report of the job. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/gather_to_first.h"
#include "shardrt.h"

struct texts {
  const char *own;
  size_t bytes, given;
  char *all; /* process 0's: what came so far */
  size_t length, capacity;
  bool is_lost; /* there is no memory for it */
};

static size_t give_text(void *context, char *piece) {
  struct texts *self = context;
  const size_t left = self->bytes - self->given, bytes = left < GATHER_TO_FIRST_PIECE ? left : GATHER_TO_FIRST_PIECE;
  memcpy(piece, self->own + self->given, bytes);
  self->given += bytes;
  return bytes;
}

static bool make_room(struct texts *self, size_t bytes) {
  if (self->length + bytes <= self->capacity) return true;
  const size_t capacity = 2 * (self->length + bytes);
  char *larger = alloc_array(capacity, 1);
  if (larger == NULL) return false;
  if (self->length > 0) memcpy(larger, self->all, self->length);
  alloc_free(self->all);
  self->all = larger;
  self->capacity = capacity;
  return true;
}

static void take_text(void *context, const char *piece, size_t bytes) {
  struct texts *self = context;
  if (!self->is_lost) self->is_lost = !make_room(self, bytes);
  if (self->is_lost) return;
  memcpy(self->all + self->length, piece, bytes);
  self->length += bytes;
}

int shardrt_gather_texts(shardrt_job *job, const char *what, const char *text, shardrt_buffer **out) {
  struct gather_to_first_room *room = alloc_zeros(1, sizeof *room);
  int code = shardrt_check_outcome(job, what, room == NULL ? ALLOC_FAILED : SHARDRT_OK);
  if (code < 0 || room == NULL) {
    alloc_free(room);
    return code;
  }
  struct texts self = {.own = text, .bytes = strlen(text) + 1};
  const struct gather_to_first c = {.give = give_text, .take = take_text, .context = &self, .room = room};
  shardrt_buffer *made = NULL;
  code = gather_to_first_run(job, &c, what);
  if (code == SHARDRT_OK) {
    alloc_free(room); /* else a message may still use it */
    code = self.is_lost ? ALLOC_FAILED : shardrt_buffer_new(self.length, &made);
    if (code == SHARDRT_OK && self.length > 0) memcpy(shardrt_buffer_data(made), self.all, self.length);
    code = shardrt_check_outcome(job, what, code);
  }
  alloc_free(self.all);
  if (code == SHARDRT_OK)
    *out = made;
  else
    shardrt_buffer_free(made);
  return code;
}
