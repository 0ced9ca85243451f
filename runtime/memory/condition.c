#include "memory/condition.h"

#include <string.h>

#include "memory/convert.h"

/* What comes of comparing two values: a bit each. */
enum { BEFORE = 1, SAME = 2, BEHIND = 4, UNORDERED = 8 };

/* Which of these a relation takes. */
static const uint8_t accepted[CONDITION_RELATIONS] = {
    [CONDITION_LESS] = BEFORE,
    [CONDITION_AT_MOST] = BEFORE | SAME,
    [CONDITION_EQUAL] = SAME,
    [CONDITION_UNEQUAL] = BEFORE | BEHIND | UNORDERED,
    [CONDITION_AT_LEAST] = SAME | BEHIND,
    [CONDITION_MORE] = BEHIND,
};

#define ORDER(a, b) ((a) < (b) ? BEFORE : (a) > (b) ? BEHIND : (a) == (b) ? SAME : UNORDERED)

static uint8_t turn(uint8_t order) {
  return order == BEFORE ? BEHIND : order == BEHIND ? BEFORE : order;
}

/* A whole number with a float64, neither of which is rounded: by the float's whole part, then by what is left. */
static uint8_t order_signed(int64_t a, double b) {
  if (b != b) return UNORDERED;
  if (b >= 0x1p63) return BEFORE;
  if (b < -0x1p63) return BEHIND;
  const int64_t whole = (int64_t)b; /* towards 0 */
  return a != whole ? ORDER(a, whole) : ORDER(0, b - (double)whole);
}

static uint8_t order_unsigned(uint64_t a, double b) {
  if (b != b) return UNORDERED;
  if (b >= 0x1p64) return BEFORE;
  if (b < 0) return BEHIND;
  const uint64_t whole = (uint64_t)b;
  return a != whole ? ORDER(a, whole) : ORDER(0, b - (double)whole);
}

static uint8_t order_mixed(int64_t a, uint64_t b) {
  return a < 0 ? BEFORE : ORDER((uint64_t)a, b);
}

static uint8_t order_texts(const struct condition_operand *a, const struct condition_operand *b) {
  const size_t la = a->is.text.length, lb = b->is.text.length, both = la < lb ? la : lb;
  const int order = both > 0 ? memcmp(a->is.text.at, b->is.text.at, both) : 0;
  return order != 0 ? ORDER(order, 0) : ORDER(la, lb);
}

static uint8_t order_of(const struct condition_operand *a, const struct condition_operand *b) {
  switch (a->kind * CONDITION_KINDS + b->kind) {
  case CONDITION_FLOAT64 *CONDITION_KINDS + CONDITION_FLOAT64:
    return ORDER(a->is.float64, b->is.float64);
  case CONDITION_FLOAT64 *CONDITION_KINDS + CONDITION_INT64:
    return turn(order_signed(b->is.int64, a->is.float64));
  case CONDITION_FLOAT64 *CONDITION_KINDS + CONDITION_UINT64:
    return turn(order_unsigned(b->is.uint64, a->is.float64));
  case CONDITION_INT64 *CONDITION_KINDS + CONDITION_FLOAT64:
    return order_signed(a->is.int64, b->is.float64);
  case CONDITION_INT64 *CONDITION_KINDS + CONDITION_INT64:
    return ORDER(a->is.int64, b->is.int64);
  case CONDITION_INT64 *CONDITION_KINDS + CONDITION_UINT64:
    return order_mixed(a->is.int64, b->is.uint64);
  case CONDITION_UINT64 *CONDITION_KINDS + CONDITION_FLOAT64:
    return order_unsigned(a->is.uint64, b->is.float64);
  case CONDITION_UINT64 *CONDITION_KINDS + CONDITION_INT64:
    return turn(order_mixed(b->is.int64, a->is.uint64));
  case CONDITION_UINT64 *CONDITION_KINDS + CONDITION_UINT64:
    return ORDER(a->is.uint64, b->is.uint64);
  default:
    return order_texts(a, b);
  }
}

/* The dtype that all elements of another are converted to without loss. */
static int32_t wide_dtype(int32_t dtype) {
  if (dtype >= SHARDRT_FLOAT16) return SHARDRT_FLOAT64;
  return dtype == SHARDRT_UINT64 ? SHARDRT_UINT64 : SHARDRT_INT64;
}

static struct condition_operand wide_operand(int32_t wide, const uint64_t *value) {
  struct condition_operand made = {.kind = wide == SHARDRT_FLOAT64  ? CONDITION_FLOAT64
                                           : wide == SHARDRT_UINT64 ? CONDITION_UINT64
                                                                    : CONDITION_INT64};
  memcpy(&made.is, value, sizeof *value);
  return made;
}

struct condition_operand condition_element(int32_t dtype, const void *element) {
  uint64_t aligned = 0, value = 0;
  const int32_t wide = wide_dtype(dtype);
  memcpy(&aligned, element, shardrt_dtype_size(dtype));
  if (wide == dtype)
    value = aligned;
  else
    convert_elements(dtype, wide, &aligned, &value, 1);
  return wide_operand(wide, &value);
}

bool condition_holds(const struct condition *self, const struct condition_operand *value) {
  bool holds = true;
  for (int32_t i = 0; i < self->count && holds; i++)
    holds = (accepted[self->parts[i].relation] & order_of(value, &self->parts[i].operand)) != 0;
  return holds;
}

void condition_check(const struct condition *self, int32_t dtype, const void *elements, int64_t n, uint8_t *out) {
  uint64_t values[CONVERT_BLOCK];
  const int32_t wide = wide_dtype(dtype);
  const size_t size = shardrt_dtype_size(dtype);
  for (int64_t done = 0; done < n; done += CONVERT_BLOCK) {
    const size_t some = (size_t)(n - done < CONVERT_BLOCK ? n - done : CONVERT_BLOCK);
    const uint8_t *from = (const uint8_t *)elements + (size_t)done * size;
    if (wide == dtype)
      memcpy(values, from, some * size);
    else
      convert_elements(dtype, wide, from, values, some);
    for (size_t i = 0; i < some; i++) {
      const struct condition_operand value = wide_operand(wide, &values[i]);
      out[(size_t)done + i] = condition_holds(self, &value);
    }
  }
}

bool condition_may_hold(const struct condition *self, const struct condition_operand *least,
                        const struct condition_operand *most, bool nan) {
  for (int32_t i = 0; i < self->count; i++) {
    const struct condition_operand *operand = &self->parts[i].operand;
    const uint8_t low = order_of(least, operand), high = order_of(most, operand);
    /* What the values between come to: those of the ends, and where these differ, the operand may be one of them. */
    const uint8_t any = (uint8_t)(low | high | (low != high ? SAME : 0) | (nan ? UNORDERED : 0));
    if ((accepted[self->parts[i].relation] & any) == 0) return false;
  }
  return true;
}
