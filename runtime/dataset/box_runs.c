#include "dataset/box_runs.h"

#include <assert.h>
#include <string.h>

#include "system/cache_fetch.h"
#include "system/cache_stream.h"

enum {
  AHEAD = 2,          /* the sample after the next is asked for while one is copied; short ones overlap by themselves */
  STREAM_BYTES = 1024 /* shorter runs are not worth going past the caches */
};

__attribute__((always_inline)) static inline void ask_for(const struct box_runs *runs, const uint8_t *data,
                                                          const int64_t *samples, int64_t i, int64_t n) {
  if (i + AHEAD < n && runs->box_bytes >= CACHE_FETCH_BYTES)
    cache_fetch_begin(data + (size_t)samples[i + AHEAD] * runs->sample_bytes);
}

struct box_runs box_runs_of(const shardrt_field *field, const shardrt_box *inner, size_t element_bytes) {
  assert(inner->ndim == field->ndim);
  struct box_runs runs = {.run_bytes = element_bytes, .run_count = 1, .box_bytes = element_bytes};
  size_t step = element_bytes; /* bytes between neighbours in dimension d */
  bool whole = true;           /* the box is whole in every dimension after d: the run goes on */
  bool inner_loop = false;     /* run_count and run_step are taken */
  int64_t counts[SHARDRT_MAX_NDIM];
  size_t steps[SHARDRT_MAX_NDIM];
  for (int32_t d = field->ndim - 1; d >= 0; d--) {
    const int64_t extent = inner->stop[d] - inner->start[d];
    runs.box_bytes *= (size_t)extent;
    runs.offset += (size_t)inner->start[d] * step;
    if (whole) {
      runs.run_bytes *= (size_t)extent;
    } else if (extent != 1 && !inner_loop) {
      runs.run_count = extent;
      runs.run_step = step;
      inner_loop = true;
    } else if (extent != 1) {
      counts[runs.nouter] = extent;
      steps[runs.nouter++] = step;
    }
    whole = whole && extent == field->shape[d];
    step *= (size_t)field->shape[d];
  }
  runs.sample_bytes = step;
  for (int32_t i = 0; i < runs.nouter; i++) {
    runs.counts[i] = counts[runs.nouter - 1 - i];
    runs.steps[i] = steps[runs.nouter - 1 - i];
  }
  return runs;
}

/* `count` runs that are `step` bytes apart, packed. Called with a constant `bytes`, so that the copy of a small run is
 * a load and a store. */
static inline uint8_t *copy_fixed(uint8_t *restrict dst, const uint8_t *restrict src, int64_t count, size_t step,
                                  size_t bytes) {
  for (int64_t i = 0; i < count; i++) {
    memcpy(dst, src, bytes);
    dst += bytes;
    src += step;
  }
  return dst;
}

static uint8_t *copy_runs(uint8_t *restrict dst, const uint8_t *restrict src, int64_t count, size_t step,
                          size_t bytes) {
  switch (bytes) {
  case 1:
    return copy_fixed(dst, src, count, step, 1);
  case 2:
    return copy_fixed(dst, src, count, step, 2);
  case 4:
    return copy_fixed(dst, src, count, step, 4);
  case 8:
    return copy_fixed(dst, src, count, step, 8);
  case 16:
    return copy_fixed(dst, src, count, step, 16);
  default:
    return copy_fixed(dst, src, count, step, bytes);
  }
}

/* The box of one sample that is more than one loop of runs. */
static uint8_t *copy_box(const struct box_runs *runs, uint8_t *dst, const uint8_t *src) {
  int64_t at[SHARDRT_MAX_NDIM] = {0};
  while (true) {
    dst = copy_runs(dst, src, runs->run_count, runs->run_step, runs->run_bytes);
    int32_t d = runs->nouter - 1;
    for (; d >= 0; d--) {
      src += runs->steps[d];
      if (++at[d] < runs->counts[d]) break;
      src -= runs->steps[d] * (size_t)runs->counts[d];
      at[d] = 0;
    }
    if (d < 0) return dst;
  }
}

