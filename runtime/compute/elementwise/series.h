/* series.h - elementary functions of a float32, computed in float64 by what every processor does alike.
 *
 * Each takes a float32's value and gives a float64 within 2^-29 of the true one, relatively, unless said otherwise:
 * rounded to float32 that is within 0.52 ulp, and so are NaN, infinities, zeros and denormals as C's own functions
 * have them. Nothing here depends on the processor: there are no tables of a library, no fused products, no jumps, so
 * that a loop over one of these becomes vectors and gives the same bits.
 *
 * The polynomials are the functions' own Taylor series, after a reduction of the argument; the first term left out is
 * the error that is said. Only erf has fitted ones (interpolation in Chebyshev's nodes, by mpmath with 40 digits). */
#ifndef SHARDRT_COMPUTE_ELEMENTWISE_SERIES_H
#define SHARDRT_COMPUTE_ELEMENTWISE_SERIES_H

#include <math.h>
#include <string.h>

#include "base/simd.h"

SIMD_INLINE uint64_t series_bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

SIMD_INLINE double series_double(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* x + SERIES_WHOLE is rounded to a whole number, |x| < 2^51, which are the sum's low bits (two's complement). */
#define SERIES_WHOLE 0x1.8p52

SIMD_INLINE double series_clamp(double x, double least, double most) {
  const double above = x < least ? least : x; /* NaN stays NaN */
  return above > most ? most : above;
}

/* ---- exponentials ----------------------------------------------------------------------------------------------- */

/* e^x = *power + *power * *rest: *power a power of 2, *rest = e^r - 1, |r| <= ln(2) / 2, with r^9 / 10! left out. Needs
 * |x| <= 700 or NaN. */
SIMD_INLINE void series_exp_parts(double x, double *power, double *rest) {
  const double shifted = x * 0x1.71547652b82fep+0 + SERIES_WHOLE; /* by 1 / ln(2) */
  const double r = x - (shifted - SERIES_WHOLE) * 0x1.62e42fefa39efp-1;
  double p = 1 / 362880.0;
  p = p * r + 1 / 40320.0;
  p = p * r + 1 / 5040.0;
  p = p * r + 1 / 720.0;
  p = p * r + 1 / 120.0;
  p = p * r + 1 / 24.0;
  p = p * r + 1 / 6.0;
  p = p * r + 1 / 2.0;
  *rest = r + r * r * p;
  *power = series_double((series_bits(shifted) << 52) + series_bits(1.0));
}

/* Beyond these ends everything is a float32's 0 or infinity, or does not change 1 any more. */
#define SERIES_EXP_END 110.0

SIMD_INLINE double series_exp(double x) {
  double power, rest;
  series_exp_parts(series_clamp(x, -SERIES_EXP_END, SERIES_EXP_END), &power, &rest);
  return power + power * rest;
}

SIMD_INLINE double series_expm1(double x) {
  double power, rest;
  series_exp_parts(series_clamp(x, -SERIES_EXP_END, SERIES_EXP_END), &power, &rest);
  return x == 0 ? x : (power - 1) + power * rest;
}

SIMD_INLINE double series_logistic(double x) {
  return 1 / (1 + series_exp(-x));
}

SIMD_INLINE double series_tanh(double x) {
  const double y = series_expm1(2 * series_clamp(x, -20, 20));
  return y / (y + 2);
}

/* ---- logarithms ------------------------------------------------------------------------------------------------- */

/* ln(x), where x - 1 rounds to x_1 or x to 1 + x_1. With x = m 2^e, m from sqrt(1/2) to sqrt(2), it is
 * e ln(2) + 2 atanh((m - 1) / (m + 1)); z^8 / 17 is left out, 2^-45. */
SIMD_INLINE double series_log_of(double x, double x_1) {
  const uint64_t bits = series_bits(x), least = series_bits(0x1.6a09e667f3bcdp-1);
  const uint64_t shifted = bits - least + ((uint64_t)1024 << 52); /* e + 1024 in front */
  const double e = series_double((shifted >> 52) | series_bits(0x1p52)) - (0x1p52 + 1024);
  const double m_1 =
      e == 0 ? x_1 : series_double(bits - (shifted & (UINT64_C(0xFFF) << 52)) + ((uint64_t)1024 << 52)) - 1;
  const double s = m_1 / (m_1 + 2), z = s * s;
  double p = 2 / 15.0;
  p = p * z + 2 / 13.0;
  p = p * z + 2 / 11.0;
  p = p * z + 2 / 9.0;
  p = p * z + 2 / 7.0;
  p = p * z + 2 / 5.0;
  p = p * z + 2 / 3.0;
  const double part = s * (2 + z * p), inside = e == 0 ? part : e * 0x1.62e42fefa39efp-1 + part; /* -0 stays */
  return x > 0 ? (x < INFINITY ? inside : x) : x == 0 ? -INFINITY : NAN;
}

/* Within 2^-42, as POW needs. */
SIMD_INLINE double series_log(double x) {
  return series_log_of(x, x - 1);
}

SIMD_INLINE double series_log1p(double x) {
  return series_log_of(1 + x, x);
}

