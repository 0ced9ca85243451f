#include "dataset/gather.h"

#include <assert.h>
#include <string.h>

#include "platform/device.h"
#include "system/prefetch.h"

enum {
  AHEAD = 2,          /* the sample after the next is asked for while one is copied; short ones overlap by themselves */
  STREAM_BYTES = 1024 /* shorter runs are not worth going past the caches */
};

__attribute__((always_inline)) static inline void ask_for(const struct gather_plan *plan, const uint8_t *data,
                                                          const int64_t *samples, int64_t i, int64_t n) {
  if (i + AHEAD < n && plan->box_bytes >= PREFETCH_BYTES)
    prefetch_begin(data + (size_t)samples[i + AHEAD] * plan->sample_bytes);
}

struct gather_plan gather_plan_make(const shardrt_field *field, const shardrt_box *inner, size_t element_bytes) {
  assert(inner->ndim == field->ndim);
  struct gather_plan plan = {.run_bytes = element_bytes, .run_count = 1, .box_bytes = element_bytes};
  size_t step = element_bytes; /* bytes between neighbours in dimension d */
  bool whole = true;           /* the box is whole in every dimension after d: the run goes on */
  bool inner_loop = false;     /* run_count and run_step are taken */
  int64_t counts[SHARDRT_MAX_NDIM];
  size_t steps[SHARDRT_MAX_NDIM];
  for (int32_t d = field->ndim - 1; d >= 0; d--) {
    const int64_t extent = inner->stop[d] - inner->start[d];
    plan.box_bytes *= (size_t)extent;
    plan.offset += (size_t)inner->start[d] * step;
    if (whole) {
      plan.run_bytes *= (size_t)extent;
    } else if (extent != 1 && !inner_loop) {
      plan.run_count = extent;
      plan.run_step = step;
      inner_loop = true;
    } else if (extent != 1) {
      counts[plan.nouter] = extent;
      steps[plan.nouter++] = step;
    }
    whole = whole && extent == field->shape[d];
    step *= (size_t)field->shape[d];
  }
  plan.sample_bytes = step;
  for (int32_t i = 0; i < plan.nouter; i++) {
    plan.counts[i] = counts[plan.nouter - 1 - i];
    plan.steps[i] = steps[plan.nouter - 1 - i];
  }
  return plan;
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
static uint8_t *copy_box(const struct gather_plan *plan, uint8_t *dst, const uint8_t *src) {
  int64_t at[SHARDRT_MAX_NDIM] = {0};
  while (true) {
    dst = copy_runs(dst, src, plan->run_count, plan->run_step, plan->run_bytes);
    int32_t d = plan->nouter - 1;
    for (; d >= 0; d--) {
      src += plan->steps[d];
      if (++at[d] < plan->counts[d]) break;
      src -= plan->steps[d] * (size_t)plan->counts[d];
      at[d] = 0;
    }
    if (d < 0) return dst;
  }
}

/* Whole samples: neighbours in the order that are neighbours in memory go in one copy. */
static void copy_whole(const struct gather_plan *plan, const uint8_t *data, const int64_t *samples, int64_t n,
                       uint8_t *dst) {
  for (int64_t i = 0; i < n;) {
    int64_t end = i + 1;
    while (end < n && samples[end] == samples[end - 1] + 1) end++;
    ask_for(plan, data, samples, end - 1, n);
    dst = copy_runs(dst, data + (size_t)samples[i] * plan->sample_bytes, 1, 0, plan->sample_bytes * (size_t)(end - i));
    i = end;
  }
}

/* One run of each sample. As in copy_fixed, `bytes` is a constant where it is small. */
static inline void copy_each(const struct gather_plan *plan, const uint8_t *restrict data, const int64_t *samples,
                             int64_t n, uint8_t *restrict dst, size_t bytes) {
  for (int64_t i = 0; i < n; i++) {
    ask_for(plan, data, samples, i, n);
    memcpy(dst + (size_t)i * bytes, data + (size_t)samples[i] * plan->sample_bytes, bytes);
  }
}

/* The same for large runs, past the caches. */
static void stream_each(const struct gather_plan *plan, const uint8_t *data, const int64_t *samples, int64_t n,
                        uint8_t *dst) {
  for (int64_t i = 0; i < n; i++) {
    ask_for(plan, data, samples, i, n);
    device_host.stream(dst + (size_t)i * plan->run_bytes, 0, data + (size_t)samples[i] * plan->sample_bytes, 0,
                       plan->run_bytes, 1);
  }
}

void gather_run(const struct gather_plan *plan, const uint8_t *data, const int64_t *samples, int64_t n,
                bool past_caches, void *dst) {
  if (plan->box_bytes == 0) return;
  const uint8_t *first = data + plan->offset;
  if (plan->run_count == 1 && plan->nouter == 0) {
    if (past_caches && plan->run_bytes >= STREAM_BYTES) {
      stream_each(plan, first, samples, n, dst);
      return;
    }
    switch (plan->run_bytes) {
    case 1:
      copy_each(plan, first, samples, n, dst, 1);
      return;
    case 2:
      copy_each(plan, first, samples, n, dst, 2);
      return;
    case 4:
      copy_each(plan, first, samples, n, dst, 4);
      return;
    case 8:
      copy_each(plan, first, samples, n, dst, 8);
      return;
    default:
      if (plan->run_bytes == plan->sample_bytes)
        copy_whole(plan, first, samples, n, dst);
      else
        copy_each(plan, first, samples, n, dst, plan->run_bytes);
      return;
    }
  }
  uint8_t *end = dst;
  for (int64_t i = 0; i < n; i++) {
    ask_for(plan, first, samples, i, n);
    end = copy_box(plan, end, first + (size_t)samples[i] * plan->sample_bytes);
  }
}

/* The runs of one sample's box, the first of which is at `offset` of the file. */
static int read_runs(const struct gather_plan *plan, const struct stored *file, size_t offset, struct reader *reader,
                     uint8_t **dst) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < plan->run_count && code == SHARDRT_OK; i++) {
    code = stored_read(file, offset + (size_t)i * plan->run_step, plan->run_bytes, reader, *dst);
    *dst += plan->run_bytes;
  }
  return code;
}

