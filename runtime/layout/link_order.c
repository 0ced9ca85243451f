#include "layout/link_order.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

struct order_search {
  int32_t count;
  const int64_t *worth;
  int64_t *near; /* [place][place]: in how many ways two places are close */
};

/* Two places are in one line of each length that divides the count and holds both; and side by side, also where there
 * is no such line. */
static void measure_closeness(const struct order_search *s) {
  for (int32_t i = 0; i < s->count; i++)
    for (int32_t k = 0; k < s->count; k++) {
      int64_t near = i - k == 1 || k - i == 1;
      for (int32_t length = 2; length < s->count; length++)
        if (s->count % length == 0 && i / length == k / length) near += 2;
      s->near[(int64_t)i * s->count + k] = near;
    }
}

/* What it is worth that `one` stands at a place, beside those that stand at the first `places` ones; `without`: not
 * counting what stands there. */
static int64_t worth_at(const struct order_search *s, const int32_t *order, int32_t places, int32_t place, int32_t one,
                        int32_t without) {
  int64_t sum = 0;
  for (int32_t k = 0; k < places; k++)
    if (k != place && k != without)
      sum += s->near[(int64_t)place * s->count + k] * s->worth[(int64_t)one * s->count + order[k]];
  return sum;
}

static int64_t worth_of(const struct order_search *s, const int32_t *order) {
  int64_t sum = 0; /* each two twice */
  for (int32_t i = 0; i < s->count; i++) sum += worth_at(s, order, s->count, i, order[i], i);
  return sum;
}

/* How much more all is worth once two have changed places: what they are worth to each other stays. */
static int64_t swap_gain(const struct order_search *s, const int32_t *order, int32_t i, int32_t k) {
  const int32_t n = s->count;
  return worth_at(s, order, n, i, order[k], k) + worth_at(s, order, n, k, order[i], i) -
         worth_at(s, order, n, i, order[i], k) - worth_at(s, order, n, k, order[k], i);
}

/* Exchanges two, the best ones first, until nothing is better for it. */
static void improve_order(const struct order_search *s, int32_t *order) {
  for (;;) {
    int64_t best = 0;
    int32_t first = 0, second = 0;
    for (int32_t i = 0; i < s->count; i++)
      for (int32_t k = i + 1; k < s->count; k++) {
        const int64_t more = swap_gain(s, order, i, k);
        if (more <= best) continue;
        best = more;
        first = i;
        second = k;
      }
    if (best == 0) return;
    const int32_t moved = order[first];
    order[first] = order[second];
    order[second] = moved;
  }
}

/* Place after place, the one that is worth most there; of those the one with the least number. */
static void place_greedily(const struct order_search *s, int32_t first, int32_t *order) {
  for (int32_t i = 0; i < s->count; i++) order[i] = i;
  order[0] = first;
  order[first] = 0;
  for (int32_t place = 1; place < s->count; place++) {
    int32_t best = place;
    int64_t most = worth_at(s, order, place, place, order[best], place);
    for (int32_t k = place + 1; k < s->count; k++) {
      const int64_t worth = worth_at(s, order, place, place, order[k], place);
      if (worth < most || (worth == most && order[k] > order[best])) continue;
      most = worth;
      best = k;
    }
    const int32_t moved = order[place];
    order[place] = order[best];
    order[best] = moved;
  }
}

/* From each one's best neighbours, and from where all stand now: no start alone finds all that is best. */
int link_order_find(int32_t count, const int64_t *worth, int32_t *order) {
  struct order_search s = {.count = count, .worth = worth};
  s.near = alloc_array((size_t)count * (size_t)count, sizeof *s.near);
  int32_t *other = alloc_array((size_t)count, sizeof *other);
  if (s.near == NULL || other == NULL) {
    alloc_free(other);
    alloc_free(s.near);
    return ALLOC_FAILED;
  }
  measure_closeness(&s);
  for (int32_t i = 0; i < count; i++) order[i] = i;
  int64_t best = worth_of(&s, order);
  for (int32_t start = 0; start <= count; start++) {
    for (int32_t i = 0; i < count; i++) other[i] = i;
    if (start < count) place_greedily(&s, start, other);
    improve_order(&s, other);
    const int64_t found = worth_of(&s, other);
    if (found <= best) continue;
    best = found;
    memcpy(order, other, (size_t)count * sizeof *order);
  }
  alloc_free(other);
  alloc_free(s.near);
  return SHARDRT_OK;
}
