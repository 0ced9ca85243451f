/* kinds.h - the kinds of transforms, each in a file of its room. */
#ifndef SHARDRT_TRANSFORM_KINDS_H
#define SHARDRT_TRANSFORM_KINDS_H

#include "transform/transform.h"

/* Every kind's name, in one place. */
#define TRANSFORM_KINDS(X)                                                                                             \
  X(cast)                                                                                                              \
  X(center_crop)                                                                                                       \
  X(condition)                                                                                                         \
  X(crop)                                                                                                              \
  X(decode_audio)                                                                                                      \
  X(decode_image)                                                                                                      \
  X(decode_npy)                                                                                                        \
  X(decode_raw)                                                                                                        \
  X(decode_text)                                                                                                       \
  X(lua)                                                                                                               \
  X(normalize)                                                                                                         \
  X(one_hot)                                                                                                           \
  X(pad)                                                                                                               \
  X(random_crop)                                                                                                       \
  X(random_flip)                                                                                                       \
  X(random_resized_crop)                                                                                               \
  X(resize)                                                                                                            \
  X(scale)                                                                                                             \
  X(tokenize)                                                                                                          \
  X(transpose)                                                                                                         \
  X(window)

#define TRANSFORM_KIND(name) extern const struct transform_kind name##_kind;
TRANSFORM_KINDS(TRANSFORM_KIND)
#undef TRANSFORM_KIND

#endif
