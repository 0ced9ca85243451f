/* kinds.h - the kinds of transforms, each in a file of its room. */
#ifndef SHARDRT_TRANSFORM_KINDS_H
#define SHARDRT_TRANSFORM_KINDS_H

#include "transform/transform.h"

extern const struct transform_kind cast_kind;
extern const struct transform_kind center_crop_kind;
extern const struct transform_kind crop_kind;
extern const struct transform_kind decode_image_kind;
extern const struct transform_kind lua_kind;
extern const struct transform_kind normalize_kind;
extern const struct transform_kind one_hot_kind;
extern const struct transform_kind pad_kind;
extern const struct transform_kind random_crop_kind;
extern const struct transform_kind scale_kind;
extern const struct transform_kind window_kind;

#endif
