/* gather_texts.c - what every process has to say, brought to process 0: for a report of the job. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/gather_to_first.h"
#include "comm/job.h"
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

/* Where processes can only gather: all texts come to each. */
static int gather_by_all(shardrt_job *job, const char *what, struct texts *self) {
  const shardrt_job_info *info = shardrt_job_info_get(job);
  const size_t count = (size_t)info->process_count;
  char *own = NULL, *all = NULL;
  size_t longest = 0, *bytes = alloc_array(count, sizeof *bytes);
  int code = job_join(job, what, bytes == NULL ? ALLOC_FAILED : SHARDRT_OK, &self->bytes, sizeof *bytes, bytes);
  if (code < 0 || bytes == NULL) goto end;
  for (size_t p = 0; p < count; p++) longest = bytes[p] > longest ? bytes[p] : longest;
  own = alloc_zeros(longest, 1);
  all = alloc_array(count, longest);
  if (own != NULL) memcpy(own, self->own, self->bytes);
  code = job_join(job, what, own == NULL || all == NULL ? ALLOC_FAILED : SHARDRT_OK, own, longest, all);
  if (code < 0 || all == NULL) goto end;
  for (size_t p = 0; info->process_index == 0 && p < count; p++) take_text(self, all + p * longest, bytes[p]);
end:
  alloc_free(own);
  alloc_free(all);
  alloc_free(bytes);
  return code;
}

static int gather_to_first(shardrt_job *job, const char *what, struct texts *self) {
  struct gather_to_first_room *room = alloc_zeros(1, sizeof *room);
  int code = shardrt_check_outcome(job, what, room == NULL ? ALLOC_FAILED : SHARDRT_OK);
  if (code < 0 || room == NULL) {
    alloc_free(room);
    return code;
  }
  const struct gather_to_first c = {.give = give_text, .take = take_text, .context = self, .room = room};
  code = gather_to_first_run(job, &c, what);
  if (code == SHARDRT_OK) alloc_free(room); /* else a message may still use it */
  return code;
}

int shardrt_gather_texts(shardrt_job *job, const char *what, const char *text, shardrt_buffer **out) {
  struct texts self = {.own = text, .bytes = strlen(text) + 1};
  shardrt_buffer *made = NULL;
  const bool only_gathers = job_collective(job)->transport == &comm_callbacks;
  int code = only_gathers ? gather_by_all(job, what, &self) : gather_to_first(job, what, &self);
  if (code == SHARDRT_OK) {
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
