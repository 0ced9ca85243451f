// build: -O3
#include "dataset/order/block_order.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/search.h"
#include "dataset/order/epoch_order.h"

enum {
  BUCKETS = 64,      /* that the tables lie in */
  PATTERN_BITS = 30, /* of the numbers that say how many rows of a mix's part a batch has */
  RUNS = 64,         /* that are made samples of together */
  EPOCHS_APART = 1   /* tables of a part's epochs that are further away from the one that is asked for are let go */
};

/* The order of one epoch of a source, or of a mix's part: of the samples first … first + count. Position p of the epoch
 * is row base + p of a stream that is cut into batches: every `batches` of them have `rows` rows, each its share, which
 * is rounded down or up. */
struct order_table {
  struct order_table *next;
  int64_t first, count, epoch;
  struct epoch_order alone; /* where each sample is a block of its own: their order. Else that of the blocks */
  bool stands_alone;        /* so: the rest is not used */
  int64_t first_block, count_blocks;
  int64_t windows;
  int64_t base, rows, batches;
  int64_t lanes;            /* that every batch has; some have one more where `batches` does not divide `rows` */
  struct feistel_keys keys; /* of rows, */
  uint64_t strip_key;       /* and what makes them others in each strip */
  int64_t *offsets;         /* of the blocks in their order: how far each one's samples are from its positions */
  int64_t starts[];         /* and the position of each one's first row, and the end */
};

struct block_orders {
  const shardrt_source *source;
  uint64_t seed;
  int64_t window;
  pthread_rwlock_t lock;
  int64_t lanes;                        /* guarded by it, as are */
  struct order_table *buckets[BUCKETS]; /* the tables; they do not change while they are there */
};

int block_orders_new(const shardrt_source *source, uint64_t seed, int64_t window, int64_t lanes,
                     struct block_orders **out) {
  struct block_orders *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->source = source;
  made->seed = seed;
  made->window = window;
  made->lanes = lanes;
  pthread_rwlock_init(&made->lock, NULL); /* cannot fail on Linux with default attributes */
  *out = made;
  return SHARDRT_OK;
}

static void drop_all(struct block_orders *self) {
  for (int32_t b = 0; b < BUCKETS; b++)
    while (self->buckets[b] != NULL) {
      struct order_table *next = self->buckets[b]->next;
      alloc_free(self->buckets[b]);
      self->buckets[b] = next;
    }
}

void block_orders_set_lanes(struct block_orders *self, int64_t lanes) {
  pthread_rwlock_wrlock(&self->lock);
  if (self->lanes != lanes) drop_all(self);
  self->lanes = lanes;
  pthread_rwlock_unlock(&self->lock);
}

