#include "memory/array_text.h"

#include <inttypes.h>

void array_add_text(const shardrt_array *array, struct text *text) {
  text_add(text, "%s ", shardrt_dtype_name(shardrt_array_dtype(array)));
  text_add_shape(text, shardrt_array_ndim(array), shardrt_array_shape(array));
  text_add(text, " on %s", shardrt_sharding_text(shardrt_array_sharding(array)));
}

void array_add_number(const shardrt_array *array, struct text *text) {
  const uint64_t number = shardrt_array_number(array);
  if ((number & ARRAY_NUMBER_BY_VALUE) != 0)
    text_add(text, "array of value %016" PRIx64, number);
  else
    text_add(text, "array %" PRIu64, number);
}
