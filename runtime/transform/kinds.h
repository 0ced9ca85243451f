/* kinds.h - the kinds of transforms, each in a file of its room. */
#ifndef SHARDRT_TRANSFORM_KINDS_H
#define SHARDRT_TRANSFORM_KINDS_H

#include "transform/transform.h"

extern const struct transform_kind crop_kind;
extern const struct transform_kind lua_kind;

#endif