/* x^y. Errors of the logarithm grow by y ln(x) <= 89 or so. */
SIMD_INLINE double series_pow(double x, double y) {
  const double size = fabs(x), near = series_clamp(y, -0x1p25, 0x1p25); /* every float32 from 2^24 on is even */
  const double shifted = near + SERIES_WHOLE;
  const bool whole = shifted - SERIES_WHOLE == near;
  const double exponent = y * series_log(size);
  const double power = series_exp((size == 1) & (y == y) ? 0 : exponent);
  const uint64_t odd = series_bits(shifted) << 63; /* where y is whole */
  const double value = series_double(series_bits(power) ^ (odd & series_bits(x)));
  const double beside = (x < 0) & (x > -INFINITY) ? NAN : power;
  return (y == 0) | (x == 1) ? 1 : whole ? value : beside;
}

/* ---- angles ----------------------------------------------------------------------------------------------------- */

/* Up to here two words of pi reduce an angle; series_turn does it beyond. */
#define SERIES_ANGLE_END 0x1p21
#define SERIES_PI_HIGH   0x1.921fb544p+1 /* 32 bits: times a half of a whole number below 2^21 it is exact */
#define SERIES_PI_LOW    0x1.0b4611a626331p-33

/* x - k pi */
SIMD_INLINE double series_less_pi(double x, double k) {
  return (x - k * SERIES_PI_HIGH) - k * SERIES_PI_LOW;
}

/* sin(r), |r| <= pi / 2, with r^15 / 15! left out. */
SIMD_INLINE double series_sin_inside(double r) {
  const double z = r * r;
  double p = 1 / 6227020800.0;
  p = p * z - 1 / 39916800.0;
  p = p * z + 1 / 362880.0;
  p = p * z - 1 / 5040.0;
  p = p * z + 1 / 120.0;
  p = p * z - 1 / 6.0;
  return r * (1 + z * p);
}

/* cos(r), |r| <= pi / 4, with r^12 / 12! left out. */
SIMD_INLINE double series_cos_inside(double r) {
  const double z = r * r;
  double p = -1 / 3628800.0;
  p = p * z + 1 / 40320.0;
  p = p * z - 1 / 720.0;
  p = p * z + 1 / 24.0;
  p = p * z - 1 / 2.0;
  return 1 + z * p;
}

/* sin(x) and cos(x) = sin(x + pi / 2), |x| < SERIES_ANGLE_END: x = k pi + r, and the sign is that of (-1)^k. */
SIMD_INLINE double series_sin(double x) {
  const double shifted = x * 0x1.45f306dc9c883p-2 + SERIES_WHOLE;
  const double sine = series_sin_inside(series_less_pi(x, shifted - SERIES_WHOLE));
  return series_double(series_bits(sine) ^ series_bits(shifted) << 63);
}

SIMD_INLINE double series_cos(double x) {
  const double shifted = (x * 0x1.45f306dc9c883p-2 + 0.5) + SERIES_WHOLE;
  const double sine = series_sin_inside(series_less_pi(x, (shifted - SERIES_WHOLE) - 0.5));
  return series_double(series_bits(sine) ^ series_bits(shifted) << 63);
}

/* The tangent of k pi / 2 + r. */
SIMD_INLINE double series_tan_inside(double r, bool odd) {
  const double sine = series_sin_inside(r), cosine = series_cos_inside(r);
  return (odd ? -cosine : sine) / (odd ? sine : cosine);
}

SIMD_INLINE double series_tan(double x) {
  const double shifted = x * 0x1.45f306dc9c883p-1 + SERIES_WHOLE;
  const double r = series_less_pi(x, (shifted - SERIES_WHOLE) * 0.5);
  return series_tan_inside(r, (series_bits(shifted) & 1) != 0);
}

/* The same of a float32 from 2^21 on, one at a time: x / pi modulo 2, times 2^63, from the bits of 1 / pi that matter
 * (Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983). 64 bits are kept; no
 * float32 is closer to a multiple of pi / 2 than 2^-30, which leaves 32 or more. */
SIMD_INLINE uint64_t series_turn(float x) {
  static const uint32_t inverse[] = {0,          0x517cc1b7, 0x27220a94, 0xfe13abe8, 0xfa9a6ee0,
                                     0x6db14acc, 0x9e21c820, 0xff28b1d5, 0xef5de2b0};
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint64_t mantissa = (bits & 0x7FFFFFU) | 0x800000U; /* |x| = mantissa * 2^(first - 31) */
  const uint32_t first = ((bits >> 23) & 0xFFU) - (127 + 23) + 31, shift = first % 32;
  const uint32_t *word = inverse + first / 32;
  const uint64_t front = (uint64_t)word[0] << 32 | word[1], behind = (uint64_t)word[2] << 32 | word[3];
  const uint64_t window = shift == 0 ? front : front << shift | behind >> (64 - shift);
  const uint64_t next = (behind << shift) >> 32;
  const uint64_t turn = mantissa * window + (mantissa * next >> 32);
  return bits >> 31 != 0 ? -turn : turn;
}

