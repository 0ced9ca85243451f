/* number.h - the numbers that a transform was given, checked. They come from Lua words that know what they mean, but
 * also from C programs. */
#ifndef SHARDRT_TRANSFORM_NUMBER_H
#define SHARDRT_TRANSFORM_NUMBER_H

#include "transform/transform.h"

/* EINVAL unless there are `count` numbers. */
int number_expect(const shardrt_transform *self, int64_t count);
/* EINVAL unless the i-th is a whole number from lowest to highest, which a double holds exactly; `what` it is. */
int number_whole(const shardrt_transform *self, int64_t i, const char *what, int64_t lowest, int64_t highest);
/* EINVAL unless the i-th is a dtype's code. */
int number_dtype(const shardrt_transform *self, int64_t i);
/* EINVAL unless the i-th is finite. */
int number_finite(const shardrt_transform *self, int64_t i, const char *what);

enum { NUMBER_LAST_AXIS = -1 }; /* an axis: the last one there is */
/* The axis that the i-th number means in samples of ndim dimensions: EINVAL where there is none. */
int number_axis(const shardrt_transform *self, int64_t i, int32_t ndim, int32_t *axis);

#endif
