#include "loader/lookahead.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/order/block_order.h"
#include "dataset/order/epoch_order.h"
#include "dataset/source.h"
#include "loader/run_cuts.h"
#include "storage/readahead.h"
#include "system/numeric_state.h"
#include "system/thread.h"

enum {
  CHUNK = 256,          /* samples whose numbers are worked out at once */
  GATHERED = 4096,      /* extents that are sorted together, or more by a chunk's */
  LOOKS = 16,           /* rows of a batch's field that are looked at */
  CALM_AFTER = 16,      /* batches in a row of which nothing was missing */
  MOST_BATCHES = 64,    /* how far to go ahead of the workers: a batch at least, */
  FAR_BYTES = 64 << 20, /* as many more as have so many bytes, */
  ROOM_SHARE = 8        /* or one part of so many of a cache */
};
static const double CALM_SECONDS = 0.05; /* from one look to the next while all is calm */

/* While `calm`, nothing was missing lately: the thread sleeps and has a look at one batch now and then. Else it goes
 * over all batches up to `far` beyond those that the workers have, and has those read of which something is missing.
 * What follows the lock is guarded by it; what comes before is the thread's own, but for `bytes`. */
struct lookahead {
  const struct plan *plan;
  struct cursor_rules rules;
  uint64_t seed;
  bool shuffle;
  struct block_orders *blocks; /* NULL: the order is not one over blocks */
  bool *is_cut;                /* of each of these, whether its files know where runs begin; NULL: nobody asks */
  int64_t far;                 /* batches */
  struct ahead *ahead;
  struct epoch_order order; /* of the batch that is looked at */
  int64_t batch;            /* the next one to look at, */
  struct cursor at;         /* and where it stands */
  int64_t found_in_turn;    /* batches of which nothing was missing, since one of which something was */
  _Atomic int64_t bytes;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t told;
  struct lookahead_view view;
  bool has_view; /* it holds */
  bool lost;     /* `batch` and `at` are from before the loader went elsewhere */
  bool calm;
  double looked; /* when, while calm */
  bool wanted;   /* there is something to do: the thread is awake or was woken */
  bool ending;
};

/* ---- what a batch needs ----------------------------------------------------------------------------------------- */

/* What the rows of a batch are gone over for. */
enum look_pass {
  LOOK, /* to see whether something is missing: a few of them */
  CUT,  /* for where runs begin in their files (run_cuts.h), */
  READ  /* for that, and to have them read */
};

/* Has the files of these samples know where runs begin in them, before something is read of them. */
static void cut_files(const struct lookahead *self, const int64_t *samples, int64_t n) {
  struct sample_range run = {0};
  if (self->is_cut == NULL) return;
  for (int64_t i = 0; i < n; i++) {
    if (samples[i] >= run.first && samples[i] < run.first + run.count) continue;
    const int64_t block = source_block_from(self->plan->source, samples[i] + 1) - 1;
    if (block < 0) return;
    run = source_block(self->plan->source, block);
    if (!self->is_cut[block]) (void)run_cuts_tell(self->plan, block); /* without memory whole blocks come */
    self->is_cut[block] = true;
  }
}

/* Adds what `count` of the real rows of a piece of the batch need, evenly spread over them; each, where `count` is how
 * many there are. A piece is rows `first` … `first` + `rows` of the batch and of each what lies in `inner`. */
static void add_rows(struct lookahead *self, int32_t field, const shardrt_box *inner, int64_t first, int64_t rows,
                     int64_t count, enum look_pass pass) {
  int64_t samples[CHUNK], epochs[CHUNK];
  for (int64_t done = 0; done < count;) {
    const int64_t n = count - done < CHUNK ? count - done : CHUNK;
    const int64_t step = count == rows ? n : 1; /* that follow one another */
    for (int64_t i = 0; i < n; i += step) {
      const int64_t row = self->at.row + first + (done + i) * rows / count;
      if (epoch_order_samples(&self->order, self->plan->source, row, step, samples + i, epochs + i) < 0) return;
    }
    /* What does not fit is not read ahead. */
    (void)source_extents(self->plan->source, field, samples, n, inner, ahead_extents(self->ahead));
    if (pass != LOOK) cut_files(self, samples, n);
    if (pass == READ && ahead_extents(self->ahead)->count >= GATHERED)
      atomic_fetch_add(&self->bytes, ahead_read(self->ahead));
    done += n;
  }
}

