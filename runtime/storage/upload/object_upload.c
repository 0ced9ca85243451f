#include "storage/upload/object_upload.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "shardrt.h"
#include "storage/local/url.h"
#include "system/signal_undo.h"
#include "system/thread.h"

enum { HASHED = 1 << 20 /* bytes that are hashed at once, as in shardrt_file_fingerprint */, UNDO_TRIES = 2 };
static const struct timespec UNDO_AGAIN = {.tv_nsec = 500000000}; /* a launcher kills two seconds after SIGTERM */

struct upload_slot {
  struct object_upload *owner;
  char *room; /* made when it is first needed */
  int32_t number;
  pthread_t thread;
  bool is_taken, is_running; /* is_running: there is a thread to join */
  bool has_ended;            /* under the lock */
};

struct upload_state {
  pthread_mutex_t lock;
  pthread_cond_t ended;
  pthread_mutex_t asking;  /* while it is begun or completed: what a signal undoes waits for that */
  atomic_bool is_given_up; /* nothing more is to be sent */
  atomic_bool was_undone;  /* by a signal */
  atomic_int sending;      /* parts that are on their way */
  bool is_guarded;
  int code;      /* under the lock: of the first part that could not be sent */
  char *message; /* its; owned; NULL: memory was exhausted */
};

int object_upload_open(const char *address, size_t bytes, struct object_upload *out) {
  *out = (struct object_upload){.address = address, .bytes = bytes, .part_bytes = multipart_part_bytes(bytes)};
  out->parts = (int32_t)((bytes + out->part_bytes - 1) / out->part_bytes);
  out->sums_count = (int64_t)((bytes + MULTIPART_PART - 1) / MULTIPART_PART);
  const size_t fit = UPLOAD_ROOM / out->part_bytes;
  out->slot_count = fit < 1 ? 1 : fit < UPLOAD_SLOTS ? (int32_t)fit : UPLOAD_SLOTS;
  out->tags = alloc_zeros((size_t)out->parts, sizeof *out->tags);
  out->sums = alloc_zeros((size_t)out->sums_count, sizeof *out->sums);
  out->slots = alloc_zeros((size_t)out->slot_count, sizeof *out->slots);
  out->state = alloc_zeros(1, sizeof *out->state);
  if (out->tags != NULL && out->sums != NULL && out->slots != NULL && out->state != NULL) {
    pthread_mutex_init(&out->state->lock, NULL);
    pthread_mutex_init(&out->state->asking, NULL);
    pthread_cond_init(&out->state->ended, NULL);
    return SHARDRT_OK;
  }
  alloc_free(out->state);
  out->state = NULL;
  object_upload_close(out, false);
  return ALLOC_FAILED;
}

size_t object_upload_part_size(const struct object_upload *self, int32_t number) {
  assert(number >= 1 && number <= self->parts);
  return number < self->parts ? self->part_bytes : self->bytes - (size_t)(self->parts - 1) * self->part_bytes;
}

/* ---- what a signal undoes --------------------------------------------------------------------------------------- */

/* A server may take a part that was on its way when its upload was ended, and then has that open
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/API_AbortMultipartUpload.html). So the upload is ended at once, in
 * case there is no more time, and again a little later. */
static void undo_upload(void *context) {
  struct object_upload *self = context;
  struct upload_state *state = self->state;
  state->was_undone = true;
  state->is_given_up = true; /* no part begins from here on */
  const bool was_sending = state->sending > 0;
  pthread_mutex_lock(&state->asking);
  if (self->upload.id[0] != '\0') (void)multipart_abort(self->address, self->upload.id, UNDO_TRIES);
  if (self->upload.id[0] != '\0' && was_sending) {
    nanosleep(&UNDO_AGAIN, NULL);
    (void)multipart_abort(self->address, self->upload.id, UNDO_TRIES);
  }
  pthread_mutex_unlock(&state->asking);
}

/* Where it cannot be undone the upload goes on all the same. */
static void guard_upload(struct object_upload *self) {
  if (multipart_stays_open(self->address)) self->state->is_guarded = signal_undo_begin(undo_upload, self) == SHARDRT_OK;
}

static int say_undone(const struct object_upload *self) {
  char *shown = url_shown(self->address);
  int code =
      shown != NULL ? error_set(SHARDRT_EIO, "%s: a signal that ends the job ended the upload", shown) : ALLOC_FAILED;
  alloc_free(shown);
  return code;
}

int object_upload_begin(struct object_upload *self) {
  if (self->parts == 1) return SHARDRT_OK;
  struct multipart begun;
  multipart_abort_left(self->address, false);
  guard_upload(self);
  pthread_mutex_lock(&self->state->asking);
  int code = self->state->was_undone ? say_undone(self) : multipart_begin(self->address, &begun);
  if (code == SHARDRT_OK) self->upload = begun;
  pthread_mutex_unlock(&self->state->asking);
  return code;
}

