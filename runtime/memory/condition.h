/* condition.h - what an element, or a text, must be: { ">=", 3, "<", 9 }. All parts of it must hold.
 *
 * Numbers are compared as numbers, whatever their dtypes: int64 with float64 exactly, too. With NaN only ~= holds.
 * Texts are compared byte by byte, and a text stands before all that begin with it. */
#ifndef SHARDRT_MEMORY_CONDITION_H
#define SHARDRT_MEMORY_CONDITION_H

#include "shardrt.h"

enum condition_relation {
  CONDITION_LESS,
  CONDITION_AT_MOST,
  CONDITION_EQUAL,
  CONDITION_UNEQUAL,
  CONDITION_AT_LEAST,
  CONDITION_MORE,
  CONDITION_RELATIONS
};

enum condition_kind { CONDITION_FLOAT64, CONDITION_INT64, CONDITION_UINT64, CONDITION_TEXT, CONDITION_KINDS };

/* A number, or a text. */
struct condition_operand {
  enum condition_kind kind;
  union {
    double float64;
    int64_t int64;
    uint64_t uint64;
    struct {
      const uint8_t *at;
      size_t length;
    } text;
  } is;
};

enum { CONDITION_PARTS = 8 };

struct condition {
  int32_t count; /* 1 to CONDITION_PARTS */
  struct {
    enum condition_relation relation;
    struct condition_operand operand;
  } parts[CONDITION_PARTS];
};

/* Whether its operands are texts; they all are, or none is. */
static inline bool condition_is_of_texts(const struct condition *self) {
  return self->parts[0].operand.kind == CONDITION_TEXT;
}

/* An element of any dtype as an operand. */
struct condition_operand condition_element(int32_t dtype, const void *element);
static inline struct condition_operand condition_text(const void *at, size_t length) {
  return (struct condition_operand){.kind = CONDITION_TEXT, .is.text = {.at = at, .length = length}};
}

/* Whether it holds for a value, which is a text if its operands are. */
bool condition_holds(const struct condition *self, const struct condition_operand *value);
/* The same for n elements of a dtype, packed: out[i] = 1 or 0. */
void condition_check(const struct condition *self, int32_t dtype, const void *elements, int64_t n, uint8_t *out);
/* False: it holds for no value from `least` to `most`, both included, and not for NaN either. True: it may hold for
 * one. `nan`: some of the values may be NaN. */
bool condition_may_hold(const struct condition *self, const struct condition_operand *least,
                        const struct condition_operand *most, bool nan);

#endif