void block_orders_free(struct block_orders *self) {
  if (self == NULL) return;
  drop_all(self);
  pthread_rwlock_destroy(&self->lock);
  alloc_free(self);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* How many rows of so many batches are the part's: `weight` of `period`. Large numbers are rounded: then a part's lanes
 * move over the batches as the epoch goes on, and blocks are read by more processes. */
static void set_lanes(struct order_table *t, int64_t lanes, int64_t weight, int64_t period) {
  t->rows = t->lanes = lanes;
  t->batches = 1;
  if (weight >= period) return;
  while (lanes >> PATTERN_BITS != 0) lanes >>= 1; /* nobody has such batches */
  for (; period >> PATTERN_BITS != 0; period >>= 1) weight = weight > 1 ? weight >> 1 : 1;
  const int64_t divisor = greatest_divisor(lanes * weight, period);
  assert(divisor > 0);
  t->rows = lanes * weight / divisor;
  t->batches = period / divisor;
  assert(t->batches > 0);
  t->lanes = t->rows / t->batches;
}

static void set_keys(struct order_table *t, uint64_t seed) {
  uint64_t drawn[1 + FEISTEL_MOST_ROUNDS];
  feistel_draw(seed, t->epoch, ~(uint64_t)t->count, 1 + FEISTEL_MOST_ROUNDS, drawn);
  t->strip_key = drawn[0];
  t->keys.brief = true;
  memcpy(t->keys.key, drawn + 1, sizeof t->keys.key);
}

static struct order_table **bucket_of(struct block_orders *self, int64_t first, int64_t epoch) {
  return &self->buckets[hash_number((uint64_t)epoch, first) % BUCKETS];
}

static const struct order_table *find_table(struct block_orders *self, int64_t first, int64_t epoch) {
  const struct order_table *t = *bucket_of(self, first, epoch);
  while (t != NULL && (t->first != first || t->epoch != epoch)) t = t->next;
  return t;
}

/* Lets those of a part go that are of epochs far from this one. Locked for writing. */
static void drop_far(struct block_orders *self, int64_t first, int64_t epoch) {
  for (int32_t b = 0; b < BUCKETS; b++)
    for (struct order_table **at = &self->buckets[b]; *at != NULL;) {
      struct order_table *t = *at;
      if (t->first != first || (t->epoch >= epoch - EPOCHS_APART && t->epoch <= epoch + EPOCHS_APART)) {
        at = &t->next;
        continue;
      }
      *at = t->next;
      alloc_free(t);
    }
}

/* Where each block begins. */
static void fill_starts(struct order_table *t, const shardrt_source *source) {
  int64_t at = 0;
  t->offsets = t->starts + t->count_blocks + 1;
  epoch_order_many(&t->alone, 0, t->count_blocks, t->offsets);
  for (int64_t k = 0; k < t->count_blocks; k++) {
    const struct sample_range block = source_block(source, t->first_block + t->offsets[k]);
    t->starts[k] = at;
    t->offsets[k] = block.first - at;
    at += block.count;
  }
  assert(at == t->count);
  t->starts[t->count_blocks] = at;
}

/* The table of an epoch of the part that it is in `turn`, or of the whole source; NULL: out of memory. Locked for
 * writing. */
static const struct order_table *make_table(struct block_orders *self, const struct source_turn *turn, int64_t epoch) {
  const bool mixed = self->source->mix != NULL;
  const int64_t first_block = mixed ? source_block_from(self->source, turn->first) : 0;
  const int64_t stop_block =
      mixed ? source_block_from(self->source, turn->first + turn->count) : source_block_count(self->source);
  const int64_t blocks = stop_block - first_block;
  const bool stands_alone = blocks == turn->count;
  const size_t numbers = stands_alone ? 0 : 2 * (size_t)blocks + 1;
  struct order_table *t = alloc_zeros(1, sizeof *t + numbers * sizeof *t->starts);
  if (t == NULL) return NULL;
  const uint64_t seed = mixed ? hash_number(self->seed, turn->first) : self->seed;
  drop_far(self, turn->first, epoch);
  t->first = turn->first;
  t->count = turn->count;
  t->epoch = epoch;
  t->stands_alone = stands_alone;
  t->first_block = first_block;
  t->count_blocks = blocks;
  t->windows = blocks / self->window + (blocks % self->window != 0);
  t->base = mixed ? epoch * turn->count : 0;
  epoch_order_set(&t->alone, seed, epoch, blocks, true);
  set_keys(t, seed);
  set_lanes(t, self->lanes, turn->weight, turn->period);
  if (!stands_alone) fill_starts(t, self->source);
  struct order_table **bucket = bucket_of(self, turn->first, epoch);
  t->next = *bucket;
  *bucket = t;
  return t;
}

/* ---- a table's samples ------------------------------------------------------------------------------------------- */

/* A place in the stream: a row of a batch. */
struct order_place {
  int64_t batch, lane;
};

/* Where the rows of a batch begin. */
static int64_t batch_start(const struct order_table *t, int64_t batch) {
  if (t->batches == 1) return batch * t->rows;
  return batch / t->batches * t->rows + batch % t->batches * t->rows / t->batches;
}

static struct order_place lane_of(const struct order_table *t, int64_t row) {
  struct order_place found = {.batch = row / t->rows};
  if (t->batches > 1) found.batch = found.batch * t->batches + ((row % t->rows + 1) * t->batches - 1) / t->rows;
  found.lane = row - batch_start(t, found.batch);
  return found;
}

/* Rows of a strip: of blocks of a window that share lanes. */
struct order_strip {
  int64_t from, to; /* the blocks */
};

/* What is known of the last sample's place, so that those beside it are found sooner; zeros: nothing. */
struct order_walk {
  const struct order_table *table;
  int64_t start, stop;             /* positions of the window, */
  int64_t from, to;                /* and blocks, */
  int64_t nstrips;                 /* in so many strips */
  struct order_place begin, end;   /* where the window begins in the stream, and ends */
  int64_t number;                  /* of one of its strips, */
  struct order_strip strip;        /* which is this; */
  int64_t strip_start, strip_stop; /* its rows of the window, which are counted lane by lane */
  int64_t *waiting;                /* rows of strips that are still to become samples, in their places, */
  int32_t nruns;                   /* in so many runs, */
  struct order_strip strips[RUNS]; /* each of one strip */
  struct feistel_run runs[RUNS];
};

/* The first block of window w. */
static int64_t window_from(const struct order_table *t, int64_t w) {
  return w * t->count_blocks / t->windows;
}

static void enter_window(struct order_walk *self, const struct order_table *t, int64_t w) {
  self->table = t;
  self->from = window_from(t, w);
  self->to = window_from(t, w + 1);
  self->start = t->starts[self->from];
  self->stop = t->starts[self->to];
  self->begin = lane_of(t, t->base + self->start);
  self->end = lane_of(t, t->base + self->stop);
  const int64_t blocks = self->to - self->from, lanes = t->lanes > 0 ? t->lanes : 1;
  self->nstrips = blocks < lanes ? blocks : lanes;
  self->strip_start = self->strip_stop = 0;
}

/* How many rows of the window lie in lanes before this one, which every batch has, or is the first that some have not.
 */
static int64_t rows_before(const struct order_walk *self, int64_t lane) {
  const int64_t begin = self->begin.lane, end = self->end.lane;
  return (self->end.batch - self->begin.batch) * lane + (lane < end ? lane : end) - (lane < begin ? lane : begin);
}

/* The number of a place among the rows of the window, lane by lane. */
static int64_t rank_of(const struct order_walk *self, struct order_place at) {
  const struct order_table *t = self->table;
  int64_t batches = at.batch - self->begin.batch; /* before this one in which the lane is the window's */
  if (at.lane == t->lanes)
    batches = batch_start(t, at.batch) - batch_start(t, self->begin.batch) - batches * t->lanes;
  else if (at.lane < self->begin.lane)
    batches--;
  return rows_before(self, at.lane) + batches;
}

/* Which of the blocks from … to, in their order, has a position. */
static int64_t block_of(const struct order_table *t, int64_t from, int64_t to, int64_t position) {
  return from + search_part(t->starts + from, sizeof *t->starts, to - from, position);
}

/* Makes samples of the rows that wait. */
static void walk_on(struct order_walk *self) {
  const struct order_table *t = self->table;
  int64_t *samples = self->waiting;
  if (self->nruns > 0) feistel_many(self->runs, self->nruns, &t->keys, samples);
  for (int32_t r = 0; r < self->nruns; samples += self->runs[r++].n) {
    const struct order_strip strip = self->strips[r];
    const int64_t start = t->starts[strip.from], n = self->runs[r].n;
    const bool is_one = strip.to - strip.from == 1;
    for (int64_t i = 0; is_one && i < n; i++) samples[i] += start + t->offsets[strip.from];
    for (int64_t i = 0; !is_one && i < n; i++) {
      const int64_t block = block_of(t, strip.from, strip.to, start + samples[i]);
      samples[i] += start + t->offsets[block];
    }
  }
  self->nruns = 0;
}

static void enter_strip(struct order_walk *self, int64_t number) {
  const struct order_table *t = self->table;
  const int64_t blocks = self->to - self->from;
  self->number = number;
  self->strip.from = self->from + number * blocks / self->nstrips;
  self->strip.to = self->from + (number + 1) * blocks / self->nstrips;
  self->strip_start = t->starts[self->strip.from] - self->start;
  self->strip_stop = t->starts[self->strip.to] - self->start;
}

/* The strip that has a row of the window. */
static void find_strip(struct order_walk *self, int64_t rank) {
  if (rank >= self->strip_start && rank < self->strip_stop) return;
  const int64_t block = block_of(self->table, self->from, self->to, self->start + rank) - self->from;
  enter_strip(self, ((block + 1) * self->nstrips - 1) / (self->to - self->from));
}

/* Has n rows of the strip wait, `step` apart. */
static void wait_rows(struct order_walk *self, int64_t rank, int64_t step, int64_t n, int64_t *samples) {
  if (self->nruns == RUNS) walk_on(self);
  if (self->nruns == 0) self->waiting = samples;
  for (int64_t i = 0; i < n; i++) samples[i] = rank - self->strip_start + i * step;
  self->strips[self->nruns] = self->strip;
  const int64_t count = self->strip_stop - self->strip_start;
  const uint64_t tweak = feistel_mix(self->table->strip_key + feistel_golden * (uint64_t)self->strip.from);
  self->runs[self->nruns++] =
      (struct feistel_run){.count = count, .tweak = tweak, .n = n, .rounds = feistel_brief_rounds(count)};
}

/* Has rows of one batch wait, from a place in the window on: n at most, as many as are evenly apart. How many. */
static int64_t walk_lanes(struct order_walk *self, struct order_place at, int64_t n, int64_t *samples) {
  const int64_t begin = self->begin.lane, end = self->end.lane, lanes = self->table->lanes;
  const int64_t step = self->end.batch - self->begin.batch + (at.lane < end) - (at.lane + 1 < begin);
  int64_t rank = rank_of(self, at);
  if (n > lanes - at.lane) n = at.lane < lanes ? lanes - at.lane : 1;
  if (at.lane < end && n > end - at.lane) n = end - at.lane;
  if (at.lane + 1 < begin && n > begin - 1 - at.lane) n = begin - 1 - at.lane;
  assert(n == 1 || step > 0);
  find_strip(self, rank);
  for (int64_t done = 0, count; done < n; done += count, rank += count * step) {
    while (rank >= self->strip_stop) enter_strip(self, self->number + 1);
    count = n - done;
    if (count > 1 && rank + (count - 1) * step >= self->strip_stop) count = (self->strip_stop - 1 - rank) / step + 1;
    wait_rows(self, rank, step, count, samples + done);
  }
  return n;
}

/* Notes in `samples`, which follow the last ones, the samples at n positions of the table's epoch: there they are at
 * the latest after walk_on. */
static void walk_to(struct order_walk *self, const struct order_table *t, int64_t position, int64_t n,
                    int64_t *samples) {
  if (self->table != t) {
    walk_on(self);
    self->table = t;
    self->start = self->stop = 0;
  }
  if (t->stands_alone) {
    epoch_order_many(&t->alone, position, n, samples);
    for (int64_t i = 0; i < n; i++) samples[i] += t->first;
    return;
  }
  for (int64_t done = 0; done < n;) {
    const int64_t at = position + done;
    if (at < self->start || at >= self->stop) {
      walk_on(self);
      const int64_t block = search_part(t->starts, sizeof *t->starts, t->count_blocks, at);
      enter_window(self, t, ((block + 1) * t->windows - 1) / t->count_blocks);
    }
    const int64_t left = n - done < self->stop - at ? n - done : self->stop - at;
    done += walk_lanes(self, lane_of(t, t->base + at), left, samples + done);
  }
}

/* Whose turn it is at a position of an epoch. */
static struct source_turn turn_at(const struct block_orders *self, int64_t epoch, int64_t position) {
  const int64_t length = source_length(self->source);
  if (self->source->mix != NULL) return source_turn(self->source, epoch * length + position);
  return (struct source_turn){.count = length, .before = epoch * length + position, .weight = 1, .period = 1};
}

/* How many of n positions from one on are of the same part of a mix, whose turn that one is, and epoch. */
static int64_t turns_in_a_row(const struct block_orders *self, const struct source_turn *turn, int64_t n) {
  const int64_t left = turn->count - turn->before % turn->count;
  return self->source->mix != NULL ? 1 : n < left ? n : left;
}

int block_orders_samples(struct block_orders *self, int64_t epoch, int64_t first, int64_t n, int64_t *samples,
                         int64_t *epochs) {
  struct order_walk walk;
  walk.table = NULL;
  walk.nruns = 0;
  walk.waiting = NULL;
  bool writing = false;
  int code = SHARDRT_OK;
  int64_t count;
  pthread_rwlock_rdlock(&self->lock);
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i += count) {
    const struct source_turn turn = turn_at(self, epoch, first + i);
    const int64_t own_epoch = turn.before / turn.count;
    count = turns_in_a_row(self, &turn, n - i);
    const struct order_table *t = walk.table;
    if (t == NULL || t->first != turn.first || t->epoch != own_epoch) t = find_table(self, turn.first, own_epoch);
    if (t == NULL) { /* making one may let the walk's go */
      walk_on(&walk);
      walk.table = NULL;
    }
    if (t == NULL && !writing) {
      pthread_rwlock_unlock(&self->lock);
      pthread_rwlock_wrlock(&self->lock);
      writing = true;
      t = find_table(self, turn.first, own_epoch);
    }
    if (t == NULL) t = make_table(self, &turn, own_epoch);
    for (int64_t k = 0; k < count; k++) epochs[i + k] = own_epoch;
    if (t == NULL)
      code = ALLOC_FAILED;
    else
      walk_to(&walk, t, turn.before % turn.count, count, samples + i);
  }
  walk_on(&walk);
  pthread_rwlock_unlock(&self->lock);
  return code;
}