/* All pieces of the batch at self->at, or where it is only looked at, about LOOKS rows of each field. */
static void add_batch(struct lookahead *self, enum look_pass pass) {
  const struct plan *plan = self->plan;
  const bool whole = plan->pipeline == SHARDRT_GLOBAL;
  const int64_t batch_rows = cursor_rows(&self->at, &self->rules);
  for (int32_t f = 0; f < plan->nfields; f++) {
    const struct plan_field *field = &plan->fields[f];
    const shardrt_box all = source_whole(field->field);
    const int64_t pieces = whole && field->nblocks > 0 ? 1 : field->nblocks;
    const int64_t step = pass != LOOK || pieces < LOOKS ? 1 : pieces / LOOKS;
    for (int64_t i = 0; i < pieces; i += step) {
      const struct plan_block *block = &plan->blocks[field->first_block + i];
      const int64_t first = whole ? 0 : block->first_row;
      int64_t rows = whole ? plan->batch_size : block->rows;
      if (rows > batch_rows - first) rows = batch_rows - first;
      if (rows <= 0) continue;
      const int64_t looks = pieces < LOOKS ? LOOKS / pieces : 1;
      add_rows(self, f, whole ? &all : &block->inner, first, rows, pass != LOOK || rows < looks ? rows : looks, pass);
    }
  }
}

/* Looks at the batch at self->at; true: nothing was missing. */
static bool is_found(struct lookahead *self) {
  epoch_order_set(&self->order, self->seed, self->at.epoch, self->rules.count, self->shuffle);
  self->order.blocks = self->blocks;
  add_batch(self, LOOK);
  return !ahead_is_missing(self->ahead);
}

