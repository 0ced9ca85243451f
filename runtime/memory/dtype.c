/* dtype.c - the element types: names, sizes, and the two 16-bit floats that C has no type for. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "shardrt.h"

static const struct {
  const char *name;
  size_t size;
} dtypes[SHARDRT_DTYPE_COUNT] = {
    [SHARDRT_BOOL] = {"bool", 1},       [SHARDRT_INT8] = {"int8", 1},         [SHARDRT_INT16] = {"int16", 2},
    [SHARDRT_INT32] = {"int32", 4},     [SHARDRT_INT64] = {"int64", 8},       [SHARDRT_UINT8] = {"uint8", 1},
    [SHARDRT_UINT16] = {"uint16", 2},   [SHARDRT_UINT32] = {"uint32", 4},     [SHARDRT_UINT64] = {"uint64", 8},
    [SHARDRT_FLOAT16] = {"float16", 2}, [SHARDRT_BFLOAT16] = {"bfloat16", 2}, [SHARDRT_FLOAT32] = {"float32", 4},
    [SHARDRT_FLOAT64] = {"float64", 8},
};

static bool known(int32_t dtype) {
  return dtype >= 0 && dtype < SHARDRT_DTYPE_COUNT;
}

const char *shardrt_dtype_name(int32_t dtype) {
  return known(dtype) ? dtypes[dtype].name : NULL;
}

size_t shardrt_dtype_size(int32_t dtype) {
  return known(dtype) ? dtypes[dtype].size : 0;
}

int32_t shardrt_dtype_from_name(const char *name) {
  for (int32_t dtype = 0; dtype < SHARDRT_DTYPE_COUNT; dtype++)
    if (name != NULL && strcmp(dtypes[dtype].name, name) == 0) return dtype;
  return error_set(SHARDRT_EINVAL,
                   "there is no dtype \"%s\"; there are bool, int8, int16, int32, int64, uint8, uint16, uint32, "
                   "uint64, float16, bfloat16, float32 and float64",
                   name != NULL ? name : "");
}

/* The 16-bit formats are IEEE 754 interchange formats in all but width: a sign, an exponent, a fraction; float16 has 5
 * and 10 bits (binary16), bfloat16 8 and 7 (the upper half of binary32). */
enum { HALF_FRACTION = 10, BRAIN_FRACTION = 7, SIGN_BIT = 15 };

static int lowest_exponent(int fraction_bits) { /* of a normal number */
  int exponent_bits = SIGN_BIT - fraction_bits;
  return 2 - (1 << (exponent_bits - 1));
}

static double widen_bits(uint16_t bits, int fraction_bits) {
  int field = (bits & 0x7FFF) >> fraction_bits;
  int fraction = bits & ((1 << fraction_bits) - 1);
  int highest = (1 << (SIGN_BIT - fraction_bits)) - 1;
  double magnitude;
  if (field == highest)
    magnitude = fraction != 0 ? NAN : INFINITY;
  else if (field == 0)
    magnitude = ldexp(fraction, lowest_exponent(fraction_bits) - fraction_bits);
  else
    magnitude = ldexp(fraction + (1 << fraction_bits), field - 1 + lowest_exponent(fraction_bits) - fraction_bits);
  return (bits >> SIGN_BIT) != 0 ? -magnitude : magnitude;
}

/* Rounds to the nearest, ties to even; beyond the largest number it is infinity. */
static uint16_t narrow(double value, int fraction_bits) {
  uint16_t sign = (uint16_t)((signbit(value) != 0) << SIGN_BIT);
  uint16_t infinity = (uint16_t)(((1 << (SIGN_BIT - fraction_bits)) - 1) << fraction_bits);
  if (isnan(value)) return sign | infinity | (uint16_t)(1 << (fraction_bits - 1));
  if (isinf(value)) return sign | infinity;
  int lowest = lowest_exponent(fraction_bits);
  int exponent;
  frexp(value, &exponent);
  exponent -= 1; /* now 2^exponent <= |value| < 2^(exponent + 1) */
  if (exponent < lowest || value == 0) exponent = lowest;
  if (exponent > -lowest + 1) return sign | infinity;
  /* In units of the last place the value is below 2^(fraction_bits + 1), and rounding up to that carries into the
   * exponent as it should; a subnormal one is below 2^fraction_bits and leaves the exponent's field 0. */
  int units = (int)nearbyint(ldexp(fabs(value), fraction_bits - exponent));
  int bits = ((exponent - lowest) << fraction_bits) + units;
  return sign | (bits < infinity ? (uint16_t)bits : infinity);
}

double shardrt_float16_to_double(uint16_t bits) {
  return widen_bits(bits, HALF_FRACTION);
}

uint16_t shardrt_float16_from_double(double value) {
  return narrow(value, HALF_FRACTION);
}

double shardrt_bfloat16_to_double(uint16_t bits) {
  return widen_bits(bits, BRAIN_FRACTION);
}

uint16_t shardrt_bfloat16_from_double(double value) {
  return narrow(value, BRAIN_FRACTION);
}
