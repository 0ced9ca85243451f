#include "arrayfile/run_walk.h"

bool run_walk_next(struct run_walk *walk, const struct box_runs *runs) {
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

/* Each loop's step is at least what the loops within it span. */
bool run_walk_seek(struct run_walk *walk, const struct box_runs *runs, size_t base, size_t from) {
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
  return rest < runs->run_bytes || run_walk_next(walk, runs);
}
