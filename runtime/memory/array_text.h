/* array_text.h - an array in words. */
#ifndef SHARDRT_MEMORY_ARRAY_TEXT_H
#define SHARDRT_MEMORY_ARRAY_TEXT_H

#include "base/text.h"
#include "shardrt.h"

/* The bit of an array's number that says that the number comes from the array's value. */
#define ARRAY_NUMBER_BY_VALUE (UINT64_C(1) << 63)

/* "float32 {64, 128} on NamedSharding(...)". */
void array_add_text(const shardrt_array *array, struct text *text);

/* "array 12", or "array of value 93f0…" where that is its number. */
void array_add_number(const shardrt_array *array, struct text *text);

#endif
