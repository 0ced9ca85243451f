#include "loader/run_cuts.h"

#include "base/alloc.h"
#include "dataset/source.h"
#include "storage/local/extents.h"
#include "storage/remote/remote.h"

enum { ROOM = 64 };

/* Adds to `begins` where a sample begins: what lies close together in a file begins once. `room` is empty. */
static int add_sample(const struct plan *plan, int64_t sample, struct extents *room, struct extents *begins) {
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < plan->nfields && code == SHARDRT_OK; f++) {
    const shardrt_box all = source_whole(plan->fields[f].field);
    code = source_extents(plan->source, f, &sample, 1, &all, room);
  }
  extents_merge(room);
  for (int64_t i = 0; i < room->count && code == SHARDRT_OK; i++)
    if (room->list[i].file->remote != NULL) code = extents_add(begins, room->list[i].file, room->list[i].offset, 1);
  room->count = 0;
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

int run_cuts_tell(const struct plan *plan) {
  struct extents room = {0}, begins = {0};
  const int64_t blocks = source_block_count(plan->source);
  int code = extents_set(ROOM, &room);
  if (code == SHARDRT_OK) code = extents_set(ROOM, &begins);
  for (int64_t b = 0; b < blocks && code == SHARDRT_OK; b++) {
    const struct sample_range run = source_block(plan->source, b);
    if (run.count > 0) code = add_sample(plan, run.first, &room, &begins);
  }
  if (code == SHARDRT_OK) code = tell_files(&begins);
  extents_clear(&room);
  extents_clear(&begins);
  return code;
}
