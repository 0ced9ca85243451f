/* order_key.h - elements as whole numbers in the same order, which the host and devices sort. */
#ifndef SHARDRT_COMPUTE_REARRANGE_ORDER_KEY_H
#define SHARDRT_COMPUTE_REARRANGE_ORDER_KEY_H

#include "base/simd.h"
#include "shardrt.h"

/* How the bits of a dtype's elements are read. */
struct order_kind {
  int32_t bytes;
  bool is_signed;
  bool is_total;     /* whether -0 is less than 0 */
  uint64_t infinity; /* of floats: its bits; 0: it is of whole numbers */
  uint64_t flip;     /* all bits of an element, for a descending order; else 0 */
};

/* Of elements with these bits: whole numbers that are less where the elements are. NaN is above all else, and -0 is 0,
 * where the order is not total. */
SIMD_INLINE uint64_t order_key(struct order_kind kind, uint64_t bits) {
  const uint64_t sign = (uint64_t)1 << (8 * kind.bytes - 1), all = sign | (sign - 1);
  uint64_t key = kind.is_signed ? bits ^ sign : bits;
  if (kind.infinity != 0) {
    const uint64_t size = bits & ~sign;
    if (size > kind.infinity)
      key = all;
    else if (size == 0 && !kind.is_total)
      key = sign;
    else
      key = (bits & sign) != 0 ? ~bits & all : bits | sign;
  }
  return key ^ kind.flip;
}

#endif
