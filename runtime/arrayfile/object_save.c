#include "arrayfile/object_save.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "dataset/box_runs.h"
#include "memory/buffer.h"
#include "storage/upload/object_upload.h"

/* Who gives one box of an array. */
struct owner {
  int32_t process;
  struct box_runs runs;
  const uint8_t *data; /* packed; NULL: another process's */
};

/* A piece while windows have bytes of it. */
struct open_piece {
  const struct object_piece *piece;
  shardrt_array *laid_out; /* owned; NULL: it is written as it is */
  const shardrt_array *array;
  bool is_borrowed;
  struct owner *owners; /* of an array: by process, ascending */
  int64_t owner_count;
};

struct object_write {
  shardrt_job *job;
  const shardrt_job_info *info;
  const char *what;
  int64_t count;
  struct open_piece *open; /* [count] */
  int64_t first, end;      /* those that are open */
  struct object_upload upload;
  char *given, *got; /* rooms for a part; NULL: nobody else is there */
  bool is_lost;      /* a message may still use them */
};

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

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

static const uint8_t *data_of_position(const shardrt_array *array, int64_t position, int *code) {
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
    if (shardrt_array_shard(array, i)->position != position) continue;
    void *data = NULL;
    *code = buffer_borrowed(shardrt_array_buffer(array, i), &data);
    return data;
  }
  return NULL;
}

static int by_process(const void *a, const void *b) {
  const struct owner *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return (x->runs.offset > y->runs.offset) - (x->runs.offset < y->runs.offset);
}

static int list_owners(const struct object_write *w, struct open_piece *open) {
  const shardrt_array *array = open->array;
  const shardrt_sharding *sharding = shardrt_array_sharding(array);
  const int32_t ndim = shardrt_array_ndim(array), dtype = shardrt_array_dtype(array);
  const int64_t devices = shardrt_mesh_size(shardrt_sharding_mesh(sharding));
  shardrt_field whole = {.dtype = dtype, .ndim = ndim};
  if (ndim > 0) memcpy(whole.shape, shardrt_array_shape(array), (size_t)ndim * sizeof *whole.shape);
  open->owners = alloc_array((size_t)devices, sizeof *open->owners);
  int code = open->owners != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int64_t p = 0; p < devices && code == SHARDRT_OK; p++) {
    shardrt_shard shard;
    code = shardrt_sharding_shard(sharding, ndim, whole.shape, p, w->info->devices_per_process, &shard);
    if (code != SHARDRT_OK || shard.replica_id != 0) continue;
    const struct box_runs runs = box_runs_of(&whole, &shard.box, shardrt_dtype_size(dtype));
    if (runs.box_bytes == 0) continue;
    const uint8_t *data = data_of_position(array, p, &code);
    open->owners[open->owner_count++] = (struct owner){.process = shard.process, .runs = runs, .data = data};
  }
  if (code == SHARDRT_OK) qsort(open->owners, (size_t)open->owner_count, sizeof *open->owners, by_process);
  return code;
}

static void close_piece(struct open_piece *open) {
  int64_t borrowed = 0;
  for (int64_t i = 0; open->is_borrowed && i < shardrt_array_shard_count(open->array); i++)
    borrowed += is_written(open->array, i);
  return_data(open->array, borrowed);
  alloc_free(open->owners);
  shardrt_array_free(open->laid_out);
  *open = (struct open_piece){.piece = open->piece};
}

/* All processes open the same piece: to lay it out anew takes all. */
static int open_piece(struct object_write *w, struct open_piece *open) {
  const struct object_piece *piece = open->piece;
  if (piece->data != NULL || piece->bytes == 0) return SHARDRT_OK;
  int code = SHARDRT_OK;
  open->array = piece->array;
  if (piece->rows != NULL) {
    /* Nothing of the array changes: it is not given up. */
    code = shardrt_reshard(w->job, (shardrt_array *)piece->array, piece->rows, NULL, &open->laid_out);
    open->array = open->laid_out;
  }
  if (code == SHARDRT_OK) code = borrow_data(open);
  if (code == SHARDRT_OK) code = list_owners(w, open);
  return piece->rows != NULL ? shardrt_check_outcome(w->job, w->what, code) : code;
}

/* ---- their bytes ------------------------------------------------------------------------------------------------ */