int object_upload_join(struct object_upload *self, const char *id) {
  if (self->parts == 1) return SHARDRT_OK;
  memcpy(self->upload.id, id, sizeof self->upload.id);
  guard_upload(self);
  return SHARDRT_OK;
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

/* Of its pieces, each of which is hashed as a file's is. */
static void hash_part(struct object_upload *self, const struct upload_slot *slot) {
  const size_t bytes = object_upload_part_size(self, slot->number),
               begin = (size_t)(slot->number - 1) * self->part_bytes;
  for (size_t at = 0; at < bytes; at += MULTIPART_PART) {
    const size_t end = at + MULTIPART_PART < bytes ? at + MULTIPART_PART : bytes;
    uint64_t hash = 0;
    for (size_t from = at; from < end; from += HASHED)
      hash = hash_bytes(hash, slot->room + from, end - from < HASHED ? end - from : HASHED);
    self->sums[(begin + at) / MULTIPART_PART] = hash;
  }
}

static void *send_part(void *context) {
  struct upload_slot *slot = context;
  struct object_upload *self = slot->owner;
  struct upload_state *state = self->state;
  hash_part(self, slot);
  int code = SHARDRT_OK;
  if (self->parts > 1)
    code =
        multipart_put(self->address, self->upload.id, slot->number, slot->room,
                      object_upload_part_size(self, slot->number), &state->is_given_up, self->tags[slot->number - 1]);
  state->sending--;
  pthread_mutex_lock(&state->lock);
  if (code != SHARDRT_OK && state->code == SHARDRT_OK) {
    state->code = code;
    state->message = alloc_text("%s", shardrt_error_message());
    state->is_given_up = true;
  }
  slot->has_ended = true;
  pthread_cond_signal(&state->ended);
  pthread_mutex_unlock(&state->lock);
  return NULL;
}

static void end_slot(struct upload_slot *slot) {
  pthread_join(slot->thread, NULL);
  slot->is_running = slot->has_ended = false;
}

/* How the parts that were sent so far got on. */
static int look_back(const struct object_upload *self) {
  struct upload_state *state = self->state;
  if (state->was_undone) return say_undone(self);
  pthread_mutex_lock(&state->lock);
  const int code = state->code == SHARDRT_OK ? SHARDRT_OK
                   : state->message != NULL  ? error_set(state->code, "%s", state->message)
                                             : ALLOC_FAILED;
  pthread_mutex_unlock(&state->lock);
  return code;
}

/* Waits until one has ended, and is free; NULL: none is running. */
static struct upload_slot *await_slot(struct object_upload *self) {
  struct upload_slot *found = NULL;
  bool is_any = false;
  pthread_mutex_lock(&self->state->lock);
  for (;;) {
    is_any = false;
    for (int32_t i = 0; i < self->slot_count && found == NULL; i++) {
      is_any = is_any || self->slots[i].is_running;
      if (self->slots[i].is_running && self->slots[i].has_ended) found = &self->slots[i];
    }
    if (found != NULL || !is_any) break;
    pthread_cond_wait(&self->state->ended, &self->state->lock);
  }
  pthread_mutex_unlock(&self->state->lock);
  return found;
}

int object_upload_take(struct object_upload *self, char **room) {
  struct upload_slot *slot = NULL;
  for (int32_t i = 0; i < self->slot_count && slot == NULL; i++)
    if (!self->slots[i].is_running) slot = &self->slots[i];
  if (slot == NULL) {
    slot = await_slot(self);
    assert(slot != NULL);
    end_slot(slot);
  }
  int code = look_back(self);
  if (code != SHARDRT_OK) return code;
  if (slot->room == NULL) slot->room = alloc_array(self->parts == 1 ? self->bytes : self->part_bytes, 1);
  if (slot->room == NULL) return ALLOC_FAILED;
  slot->owner = self;
  slot->is_taken = true;
  *room = slot->room;
  return SHARDRT_OK;
}

int object_upload_give(struct object_upload *self, int32_t number) {
  struct upload_slot *slot = self->slots;
  while (!slot->is_taken) slot++;
  slot->is_taken = false;
  slot->number = number;
  self->state->sending++;
  slot->is_running = thread_start(&slot->thread, send_part, slot) == 0;
  if (!slot->is_running) self->state->sending--;
  return slot->is_running ? SHARDRT_OK : error_set(SHARDRT_ENOMEM, "no thread can be made");
}

int object_upload_finish(struct object_upload *self) {
  for (struct upload_slot *slot; (slot = await_slot(self)) != NULL;) end_slot(slot);
  return look_back(self);
}

void object_upload_stop(struct object_upload *self) {
  if (self->state == NULL) return;
  self->state->is_given_up = true;
  for (struct upload_slot *slot; (slot = await_slot(self)) != NULL;) end_slot(slot);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

int object_upload_complete(struct object_upload *self) {
  if (self->parts == 1) return shardrt_object_put(self->address, self->slots[0].room, self->bytes);
  pthread_mutex_lock(&self->state->asking);
  int code = self->state->was_undone ? say_undone(self)
                                     : multipart_complete(self->address, &self->upload, self->parts,
                                                          (const char(*)[MULTIPART_TAG])self->tags);
  if (code == SHARDRT_OK) self->upload.id[0] = '\0';
  pthread_mutex_unlock(&self->state->asking);
  return code;
}

void object_upload_close(struct object_upload *self, bool ends) {
  struct upload_state *state = self->state;
  if (state != NULL) {
    char *message = ends && self->upload.id[0] != '\0' ? alloc_text("%s", shardrt_error_message()) : NULL;
    object_upload_stop(self);
    if (state->is_guarded) signal_undo_end();
    if (ends && self->upload.id[0] != '\0') (void)multipart_abort(self->address, self->upload.id, 0);
    if (message != NULL) (void)error_set(SHARDRT_EIO, "%s", message); /* of what ended it */
    alloc_free(message);
    alloc_free(state->message);
    pthread_mutex_destroy(&state->lock);
    pthread_mutex_destroy(&state->asking);
    pthread_cond_destroy(&state->ended);
  }
  for (int32_t i = 0; self->slots != NULL && i < self->slot_count; i++) alloc_free(self->slots[i].room);
  alloc_free(state);
  alloc_free(self->slots);
  alloc_free(self->sums);
  alloc_free(self->tags);
  *self = (struct object_upload){0};
}
