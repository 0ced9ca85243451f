/* series.h - elementary functions of a float32, computed in float64 by what every processor does alike.
 *
 * Each takes a float32's value and gives a float64 within 2^-29.7 of the true one, relatively, unless said otherwise:
 * rounded to float32 that is within 0.52 ulp, and so are NaN, infinities, zeros and denormals as C's own functions
 * have them. Nothing here depends on the processor: there are no tables of a library, no jumps, and products are fused
 * with sums by fma only, so that a loop over one of these becomes vectors and gives the same bits. Processors without
 * that instruction call the C library's.
 *
 * Polynomials come after a reduction of the argument. Those of angles are Taylor series, and the first term left out is
 * the error that is said. Those of e^r - 1, ln(1 + f) and erf have the smallest relative error that their degree can
 * have (Remez' algorithm, by mpmath with 40 digits). */
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

/* x, or the nearer one of -most and most. It is one of float32, of which a vector holds twice as many. */
SIMD_INLINE float series_clamp(float x, float most) {
  return fabsf(x) > most ? copysignf(most, x) : x; /* NaN stays NaN */
}

/* ---- exponentials ----------------------------------------------------------------------------------------------- */

/* e^x = *power + *power * *rest: *power a power of 2, *rest = e^r - 1, |r| <= ln(2) / 2, within 2^-32. Needs
 * |x| <= 700 or NaN. */
SIMD_INLINE void series_exp_parts(double x, double *power, double *rest) {
  const double shifted = fma(x, 0x1.71547652b82fep+0, SERIES_WHOLE); /* by 1 / ln(2) */
  const double r = fma(shifted - SERIES_WHOLE, -0x1.62e42fefa39efp-1, x);
  double p = 0.00019841356810072796;
  p = fma(p, r, 0.0013941038945306783);
  p = fma(p, r, 0.008333402778522155);
  p = fma(p, r, 0.04166635393975739);
  p = fma(p, r, 0.1666666624963701);
  p = fma(p, r, 0.5000000046804767);
  p = fma(p, r, 1.0000000000312657);
  *rest = r * p;
  *power = series_double((series_bits(shifted) << 52) + series_bits(1.0));
}

/* Beyond these ends everything is a float32's 0 or infinity, or does not change 1 any more. */
#define SERIES_EXP_END 110

SIMD_INLINE double series_exp_of(double x) {
  double power, rest;
  series_exp_parts(x, &power, &rest);
  return fma(power, rest, power);
}

SIMD_INLINE double series_exp(float x) {
  return series_exp_of(series_clamp(x, SERIES_EXP_END));
}

/* Of +0 where x is -0: who calls it sees to that. */
SIMD_INLINE double series_expm1_of(double x) {
  double power, rest;
  series_exp_parts(x, &power, &rest);
  return fma(power, rest, power - 1);
}

SIMD_INLINE float series_expm1(float x) {
  const float value = (float)series_expm1_of(series_clamp(x, SERIES_EXP_END));
  return x == 0 ? x : value;
}

SIMD_INLINE double series_logistic(float x) {
  return 1 / (1 + series_exp(-x));
}

SIMD_INLINE float series_tanh(float x) {
  const double y = series_expm1_of(2 * (double)series_clamp(x, 10));
  const float value = (float)(y / (y + 2));
  return x == 0 ? x : value;
}

/* ---- logarithms ------------------------------------------------------------------------------------------------- */

/* x = (1 + *f) 2^*e, 1 + *f from sqrt(1/2) to sqrt(2), 0 < x < infinity. */
SIMD_INLINE void series_log_parts(double x, double *e, double *f) {
  const uint64_t least = series_bits(0x1.6a09e667f3bcdp-1);
  const uint64_t shifted = series_bits(x) - least + ((uint64_t)1024 << 52); /* e + 1024 in front */
  *e = series_double((shifted >> 52) | series_bits(0x1p52)) - (0x1p52 + 1024);
  *f = series_double((shifted & (((uint64_t)1 << 52) - 1)) + least) - 1;
}

/* The logarithm of these: e ln(2) + ln(1 + f), within 2^-30.5 of the latter. */
SIMD_INLINE double series_log_of(double e, double f) {
  double p = 0.06725341873215028;
  p = fma(p, f, -0.11719221858142259);
  p = fma(p, f, 0.1192672301901823);
  p = fma(p, f, -0.12400953429841625);
  p = fma(p, f, 0.1421242594992389);
  p = fma(p, f, -0.16667914427921438);
  p = fma(p, f, 0.2000258195788219);
  p = fma(p, f, -0.25000027197384644);
  p = fma(p, f, 0.3333330149613701);
  p = fma(p, f, -0.4999999966558193);
  p = fma(p, f, 1.0000000006344274);
  return fma(e, 0x1.62e42fefa39efp-1, f * p);
}

/* What a logarithm is where x, its argument less `zero`, is infinite or not above `zero`. */
SIMD_INLINE float series_log_ends(float x, float zero, float inside) {
  return x > zero ? (x < INFINITY ? inside : x) : x == zero ? -INFINITY : NAN;
}

