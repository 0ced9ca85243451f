#include "arrayfile/object_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "arrayfile/run_walk.h"
#include "base/alloc.h"
#include "base/error.h"
#include "memory/buffer.h"

/* A box of an array that this process has. */
struct own_box {
  struct box_runs runs;
  const uint8_t *data; /* packed */
};

/* One that another process has. */
struct foreign_box {
  int64_t piece;
  int32_t process;
  struct box_runs runs;
};

/* A piece while windows have bytes of it. */
struct open_piece {
  const struct object_piece *piece;
  shardrt_array *laid_out; /* owned; NULL: it is written as it is */
  const shardrt_array *array;
  bool is_borrowed;
  struct own_box *own; /* by their first bytes, ascending */
  int64_t own_count;
};

/* ---- open and closed -------------------------------------------------------------------------------------------- */

static bool is_written(const shardrt_array *array, int64_t i) {
  return shardrt_array_shard(array, i)->replica_id == 0;
}

static void return_data(const shardrt_array *array, int64_t borrowed) {
  for (int64_t i = 0; borrowed > 0; i++) {
    if (!is_written(array, i)) continue;
    buffer_return(shardrt_array_buffer(array, i));
    borrowed--;
  }
}

/* What devices hold is on the host while a piece is open. */
static int borrow_data(struct open_piece *open) {
  const shardrt_array *array = open->array;
  const int64_t shards = shardrt_array_shard_count(array);
  int64_t borrowed = 0;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < shards && code == SHARDRT_OK; i++) { /* all devices at once */
    if (!is_written(array, i)) continue;
    code = buffer_borrow(shardrt_array_buffer(array, i));
    if (code == SHARDRT_OK) borrowed++;
  }
  open->is_borrowed = code == SHARDRT_OK;
  if (code != SHARDRT_OK) return_data(array, borrowed);
  return code;
}

static int by_offset(const struct box_runs *a, const struct box_runs *b) {
  return (a->offset > b->offset) - (a->offset < b->offset);
}

static int by_own_offset(const void *a, const void *b) {
  return by_offset(&((const struct own_box *)a)->runs, &((const struct own_box *)b)->runs);
}

static struct box_runs runs_of(const shardrt_array *array, const shardrt_box *box) {
  const int32_t ndim = shardrt_array_ndim(array), dtype = shardrt_array_dtype(array);
  shardrt_field whole = {.dtype = dtype, .ndim = ndim};
  if (ndim > 0) memcpy(whole.shape, shardrt_array_shape(array), (size_t)ndim * sizeof *whole.shape);
  return box_runs_of(&whole, box, shardrt_dtype_size(dtype));
}

static int list_own(struct open_piece *open) {
  const shardrt_array *array = open->array;
  const int64_t shards = shardrt_array_shard_count(array);
  open->own = alloc_array((size_t)shards, sizeof *open->own);
  int code = open->own != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int64_t i = 0; i < shards && code == SHARDRT_OK; i++) {
    if (!is_written(array, i)) continue;
    const struct box_runs runs = runs_of(array, &shardrt_array_shard(array, i)->box);
    void *data = NULL;
    code = buffer_borrowed(shardrt_array_buffer(array, i), &data);
    if (runs.box_bytes > 0) open->own[open->own_count++] = (struct own_box){.runs = runs, .data = data};
  }
  if (code == SHARDRT_OK) qsort(open->own, (size_t)open->own_count, sizeof *open->own, by_own_offset);
  return code;
}

static void close_piece(struct open_piece *open) {
  int64_t borrowed = 0;
  for (int64_t i = 0; open->is_borrowed && i < shardrt_array_shard_count(open->array); i++)
    borrowed += is_written(open->array, i);
  return_data(open->array, borrowed);
  alloc_free(open->own);
  shardrt_array_free(open->laid_out);
  *open = (struct open_piece){.piece = open->piece};
}

/* All processes open the same piece: to lay it out anew takes all. */
static int open_piece(struct object_pieces *self, struct open_piece *open) {
  const struct object_piece *piece = open->piece;
  if (piece->data != NULL || piece->bytes == 0) return SHARDRT_OK;
  int code = SHARDRT_OK;
  open->array = piece->array;
  if (piece->rows != NULL) {
    /* Nothing of the array changes: it is not given up. */
    code = shardrt_reshard(self->job, (shardrt_array *)piece->array, piece->rows, NULL, &open->laid_out);
    open->array = open->laid_out;
  }
  if (code == SHARDRT_OK) code = borrow_data(open);
  if (code == SHARDRT_OK) code = list_own(open);
  return piece->rows != NULL ? shardrt_check_outcome(self->job, self->what, code) : code;
}