/* Takes `bytes` bytes that belong at `offset` of the object. `data`: NULL where another process has them. */
typedef void take_run(void *context, size_t offset, const uint8_t *data, size_t bytes);

struct range {
  size_t from, to;
};

/* One run after the other of a box that begins at `base` of the object. */
struct run_walk {
  const struct box_runs *runs;
  int64_t at[SHARDRT_MAX_NDIM]; /* of the outer loops */
  int64_t run;
  size_t offset; /* of the run in the object */
  size_t packed; /* of the run in the packed box */
};

/* False: it was the last. */
static bool walk_on(struct run_walk *walk) {
  const struct box_runs *runs = walk->runs;
  walk->packed += runs->run_bytes;
  walk->offset += runs->run_step;
  if (++walk->run < runs->run_count) return true;
  walk->offset -= runs->run_step * (size_t)runs->run_count;
  walk->run = 0;
  for (int32_t d = runs->nouter - 1; d >= 0; d--) {
    walk->offset += runs->steps[d];
    if (++walk->at[d] < runs->counts[d]) return true;
    walk->offset -= runs->steps[d] * (size_t)runs->counts[d];
    walk->at[d] = 0;
  }
  return false;
}

static int64_t smaller(size_t times, int64_t count) {
  return times < (size_t)count ? (int64_t)times : count - 1;
}

/* Goes to the first run that ends behind `from`: each loop's step is at least what the loops within it span. */
static bool walk_seek(struct run_walk *walk, size_t base, size_t from) {
  const struct box_runs *runs = walk->runs;
  walk->offset = base + runs->offset;
  size_t rest = from > walk->offset ? from - walk->offset : 0, number = 0;
  for (int32_t d = 0; d < runs->nouter; d++) {
    walk->at[d] = smaller(rest / runs->steps[d], runs->counts[d]);
    rest -= (size_t)walk->at[d] * runs->steps[d];
    walk->offset += (size_t)walk->at[d] * runs->steps[d];
    number = number * (size_t)runs->counts[d] + (size_t)walk->at[d];
  }
  if (runs->run_count > 1) walk->run = smaller(rest / runs->run_step, runs->run_count);
  rest -= (size_t)walk->run * runs->run_step;
  walk->offset += (size_t)walk->run * runs->run_step;
  walk->packed = (number * (size_t)runs->run_count + (size_t)walk->run) * runs->run_bytes;
  return rest < runs->run_bytes || walk_on(walk);
}

static void take_box(const struct owner *owner, size_t base, struct range range, take_run *take, void *context) {
  struct run_walk walk = {.runs = &owner->runs};
  bool is_there = walk_seek(&walk, base, range.from);
  while (is_there && walk.offset < range.to) {
    const size_t begin = walk.offset > range.from ? walk.offset : range.from, end = walk.offset + owner->runs.run_bytes;
    const uint8_t *data = owner->data != NULL ? owner->data + walk.packed + (begin - walk.offset) : NULL;
    take(context, begin, data, (end < range.to ? end : range.to) - begin);
    is_there = walk_on(&walk);
  }
}

