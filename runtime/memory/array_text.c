#include "memory/array_text.h"

void array_add_text(const shardrt_array *array, struct text *text) {
  text_add(text, "%s ", shardrt_dtype_name(shardrt_array_dtype(array)));
  text_add_shape(text, shardrt_array_ndim(array), shardrt_array_shape(array));
  text_add(text, " on %s", shardrt_sharding_text(shardrt_array_sharding(array)));
}