int object_pieces_begin(shardrt_job *job, const char *what, int64_t count, const struct object_piece *pieces,
                        struct object_pieces *out) {
  *out = (struct object_pieces){.job = job, .what = what, .count = count};
  out->open = alloc_zeros((size_t)count, sizeof *out->open);
  for (int64_t i = 0; out->open != NULL && i < count; i++) out->open[i].piece = &pieces[i];
  return out->open != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

void object_pieces_end(struct object_pieces *self) {
  for (; self->first < self->end; self->first++) close_piece(&self->open[self->first]);
  alloc_free(self->foreign);
  alloc_free(self->open);
  *self = (struct object_pieces){0};
}

void object_pieces_leave(struct object_pieces *self, size_t to) {
  for (; self->first < self->end; self->first++) {
    const struct object_piece *piece = self->open[self->first].piece;
    if (piece->offset + piece->bytes > to) return;
    close_piece(&self->open[self->first]);
  }
}

/* ---- who has what ----------------------------------------------------------------------------------------------- */

/* What of a range is in a piece; empty: `to` is not behind `from`. */
static struct object_range within(const struct object_piece *piece, struct object_range range) {
  const size_t end = piece->offset + piece->bytes;
  return (struct object_range){.from = piece->offset > range.from ? piece->offset : range.from,
                               .to = end < range.to ? end : range.to};
}

/* Whether a box that begins at `base` has its first byte before the range's end, and its last behind its beginning. */
static bool may_meet(const struct box_runs *runs, size_t base, struct object_range range) {
  size_t last = base + runs->offset + (size_t)(runs->run_count - 1) * runs->run_step + runs->run_bytes;
  for (int32_t d = 0; d < runs->nouter; d++) last += (size_t)(runs->counts[d] - 1) * runs->steps[d];
  return base + runs->offset < range.to && last > range.from;
}

static int add_foreign(struct object_pieces *self, const struct foreign_box *box) {
  struct foreign_box *list = alloc_one_more(self->foreign, self->foreign_count, &self->foreign_room, 16, sizeof *list);
  if (list == NULL) return ALLOC_FAILED;
  self->foreign = list;
  self->foreign[self->foreign_count++] = *box;
  return SHARDRT_OK;
}

static int list_foreign(struct object_pieces *self, int64_t number, struct object_range range) {
  const shardrt_job_info *info = shardrt_job_info_get(self->job);
  const struct open_piece *open = &self->open[number];
  const shardrt_sharding *sharding = shardrt_array_sharding(open->array);
  const int64_t devices = shardrt_mesh_size(shardrt_sharding_mesh(sharding));
  int code = SHARDRT_OK;
  for (int64_t p = 0; p < devices && code == SHARDRT_OK; p++) {
    shardrt_shard shard;
    code = shardrt_sharding_shard(sharding, shardrt_array_ndim(open->array), shardrt_array_shape(open->array), p,
                                  info->devices_per_process, &shard);
    if (code != SHARDRT_OK || shard.replica_id != 0 || shard.process == info->process_index) continue;
    const struct foreign_box box = {
        .piece = number, .process = shard.process, .runs = runs_of(open->array, &shard.box)};
    if (box.runs.box_bytes > 0 && may_meet(&box.runs, open->piece->offset, range)) code = add_foreign(self, &box);
  }
  return code;
}

static int by_process(const void *a, const void *b) {
  const struct foreign_box *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  if (x->piece != y->piece) return x->piece < y->piece ? -1 : 1;
  return by_offset(&x->runs, &y->runs);
}

int object_pieces_reach(struct object_pieces *self, size_t to, struct object_range mine, int code) {
  for (; self->end < self->count && self->open[self->end].piece->offset < to; self->end++) {
    struct open_piece *next = &self->open[self->end];
    if (next->piece->rows != NULL) { /* the others meet next where this is laid out: there they hear who failed */
      code = shardrt_check_outcome(self->job, self->what, code);
      if (code != SHARDRT_OK) return code;
    }
    if (code == SHARDRT_OK) code = open_piece(self, next);
  }
  self->foreign_count = 0;
  for (int64_t i = self->first; i < self->end && code == SHARDRT_OK; i++) {
    const struct object_range range = within(self->open[i].piece, mine);
    if (self->open[i].array != NULL && range.from < range.to) code = list_foreign(self, i, range);
  }
  if (code == SHARDRT_OK && self->foreign_count > 0)
    qsort(self->foreign, (size_t)self->foreign_count, sizeof *self->foreign, by_process);
  return code;
}

/* ---- their bytes ------------------------------------------------------------------------------------------------ */

/* `data`: packed; NULL: another process has it. */
static void take_box(const struct box_runs *runs, const uint8_t *data, size_t base, struct object_range range,
                     object_take *take, void *context) {
  struct run_walk walk = {0};
  bool is_there = run_walk_seek(&walk, runs, base, range.from);
  while (is_there && walk.offset < range.to) {
    const size_t begin = walk.offset > range.from ? walk.offset : range.from, end = walk.offset + runs->run_bytes;
    const uint8_t *from = data != NULL ? data + walk.packed + (begin - walk.offset) : NULL;
    take(context, begin, from, (end < range.to ? end : range.to) - begin);
    is_there = run_walk_next(&walk, runs);
  }
}

void object_pieces_give(const struct object_pieces *self, struct object_range range, object_take *take, void *context) {
  const bool is_first = shardrt_job_info_get(self->job)->process_index == 0;
  for (int64_t i = self->first; i < self->end; i++) {
    const struct open_piece *open = &self->open[i];
    const struct object_range part = within(open->piece, range);
    if (part.from >= part.to) continue;
    if (open->piece->data != NULL && is_first)
      take(context, part.from, (const uint8_t *)open->piece->data + (part.from - open->piece->offset),
           part.to - part.from);
    for (int64_t o = 0; o < open->own_count; o++)
      take_box(&open->own[o].runs, open->own[o].data, open->piece->offset, part, take, context);
  }
}

/* A process's first box. */
static int64_t first_foreign(const struct object_pieces *self, int32_t process) {
  int64_t low = 0, high = self->foreign_count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (self->foreign[middle].process < process)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void object_pieces_get(const struct object_pieces *self, int32_t process, struct object_range mine, object_take *take,
                       void *context) {
  int64_t at = first_foreign(self, process);
  for (int64_t i = self->first; i < self->end; i++) {
    const struct object_piece *piece = self->open[i].piece;
    const struct object_range part = within(piece, mine);
    if (part.from >= part.to) continue;
    if (piece->data != NULL && process == 0) take(context, part.from, NULL, part.to - part.from);
    for (; at < self->foreign_count && self->foreign[at].process == process && self->foreign[at].piece == i; at++)
      take_box(&self->foreign[at].runs, NULL, piece->offset, part, take, context);
  }
}
