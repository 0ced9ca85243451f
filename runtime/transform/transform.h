/* transform.h - what happens to samples on their way from the storage to a batch.
 *
 * A transform takes one value to another. A kind of transform is one const table of functions in a file of its own, and
 * one line in the list in kinds.h. Transforms stand in chains (chain.h), which pass values from one to the next. They
 * never change after they are made, and are used by many threads at once. */
#ifndef SHARDRT_TRANSFORM_TRANSFORM_H
#define SHARDRT_TRANSFORM_TRANSFORM_H

#include <stdatomic.h>

#include "dataset/value.h"
#include "storage/local/reader.h"
#include "transform/draw.h"

/* What is known of a value before the sample is: -1 is a size that is not. */
struct form {
  int32_t dtype;
  int32_t ndim;
  int64_t shape[SHARDRT_MAX_NDIM];
};

struct transform_kind {
  const char *name; /* "crop" */
  int32_t stage;    /* READER_DECODE or READER_TRANSFORM: where its time is counted */
  bool draws;       /* it uses random numbers: samples are not alike */
  bool pieces;      /* `run` writes whatever box of its output it is asked for; otherwise it is always asked for all */
  /* Checks the numbers and the bytes that a new transform was given, and may keep something in self->kept; NULL: there
   * is nothing to check. EINVAL. */
  int (*set)(shardrt_transform *self);
  /* What comes out where `in` comes in. EINVAL where it cannot be used on that: says what it takes. Also called with
   * the shape of a sample, to know that of its output. */
  int (*form)(const shardrt_transform *self, const struct form *in, struct form *out);
  /* For kinds whose output has a shape that only the data tells (a decoder): that of one sample. `in` is whole. */
  int (*measure)(const shardrt_transform *self, struct reader *reader, const struct value *in, int64_t *shape);
  /* As transform_most; NULL: -1. */
  int64_t (*most)(const shardrt_transform *self, const int64_t *shape);
  /* Which box of an input of shape `full` is needed for the box `out` of the output, and (where *reduce comes back
   * larger than 1) to which part of its size an image may be reduced when it is decoded; it may come at any reduction
   * up to that. NULL: all of the input is. */
  void (*need)(const shardrt_transform *self, const struct draw *draw, const int64_t *full, const shardrt_box *out,
               shardrt_box *in, int32_t *reduce);
  /* Transforms n values: in[i] holds at least what was said to be needed; the box out[i] (start, shape, full, dtype are
   * set) is to be written to out[i].data, packed, which is no part of any input. A decoder finds in out[i].reduce how
   * far it may reduce, sets it to how far it did, changes shape and start to what it made, and writes no more than was
   * asked for. On
   * failure *failed is which one, and the message says what is wrong with it, not where it came from. */
  int (*run)(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
             const struct value *in, struct value *out, int64_t *failed);
  /* In place of `run`, for kinds that need to know of a sample only its boxes and its draw: transforms n samples of
   * which these are the same (`in` and `out`, whose data is not set), from the packed boxes from[0] … from[n - 1] to
   * packed boxes one behind the other at `to`. Where `draws`, n is 1. */
  int (*alike)(const shardrt_transform *self, struct reader *reader, const struct draw *draw, const struct value *in,
               const struct value *out, int64_t n, const void *const *from, void *to, int64_t *failed);
  /* A number that is equal for equal transforms in all processes. NULL: by its numbers and bytes. */
  uint64_t (*transform_hash)(const shardrt_transform *self);
  bool larger;       /* `alike` takes pieces that hold more than what `need` says; others are given just that */
  bool is_condition; /* `kept` is the struct condition that its output is the outcome of */
  bool relabels;     /* what `need` says is needed is the output as it stands, but for where it is in the whole */
  /* Gives self->kept back; NULL: there is nothing. */
  void (*clear)(shardrt_transform *self);
};

struct shardrt_transform {
  const struct transform_kind *kind;
  _Atomic int32_t holders;
  int64_t count; /* of numbers */
  double *numbers;
  size_t nbytes;
  uint8_t *bytes;
  void *kept; /* the kind's own */
};

shardrt_transform *transform_retain(shardrt_transform *self);

/* Of a transform that writes as many elements as it takes, in one dimension (`form` says -1): the most that it can make
 * of an input of this shape. `run` finds room for those, and sets shape[0] and full[0] of out[i] to what it wrote. In a
 * list such a transform ends a map; what stands behind it is a map of that one (map.c). -1 of any other transform. */
static inline int64_t transform_most(const shardrt_transform *self, const int64_t *shape) {
  return self->kind->most != NULL ? self->kind->most(self, shape) : -1;
}

#endif
