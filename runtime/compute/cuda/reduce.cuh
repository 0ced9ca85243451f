/* reduce.cuh - what becomes of elements that are reduced: how they are read, joined and left, for
 * compute/cuda/reduce.cu.
 *
 * Of the operations, MIN is MAX between elements whose order was turned (a float's sign, all of a whole number's bits),
 * and ALL is ANY of what is not so: the same kernels do both. */
#ifndef SHARDRT_COMPUTE_CUDA_REDUCE_CUH
#define SHARDRT_COMPUTE_CUDA_REDUCE_CUH

#include "compute/cuda/lanes.cuh"

namespace {

/* All that a kernel reads and leaves. */
struct reduce_data {
  const void *x;
  const int32_t *where; /* of what chunks found */
  int32_t from;         /* dtype of x, where the kernel is for any */
  int32_t to;           /* dtype of out, unless `lanes` */
  bool turned;          /* what is read is turned first, */
  bool turn_back;       /* and what is left is turned back */
  bool lanes;           /* what is left is reduced again */
  uint64_t truth;       /* bits of an element of which any makes it true */
  void *out;
  int32_t *out_where;
};

/* ---- bits ------------------------------------------------------------------------------------------------------- */

template <int bytes> struct reduce_bits;
template <> struct reduce_bits<1> { typedef uint8_t type; };
template <> struct reduce_bits<2> { typedef uint16_t type; };
template <> struct reduce_bits<4> { typedef uint32_t type; };
template <> struct reduce_bits<8> { typedef uint64_t type; };
template <class T> using reduce_bits_of = typename reduce_bits<(int)sizeof(T)>::type;

template <class To, class From> __device__ __forceinline__ To reduce_as(From x) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* 16 bytes, which are read and written at once. */
struct alignas(16) reduce_word {
  uint64_t half[2];
};

template <class T> __device__ __forceinline__ T reduce_element(const reduce_word &word, int k) {
  const int each = 8 / (int)sizeof(T), size = 8 * (int)sizeof(T);
  return reduce_as<T>((reduce_bits_of<T>)(word.half[k / each] >> (k % each * size)));
}

/* V neighbours, where `at` is a multiple of V. */
template <int V, class T> __device__ __forceinline__ void reduce_write(void *out, int64_t at, const T *x) {
  const int each = 8 / (int)sizeof(T), size = 8 * (int)sizeof(T);
  T *to = (T *)out + at;
  if constexpr (V * sizeof(T) < sizeof(reduce_word)) {
    KERNEL_UNROLL
    for (int k = 0; k < V; k++) to[k] = x[k];
  } else {
    KERNEL_UNROLL
    for (int first = 0; first < V; first += 2 * each) {
      reduce_word word = {{0, 0}};
      KERNEL_UNROLL
      for (int k = 0; k < 2 * each; k++)
        word.half[k / each] |= (uint64_t)reduce_as<reduce_bits_of<T>>(x[first + k]) << (k % each * size);
      *(reduce_word *)(to + first) = word;
    }
  }
}

/* V lanes as elements of T, each by `cast`. */
template <int V, class T, class L, class Cast>
__device__ __forceinline__ void reduce_write_cast(void *out, int64_t at, const L *lanes, Cast cast) {
  T elements[V];
  KERNEL_UNROLL
  for (int k = 0; k < V; k++) elements[k] = cast(lanes[k]);
  reduce_write<V>(out, at, elements);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------ */

template <class L> constexpr bool reduce_is_float = (L)0.5F != (L)0;

/* The other way round in order. NaN stays NaN. */
template <class L> __device__ __forceinline__ L reduce_turned(L x, bool turned) {
  if constexpr (reduce_is_float<L>)
    return turned ? -x : x;
  else
    return turned ? (L)~x : x;
}

template <class L> __device__ __forceinline__ L reduce_lowest() {
  if constexpr (reduce_is_float<L>)
    return -(L)INFINITY;
  else
    return (L) ~(L)0 < (L)0 ? reduce_as<L>((reduce_bits_of<L>)((reduce_bits_of<L>)1 << (8 * sizeof(L) - 1))) : (L)0;
}

/* Lanes as elements of `to`. (64-bit ones are elements as they are.) */
template <int V, class L>
__device__ __forceinline__ void reduce_put(int32_t to, void *out, int64_t at, const L *lanes) {
  if constexpr (sizeof(L) == 8) {
    reduce_write<V>(out, at, lanes);
  } else if constexpr (reduce_is_float<L>) {
    if (to == SHARDRT_FLOAT32)
      reduce_write<V>(out, at, lanes);
    else if (to == SHARDRT_FLOAT16)
      reduce_write_cast<V, uint16_t>(out, at, lanes, lanes_cast<SHARDRT_FLOAT32, SHARDRT_FLOAT16>::of);
    else
      reduce_write_cast<V, uint16_t>(out, at, lanes, lanes_cast<SHARDRT_FLOAT32, SHARDRT_BFLOAT16>::of);
  } else {
    if (to == SHARDRT_INT32 || to == SHARDRT_UINT32)
      reduce_write<V>(out, at, lanes);
    else if (to == SHARDRT_INT16 || to == SHARDRT_UINT16)
      reduce_write_cast<V, uint16_t>(out, at, lanes, [](L x) { return (uint16_t)x; });
    else if (to == SHARDRT_BOOL)
      reduce_write_cast<V, uint8_t>(out, at, lanes, [](L x) { return (uint8_t)(x != 0); });
    else
      reduce_write_cast<V, uint8_t>(out, at, lanes, [](L x) { return (uint8_t)x; });
  }
}

/* ---- what is read: V elements in a unit, `raw` until they are made lanes ----------------------------------------- */

template <int32_t from, int32_t lane> struct reduce_elements {
  typedef lanes_type<from> raw;
  typedef lanes_type<lane> L;
  enum { V = 16 / sizeof(raw), LANE = lane };
  static __device__ __forceinline__ raw fetch(const reduce_data &data, int64_t i) { return ((const raw *)data.x)[i]; }
  static __device__ __forceinline__ L read(const reduce_data &, raw x) { return lanes_cast<from, lane>::of(x); }
  static __device__ __forceinline__ int32_t where(raw, int32_t at) { return at; }
};

/* Of any dtype, one after the other. */
template <int32_t lane> struct reduce_any_elements {
  typedef lanes_type<lane> raw, L;
  enum { V = 1, LANE = lane };
  static __device__ __forceinline__ raw fetch(const reduce_data &data, int64_t i) {
    return lanes_load<lane>(data.from, data.x, i);
  }
  static __device__ __forceinline__ L read(const reduce_data &, raw x) { return x; }
  static __device__ __forceinline__ int32_t where(raw, int32_t at) { return at; }
};

/* Whole numbers of any dtype, in their order, as int64. */
struct reduce_any_whole : reduce_any_elements<SHARDRT_INT64> {
  static __device__ __forceinline__ int64_t read(const reduce_data &data, int64_t x) {
    return data.from == SHARDRT_UINT64 ? (int64_t)((uint64_t)x ^ UINT64_C(1) << 63) : x;
  }
};

/* All of a lane's bits, or none, by whether an element of so many bytes is true. */
template <int bytes> struct reduce_truths {
  typedef typename reduce_bits<bytes>::type raw;
  typedef uint32_t L;
  enum { V = 16 / sizeof(raw), LANE = SHARDRT_UINT32 };
  static __device__ __forceinline__ raw fetch(const reduce_data &data, int64_t i) { return ((const raw *)data.x)[i]; }
  static __device__ __forceinline__ L read(const reduce_data &data, raw x) {
    return (x & (raw)data.truth) != 0 ? ~UINT32_C(0) : 0;
  }
};

/* Lanes, and where each was found. */
template <int32_t lane> struct reduce_finds {
  typedef lanes_type<lane> L;
  struct raw {
    L value;
    int32_t where;
  };
  enum { V = 1, LANE = lane };
  static __device__ __forceinline__ raw fetch(const reduce_data &data, int64_t i) {
    return {((const L *)data.x)[i], data.where[i]};
  }
  static __device__ __forceinline__ L read(const reduce_data &, const raw &x) { return x.value; }
  static __device__ __forceinline__ int32_t where(const raw &x, int32_t) { return x.where; }
};

/* ---- operations: `kept` is what elements become, `none` is kept of no elements ----------------------------------- */

struct reduce_sum {
  enum { TURNS = 0 };
  /* -0 plus anything is the same; 0 plus -0 is not. */
  template <class L> static __device__ __forceinline__ L none() { return reduce_is_float<L> ? (L)-0.0F : (L)0; }
  template <class L> static __device__ __forceinline__ L join(L a, L b) { return a + b; }
};

struct reduce_prod {
  enum { TURNS = 0 };
  template <class L> static __device__ __forceinline__ L none() { return (L)1; }
  template <class L> static __device__ __forceinline__ L join(L a, L b) { return a * b; }
};

struct reduce_most {
  enum { TURNS = 1 };
  template <class L> static __device__ __forceinline__ L none() { return reduce_lowest<L>(); }
  template <class L> static __device__ __forceinline__ L join(L a, L b) {
    if constexpr (reduce_is_float<L>) { /* as compute/reduce/reduce_loops.c */
      const bool negative = reduce_as<reduce_bits_of<L>>(b) >> (8 * sizeof(L) - 1) != 0;
      return ((b > a) | (b != b) | ((b == a) & !negative)) ? b : a;
    } else {
      return b > a ? b : a;
    }
  }
};

struct reduce_any {
  enum { TURNS = 1 };
  template <class L> static __device__ __forceinline__ L none() { return 0; }
  template <class L> static __device__ __forceinline__ L join(L a, L b) { return a | b; }
};

template <class Op, class Reader> struct reduce_values {
  typedef Reader reader;
  typedef typename Reader::L kept;
  static __device__ __forceinline__ kept none() { return Op::template none<kept>(); }
  static __device__ __forceinline__ kept join(kept a, kept b) { return Op::template join<kept>(a, b); }
  static __device__ __forceinline__ kept of(const reduce_data &data, typename Reader::raw x, int32_t) {
    return reduce_turned(Reader::read(data, x), Op::TURNS && data.turned);
  }
  template <int V> static __device__ __forceinline__ void put(const reduce_data &data, int64_t at, const kept *x) {
    kept lanes[V];
    KERNEL_UNROLL
    for (int k = 0; k < V; k++) lanes[k] = reduce_turned(x[k], Op::TURNS && data.turn_back);
    if (data.lanes)
      reduce_write<V>(data.out, at, lanes);
    else
      reduce_put<V>(data.to, data.out, at, lanes);
  }
};

/* The largest, and where it stands: of equals the first, a NaN before all else. */
template <class Reader> struct reduce_places {
  typedef Reader reader;
  typedef typename Reader::L L;
  struct kept {
    L value;
    int32_t where;
  };
  static __device__ __forceinline__ kept none() { return {reduce_lowest<L>(), INT32_MAX}; }
  static __device__ __forceinline__ kept join(kept a, kept b) {
    const bool nan = b.value != b.value, other = a.value != a.value;
    const bool equal = (a.value == b.value) | (nan & other), better = (b.value > a.value) | (nan & !other);
    return better | (equal & (b.where < a.where)) ? b : a;
  }
  static __device__ __forceinline__ kept of(const reduce_data &data, typename Reader::raw x, int32_t at) {
    return {reduce_turned(Reader::read(data, x), data.turned), Reader::where(x, at)};
  }
  template <int V> static __device__ __forceinline__ void put(const reduce_data &data, int64_t at, const kept *x) {
    L values[V];
    int32_t where[V];
    KERNEL_UNROLL
    for (int k = 0; k < V; k++) {
      values[k] = x[k].value;
      where[k] = x[k].where;
    }
    if (data.lanes) reduce_write<V>(data.out, at, values);
    reduce_write<V>(data.out_where, at, where);
  }
};

} // namespace

#endif