static void bring_batch(struct lookahead *self) {
  add_batch(self, READ);
  atomic_fetch_add(&self->bytes, ahead_read(self->ahead));
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

/* Goes to the next batch that is worth a look; false: there is none before the loader has told more. Locked. */
static bool go_on(struct lookahead *self) {
  const struct lookahead_view *view = &self->view;
  if (!self->wanted || !self->has_view) return false;
  if (self->calm) { /* a batch that the workers were not set on yet */
    self->batch = view->end;
    self->at = view->end_place;
    self->lost = false;
  } else if (self->lost || self->batch < view->first) {
    self->batch = view->first;
    self->at = view->place;
    self->lost = false;
  }
  return self->batch < view->end + self->far && cursor_rows(&self->at, &self->rules) > 0;
}

/* Takes what was found into account. Locked. */
static void note_found(struct lookahead *self, bool found) {
  if (self->calm) {
    self->calm = found;
    self->wanted = !found;
    self->looked = shardrt_clock();
    self->lost = true; /* from calm on, it begins where the workers are */
    self->found_in_turn = 0;
    return;
  }
  self->found_in_turn = found ? self->found_in_turn + 1 : 0;
  if (self->found_in_turn >= CALM_AFTER) {
    self->calm = true;
    self->wanted = false;
    self->looked = shardrt_clock();
  }
  self->batch++;
  cursor_advance(&self->at, &self->rules);
}

static void *run_lookahead(void *argument) {
  numeric_state_enter();
  struct lookahead *self = argument;
  pthread_mutex_lock(&self->lock);
  while (!self->ending) {
    if (!go_on(self)) {
      self->wanted = false;
      pthread_cond_wait(&self->told, &self->lock);
      continue;
    }
    const bool calm = self->calm;
    pthread_mutex_unlock(&self->lock);
    const bool found = is_found(self);
    if (!found && !calm) bring_batch(self);
    pthread_mutex_lock(&self->lock);
    note_found(self, found);
  }
  pthread_mutex_unlock(&self->lock);
  return NULL;
}

void lookahead_tell(struct lookahead *self, const struct lookahead_view *view) {
  if (self == NULL) return;
  pthread_mutex_lock(&self->lock);
  self->view = *view;
  self->has_view = true;
  if (!self->wanted && (!self->calm || shardrt_clock() - self->looked >= CALM_SECONDS)) {
    self->wanted = true;
    pthread_cond_signal(&self->told);
  }
  pthread_mutex_unlock(&self->lock);
}

void lookahead_forget(struct lookahead *self) {
  if (self == NULL) return;
  pthread_mutex_lock(&self->lock);
  self->has_view = false;
  self->lost = true;
  pthread_mutex_unlock(&self->lock);
  ahead_forget(self->ahead);
}

/* ---- one lookahead ----------------------------------------------------------------------------------------------- */

enum { AHEAD_OFF = -1 };

/* The way that $SHARDRT_AHEAD names. */
static int choose_way(int32_t *way) {
  const char *text = getenv("SHARDRT_AHEAD"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  *way = AHEAD_RING;
  if (text == NULL || text[0] == '\0' || strcmp(text, "io_uring") == 0) return SHARDRT_OK;
  *way = AHEAD_THREADS;
  if (strcmp(text, "threads") == 0) return SHARDRT_OK;
  *way = AHEAD_OFF;
  if (strcmp(text, "off") == 0) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "SHARDRT_AHEAD=%s: it is io_uring, threads or off", text);
}

/* How many batches of the plan to go ahead. What is brought must still be in the cache of servers' files, which has
 * `room`, when a worker reads it, beside the window of an order over blocks and what other processes bring. */
static int64_t far_of(const struct plan *plan, int64_t room) {
  size_t bytes = 1;
  for (int64_t b = 0; b < plan->nblocks; b++) bytes += (size_t)plan->blocks[b].rows * plan->blocks[b].storage_bytes;
  const size_t most = room / ROOM_SHARE < FAR_BYTES ? (size_t)(room / ROOM_SHARE) : FAR_BYTES, batches = most / bytes;
  return batches < 1 ? 1 : batches > MOST_BATCHES ? MOST_BATCHES : (int64_t)batches;
}

static int start_thread(struct lookahead *self) {
  const int problem = thread_start(&self->thread, run_lookahead, self);
  if (problem == 0) return SHARDRT_OK;
  return error_set(SHARDRT_ENOMEM, "the loader's thread that reads ahead cannot be started: %s", strerror(problem));
}

int lookahead_new(const struct plan *plan, const struct cursor_rules *rules, uint64_t seed, bool shuffle,
                  struct block_orders *blocks, struct lookahead **out) {
  int32_t way = AHEAD_OFF;
  int code = choose_way(&way);
  if (code < 0) return code;
  *out = NULL;
  if (way == AHEAD_OFF || plan->ntasks == 0) return SHARDRT_OK;
  struct lookahead *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->plan = plan;
  made->rules = *rules;
  made->seed = seed;
  made->shuffle = shuffle;
  made->blocks = blocks;
  made->lost = true;
  pthread_mutex_init(&made->lock, NULL); /* these two cannot fail on Linux with default attributes */
  pthread_cond_init(&made->told, NULL);
  code = ahead_new(way, &made->ahead);
  if (code == SHARDRT_OK) code = cursor_seek(&made->at, rules, 0, 0);
  if (code == SHARDRT_OK) (void)is_found(made); /* files that are not there are known before a worker touches them */
  if (code == SHARDRT_OK) made->far = far_of(plan, ahead_room(made->ahead));
  if (code == SHARDRT_OK && blocks != NULL && ahead_room(made->ahead) < INT64_MAX) {
    made->is_cut = alloc_zeros((size_t)source_block_count(plan->source), sizeof *made->is_cut);
    if (made->is_cut == NULL) code = ALLOC_FAILED;
  }
  if (code == SHARDRT_OK && made->is_cut != NULL) {
    add_batch(made, CUT); /* later ones by the thread, which is ahead of the workers */
    (void)ahead_is_missing(made->ahead);
  }
  if (code == SHARDRT_OK) code = start_thread(made);
  if (code == SHARDRT_OK) {
    *out = made;
    return code;
  }
  ahead_free(made->ahead);
  alloc_free(made->is_cut);
  pthread_cond_destroy(&made->told);
  pthread_mutex_destroy(&made->lock);
  alloc_free(made);
  return code;
}

void lookahead_free(struct lookahead *self) {
  if (self == NULL) return;
  pthread_mutex_lock(&self->lock);
  self->ending = true;
  pthread_cond_signal(&self->told);
  pthread_mutex_unlock(&self->lock);
  ahead_end(self->ahead);
  pthread_join(self->thread, NULL);
  ahead_free(self->ahead);
  alloc_free(self->is_cut);
  pthread_cond_destroy(&self->told);
  pthread_mutex_destroy(&self->lock);
  alloc_free(self);
}

int64_t lookahead_downloaded(const struct lookahead *self) {
  return self != NULL ? ahead_downloaded(self->ahead) : 0;
}

void lookahead_stats(const struct lookahead *self, int64_t *bytes, const char **way) {
  *bytes = self != NULL ? atomic_load(&self->bytes) + ahead_downloaded(self->ahead) : 0;
  *way = self != NULL ? ahead_way(self->ahead) : "off";
}
