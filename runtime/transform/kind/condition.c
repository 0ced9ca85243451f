/* condition.c - whether a number, or a text, is as a condition says (memory/condition.h): one bool.
 *
 * numbers: of each part its relation, and what its operand is (CONDITION_…, or BOOLEAN). bytes: the operands, each of 8
 *   bytes; of a text these are its length, and the texts stand behind them all, one after the other. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "memory/condition.h"
#include "transform/kind/packed.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum { BOOLEAN = CONDITION_KINDS, GIVEN_KINDS };
enum { RELATION, KIND, OF_PART }; /* numbers */

static const char *const named[GIVEN_KINDS] = {"numbers", "numbers", "numbers", "texts", "true or false"};

/* Texts with texts, true and false with themselves. */
static int32_t family(int32_t kind) {
  return kind < CONDITION_TEXT ? CONDITION_FLOAT64 : kind;
}

static int32_t given_kind(const shardrt_transform *self, int32_t part) {
  return (int32_t)self->numbers[part * OF_PART + KIND];
}

static int set_part(const shardrt_transform *self, int32_t part, size_t *text, struct condition *out) {
  const int32_t kind = given_kind(self, part);
  struct condition_operand *operand = &out->parts[part].operand;
  uint64_t value;
  memcpy(&value, self->bytes + (size_t)part * sizeof value, sizeof value);
  out->parts[part].relation = (enum condition_relation)self->numbers[part * OF_PART + RELATION];
  if (family(kind) != family(given_kind(self, 0)))
    return error_set(SHARDRT_EINVAL, "it compares with %s and with %s", named[given_kind(self, 0)], named[kind]);
  if (kind == CONDITION_TEXT) {
    if (value > self->nbytes - *text) return error_set(SHARDRT_EINVAL, "a text is cut off");
    *operand = condition_text(self->bytes + *text, value);
    *text += value;
    return SHARDRT_OK;
  }
  operand->kind = kind == BOOLEAN ? CONDITION_INT64 : (enum condition_kind)kind;
  memcpy(&operand->is, &value, sizeof value);
  return SHARDRT_OK;
}

static int condition_set(shardrt_transform *self) {
  const int64_t parts = self->count / OF_PART;
  size_t text = (size_t)parts * sizeof(uint64_t);
  if (parts < 1 || parts > CONDITION_PARTS || self->count % OF_PART != 0 || text > self->nbytes)
    return error_set(SHARDRT_EINVAL,
                     "%lld numbers and %zu bytes; it takes two numbers and 8 bytes for each of 1 to %d "
                     "parts",
                     (long long)self->count, self->nbytes, CONDITION_PARTS);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < self->count && code == SHARDRT_OK; i += OF_PART) {
    code = number_whole(self, i + RELATION, "a relation", 0, CONDITION_RELATIONS - 1);
    if (code == SHARDRT_OK) code = number_whole(self, i + KIND, "what is compared with", 0, GIVEN_KINDS - 1);
  }
  if (code != SHARDRT_OK) return code;
  struct condition *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  self->kept = made;
  made->count = (int32_t)parts;
  for (int32_t i = 0; i < made->count && code == SHARDRT_OK; i++) code = set_part(self, i, &text, made);
  return code;
}

static void condition_clear(shardrt_transform *self) {
  alloc_free(self->kept);
}

static int condition_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const int32_t wanted = family(given_kind(self, 0));
  const bool text = in->dtype == SHARDRT_UINT8 && in->ndim == 1;
  *out = (struct form){.dtype = SHARDRT_BOOL};
  if (!text && in->ndim > 0)
    return error_set(SHARDRT_EINVAL,
                     "samples of %s of %d dimensions; it compares one number, or a text: uint8 of one "
                     "dimension",
                     shardrt_dtype_name(in->dtype), (int)in->ndim);
  const int32_t has = text ? CONDITION_TEXT : in->dtype == SHARDRT_BOOL ? BOOLEAN : CONDITION_FLOAT64;
  if (wanted == has) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "it compares with %s; the samples are %s, which are compared with %s", named[wanted],
                   text ? "texts" : shardrt_dtype_name(in->dtype), named[has]);
}

/* Without dimensions there is one box. */
static void condition_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                           const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)self;
  (void)draw;
  (void)out;
  (void)reduce;
  for (int32_t d = 0; d < in->ndim; d++) {
    in->start[d] = 0;
    in->stop[d] = full[d];
  }
}

static bool holds(const shardrt_transform *self, const struct value *in, const void *data) {
  const struct condition_operand value =
      in->ndim > 0 ? condition_text(data, value_bytes(in)) : condition_element(in->dtype, data);
  return condition_holds(self->kept, &value);
}

static int condition_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                         const struct value *in, struct value *out, int64_t *failed) {
  (void)reader;
  (void)draws;
  (void)failed;
  for (int64_t i = 0; i < n; i++) *(uint8_t *)out[i].data = holds(self, &in[i], in[i].data);
  return SHARDRT_OK;
}

static int condition_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                           const struct value *in, const struct value *out, int64_t n, const void *const *from,
                           void *to, int64_t *failed) {
  (void)reader;
  (void)draw;
  (void)out;
  (void)failed;
  for (int64_t i = 0; i < n;) {
    const int64_t together = in->ndim > 0 ? 1 : packed_run(from, i, n, value_bytes(in));
    if (in->ndim > 0)
      ((uint8_t *)to)[i] = holds(self, in, from[i]);
    else
      condition_check(self->kept, in->dtype, from[i], together, (uint8_t *)to + i);
    i += together;
  }
  return SHARDRT_OK;
}

const struct transform_kind condition_kind = {
    .name = "condition",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .is_condition = true,
    .set = condition_set,
    .form = condition_form,
    .need = condition_need,
    .run = condition_run,
    .alike = condition_alike,
    .clear = condition_clear,
};