SIMD_INLINE float series_log(float x) {
  double e, f;
  series_log_parts(x, &e, &f);
  return series_log_ends(x, 0, (float)series_log_of(e, f));
}

/* Rounding 1 + x loses what counts where x is small; then e is 0, and f gets it back. */
SIMD_INLINE float series_log1p(float x) {
  const double whole = 1 + (double)x;
  double e, f;
  series_log_parts(whole, &e, &f);
  const float inside = (float)series_log_of(e, f + (e == 0 ? x - (whole - 1) : 0));
  return series_log_ends(x, -1, x == 0 ? x : inside);
}

/* The same within 2^-42, as POW needs. */
SIMD_INLINE double series_log_close(double e, double f) {
  double p = -0.03984918140359076;
  p = fma(p, f, 0.08013384259770955);
  p = fma(p, f, -0.0824027884377419);
  p = fma(p, f, 0.07673019528564069);
  p = fma(p, f, -0.08177670955405632);
  p = fma(p, f, 0.09075745161680804);
  p = fma(p, f, -0.10010623982636245);
  p = fma(p, f, 0.11112598956175779);
  p = fma(p, f, -0.1249961608826504);
  p = fma(p, f, 0.14285656416654766);
  p = fma(p, f, -0.16666673874137808);
  p = fma(p, f, 0.2000000098417066);
  p = fma(p, f, -0.2499999993829905);
  p = fma(p, f, 0.3333333332731528);
  p = fma(p, f, -0.5000000000016149);
  p = fma(p, f, 1.0000000000000584);
  return fma(e, 0x1.62e42fefa39efp-1, f * p);
}

/* x^y. Errors of the logarithm grow by y ln(x) <= 89 or so. */
SIMD_INLINE double series_pow(float x, float y) {
  const float size = fabsf(x);
  const double near = series_clamp(y, 0x1p25F); /* every float32 from 2^24 on is even */
  const double shifted = near + SERIES_WHOLE;
  const bool whole = shifted - SERIES_WHOLE == near;
  double e, f;
  series_log_parts(size, &e, &f);
  const double inside = series_log_close(e, f);
  const double product = y * (size > 0 ? (size < INFINITY ? inside : size) : size == 0 ? -INFINITY : NAN);
  const double above = product < -SERIES_EXP_END ? -SERIES_EXP_END : product;
  const double exponent = above > SERIES_EXP_END ? SERIES_EXP_END : above;
  const double power = series_exp_of((size == 1) & (y == y) ? 0 : exponent);
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
  p = fma(p, z, -1 / 39916800.0);
  p = fma(p, z, 1 / 362880.0);
  p = fma(p, z, -1 / 5040.0);
  p = fma(p, z, 1 / 120.0);
  p = fma(p, z, -1 / 6.0);
  return r * (1 + z * p);
}

/* cos(r), |r| <= pi / 4, with r^12 / 12! left out. */
SIMD_INLINE double series_cos_inside(double r) {
  const double z = r * r;
  double p = -1 / 3628800.0;
  p = fma(p, z, 1 / 40320.0);
  p = fma(p, z, -1 / 720.0);
  p = fma(p, z, 1 / 24.0);
  p = fma(p, z, -1 / 2.0);
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
  p = fma(p, z, -1 / 19.0);
  p = fma(p, z, 1 / 17.0);
  p = fma(p, z, -1 / 15.0);
  p = fma(p, z, 1 / 13.0);
  p = fma(p, z, -1 / 11.0);
  p = fma(p, z, 1 / 9.0);
  p = fma(p, z, -1 / 7.0);
  p = fma(p, z, 1 / 5.0);
  p = fma(p, z, -1 / 3.0);
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

/* x times a polynomial in x^2, within 2^-29.9; from 3.925 on it is 1. */
SIMD_INLINE double series_erf(float x) {
  const double inside = series_clamp(x, 3.925F), z = inside * inside;
  double p = -1.236119361486765e-19;
  p = fma(p, z, 1.8787975003133803e-17);
  p = fma(p, z, -1.335074022634474e-15);
  p = fma(p, z, 5.912613957131843e-14);
  p = fma(p, z, -1.837861375114467e-12);
  p = fma(p, z, 4.2889533336275623e-11);
  p = fma(p, z, -7.866234999486915e-10);
  p = fma(p, z, 1.174472214545243e-08);
  p = fma(p, z, -1.4691617170352137e-07);
  p = fma(p, z, 1.575203623300799e-06);
  p = fma(p, z, -1.469697555413275e-05);
  p = fma(p, z, 0.00012000952297331133);
  p = fma(p, z, -0.0008539134770796465);
  p = fma(p, z, 0.005222932061285856);
  p = fma(p, z, -0.026865434718171665);
  p = fma(p, z, 0.11283763833710457);
  p = fma(p, z, -0.37612634634017383);
  p = fma(p, z, 1.1283791659748648);
  return inside * p;
}

#endif