/* ---- what an epoch costs ----------------------------------------------------------------------------------------- */

int block_orders_touched(struct block_orders *self, int64_t from, int64_t to, int64_t *out) {
  assert(self->source->mix == NULL && from <= to && to <= self->lanes);
  const struct source_turn turn = {.count = source_length(self->source), .weight = 1, .period = 1};
  *out = 0;
  if (turn.count == 0 || from == to) return SHARDRT_OK;
  pthread_rwlock_wrlock(&self->lock);
  const struct order_table *t = find_table(self, 0, 0);
  if (t == NULL) t = make_table(self, &turn, 0);
  for (int64_t w = 0; t != NULL && !t->stands_alone && w < t->windows; w++) {
    struct order_walk walk;
    enter_window(&walk, t, w);
    const int64_t start = rows_before(&walk, from), stop = rows_before(&walk, to);
    if (start == stop) continue;
    const int64_t first = block_of(t, walk.from, walk.to, walk.start + start),
                  last = block_of(t, walk.from, walk.to, walk.start + stop - 1);
    *out += last - first + 1;
  }
  if (t != NULL && t->stands_alone) *out = turn.count / self->lanes * (to - from);
  pthread_rwlock_unlock(&self->lock);
  return t != NULL ? SHARDRT_OK : ALLOC_FAILED;
}