/* A turn as an angle. */
SIMD_INLINE double series_angle(uint64_t turn) {
  return (double)(int64_t)turn * 0x1.921fb54442d18p-62;
}

/* sin(x + half pi / 2) */
SIMD_INLINE double series_sin_far(float x, uint64_t half) {
  if (!(fabsf(x) < INFINITY)) return NAN;
  const uint64_t turn = series_turn(x) + (half << 62), nearest = (turn + (UINT64_C(1) << 62)) >> 63;
  const double sine = series_sin_inside(series_angle(turn - (nearest << 63)));
  return nearest != 0 ? -sine : sine;
}

SIMD_INLINE double series_tan_far(float x) {
  if (!(fabsf(x) < INFINITY)) return NAN;
  const uint64_t turn = series_turn(x), nearest = (turn + (UINT64_C(1) << 61)) >> 62;
  return series_tan_inside(series_angle(turn - (nearest << 62)), (nearest & 1) != 0);
}

/* The angle of the point (x, y): with t the smaller part over the larger, atan(t), or pi / 4 + atan((t - 1) / (t + 1))
 * for t > tan(pi / 8); z^11 / 23 is left out, 2^-32. */
SIMD_INLINE double series_atan2(double y, double x) {
  const double ax = fabs(x), ay = fabs(y), more = ax > ay ? ax : ay, less = ax > ay ? ay : ax;
  const bool steep = less > more * 0x1.a827999fcef32p-2, same = ax == ay; /* also both 0, or both infinite */
  const double over = steep ? less - more : less, under = steep ? less + more : more;
  const double u = same ? 0 : over / under, z = u * u;
  double p = 1 / 21.0;
  p = p * z - 1 / 19.0;
  p = p * z + 1 / 17.0;
  p = p * z - 1 / 15.0;
  p = p * z + 1 / 13.0;
  p = p * z - 1 / 11.0;
  p = p * z + 1 / 9.0;
  p = p * z - 1 / 7.0;
  p = p * z + 1 / 5.0;
  p = p * z - 1 / 3.0;
  const double part = u * (1 + z * p) + (same ? (ax > 0 ? M_PI_4 : 0) : steep ? M_PI_4 : 0);
  const double acute = ay > ax ? M_PI_2 - part : part;
  const double angle = (series_bits(x) >> 63) != 0 ? M_PI - acute : acute;
  const double value = series_double(series_bits(angle) | (series_bits(y) & series_bits(-0.0)));
  return (x != x) | (y != y) ? NAN : value;
}

/* ---- quotients -------------------------------------------------------------------------------------------------- */

/* floor(x / y): the quotient of two float32s differs from a whole number that it is not by more than float64 rounds by,
 * as far as float32 has room for halves. */
SIMD_INLINE double series_floor_divide(double x, double y) {
  const double quotient = x / y;
  const bool below = ((x < 0) != (y < 0)) & (x != 0);
  const double finite = fabs(y) < INFINITY ? floor(quotient) : below & (y == y) ? -1 : quotient;
  return (fabs(x) < INFINITY) | (y == 0) ? finite : NAN;
}

/* x - floor(x / y) y, exact where the quotient is below 2^28 (28 + 24 bits are a float64's) and y is finite; else, and
 * by 0, series_remainder_far. */
SIMD_INLINE double series_remainder(double x, double y) {
  const double rest = x - floor(x / y) * y;
  return rest == 0 ? x * 0 : rest;
}

SIMD_INLINE bool series_is_far(double x, double y) {
  return !((fabs(x / y) < 0x1p28) & (fabs(y) < INFINITY));
}

SIMD_INLINE double series_remainder_far(double x, double y) {
  const double rest = fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* ---- the error function ----------------------------------------------------------------------------------------- */

/* Below 1 a polynomial in x^2, times x: within 2^-34. Above, 1 - exp(-p(|x|)), p fitted to -ln(erfc) from 1 to 4:
 * within 2^-30; from 4 on it is 1. */
SIMD_INLINE double series_erf(double x) {
  const double z = x * x, t = series_clamp(fabs(x), 0, 4);
  double p = -9.667044571486996e-06;
  p = p * z + 0.00011265959025606609;
  p = p * z - 0.0008484080405535107;
  p = p * z + 0.005221031807858023;
  p = p * z - 0.026865430727670243;
  p = p * z + 0.11283782495236845;
  p = p * z - 0.3761263846802871;
  p = p * z + 1.1283791670615435;
  double q = -1.6371514145936436e-06;
  q = q * t + 4.605804268918978e-05;
  q = q * t - 0.0005968056256607798;
  q = q * t + 0.004759596293266265;
  q = q * t - 0.026421136005663898;
  q = q * t + 0.11008008294882024;
  q = q * t + 0.631826051559163;
  q = q * t + 1.130233434841994;
  q = q * t - 0.00032013804967769883;
  const double tail = 1 - series_exp(-q);
  const double far = series_double(series_bits(tail) | (series_bits(x) & series_bits(-0.0)));
  return fabs(x) < 1 ? x * p : far;
}

#endif
