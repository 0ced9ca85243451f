/* number_text.h - lists of numbers as people write them. */
#ifndef SHARDRT_BASE_NUMBER_TEXT_H
#define SHARDRT_BASE_NUMBER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes "process 1", "processes 0, 2, 5-9" for the numbers i < n with chosen[i]: `one` or `many`, then the numbers,
 * runs of three and more as a range. A list that does not fit into `size` bytes ends with "…". Returns its length. */
size_t number_text(char *out, size_t size, const char *one, const char *many, const bool *chosen, int64_t n);
/* The same of the numbers first <= i < end. */
size_t number_text_range(char *out, size_t size, const char *one, const char *many, const bool *chosen, int64_t first,
                         int64_t end);

#endif
