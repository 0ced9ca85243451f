#include "loader/run_cuts.h"

#include "base/alloc.h"
#include "dataset/source.h"
#include "storage/local/extents.h"
#include "storage/remote/cuts.h"
#include "storage/remote/remote.h"

enum { ROOM = 64 };

/* What is told of some files: of those that the block at hand begins in. */
struct telling {
  const struct plan *plan;
  struct extents files;  /* of which nothing is told yet: each once, */
  struct extents begins; /* and where runs begin in them */
  struct extents room;   /* empty between uses */
};

/* Where a sample lies in files: `out`, which is empty. */
static int find_sample(const struct plan *plan, int64_t sample, struct extents *out) {
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < plan->nfields && code == SHARDRT_OK; f++) {
    const shardrt_box all = source_whole(plan->fields[f].field);
    code = source_extents(plan->source, f, &sample, 1, &all, out);
  }
  extents_merge(out);
  return code;
}

static bool is_told_now(const struct telling *self, const struct mapping *file) {
  for (int64_t i = 0; i < self->files.count; i++)
    if (self->files.list[i].file == file) return true;
  return false;
}

/* Which files are told of: those of a sample that are on servers. */
static int choose_files(struct telling *self, int64_t sample) {
  int code = find_sample(self->plan, sample, &self->room);
  for (int64_t i = 0; i < self->room.count && code == SHARDRT_OK; i++) {
    const struct mapping *file = self->room.list[i].file;
    if (file->remote != NULL && !remote_is_cut(file->remote) && !is_told_now(self, file))
      code = extents_add(&self->files, file, 0, 1);
  }
  self->room.count = 0;
  return code;
}

/* Adds where a run begins: what lies close together in a file begins once. *first, *last: nothing of these files lies
 * before it, behind it. */
static int add_run(struct telling *self, int64_t block, bool *first, bool *last) {
  const struct sample_range run = source_block(self->plan->source, block);
  *first = *last = false;
  if (run.count == 0) return SHARDRT_OK;
  int code = find_sample(self->plan, run.first, &self->room);
  *first = *last = true;
  for (int64_t i = 0; i < self->room.count && code == SHARDRT_OK; i++) {
    const struct extent *e = &self->room.list[i];
    if (!is_told_now(self, e->file)) continue;
    *first = *first && e->offset < CUTS_APART;
    code = extents_add(&self->begins, e->file, e->offset, 1);
  }
  self->room.count = 0;
  if (code == SHARDRT_OK && run.count > 1) code = find_sample(self->plan, run.first + run.count - 1, &self->room);
  for (int64_t i = 0; i < self->room.count && code == SHARDRT_OK; i++) {
    const struct extent *e = &self->room.list[i];
    if (is_told_now(self, e->file)) *last = *last && e->file->bytes - (e->offset + e->bytes) < CUTS_APART;
  }
  self->room.count = 0;
  return code;
}

/* The runs around one that lie in these files: no other file is opened for them, but where little of one is runs.
 */
static int add_runs(struct telling *self, int64_t middle) {
  const int64_t blocks = source_block_count(self->plan->source);
  bool first = false, last = false, ignored;
  int code = add_run(self, middle, &first, &last);
  for (int64_t b = middle - 1; b >= 0 && !first && code == SHARDRT_OK; b--) code = add_run(self, b, &first, &ignored);
  for (int64_t b = middle + 1; b < blocks && !last && code == SHARDRT_OK; b++) code = add_run(self, b, &ignored, &last);
  return code;
}

/* Tells each file of its own. */
static int tell_files(struct extents *begins) {
  int code = SHARDRT_OK;
  extents_merge(begins);
  size_t *offsets = alloc_array((size_t)begins->count, sizeof *offsets);
  if (offsets == NULL) return ALLOC_FAILED;
  for (int64_t i = 0, n = 0; i < begins->count && code == SHARDRT_OK; i++) {
    offsets[n++] = begins->list[i].offset;
    if (i + 1 < begins->count && begins->list[i + 1].file == begins->list[i].file) continue;
    code = remote_cut(begins->list[i].file->remote, offsets, n);
    n = 0;
  }
  alloc_free(offsets);
  return code;
}

int run_cuts_tell(const struct plan *plan, int64_t block) {
  struct telling self = {.plan = plan};
  int code = extents_set(ROOM, &self.room);
  if (code == SHARDRT_OK) code = extents_set(ROOM, &self.files);
  if (code == SHARDRT_OK) code = extents_set(ROOM, &self.begins);
  if (code == SHARDRT_OK) code = choose_files(&self, source_block(plan->source, block).first);
  if (code == SHARDRT_OK && self.files.count > 0) code = add_runs(&self, block);
  if (code == SHARDRT_OK && self.begins.count > 0) code = tell_files(&self.begins);
  extents_clear(&self.room);
  extents_clear(&self.files);
  extents_clear(&self.begins);
  return code;
}
