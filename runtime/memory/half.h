/* half.h - float16 to float32 and back by a processor's own instructions (F16C), which give what element.h gives. */
#ifndef SHARDRT_MEMORY_HALF_H
#define SHARDRT_MEMORY_HALF_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this processor has them, and simd.h's limit allows it. */
bool half_has_instructions(void);

/* n elements, which do not overlap: of uint16_t as float and back. Only where half_has_instructions. */
void half_widen(const void *from, void *to, size_t n);
void half_narrow(const void *from, void *to, size_t n);

#endif
