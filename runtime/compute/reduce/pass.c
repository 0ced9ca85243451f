#include "compute/reduce/pass.h"

enum {
  WORTH = 64 << 10, /* elements that are worth a task */
  MANY = 64,        /* tasks that are enough for any machine's threads */
  WIDE_ROWS = 16    /* rows wider than PASS_NARROW that are reduced one after the other */
};

static size_t at_least_one(size_t n) {
  return n > 0 ? n : 1;
}

static size_t least_size(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t ceiling(size_t n, size_t of) {
  return n / of + (n % of > 0);
}

struct pass pass_cut(size_t outer, size_t n, size_t inner) {
  struct pass self = {.outer = outer, .n = n, .inner = inner, .each = 1, .chunk = n, .chunks = 1};
  self.base = inner <= PASS_NARROW ? REDUCE_BLOCK / inner : WIDE_ROWS;
  self.span = ceiling(at_least_one(WORTH / n), REDUCE_BLOCK) * REDUCE_BLOCK;
  if (self.span > inner) self.span = inner;
  self.spans = ceiling(inner, self.span);
  if (outer * self.spans < MANY && n > 2 * WORTH / self.span) {
    size_t rows = ceiling(n, MANY);
    if (rows < WORTH / self.span) rows = WORTH / self.span;
    self.chunk = ceiling(rows, self.base) * self.base;
    self.chunks = ceiling(n, self.chunk);
  }
  if (self.spans == 1 && self.chunks == 1 && inner < WORTH / n) self.each = WORTH / (n * inner);
  self.each = at_least_one(least_size(self.each, outer));
  self.tasks = (int64_t)(ceiling(outer, self.each) * self.spans * self.chunks);
  return self;
}

struct pass_part pass_part(const struct pass *self, int64_t task) {
  const size_t chunk = (size_t)task % self->chunks, rest = (size_t)task / self->chunks;
  const size_t span = rest % self->spans, group = rest / self->spans;
  return (struct pass_part){.first = group * self->each,
                            .last = least_size((group + 1) * self->each, self->outer),
                            .left = span * self->span,
                            .right = least_size((span + 1) * self->span, self->inner),
                            .top = chunk * self->chunk,
                            .bottom = least_size((chunk + 1) * self->chunk, self->n),
                            .number = chunk};
}