static int read_box(const struct gather_plan *plan, const struct stored *file, size_t offset, struct reader *reader,
                    uint8_t **dst) {
  int64_t at[SHARDRT_MAX_NDIM] = {0};
  for (;;) {
    int code = read_runs(plan, file, offset, reader, dst);
    if (code != SHARDRT_OK) return code;
    int32_t d = plan->nouter - 1;
    for (; d >= 0; d--) {
      offset += plan->steps[d];
      if (++at[d] < plan->counts[d]) break;
      offset -= plan->steps[d] * (size_t)plan->counts[d];
      at[d] = 0;
    }
    if (d < 0) return SHARDRT_OK;
  }
}

int gather_read(const struct gather_plan *plan, const struct stored *file, size_t first, const int64_t *samples,
                int64_t n, struct reader *reader, void *dst) {
  uint8_t *at = dst;
  int code = SHARDRT_OK;
  if (plan->box_bytes == 0) return SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK;) {
    int64_t end = i + 1; /* neighbours that are whole are read together */
    while (end < n && plan->box_bytes == plan->sample_bytes && samples[end] == samples[end - 1] + 1) end++;
    const size_t offset = first + plan->offset + (size_t)samples[i] * plan->sample_bytes;
    if (end > i + 1) {
      code = stored_read(file, offset, plan->sample_bytes * (size_t)(end - i), reader, at);
      at += plan->sample_bytes * (size_t)(end - i);
    } else {
      code = read_box(plan, file, offset, reader, &at);
    }
    i = end;
  }
  return code;
}

/* Takes one more loop into the piece of *bytes that it repeats, where its gaps are small. */
static bool widen(size_t *bytes, int64_t count, size_t step, size_t gap) {
  if (count > 1 && step > *bytes + gap) return false;
  *bytes += (size_t)(count - 1) * step;
  return true;
}

/* What is to be done with a piece of a file. */
typedef int visit_piece(void *context, size_t offset, size_t bytes);

/* Goes through a sample's pieces, the first of which is at `offset`. */
static int visit_sample(const struct gather_plan *loops, size_t offset, size_t bytes, visit_piece *visit,
                        void *context) {
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
__attribute__((always_inline)) static inline int visit_pieces(const struct gather_plan *plan, size_t first,
                                                              const int64_t *samples, int64_t n, size_t gap,
                                                              visit_piece *visit, void *context) {
  if (plan->box_bytes == 0) return SHARDRT_OK;
  /* As loops, the innermost last; those that leave small gaps become one piece. */
  struct gather_plan loops = *plan;
  loops.counts[loops.nouter] = plan->run_count; /* room: one dimension is within the run */
  loops.steps[loops.nouter++] = plan->run_step;
  size_t bytes = plan->run_bytes;
  while (loops.nouter > 0 && widen(&bytes, loops.counts[loops.nouter - 1], loops.steps[loops.nouter - 1], gap))
    loops.nouter--;
  for (int64_t i = 0; i < n; i++) {
    const size_t offset = first + plan->offset + (size_t)samples[i] * plan->sample_bytes;
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

int gather_extents(const struct gather_plan *plan, const struct mapping *file, size_t first, const int64_t *samples,
                   int64_t n, struct extents *out) {
  struct into_extents into = {.file = file, .out = out};
  return visit_pieces(plan, first, samples, n, EXTENTS_GAP, add_piece, &into);
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

int gather_check(const struct gather_plan *plan, struct guard *guard, const char *title, size_t first,
                 const int64_t *samples, int64_t n) {
  struct checked checked = {.guard = guard, .title = title};
  return visit_pieces(plan, first, samples, n, GUARD_BLOCK, check_piece, &checked);
}

void gather_swap(void *data, size_t n, size_t element_bytes) {
  uint8_t *bytes = data;
  if (element_bytes == 2) {
    for (size_t i = 0; i < n; i++, bytes += 2) {
      uint16_t value;
      memcpy(&value, bytes, 2);
      value = __builtin_bswap16(value);
      memcpy(bytes, &value, 2);
    }
  } else if (element_bytes == 4) {
    for (size_t i = 0; i < n; i++, bytes += 4) {
      uint32_t value;
      memcpy(&value, bytes, 4);
      value = __builtin_bswap32(value);
      memcpy(bytes, &value, 4);
    }
  } else if (element_bytes == 8) {
    for (size_t i = 0; i < n; i++, bytes += 8) {
      uint64_t value;
      memcpy(&value, bytes, 8);
      value = __builtin_bswap64(value);
      memcpy(bytes, &value, 8);
    }
  }
}

bool gather_are_bools(const void *data, size_t n) {
  const uint8_t *bytes = data;
  const uint64_t others = ~(uint64_t)0x0101010101010101;
  uint64_t word = 0;
  size_t i = 0;
  for (; i + sizeof word <= n; i += sizeof word) {
    memcpy(&word, bytes + i, sizeof word);
    if ((word & others) != 0) return false;
  }
  for (; i < n; i++)
    if (bytes[i] > 1) return false;
  return true;
}

void gather_bools(void *data, size_t n) {
  uint8_t *bytes = data;
  if (gather_are_bools(data, n)) return;
  for (size_t i = 0; i < n; i++) bytes[i] = bytes[i] != 0;
}
