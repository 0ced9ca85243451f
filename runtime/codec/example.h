/* example.h - tf.train.Example, the protocol buffer that TFRecord files usually hold:
 * https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/{example,feature}.proto
 * in the wire format of https://protobuf.dev/programming-guides/encoding/. Read in place: nothing is copied. */
#ifndef SHARDRT_CODEC_EXAMPLE_H
#define SHARDRT_CODEC_EXAMPLE_H

#include "shardrt.h"

enum { EXAMPLE_BYTES = 1, EXAMPLE_FLOATS = 2, EXAMPLE_INTS = 3 }; /* the field numbers of Feature's one-of */

/* One feature of one example: a list of byte strings, of float32 or of int64. */
struct example_feature {
  const uint8_t *name;
  size_t name_bytes;
  int32_t kind;        /* EXAMPLE_…; 0: the feature is there and holds no list */
  const uint8_t *list; /* the list's message */
  size_t list_bytes;
};

/* Goes through an example's features: *at is 0 at first. 1, or 0 after the last one, or EFORMAT. */
int example_next(const uint8_t *data, size_t bytes, size_t *at, struct example_feature *out);
/* The feature of a name: 1, or 0 where there is none (where it stands twice, the last one, as protocol buffers do).
 * EFORMAT, of example_next too: also messages that stand in pieces, which protocol buffers would merge. */
int example_find(const uint8_t *data, size_t bytes, const char *name, struct example_feature *out);

/* Whether this is a tf.train.SequenceExample, whose context reads as an example's features; EFORMAT. */
int example_is_sequence(const uint8_t *data, size_t bytes, bool *out);

/* How many values the list has; EFORMAT. */
int64_t example_count(const struct example_feature *feature);
/* The values: `out` has room for example_count of them (float, int64_t). Needs a count that succeeded. */
void example_floats(const struct example_feature *feature, float *out);
void example_ints(const struct example_feature *feature, int64_t *out);
/* The byte string of a list of one; needs a count of 1. */
void example_bytes(const struct example_feature *feature, const uint8_t **out, size_t *bytes);

#endif
