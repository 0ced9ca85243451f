/* lanes.cuh - elements of every dtype as lanes in a kernel's registers: memory/element.h's conversions, one element
 * or a few at a time. A lane is a C type of int32, uint32, int64, uint64, float32 or float64. */
#ifndef SHARDRT_COMPUTE_CUDA_LANES_CUH
#define SHARDRT_COMPUTE_CUDA_LANES_CUH

#include "device/launch.h"
#include "memory/element.h"

/* The C type of a dtype's elements. */
template <int32_t dtype> struct lanes_of;
#define LANES_TYPE(dtype, c_type)                                                                                      \
  template <> struct lanes_of<SHARDRT_##dtype> { typedef c_type type; };
LANES_TYPE(BOOL, uint8_t)
LANES_TYPE(INT8, int8_t)
LANES_TYPE(INT16, int16_t)
LANES_TYPE(INT32, int32_t)
LANES_TYPE(INT64, int64_t)
LANES_TYPE(UINT8, uint8_t)
LANES_TYPE(UINT16, uint16_t)
LANES_TYPE(UINT32, uint32_t)
LANES_TYPE(UINT64, uint64_t)
LANES_TYPE(FLOAT16, uint16_t)
LANES_TYPE(BFLOAT16, uint16_t)
LANES_TYPE(FLOAT32, float)
LANES_TYPE(FLOAT64, double)
template <int32_t dtype> using lanes_type = typename lanes_of<dtype>::type;

/* An element of dtype A as one of B, by way of lanes where no conversion of element.h goes there. */
template <int32_t A, int32_t B> struct lanes_cast {
  enum : int32_t { BETWEEN = ELEMENT_LANE_BETWEEN(A, B, sizeof(lanes_type<A>), sizeof(lanes_type<B>)) };
  static __host__ __device__ __forceinline__ lanes_type<B> of(lanes_type<A> x) {
    return lanes_cast<BETWEEN, B>::of(lanes_cast<A, BETWEEN>::of(x));
  }
};
template <int32_t A> struct lanes_cast<A, A> {
  static __host__ __device__ __forceinline__ lanes_type<A> of(lanes_type<A> x) {
    return (lanes_type<A>)(A == SHARDRT_BOOL ? x != 0 : x);
  }
};
#define LANES_CAST(A, B, from_t, to_t, expression)                                                                     \
  template <> struct lanes_cast<SHARDRT_##A, SHARDRT_##B> {                                                            \
    static __host__ __device__ __forceinline__ to_t of(from_t x) { return (to_t)(expression); }                        \
  };
ELEMENT_TO_LANES(LANES_CAST)
ELEMENT_FROM_LANES(LANES_CAST)
ELEMENT_ROUNDED_ONCE(LANES_CAST)

/* Runs `action` with `constant`, a constant of the compiler, for the dtype: LANES_DTYPE(dtype, D, f<D>(x)). */
#define LANES_CASE(code, constant, ...)                                                                                \
  case code: {                                                                                                         \
    constexpr int32_t constant = code;                                                                                 \
    __VA_ARGS__;                                                                                                       \
  } break;
#define LANES_DTYPE(dtype, constant, ...)                                                                              \
  switch (dtype) {                                                                                                     \
    LANES_CASE(SHARDRT_BOOL, constant, __VA_ARGS__)                                                                    \
    LANES_CASE(SHARDRT_INT8, constant, __VA_ARGS__)                                                                    \
    LANES_CASE(SHARDRT_INT16, constant, __VA_ARGS__)                                                                   \
    LANES_CASE(SHARDRT_INT32, constant, __VA_ARGS__)                                                                   \
    LANES_CASE(SHARDRT_INT64, constant, __VA_ARGS__)                                                                   \
    LANES_CASE(SHARDRT_UINT8, constant, __VA_ARGS__)                                                                   \
    LANES_CASE(SHARDRT_UINT16, constant, __VA_ARGS__)                                                                  \
    LANES_CASE(SHARDRT_UINT32, constant, __VA_ARGS__)                                                                  \
    LANES_CASE(SHARDRT_UINT64, constant, __VA_ARGS__)                                                                  \
    LANES_CASE(SHARDRT_FLOAT16, constant, __VA_ARGS__)                                                                 \
    LANES_CASE(SHARDRT_BFLOAT16, constant, __VA_ARGS__)                                                                \
    LANES_CASE(SHARDRT_FLOAT32, constant, __VA_ARGS__)                                                                 \
    LANES_CASE(SHARDRT_FLOAT64, constant, __VA_ARGS__)                                                                 \
  default:                                                                                                             \
    break;                                                                                                             \
  }

/* Bytes of an element. */
static __device__ __forceinline__ uint32_t lanes_size(int32_t dtype) {
  uint32_t size = 1;
  LANES_DTYPE(dtype, D, size = sizeof(lanes_type<D>))
  return size;
}

/* Of an array of `dtype` at `data`, the element `at` as a lane of dtype L. */
template <int32_t L>
static __device__ __forceinline__ lanes_type<L> lanes_load(int32_t dtype, const void *data, int64_t at) {
  lanes_type<L> lane = 0;
  LANES_DTYPE(dtype, D, lane = lanes_cast<D, L>::of(((const lanes_type<D> *)data)[at]))
  return lane;
}

template <int32_t L>
static __device__ __forceinline__ void lanes_store(int32_t dtype, void *data, int64_t at, lanes_type<L> lane) {
  LANES_DTYPE(dtype, D, ((lanes_type<D> *)data)[at] = lanes_cast<L, D>::of(lane))
}

/* Four neighbours at a time, from and to addresses that are aligned to four elements (16 bytes are enough). */
enum { LANES_FOUR = 4 };

template <class T> struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) lanes_four { T element[LANES_FOUR]; };

static inline bool lanes_are_aligned(const void *data, size_t size) {
  return (uintptr_t)data % (size < 4 ? 4 * size : 16) == 0;
}

/* `at` is the first of the four, a multiple of 4. */
template <int32_t L>
static __device__ __forceinline__ void lanes_load_four(int32_t dtype, const void *data, int64_t at,
                                                       lanes_type<L> *lanes) {
  LANES_DTYPE(dtype, D, {
    const lanes_four<lanes_type<D>> four = *(const lanes_four<lanes_type<D>> *)((const lanes_type<D> *)data + at);
    for (int k = 0; k < LANES_FOUR; k++) lanes[k] = lanes_cast<D, L>::of(four.element[k]);
  })
}

template <int32_t L>
static __device__ __forceinline__ void lanes_store_four(int32_t dtype, void *data, int64_t at,
                                                        const lanes_type<L> *lanes) {
  LANES_DTYPE(dtype, D, {
    lanes_four<lanes_type<D>> four;
    for (int k = 0; k < LANES_FOUR; k++) four.element[k] = lanes_cast<L, D>::of(lanes[k]);
    *(lanes_four<lanes_type<D>> *)((lanes_type<D> *)data + at) = four;
  })
}

#endif