/* Whole samples: neighbours in the order that are neighbours in memory go in one copy. */
static void copy_whole(const struct box_runs *runs, const uint8_t *data, const int64_t *samples, int64_t n,
                       uint8_t *dst) {
  for (int64_t i = 0; i < n;) {
    int64_t end = i + 1;
    while (end < n && samples[end] == samples[end - 1] + 1) end++;
    ask_for(runs, data, samples, end - 1, n);
    dst = copy_runs(dst, data + (size_t)samples[i] * runs->sample_bytes, 1, 0, runs->sample_bytes * (size_t)(end - i));
    i = end;
  }
}

/* One run of each sample. As in copy_fixed, `bytes` is a constant where it is small. */
static inline void copy_each(const struct box_runs *runs, const uint8_t *restrict data, const int64_t *samples,
                             int64_t n, uint8_t *restrict dst, size_t bytes) {
  for (int64_t i = 0; i < n; i++) {
    ask_for(runs, data, samples, i, n);
    memcpy(dst + (size_t)i * bytes, data + (size_t)samples[i] * runs->sample_bytes, bytes);
  }
}

/* The same for large runs, past the caches. Whoever is told that this is done sees it. */
static void stream_each(const struct box_runs *runs, const uint8_t *data, const int64_t *samples, int64_t n,
                        uint8_t *dst) {
  for (int64_t i = 0; i < n; i++) {
    ask_for(runs, data, samples, i, n);
    cache_stream(dst + (size_t)i * runs->run_bytes, data + (size_t)samples[i] * runs->sample_bytes, runs->run_bytes);
  }
  cache_stream_end();
}

void box_runs_copy(const struct box_runs *runs, const uint8_t *data, const int64_t *samples, int64_t n,
                   bool past_caches, void *dst) {
  if (runs->box_bytes == 0) return;
  const uint8_t *first = data + runs->offset;
  if (runs->run_count == 1 && runs->nouter == 0) {
    if (past_caches && runs->run_bytes >= STREAM_BYTES) {
      stream_each(runs, first, samples, n, dst);
      return;
    }
    switch (runs->run_bytes) {
    case 1:
      copy_each(runs, first, samples, n, dst, 1);
      return;
    case 2:
      copy_each(runs, first, samples, n, dst, 2);
      return;
    case 4:
      copy_each(runs, first, samples, n, dst, 4);
      return;
    case 8:
      copy_each(runs, first, samples, n, dst, 8);
      return;
    default:
      if (runs->run_bytes == runs->sample_bytes)
        copy_whole(runs, first, samples, n, dst);
      else
        copy_each(runs, first, samples, n, dst, runs->run_bytes);
      return;
    }
  }
  uint8_t *end = dst;
  for (int64_t i = 0; i < n; i++) {
    ask_for(runs, first, samples, i, n);
    end = copy_box(runs, end, first + (size_t)samples[i] * runs->sample_bytes);
  }
}

/* The runs of one sample's box, the first of which is at `offset` of the file. */
static int read_runs(const struct box_runs *runs, const struct stored *file, size_t offset, struct reader *reader,
                     uint8_t **dst) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < runs->run_count && code == SHARDRT_OK; i++) {
    code = stored_read(file, offset + (size_t)i * runs->run_step, runs->run_bytes, reader, *dst);
    *dst += runs->run_bytes;
  }
  return code;
}

static int read_box(const struct box_runs *runs, const struct stored *file, size_t offset, struct reader *reader,
                    uint8_t **dst) {
  int64_t at[SHARDRT_MAX_NDIM] = {0};
  for (;;) {
    int code = read_runs(runs, file, offset, reader, dst);
    if (code != SHARDRT_OK) return code;
    int32_t d = runs->nouter - 1;
    for (; d >= 0; d--) {
      offset += runs->steps[d];
      if (++at[d] < runs->counts[d]) break;
      offset -= runs->steps[d] * (size_t)runs->counts[d];
      at[d] = 0;
    }
    if (d < 0) return SHARDRT_OK;
  }
}

int box_runs_read(const struct box_runs *runs, const struct stored *file, size_t first, const int64_t *samples,
                  int64_t n, struct reader *reader, void *dst) {
  uint8_t *at = dst;
  int code = SHARDRT_OK;
  if (runs->box_bytes == 0) return SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK;) {
    int64_t end = i + 1; /* neighbours that are whole are read together */
    while (end < n && runs->box_bytes == runs->sample_bytes && samples[end] == samples[end - 1] + 1) end++;
    const size_t offset = first + runs->offset + (size_t)samples[i] * runs->sample_bytes;
    if (end > i + 1) {
      code = stored_read(file, offset, runs->sample_bytes * (size_t)(end - i), reader, at);
      at += runs->sample_bytes * (size_t)(end - i);
    } else {
      code = read_box(runs, file, offset, reader, &at);
    }
    i = end;
  }
  return code;
}

