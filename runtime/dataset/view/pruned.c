#include "dataset/view/pruned.h"

#include <assert.h>

#include "base/alloc.h"

int pruned_add(struct pruned *self, int64_t first, int64_t count) {
  struct sample_range *last = self->count > 0 ? &self->ranges[self->count - 1] : NULL;
  if (count == 0) return SHARDRT_OK;
  assert(count > 0 && (last == NULL || first >= last->first + last->count));
  if (last != NULL && first == last->first + last->count) {
    last->count += count;
    return SHARDRT_OK;
  }
  struct sample_range *ranges = alloc_one_more(self->ranges, self->count, &self->capacity, 16, sizeof *ranges);
  if (ranges == NULL) return ALLOC_FAILED;
  self->ranges = ranges;
  self->ranges[self->count++] = (struct sample_range){.first = first, .count = count};
  return SHARDRT_OK;
}

static int64_t end_of(const struct sample_range *range) {
  return range->first + range->count;
}

int pruned_join(struct pruned *self, const struct pruned *other) {
  struct pruned both = {.is_condition = self->is_condition};
  int code = SHARDRT_OK;
  for (int64_t a = 0, b = 0, end = 0; (a < self->count || b < other->count) && code == SHARDRT_OK;) {
    const bool own = b == other->count || (a < self->count && self->ranges[a].first < other->ranges[b].first);
    const struct sample_range *range = own ? &self->ranges[a++] : &other->ranges[b++];
    const int64_t first = range->first > end ? range->first : end; /* some of it may be there */
    if (end_of(range) <= first) continue;
    code = pruned_add(&both, first, end_of(range) - first);
    end = end_of(range);
  }
  pruned_clear(code == SHARDRT_OK ? self : &both);
  if (code == SHARDRT_OK) *self = both;
  return code;
}

int64_t pruned_samples(const struct pruned *self) {
  int64_t all = 0;
  for (int64_t i = 0; i < self->count; i++) all += self->ranges[i].count;
  return all;
}

uint64_t pruned_left(const struct pruned *self, int64_t first, int64_t count) {
  uint64_t left = count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1;
  int64_t low = 0, high = self->count; /* the first range that ends behind `first` */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (end_of(&self->ranges[middle]) <= first)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < self->count && self->ranges[low].first < first + count; low++) {
    const int64_t from = self->ranges[low].first > first ? self->ranges[low].first - first : 0;
    const int64_t to = end_of(&self->ranges[low]) - first < count ? end_of(&self->ranges[low]) - first : count;
    left &= ~((to - from == 64 ? ~UINT64_C(0) : (UINT64_C(1) << (to - from)) - 1) << from);
  }
  return left;
}

void pruned_clear(struct pruned *self) {
  alloc_free(self->ranges);
  *self = (struct pruned){0};
}

int pruned_by_base(const shardrt_source *view, const shardrt_source *base, int32_t field,
                   const struct condition *condition, view_place *place, struct pruned *out) {
  struct pruned of_base = {0};
  int code = source_prune(base, field, condition, &of_base);
  for (int64_t i = 0; i < of_base.count && code == SHARDRT_OK; i++) {
    const int64_t first = place(view, of_base.ranges[i].first);
    code = pruned_add(out, first, place(view, of_base.ranges[i].first + of_base.ranges[i].count) - first);
  }
  pruned_clear(&of_base);
  return code;
}
