#include "arrayfile/object_save.h"

#include <assert.h>
#include <string.h>

#include "arrayfile/object_pieces.h"
#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "storage/upload/object_upload.h"

struct object_write {
  shardrt_job *job;
  const shardrt_job_info *info;
  const char *what;
  struct object_pieces pieces;
  struct object_upload upload;
  char *given, *got; /* rooms for a part; NULL: nobody else is there */
  bool is_lost;      /* a message may still use them */
};

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

static struct object_range range_of(const struct object_write *w, int32_t number) {
  if (number == 0) return (struct object_range){0, 0};
  const size_t from = (size_t)(number - 1) * w->upload.part_bytes;
  return (struct object_range){from, from + object_upload_part_size(&w->upload, number)};
}

/* Each gives what it has to the next process, then to the one after that, and so on: all are at work. */
static int exchange_window(struct object_write *w, int32_t window, char *part) {
  const int32_t n = w->info->process_count, own = w->info->process_index;
  const struct object_range mine = range_of(w, part_of(w, window, own));
  struct part_packing placing = {.part = part, .from = mine.from};
  object_pieces_give(&w->pieces, mine, place_run, &placing);
  size_t have = placing.used;
  int code = SHARDRT_OK;
  for (int32_t step = 1; step < n && code == SHARDRT_OK; step++) {
    const int32_t to = (own + step) % n, from = (own + n - step) % n;
    struct part_packing giving = {.packed = w->given}, counting = {0}, getting = {.packed = w->got, .part = part};
    getting.from = mine.from;
    object_pieces_give(&w->pieces, range_of(w, part_of(w, window, to)), pack_run, &giving);
    object_pieces_get(&w->pieces, from, mine, count_run, &counting);
    code = pass_on(w, to, giving.used, from, counting.used);
    if (code == SHARDRT_OK) object_pieces_get(&w->pieces, from, mine, unpack_run, &getting);
    have += counting.used;
  }
  assert(code != SHARDRT_OK || have == mine.to - mine.from);
  return code;
}

/* *pending: what this process failed with after the last meeting, which the others do not know yet. */
static int write_windows(struct object_write *w, int *pending) {
  const int32_t n = w->info->process_count, windows = (w->upload.parts + n - 1) / n;
  int code = SHARDRT_OK;
  for (int32_t window = 0; window < windows && code == SHARDRT_OK; window++) {
    const int32_t own = part_of(w, window, w->info->process_index);
    const size_t to = (size_t)(window + 1) * (size_t)n * w->upload.part_bytes;
    char *part = NULL;
    code = object_pieces_reach(&w->pieces, to, range_of(w, own), *pending);
    if (code == SHARDRT_OK && own != 0) code = object_upload_take(&w->upload, &part);
    code = shardrt_check_outcome(w->job, w->what, code);
    if (code == SHARDRT_OK) code = exchange_window(w, window, part);
    if (code == SHARDRT_OK && own != 0) *pending = object_upload_give(&w->upload, own);
    object_pieces_leave(&w->pieces, to);
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

/* All get to know the tags of all parts, and the hashes of their pieces: what one process has of these, where all
 * others have bits of 1 (job_fold). Nobody needs more room than for the object's parts, however many processes there
 * are. */
static int tell_parts(struct object_write *w, int code) {
  struct object_upload *u = &w->upload;
  if (w->info->process_count == 1) return code;
  const size_t tags = u->parts > 1 ? (size_t)u->parts * sizeof *u->tags : 0, pieces = u->part_bytes / MULTIPART_PART;
  const size_t sums = (size_t)u->sums_count, words = tags / sizeof(uint64_t);
  uint64_t *told = alloc_array(words + sums, sizeof *told);
  if (told == NULL && code == SHARDRT_OK) code = ALLOC_FAILED;
  if (code == SHARDRT_OK) memset(told, 0xff, (words + sums) * sizeof *told);
  for (int32_t i = 0; code == SHARDRT_OK && part_of(w, i, w->info->process_index) != 0; i++) {
    const size_t part = (size_t)part_of(w, i, w->info->process_index) - 1, first = part * pieces, left = sums - first;
    if (tags > 0) memcpy((char *)told + part * MULTIPART_TAG, u->tags[part], MULTIPART_TAG);
    memcpy(told + words + first, u->sums + first, (left < pieces ? left : pieces) * sizeof *u->sums);
  }
  code = job_fold(w->job, w->what, code, told, words + sums);
  if (code == SHARDRT_OK && told != NULL) {
    memcpy(u->tags, told, tags);
    memcpy(u->sums, told + words, sums * sizeof *u->sums);
  }
  alloc_free(told);
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

static int set_up(struct object_write *w, const char *address, size_t bytes, int64_t count,
                  const struct object_piece *pieces, shardrt_buffer **sums) {
  int code = object_pieces_begin(w->job, w->what, count, pieces, &w->pieces);
  if (code == SHARDRT_OK) code = object_upload_open(address, bytes, &w->upload);
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

static int save_once(shardrt_job *job, const char *what, const char *address, size_t bytes, int64_t count,
                     const struct object_piece *pieces, shardrt_buffer **sums, int64_t *written) {
  struct object_write w = {.job = job, .info = shardrt_job_info_get(job), .what = what};
  shardrt_buffer *hashes = NULL;
  int code = set_up(&w, address, bytes, count, pieces, sums != NULL ? &hashes : NULL);
  if (code == SHARDRT_OK) code = run_write(&w);
  object_pieces_end(&w.pieces);
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
  return code;
}

/* Whether some process was asked to end in order meanwhile, which ends an upload that is under way: it may be a
 * launcher's word where a process has died. But all are there. This thread's message stays. */
static bool is_asked(shardrt_job *job, const char *what, bool was_asked) {
  const int32_t n = shardrt_job_info_get(job)->process_count, mine = !was_asked && shardrt_stop_asked() != 0;
  if (job_collective(job)->broken) return false;
  char *message = alloc_text("%s", shardrt_error_message());
  int32_t *all = alloc_array((size_t)n, sizeof *all);
  const int code = job_join(job, what, all != NULL ? SHARDRT_OK : ALLOC_FAILED, &mine, sizeof mine, all);
  bool is_any = false;
  for (int32_t p = 0; code == SHARDRT_OK && all != NULL && p < n; p++) is_any = is_any || all[p] != 0;
  alloc_free(all);
  if (message != NULL) (void)error_set(SHARDRT_EIO, "%s", message);
  alloc_free(message);
  return is_any;
}

int object_save(shardrt_job *job, const char *what, const char *address, size_t bytes, int64_t count,
                const struct object_piece *pieces, shardrt_buffer **sums, int64_t *written) {
  bool was_asked;
  int code;
  do {
    was_asked = shardrt_stop_asked() != 0;
    code = save_once(job, what, address, bytes, count, pieces, sums, written);
  } while (code != SHARDRT_OK && is_asked(job, what, was_asked));
  return code;
}