static int64_t first_owner(const struct open_piece *open, int32_t process) {
  int64_t low = 0, high = open->owner_count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (open->owners[middle].process < process)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* All that a process gives of a range, in an order that giver and taker work out alike. */
static void take_range(const struct object_write *w, int32_t process, struct range range, take_run *take,
                       void *context) {
  for (int64_t i = w->first; i < w->end; i++) {
    const struct open_piece *open = &w->open[i];
    const struct object_piece *piece = open->piece;
    const size_t begin = piece->offset > range.from ? piece->offset : range.from;
    const size_t piece_end = piece->offset + piece->bytes, end = piece_end < range.to ? piece_end : range.to;
    if (begin >= end) continue;
    if (piece->data != NULL && process == 0)
      take(context, begin, (const uint8_t *)piece->data + (begin - piece->offset), end - begin);
    for (int64_t o = first_owner(open, process); o < open->owner_count && open->owners[o].process == process; o++)
      take_box(&open->owners[o], piece->offset, (struct range){begin, end}, take, context);
  }
}

/* Where a range's bytes are brought from or to: one after the other in `packed`, or in their places in `part`. */
struct part_packing {
  char *packed;
  char *part;
  size_t from; /* of the part, in the object */
  size_t used;
};

static void count_run(void *context, size_t offset, const uint8_t *data, size_t bytes) {
  (void)offset, (void)data;
  ((struct part_packing *)context)->used += bytes;
}

static void pack_run(void *context, size_t offset, const uint8_t *data, size_t bytes) {
  struct part_packing *p = context;
  (void)offset;
  memcpy(p->packed + p->used, data, bytes);
  p->used += bytes;
}

static void unpack_run(void *context, size_t offset, const uint8_t *data, size_t bytes) {
  struct part_packing *p = context;
  (void)data;
  memcpy(p->part + (offset - p->from), p->packed + p->used, bytes);
  p->used += bytes;
}

static void place_run(void *context, size_t offset, const uint8_t *data, size_t bytes) {
  struct part_packing *p = context;
  memcpy(p->part + (offset - p->from), data, bytes);
  p->used += bytes;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

enum { GIVES, GETS, WAYS };

/* Bytes to one process and from another, in messages of COMM_PIECE at most. */
struct passing {
  const struct collective *m;
  struct {
    char *data;
    size_t left;
    int32_t process;
    size_t under_way; /* bytes; 0: none are */
  } ways[WAYS];
};

static int post_message(struct passing *p, int32_t way) {
  const size_t left = p->ways[way].left, bytes = left < COMM_PIECE ? left : COMM_PIECE;
  const struct comm_transport *transport = p->m->transport;
  p->ways[way].under_way = bytes;
  return way == GIVES ? transport->isend(p->m->endpoint, way, p->ways[way].process, 0, p->ways[way].data, bytes)
                      : transport->irecv(p->m->endpoint, way, p->ways[way].process, 0, p->ways[way].data, bytes);
}

static int passing_step(void *context, bool *done, bool *moved) {
  struct passing *p = context;
  int32_t ended[COMM_REQUESTS], count = 0;
  int code = SHARDRT_OK;
  if (p->ways[GIVES].under_way > 0 || p->ways[GETS].under_way > 0)
    code = p->m->transport->testsome(p->m->endpoint, ended, &count);
  for (int32_t i = 0; i < count && code == SHARDRT_OK; i++) {
    const size_t bytes = p->ways[ended[i]].under_way;
    p->ways[ended[i]].data += bytes;
    p->ways[ended[i]].left -= bytes;
    p->ways[ended[i]].under_way = 0;
    *moved = true;
  }
  *done = true;
  for (int32_t way = WAYS - 1; way >= 0 && code == SHARDRT_OK; way--) { /* receivers come first */
    if (p->ways[way].left == 0) continue;
    *done = false;
    if (p->ways[way].under_way == 0) code = post_message(p, way);
  }
  return code;
}

static void passing_awaits(const void *context, bool *processes) {
  const struct passing *p = context;
  for (int32_t way = 0; way < WAYS; way++)
    if (p->ways[way].left > 0) processes[p->ways[way].process] = true;
}

static int pass_on(struct object_write *w, int32_t to, size_t gives, int32_t from, size_t gets) {
  struct passing passing = {.m = job_collective(w->job)};
  passing.ways[GIVES].data = w->given;
  passing.ways[GIVES].left = gives;
  passing.ways[GIVES].process = to;
  passing.ways[GETS].data = w->got;
  passing.ways[GETS].left = gets;
  passing.ways[GETS].process = from;
  const struct collective_work work = {.step = passing_step, .awaits = passing_awaits, .context = &passing};
  if (gives == 0 && gets == 0) return SHARDRT_OK;
  int code = collective_until(job_collective(w->job), &work, w->what, COMM_PIECE);
  w->is_lost = code != SHARDRT_OK;
  return code;
}

/* ---- windows ---------------------------------------------------------------------------------------------------- */

/* The part that a process sends in a window; 0: none. */
static int32_t part_of(const struct object_write *w, int32_t window, int32_t process) {
  const int64_t number = (int64_t)window * w->info->process_count + process + 1;
  return number <= w->upload.parts ? (int32_t)number : 0;
}

static struct range range_of(const struct object_write *w, int32_t number) {
  if (number == 0) return (struct range){0, 0};
  const size_t from = (size_t)(number - 1) * w->upload.part_bytes;
  return (struct range){from, from + object_upload_part_size(&w->upload, number)};
}

/* Each gives what it has to the next process, then to the one after that, and so on: all are at work. */
static int exchange_window(struct object_write *w, int32_t window, char *part) {
  const int32_t n = w->info->process_count, own = w->info->process_index;
  const struct range mine = range_of(w, part_of(w, window, own));
  struct part_packing placing = {.part = part, .from = mine.from};
  take_range(w, own, mine, place_run, &placing);
  size_t have = placing.used;
  int code = SHARDRT_OK;
  for (int32_t step = 1; step < n && code == SHARDRT_OK; step++) {
    const int32_t to = (own + step) % n, from = (own + n - step) % n;
    struct part_packing giving = {.packed = w->given}, counting = {0}, getting = {.packed = w->got, .part = part};
    getting.from = mine.from;
    take_range(w, own, range_of(w, part_of(w, window, to)), pack_run, &giving);
    take_range(w, from, mine, count_run, &counting);
    code = pass_on(w, to, giving.used, from, counting.used);
    if (code == SHARDRT_OK) take_range(w, from, mine, unpack_run, &getting);
    have += counting.used;
  }
  assert(code != SHARDRT_OK || have == mine.to - mine.from);
  return code;
}

static int open_window(struct object_write *w, size_t to) {
  int code = SHARDRT_OK;
  for (; code == SHARDRT_OK && w->end < w->count && w->open[w->end].piece->offset < to; w->end++)
    code = open_piece(w, &w->open[w->end]);
  return code;
}

static void close_window(struct object_write *w, size_t to) {
  for (; w->first < w->end && w->open[w->first].piece->offset + w->open[w->first].piece->bytes <= to; w->first++)
    close_piece(&w->open[w->first]);
}

/* *pending: what this process failed with after the last meeting, which the others do not know yet. */
static int write_windows(struct object_write *w, int *pending) {
  const int32_t n = w->info->process_count, windows = (w->upload.parts + n - 1) / n;
  int code = SHARDRT_OK;
  for (int32_t window = 0; window < windows && code == SHARDRT_OK; window++) {
    const int32_t own = part_of(w, window, w->info->process_index);
    const size_t to = (size_t)(window + 1) * (size_t)n * w->upload.part_bytes;
    char *part = NULL;
    code = *pending == SHARDRT_OK ? open_window(w, to) : *pending;
    if (code == SHARDRT_OK && own != 0) code = object_upload_take(&w->upload, &part);
    code = shardrt_check_outcome(w->job, w->what, code);
    if (code == SHARDRT_OK) code = exchange_window(w, window, part);
    if (code == SHARDRT_OK && own != 0) *pending = object_upload_give(&w->upload, own);
    close_window(w, to);
  }
  return code;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

/* Process 0 opens the upload, and all know its name. */
static int begin_together(struct object_write *w) {
  uint64_t name[MULTIPART_ID / sizeof(uint64_t)];
  memset(name, 0xff, sizeof name); /* what process 0 alone knows is known to all then (job_fold) */
  if (w->upload.parts == 1) return SHARDRT_OK;
  const bool is_first = w->info->process_index == 0;
  int code = is_first ? object_upload_begin(&w->upload) : SHARDRT_OK;
  if (is_first) memcpy(name, w->upload.upload.id, sizeof name);
  code = job_fold(w->job, w->what, code, name, sizeof name / sizeof *name);
  return code == SHARDRT_OK && !is_first ? object_upload_join(&w->upload, (const char *)name) : code;
}

/* What a process tells of its parts: their tags, then the hashes of their pieces. */
static int tell_parts(struct object_write *w, int code) {
  struct object_upload *u = &w->upload;
  const int32_t n = w->info->process_count;
  const size_t each = (size_t)((u->parts + n - 1) / n), pieces = u->part_bytes / MULTIPART_PART;
  const size_t bytes = each * (MULTIPART_TAG + pieces * sizeof *u->sums);
  char *mine = alloc_zeros(bytes, 1), *all = alloc_array((size_t)n, bytes);
  if (code == SHARDRT_OK && (mine == NULL || all == NULL)) code = ALLOC_FAILED;
  for (size_t i = 0; code == SHARDRT_OK && i < each; i++) {
    const int32_t number = part_of(w, (int32_t)i, w->info->process_index);
    const size_t first = (size_t)(number - 1) * pieces, left = (size_t)u->sums_count - first;
    if (number == 0) break;
    memcpy(mine + i * MULTIPART_TAG, u->tags[number - 1], MULTIPART_TAG);
    memcpy(mine + each * MULTIPART_TAG + i * pieces * sizeof *u->sums, &u->sums[first],
           (left < pieces ? left : pieces) * sizeof *u->sums);
  }
  code = job_join(w->job, w->what, code, mine, bytes, all);
  for (int32_t number = 1; code == SHARDRT_OK && all != NULL && number <= u->parts; number++) {
    const char *from = all + (size_t)((number - 1) % n) * bytes;
    const size_t i = (size_t)((number - 1) / n), first = (size_t)(number - 1) * pieces;
    const size_t left = (size_t)u->sums_count - first;
    memcpy(u->tags[number - 1], from + i * MULTIPART_TAG, MULTIPART_TAG);
    memcpy(&u->sums[first], from + each * MULTIPART_TAG + i * pieces * sizeof *u->sums,
           (left < pieces ? left : pieces) * sizeof *u->sums);
  }
  alloc_free(all);
  alloc_free(mine);
  return code;
}

/* Where all know that one failed, nobody sends any more when process 0 ends the upload. */
static void end_upload(struct object_write *w, int code) {
  const struct collective *m = job_collective(w->job);
  bool ends = code != SHARDRT_OK && (m->broken || w->info->process_index == 0);
  if (code != SHARDRT_OK && !m->broken) {
    char *message = alloc_text("%s", shardrt_error_message());
    object_upload_stop(&w->upload);
    ends = shardrt_barrier(w->job, "the end of an upload") != SHARDRT_OK || ends;
    if (message != NULL) (void)error_set(code, "%s", message);
    alloc_free(message);
  }
  object_upload_close(&w->upload, ends);
}

static int run_write(struct object_write *w) {
  int pending = SHARDRT_OK, code = begin_together(w);
  if (code == SHARDRT_OK) code = write_windows(w, &pending);
  if (code == SHARDRT_OK) code = tell_parts(w, pending == SHARDRT_OK ? object_upload_finish(&w->upload) : pending);
  if (code < 0) return code;
  return shardrt_check_outcome(w->job, w->what,
                               w->info->process_index == 0 ? object_upload_complete(&w->upload) : SHARDRT_OK);
}

static int set_up(struct object_write *w, const char *address, size_t bytes, const struct object_piece *pieces,
                  shardrt_buffer **sums) {
  w->open = alloc_zeros((size_t)w->count, sizeof *w->open);
  int code = w->open != NULL ? object_upload_open(address, bytes, &w->upload) : ALLOC_FAILED;
  for (int64_t i = 0; code == SHARDRT_OK && i < w->count; i++) w->open[i].piece = &pieces[i];
  if (code == SHARDRT_OK && w->info->process_count > 1) {
    const size_t room = bytes < w->upload.part_bytes ? bytes : w->upload.part_bytes;
    w->given = alloc_array(room, 1);
    w->got = w->given != NULL ? alloc_array(room, 1) : NULL;
    if (w->got == NULL) code = ALLOC_FAILED;
  }
  if (code == SHARDRT_OK && sums != NULL)
    code = shardrt_buffer_new((size_t)w->upload.sums_count * sizeof *w->upload.sums, sums);
  return shardrt_check_outcome(w->job, w->what, code);
}

int object_save(shardrt_job *job, const char *what, const char *address, size_t bytes, int64_t count,
                const struct object_piece *pieces, shardrt_buffer **sums, int64_t *written) {
  struct object_write w = {.job = job, .info = shardrt_job_info_get(job), .what = what, .count = count};
  shardrt_buffer *hashes = NULL;
  int code = set_up(&w, address, bytes, pieces, sums != NULL ? &hashes : NULL);
  if (code == SHARDRT_OK) code = run_write(&w);
  for (; w.first < w.end; w.first++) close_piece(&w.open[w.first]);
  for (int32_t i = 0; code == SHARDRT_OK && part_of(&w, i, w.info->process_index) != 0; i++)
    *written += (int64_t)object_upload_part_size(&w.upload, part_of(&w, i, w.info->process_index));
  if (code == SHARDRT_OK && hashes != NULL)
    memcpy(shardrt_buffer_data(hashes), w.upload.sums, shardrt_buffer_bytes(hashes));
  end_upload(&w, code);
  if (code == SHARDRT_OK && sums != NULL)
    *sums = hashes;
  else
    shardrt_buffer_free(hashes);
  if (!w.is_lost) {
    alloc_free(w.given);
    alloc_free(w.got);
  }
  alloc_free(w.open);
  return code;
}
