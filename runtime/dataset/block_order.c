// build: -O3
#include "dataset/block_order.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/search.h"
#include "dataset/epoch_order.h"

enum {
  BUCKETS = 64,      /* that the tables lie in */
  ROW_ROUNDS = 6,    /* of the permutations of rows */
  PATTERN_BITS = 30, /* of the numbers that say how many rows of a mix's part a batch has */
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
  int64_t lanes; /* that every batch has; some have one more where `batches` does not divide `rows` */
  uint64_t keys[ROW_ROUNDS + 1];
  int64_t starts[]; /* of the blocks in their order: the position of each one's first row, and the end */
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
  for (int64_t k = 0; k < t->count_blocks; k++) {
    t->starts[k] = at;
    at += source_block(source, t->first_block + epoch_order_at(&t->alone, k)).count;
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
  struct order_table *t = alloc_zeros(1, sizeof *t + (stands_alone ? 0 : (size_t)blocks + 1) * sizeof *t->starts);
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
  feistel_keys(seed, epoch, ~(uint64_t)turn->count, ROW_ROUNDS + 1, t->keys);
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

/* What is known of the last sample's place, so that one beside it is found sooner; zeros: nothing. */
struct order_walk {
  const struct order_table *table;
  int64_t position;              /* the last one, */
  struct order_place at;         /* and where it lies in the stream */
  int64_t start, stop;           /* positions of its window, */
  int64_t from, to;              /* and blocks */
  struct order_place begin, end; /* where the window begins in the stream, and ends */
  int64_t strip, strip_stop;     /* rows of the window, lane by lane, whose blocks share them: */
  int64_t strip_from, strip_to;  /* these blocks */
  struct feistel_halves halves;
  uint64_t tweak;
  int64_t block, block_first; /* one of them, and its first sample */
  int64_t *waiting;           /* ranks in the strip that are still to become samples, in their places; */
  int64_t nwaiting;           /* all of this strip */
};

/* The first block of window w. */
static int64_t window_from(const struct order_table *t, int64_t w) {
  return w * t->count_blocks / t->windows;
}

static void enter_window(struct order_walk *self, const struct order_table *t, int64_t w) {
  *self = (struct order_walk){
      .table = t, .position = -2, .from = window_from(t, w), .to = window_from(t, w + 1), .block = -1};
  self->start = t->starts[self->from];
  self->stop = t->starts[self->to];
  self->begin = lane_of(t, t->base + self->start);
  self->end = lane_of(t, t->base + self->stop);
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

/* The block that has a row of the window, as blocks follow one another. */
static int64_t block_of(const struct order_walk *self, int64_t from, int64_t to, int64_t rank) {
  return from + search_part(self->table->starts + from, sizeof *self->table->starts, to - from, self->start + rank);
}

/* Makes samples of the ranks that wait. */
static void walk_on(struct order_walk *self, const struct block_orders *orders) {
  const struct order_table *t = self->table;
  if (self->nwaiting > 0)
    feistel_many(&self->halves, self->strip_stop - self->strip, t->keys, ROW_ROUNDS, self->tweak, self->waiting,
                 self->nwaiting);
  for (int64_t i = 0; i < self->nwaiting; i++) {
    const int64_t rank = self->strip + self->waiting[i];
    int64_t block = self->strip_from;
    if (self->strip_to - self->strip_from > 1) block = block_of(self, self->strip_from, self->strip_to, rank);
    if (block != self->block) {
      self->block = block;
      self->block_first = source_block(orders->source, t->first_block + epoch_order_at(&t->alone, block)).first;
    }
    self->waiting[i] = self->block_first + self->start + rank - t->starts[block];
  }
  self->nwaiting = 0;
}

static void enter_strip(struct order_walk *self, int64_t rank) {
  const struct order_table *t = self->table;
  const int64_t blocks = self->to - self->from, lanes = t->lanes > 0 ? t->lanes : 1;
  const int64_t strips = blocks < lanes ? blocks : lanes;
  const int64_t strip = ((block_of(self, self->from, self->to, rank) - self->from + 1) * strips - 1) / blocks;
  self->strip_from = self->from + strip * blocks / strips;
  self->strip_to = self->from + (strip + 1) * blocks / strips;
  self->strip = t->starts[self->strip_from] - self->start;
  self->strip_stop = t->starts[self->strip_to] - self->start;
  self->halves = feistel_halves_of(self->strip_stop - self->strip);
  self->tweak = feistel_mix(t->keys[ROW_ROUNDS] + feistel_golden * (uint64_t)self->strip_from);
}

/* Notes in *sample, which follows the last one, the sample at a position of the table's epoch: there it is at the
 * latest after walk_on. */
static void walk_to(struct order_walk *self, const struct block_orders *orders, const struct order_table *t,
                    int64_t position, int64_t *sample) {
  if (t->stands_alone) {
    walk_on(self, orders);
    *self = (struct order_walk){.table = t};
    *sample = t->first + epoch_order_at(&t->alone, position);
    return;
  }
  if (self->table != t || position < self->start || position >= self->stop) {
    walk_on(self, orders);
    const int64_t block = search_part(t->starts, sizeof *t->starts, t->count_blocks, position);
    enter_window(self, t, ((block + 1) * t->windows - 1) / t->count_blocks);
  }
  if (position == self->position + 1 && self->at.lane + 1 < t->lanes)
    self->at.lane++;
  else
    self->at = lane_of(t, t->base + position);
  self->position = position;
  const int64_t rank = rank_of(self, self->at);
  if (rank < self->strip || rank >= self->strip_stop) {
    walk_on(self, orders);
    enter_strip(self, rank);
  }
  if (self->nwaiting == 0) self->waiting = sample;
  self->waiting[self->nwaiting++] = rank - self->strip;
}

/* Whose turn it is at a position of an epoch. */
static struct source_turn turn_at(const struct block_orders *self, int64_t epoch, int64_t position) {
  const int64_t length = source_length(self->source);
  if (self->source->mix != NULL) return source_turn(self->source, epoch * length + position);
  return (struct source_turn){.count = length, .before = epoch * length + position, .weight = 1, .period = 1};
}

int block_orders_samples(struct block_orders *self, int64_t epoch, int64_t first, int64_t n, int64_t *samples,
                         int64_t *epochs) {
  struct order_walk walk = {0};
  bool writing = false;
  int code = SHARDRT_OK;
  struct source_turn turn = {0};
  int64_t position = -1; /* in the epoch of whose turn it is */
  pthread_rwlock_rdlock(&self->lock);
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    if (self->source->mix == NULL && position >= 0 && position + 1 < turn.count) {
      position++;
      epochs[i] = epochs[i - 1];
    } else {
      turn = turn_at(self, epoch, first + i);
      epochs[i] = turn.before / turn.count;
      position = turn.before % turn.count;
    }
    const struct order_table *t = walk.table;
    if (t == NULL || t->first != turn.first || t->epoch != epochs[i]) t = find_table(self, turn.first, epochs[i]);
    if (t == NULL) walk_on(&walk, self);
    if (t == NULL && !writing) {
      pthread_rwlock_unlock(&self->lock);
      pthread_rwlock_wrlock(&self->lock);
      writing = true;
      walk = (struct order_walk){0}; /* its table may have been let go */
      t = find_table(self, turn.first, epochs[i]);
    }
    if (t == NULL) {
      walk = (struct order_walk){0};
      t = make_table(self, &turn, epochs[i]);
    }
    if (t == NULL)
      code = ALLOC_FAILED;
    else
      walk_to(&walk, self, t, position, &samples[i]);
  }
  walk_on(&walk, self);
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
    const int64_t first = block_of(&walk, walk.from, walk.to, start),
                  last = block_of(&walk, walk.from, walk.to, stop - 1);
    *out += last - first + 1;
  }
  if (t != NULL && t->stands_alone) *out = turn.count / self->lanes * (to - from);
  pthread_rwlock_unlock(&self->lock);
  return t != NULL ? SHARDRT_OK : ALLOC_FAILED;
}
