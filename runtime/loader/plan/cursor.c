#include "loader/plan/cursor.h"

#include <assert.h>
#include <inttypes.h>

#include "base/error.h"
#include "base/text.h"

typedef long long ll;

enum { NEAR = 1 << 17 }; /* so many sizes on either side are tried for a message, and no more */

/* The first divisor of `rows` from `size` on, going by `step` (1 or -1), within 1 … rows; 0: none is near. */
static int64_t near_divisor(int64_t rows, int64_t size, int64_t step) {
  for (int32_t i = 0; i < NEAR && size >= 1 && size <= rows; i++, size += step)
    if (rows % size == 0) return size;
  return 0;
}

/* With remainder = "error", where the batch size does not divide the rows. The message names the sizes next to it that
 * do, where they are near. */
static int refuse_remainder(const struct cursor_rules *rules, int64_t rows) {
  int64_t size = rules->batch_size;
  int64_t below = near_divisor(rows, size < rows ? size : rows, -1);
  int64_t above = size < rows ? near_divisor(rows, size + 1, 1) : 0;
  char bytes[96] = "";
  struct text sizes = {.bytes = bytes, .capacity = sizeof bytes};
  if (below > 0 || above > 0) text_add(&sizes, "batch_size = %" PRId64, below > 0 ? below : above);
  if (below > 0 && above > 0) text_add(&sizes, " or %" PRId64, above);
  if (below > 0 || above > 0) text_add(&sizes, " would do, or ");
  return error_set(
      SHARDRT_EINVAL,
      "%lld samples are not a whole number of batches of %lld (remainder = \"error\"): %lld are left over; "
      "%sremainder = \"drop\" or \"pad\"",
      (ll)rows, (ll)size, (ll)(rows % size), bytes);
}

static bool divides(const struct cursor_rules *rules, int64_t rows) {
  return rules->remainder != SHARDRT_ERROR || rows % rules->batch_size == 0;
}

/* Real rows of a batch that would begin at `row`; 0: none does. */
static int64_t rows_at(const struct cursor_rules *rules, int64_t row) {
  assert(row >= 0 && row <= rules->count && rules->batch_size >= 1);
  int64_t left = rules->count - row;
  if (left >= rules->batch_size) return rules->batch_size;
  return rules->remainder == SHARDRT_PAD ? left : 0;
}

int cursor_check(const struct cursor_rules *rules) {
  if (!divides(rules, rules->count)) return refuse_remainder(rules, rules->count);
  if (rules->epochs < 0 && rows_at(rules, 0) == 0)
    return error_set(
        SHARDRT_EINVAL,
        "the source has %lld samples, not one batch of %lld, so a loader without end would never give one; "
        "a smaller batch_size, remainder = \"pad\" or a number of epochs would do",
        (ll)rules->count, (ll)rules->batch_size);
  return SHARDRT_OK;
}

int64_t cursor_steps(const struct cursor_rules *rules) {
  int64_t whole = rules->count / rules->batch_size;
  return whole + (rules->remainder == SHARDRT_PAD && rules->count % rules->batch_size != 0);
}

static bool ended(const struct cursor *self, const struct cursor_rules *rules) {
  return rules->epochs >= 0 && self->epoch >= rules->epochs;
}

/* An epoch that has no batch left is over; one that has none at all ends the walk, which then has an end. */
static void settle(struct cursor *self, const struct cursor_rules *rules) {
  if (rows_at(rules, self->row) > 0) return;
  self->epoch = rows_at(rules, 0) > 0 ? self->epoch + 1 : rules->epochs;
  self->row = 0;
  assert(rows_at(rules, 0) > 0 || ended(self, rules));
}

int cursor_seek(struct cursor *self, const struct cursor_rules *rules, int64_t epoch, int64_t row) {
  bool at_end = rules->epochs >= 0 && epoch == rules->epochs;
  if (epoch < 0 || (rules->epochs >= 0 && epoch > rules->epochs))
    return error_set(SHARDRT_EINVAL, "epoch %lld: the loader has %lld", (ll)epoch, (ll)rules->epochs);
  if (at_end && row > 0)
    return error_set(SHARDRT_EINVAL, "row %lld of epoch %lld: the loader has %lld, counted from 0", (ll)row, (ll)epoch,
                     (ll)rules->epochs);
  if (row < 0 || row > rules->count)
    return error_set(SHARDRT_EINVAL, "row %lld of epoch %lld: it has %lld rows", (ll)row, (ll)epoch, (ll)rules->count);
  if (!divides(rules, rules->count - row)) return refuse_remainder(rules, rules->count - row);
  *self = (struct cursor){.epoch = epoch, .row = row};
  if (!at_end) settle(self, rules);
  return SHARDRT_OK;
}

void cursor_advance(struct cursor *self, const struct cursor_rules *rules) {
  self->row += cursor_rows(self, rules);
  settle(self, rules);
}

int64_t cursor_rows(const struct cursor *self, const struct cursor_rules *rules) {
  return ended(self, rules) ? 0 : rows_at(rules, self->row);
}