/* Takes one more loop into the piece of *bytes that it repeats, where its gaps are small. */
static bool widen_piece(size_t *bytes, int64_t count, size_t step, size_t gap) {
  if (count > 1 && step > *bytes + gap) return false;
  *bytes += (size_t)(count - 1) * step;
  return true;
}

/* What is to be done with a piece of a file. */
typedef int visit_piece(void *context, size_t offset, size_t bytes);

/* Goes through a sample's pieces, the first of which is at `offset`. */
static int visit_sample(const struct box_runs *loops, size_t offset, size_t bytes, visit_piece *visit, void *context) {
  int64_t at[SHARDRT_MAX_NDIM] = {0};
  int32_t d = 0;
  while (d >= 0) {
    int code = visit(context, offset, bytes);
    if (code < 0) return code;
    for (d = loops->nouter - 1; d >= 0; d--) { /* to the next piece */
      offset += loops->steps[d];
      if (++at[d] < loops->counts[d]) break;
      offset -= loops->steps[d] * (size_t)loops->counts[d];
      at[d] = 0;
    }
  }
  return SHARDRT_OK;
}

/* Goes through the boxes' pieces in their order; those that have at most `gap` bytes between them are one. Short
 * samples are many, and most are one piece: so what is done with it is compiled into the loop. */
__attribute__((always_inline)) static inline int visit_pieces(const struct box_runs *runs, size_t first,
                                                              const int64_t *samples, int64_t n, size_t gap,
                                                              visit_piece *visit, void *context) {
  if (runs->box_bytes == 0) return SHARDRT_OK;
  /* As loops, the innermost last; those that leave small gaps become one piece. */
  struct box_runs loops = *runs;
  loops.counts[loops.nouter] = runs->run_count; /* room: one dimension is within the run */
  loops.steps[loops.nouter++] = runs->run_step;
  size_t bytes = runs->run_bytes;
  while (loops.nouter > 0 && widen_piece(&bytes, loops.counts[loops.nouter - 1], loops.steps[loops.nouter - 1], gap))
    loops.nouter--;
  for (int64_t i = 0; i < n; i++) {
    const size_t offset = first + runs->offset + (size_t)samples[i] * runs->sample_bytes;
    int code = loops.nouter == 0 ? visit(context, offset, bytes) : visit_sample(&loops, offset, bytes, visit, context);
    if (code < 0) return code;
  }
  return SHARDRT_OK;
}

struct into_extents {
  const struct mapping *file;
  struct extents *out;
};

static int add_piece(void *context, size_t offset, size_t bytes) {
  const struct into_extents *into = context;
  return extents_add(into->out, into->file, offset, bytes);
}

int box_runs_extents(const struct box_runs *runs, const struct mapping *file, size_t first, const int64_t *samples,
                     int64_t n, struct extents *out) {
  struct into_extents into = {.file = file, .out = out};
  return visit_pieces(runs, first, samples, n, EXTENTS_GAP, add_piece, &into);
}

/* Pieces that follow one another in the same blocks need not be looked at one by one. */
struct checked {
  struct guard *guard;
  const char *title;
  size_t from, to; /* blocks that were found to be right, in bytes */
};

static int check_piece(void *context, size_t offset, size_t bytes) {
  struct checked *c = context;
  if (offset >= c->from && offset + bytes <= c->to) return SHARDRT_OK;
  int code = guard_check(c->guard, c->title, offset, bytes);
  c->from = offset / GUARD_BLOCK * GUARD_BLOCK;
  c->to = (offset + bytes + GUARD_BLOCK - 1) / GUARD_BLOCK * GUARD_BLOCK;
  return code;
}

int box_runs_check(const struct box_runs *runs, struct guard *guard, const char *title, size_t first,
                   const int64_t *samples, int64_t n) {
  if (guard_is_done(guard)) return SHARDRT_OK;
  struct checked checked = {.guard = guard, .title = title};
  return visit_pieces(runs, first, samples, n, GUARD_BLOCK, check_piece, &checked);
}
