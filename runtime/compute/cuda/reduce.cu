/* reduce.cu - one axis vanishes: [outer, n, inner] becomes [outer, inner].
 *
 * A thread reads 16 bytes at a time where rows are aligned to that, a few rows ahead, and reduces them by pairs. Where
 * an inner axis is left, neighbouring threads take neighbouring columns, and other threads other rows of the same
 * columns; these meet in shared memory, by halves. A team is the threads that make the same elements; a block is one
 * team or several. Of long axes a team takes a chunk, which leaves [outer, chunks, inner] in lanes, to be reduced in
 * its turn: so a sum's error grows as the logarithm of n, and few elements of a huge array keep the whole GPU at work.
 * All of this is chosen by the sizes alone, and no result depends on which thread is first: the bits are the same on
 * every GPU. */
#include "compute/cuda/reduce.cuh"

#include <type_traits>

namespace {

enum { THREADS = 256 };

/* How it is cut. Rows and columns are counted in units: the elements that a thread reads at a time. */
struct reduce_cut {
  int64_t n;                  /* rows */
  int64_t units;              /* of a row */
  int64_t spans;              /* of a row, each the work of other teams, */
  int64_t chunks;             /* and of the rows */
  int64_t count;              /* teams in all: [outer, chunks, spans] */
  int32_t chunk;              /* rows in one */
  int32_t width, rows, teams; /* of a block: so many teams of so many columns by rows of threads */
  int32_t tail;               /* elements after the last row */
  bool across;                /* a unit's elements are of one row, and become one */
};

/* ---- the kernel ------------------------------------------------------------------------------------------------- */

/* N that are kept become one. */
template <class F, int N> __device__ __forceinline__ typename F::kept reduce_halves(const typename F::kept *kept) {
  if constexpr (N == 1)
    return kept[0];
  else
    return F::join(reduce_halves<F, N / 2>(kept), reduce_halves<F, N / 2>(kept + N / 2));
}

/* Joins to what is kept of each of a unit's elements some rows, from `row` on: those that are before `last`, which are
 * all where they are `whole`. `first` is the unit in row 0. */
template <class F, int V, int ROWS, bool whole>
__device__ __forceinline__ void reduce_rows(const reduce_data &data, const reduce_cut &cut, int64_t first, int64_t row,
                                            int64_t last, typename F::kept *kept) {
  typedef typename F::reader::raw raw;
  typename std::conditional<(V > 1), reduce_word, raw>::type units[ROWS] = {};
  KERNEL_UNROLL
  for (int r = 0; r < ROWS; r++) {
    const int64_t at = row + r * cut.rows, i = first + at * cut.units;
    if (whole || at < last) {
      if constexpr (V > 1)
        units[r] = ((const reduce_word *)data.x)[i];
      else
        units[r] = F::reader::fetch(data, i);
    }
  }
  KERNEL_UNROLL
  for (int k = 0; k < V; k++) {
    typename F::kept rows[ROWS];
    KERNEL_UNROLL
    for (int r = 0; r < ROWS; r++) {
      const int64_t at = row + r * cut.rows;
      const int32_t place = (int32_t)(cut.across ? at * V + k : at);
      if constexpr (V > 1)
        rows[r] = F::of(data, reduce_element<raw>(units[r], k), place);
      else
        rows[r] = F::of(data, units[r], place);
      if (!whole && at >= last) rows[r] = F::none();
    }
    kept[k] = F::join(kept[k], reduce_halves<F, ROWS>(rows));
  }
}

/* Threads of one column meet: what they keep is joined by halves, into that of the first. */
template <class F, int V>
__device__ __forceinline__ void reduce_meet(const reduce_cut &cut, int32_t row, typename F::kept *kept) {
  __shared__ typename F::kept room[V * THREADS];
  const int32_t thread = (int32_t)threadIdx.x;
  KERNEL_UNROLL
  for (int k = 0; k < V; k++) room[k * THREADS + thread] = kept[k];
  for (int32_t left = cut.rows; left > 1;) {
    const int32_t half = (left + 1) / 2;
    __syncthreads();
    if (row + half < left) KERNEL_UNROLL
    for (int k = 0; k < V; k++) {
      const int32_t own = k * THREADS + thread;
      room[own] = kept[k] = F::join(kept[k], room[own + half * cut.width]);
    }
    left = half;
  }
}

template <class F, int V>
static __global__ void __launch_bounds__(THREADS) reduce_kernel(const reduce_data data, const reduce_cut cut) {
  constexpr int ROWS = V > 1 ? 4 : 8;
  uint32_t rest = threadIdx.x, column = 0;
  int32_t row = 0;
  if (cut.width > 1) {
    column = rest % (uint32_t)cut.width;
    rest /= (uint32_t)cut.width;
  }
  if (cut.rows > 1) {
    row = (int32_t)(rest % (uint32_t)cut.rows);
    rest /= (uint32_t)cut.rows;
  }
  const int32_t own = (int32_t)rest; /* team of the block's */
  const int64_t team = (int64_t)blockIdx.x * cut.teams + own;
  int64_t outer = team, chunk = 0, unit = column;
  if (cut.spans > 1) {
    unit += outer % cut.spans * cut.width;
    outer /= cut.spans;
  }
  if (cut.chunks > 1) {
    chunk = outer % cut.chunks;
    outer /= cut.chunks;
  }
  const bool works = own < cut.teams && team < cut.count && unit < cut.units;
  typename F::kept kept[V];
  KERNEL_UNROLL
  for (int k = 0; k < V; k++) kept[k] = F::none();
  if (works) {
    const int64_t first = outer * cut.n * cut.units + unit, end = (chunk + 1) * cut.chunk;
    const int64_t last = end < cut.n ? end : cut.n;
    int64_t i = chunk * cut.chunk + row;
    for (; i + (ROWS - 1) * cut.rows < last; i += ROWS * cut.rows)
      reduce_rows<F, V, ROWS, true>(data, cut, first, i, last, kept);
    if (i < last) reduce_rows<F, V, ROWS, false>(data, cut, first, i, last, kept);
    if constexpr (V > 1)
      for (int32_t k = row; chunk == cut.chunks - 1 && k < cut.tail; k += cut.rows) {
        const int64_t at = cut.n * V + k;
        kept[0] = F::join(kept[0], F::of(data, F::reader::fetch(data, at), (int32_t)at));
      }
  }
  if (cut.rows > 1) reduce_meet<F, V>(cut, works ? row : cut.rows, kept);
  if (!works || row > 0) return;
  const int64_t at = outer * cut.chunks + chunk;
  if (!cut.across) {
    F::template put<V>(data, (at * cut.units + unit) * V, kept);
    return;
  }
  const typename F::kept all = reduce_halves<F, V>(kept);
  F::template put<1>(data, at, &all);
}

/* ---- launching -------------------------------------------------------------------------------------------------- */

struct reduce_call {
  const char *what;
  int32_t device;
  int64_t outer, n, inner;
  reduce_data data;
};

int64_t reduce_ceiling(int64_t n, int64_t of) {
  return n / of + (n % of > 0);
}

enum {
  DEEP = 64,    /* rows of one thread in a chunk, */
  SHALLOW = 16, /* or down to so few where there are less blocks */
  BLOCKS = 512  /* than keep a GPU at work */
};

/* The columns of few rows are as wide as a block; else rows share it, so that a thread has at least four. */
reduce_cut reduce_cut_of(const reduce_call &call, int32_t v) {
  reduce_cut cut = {};
  cut.across = call.inner == 1 && v > 1;
  cut.n = cut.across ? call.n / v : call.n;
  cut.tail = cut.across ? (int32_t)(call.n % v) : 0;
  cut.units = cut.across ? 1 : call.inner / v;
  const int64_t wanted = reduce_ceiling(cut.n, 4), widest = wanted > 1 ? THREADS / 2 : THREADS;
  cut.width = (int32_t)reduce_ceiling(cut.units, reduce_ceiling(cut.units, widest));
  cut.spans = reduce_ceiling(cut.units, cut.width);
  const int32_t most = THREADS / cut.width;
  cut.rows = wanted < most ? (int32_t)wanted : most;
  cut.teams = THREADS / (cut.width * cut.rows);
  int32_t deep = DEEP;
  for (; deep > SHALLOW; deep /= 2)
    if (call.outer * cut.spans * reduce_ceiling(cut.n, deep * cut.rows) / cut.teams >= BLOCKS) break;
  cut.chunk = deep * cut.rows;
  cut.chunks = reduce_ceiling(cut.n, cut.chunk);
  cut.count = call.outer * cut.chunks * cut.spans;
  if (cut.count < cut.teams) cut.teams = (int32_t)cut.count;
  return cut;
}

template <class F, int V> int reduce_launch(const reduce_call &call, const reduce_cut &cut) {
  const int32_t threads = (int32_t)reduce_ceiling(cut.teams * cut.width * cut.rows, 32) * 32;
  const int64_t blocks = reduce_ceiling(cut.count, cut.teams);
  const cudaStream_t stream = cuda_stream(call.device, ACCELERATOR_MAIN);
  if (cut.rows > 1)
    KERNEL_LAUNCH_TOGETHER((reduce_kernel<F, V>), blocks, threads, stream, call.data, cut);
  else
    KERNEL_LAUNCH((reduce_kernel<F, V>), blocks, threads, stream, call.data, cut);
  return cuda_launched(call.what, call.device);
}

template <class F> bool reduce_is_wide(const reduce_call &call) {
  const int64_t v = F::reader::V;
  if (v == 1 || (uintptr_t)call.data.x % 16 != 0 || (uintptr_t)call.data.out % 16 != 0) return false;
  return call.inner > 1 ? call.inner % v == 0 : call.n >= v && (call.n % v == 0 || call.outer == 1);
}

/* What reduces what F has left. */
template <class F> struct reduce_next;
template <class Op, class Reader> struct reduce_next<reduce_values<Op, Reader>> {
  typedef reduce_values<Op, reduce_elements<Reader::LANE, Reader::LANE>> type;
};
template <class Reader> struct reduce_next<reduce_values<reduce_any, Reader>> {
  typedef reduce_values<reduce_any, reduce_truths<4>> type;
};
template <class Reader> struct reduce_next<reduce_places<Reader>> {
  typedef reduce_places<reduce_finds<Reader::LANE>> type;
};

template <class F> int reduce_run(const reduce_call &call) {
  const bool wide = reduce_is_wide<F>(call);
  const reduce_cut cut = reduce_cut_of(call, wide ? (int32_t)F::reader::V : 1);
  int code = cuda_use(call.what, call.device);
  if (code < 0) return code;
  void *scratch = NULL;
  reduce_call now = call;
  const size_t left = (size_t)(call.outer * cut.chunks * call.inner);
  const size_t lanes = (left * sizeof(typename F::reader::L) + 15) / 16 * 16, bytes = lanes + left * sizeof(int32_t);
  if (cut.chunks > 1) {
    code = cuda_scratch(call.what, call.device, bytes, &scratch);
    if (code < 0) return code;
    now.data.lanes = true;
    now.data.turn_back = false;
    now.data.out = scratch;
    now.data.out_where = (int32_t *)((char *)scratch + lanes);
  }
  if constexpr (F::reader::V > 1)
    code = wide ? reduce_launch<F, F::reader::V>(now, cut) : reduce_launch<F, 1>(now, cut);
  else
    code = reduce_launch<F, 1>(now, cut);
  if (code == SHARDRT_OK && cut.chunks > 1) {
    reduce_call next = call;
    next.n = cut.chunks;
    next.data.x = scratch;
    next.data.where = now.data.out_where;
    next.data.turned = false;
    next.data.truth = ~UINT64_C(0);
    code = reduce_run<typename reduce_next<F>::type>(next);
  }
  if (scratch != NULL) cuda_scratch_free(call.device, scratch, bytes);
  return code;
}

/* ---- which of them ---------------------------------------------------------------------------------------------- */

template <class Op, int32_t from, int32_t lane> int reduce_from(const reduce_call &call) {
  return reduce_run<reduce_values<Op, reduce_elements<from, lane>>>(call);
}

/* Sums and products: from the dtypes whose own lanes these are, and bytes as float32, at full speed. */
template <class Op> int reduce_number(const reduce_call &call) {
  const int32_t from = call.data.from;
  switch (call.data.to) {
  case SHARDRT_INT64:
  case SHARDRT_UINT64:
    if (from == SHARDRT_INT64 || from == SHARDRT_UINT64) return reduce_from<Op, SHARDRT_UINT64, SHARDRT_UINT64>(call);
    return reduce_run<reduce_values<Op, reduce_any_elements<SHARDRT_UINT64>>>(call);
  case SHARDRT_FLOAT64:
    if (from == SHARDRT_FLOAT64) return reduce_from<Op, SHARDRT_FLOAT64, SHARDRT_FLOAT64>(call);
    return reduce_run<reduce_values<Op, reduce_any_elements<SHARDRT_FLOAT64>>>(call);
  case SHARDRT_FLOAT16:
  case SHARDRT_BFLOAT16:
  case SHARDRT_FLOAT32:
    if (from == SHARDRT_FLOAT32) return reduce_from<Op, SHARDRT_FLOAT32, SHARDRT_FLOAT32>(call);
    if (from == SHARDRT_FLOAT16) return reduce_from<Op, SHARDRT_FLOAT16, SHARDRT_FLOAT32>(call);
    if (from == SHARDRT_BFLOAT16) return reduce_from<Op, SHARDRT_BFLOAT16, SHARDRT_FLOAT32>(call);
    if (from == SHARDRT_UINT8) return reduce_from<Op, SHARDRT_UINT8, SHARDRT_FLOAT32>(call);
    return reduce_run<reduce_values<Op, reduce_any_elements<SHARDRT_FLOAT32>>>(call);
  default:
    if (from == SHARDRT_BOOL) return reduce_from<Op, SHARDRT_BOOL, SHARDRT_UINT32>(call);
    if (from == SHARDRT_INT8) return reduce_from<Op, SHARDRT_INT8, SHARDRT_UINT32>(call);
    if (from == SHARDRT_UINT8) return reduce_from<Op, SHARDRT_UINT8, SHARDRT_UINT32>(call);
    if (from == SHARDRT_INT16) return reduce_from<Op, SHARDRT_INT16, SHARDRT_UINT32>(call);
    if (from == SHARDRT_UINT16) return reduce_from<Op, SHARDRT_UINT16, SHARDRT_UINT32>(call);
    if (from == SHARDRT_INT32 || from == SHARDRT_UINT32) return reduce_from<Op, SHARDRT_UINT32, SHARDRT_UINT32>(call);
    return reduce_run<reduce_values<Op, reduce_any_elements<SHARDRT_UINT32>>>(call);
  }
}

/* The bits that tell whether an element is 0: of a float, all but its sign. */
int reduce_truth(reduce_call call) {
  call.data.truth = ~UINT64_C(0);
  switch (call.data.from) {
  case SHARDRT_BOOL:
  case SHARDRT_INT8:
  case SHARDRT_UINT8:
    return reduce_run<reduce_values<reduce_any, reduce_truths<1>>>(call);
  case SHARDRT_FLOAT16:
  case SHARDRT_BFLOAT16:
    call.data.truth >>= 49;
    return reduce_run<reduce_values<reduce_any, reduce_truths<2>>>(call);
  case SHARDRT_INT16:
  case SHARDRT_UINT16:
    return reduce_run<reduce_values<reduce_any, reduce_truths<2>>>(call);
  case SHARDRT_FLOAT32:
    call.data.truth >>= 33;
    return reduce_run<reduce_values<reduce_any, reduce_truths<4>>>(call);
  case SHARDRT_INT32:
  case SHARDRT_UINT32:
    return reduce_run<reduce_values<reduce_any, reduce_truths<4>>>(call);
  case SHARDRT_FLOAT64:
    call.data.truth >>= 1;
    return reduce_run<reduce_values<reduce_any, reduce_truths<8>>>(call);
  default:
    return reduce_run<reduce_values<reduce_any, reduce_truths<8>>>(call);
  }
}

int reduce_extreme(const reduce_call &call) {
  switch (call.data.from) {
  case SHARDRT_INT8:
    return reduce_from<reduce_most, SHARDRT_INT8, SHARDRT_INT32>(call);
  case SHARDRT_INT16:
    return reduce_from<reduce_most, SHARDRT_INT16, SHARDRT_INT32>(call);
  case SHARDRT_INT32:
    return reduce_from<reduce_most, SHARDRT_INT32, SHARDRT_INT32>(call);
  case SHARDRT_INT64:
    return reduce_from<reduce_most, SHARDRT_INT64, SHARDRT_INT64>(call);
  case SHARDRT_UINT8:
    return reduce_from<reduce_most, SHARDRT_UINT8, SHARDRT_UINT32>(call);
  case SHARDRT_UINT16:
    return reduce_from<reduce_most, SHARDRT_UINT16, SHARDRT_UINT32>(call);
  case SHARDRT_UINT32:
    return reduce_from<reduce_most, SHARDRT_UINT32, SHARDRT_UINT32>(call);
  case SHARDRT_UINT64:
    return reduce_from<reduce_most, SHARDRT_UINT64, SHARDRT_UINT64>(call);
  case SHARDRT_FLOAT16:
    return reduce_from<reduce_most, SHARDRT_FLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_BFLOAT16:
    return reduce_from<reduce_most, SHARDRT_BFLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT32:
    return reduce_from<reduce_most, SHARDRT_FLOAT32, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT64:
    return reduce_from<reduce_most, SHARDRT_FLOAT64, SHARDRT_FLOAT64>(call);
  default: /* the larger of two truths is whether any is */
    return reduce_truth(call);
  }
}

template <int32_t from, int32_t lane> int reduce_place_from(const reduce_call &call) {
  return reduce_run<reduce_places<reduce_elements<from, lane>>>(call);
}

int reduce_place(const reduce_call &call) {
  switch (call.data.from) {
  case SHARDRT_INT32:
    return reduce_place_from<SHARDRT_INT32, SHARDRT_INT32>(call);
  case SHARDRT_INT64:
    return reduce_place_from<SHARDRT_INT64, SHARDRT_INT64>(call);
  case SHARDRT_FLOAT16:
    return reduce_place_from<SHARDRT_FLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_BFLOAT16:
    return reduce_place_from<SHARDRT_BFLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT32:
    return reduce_place_from<SHARDRT_FLOAT32, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT64:
    return reduce_place_from<SHARDRT_FLOAT64, SHARDRT_FLOAT64>(call);
  default:
    return reduce_run<reduce_places<reduce_any_whole>>(call);
  }
}

} // namespace

int cuda_reduce(const char *what, int32_t device, const struct accelerator_reduction *reduction, const void *x,
                void *out) {
  if (reduction->outer == 0 || reduction->n == 0 || reduction->inner == 0) return SHARDRT_OK;
  reduce_call call = {what, device, reduction->outer, reduction->n, reduction->inner, {}};
  call.data.x = x;
  call.data.from = reduction->from;
  call.data.to = reduction->to;
  call.data.turned = call.data.turn_back =
      reduction->op == SHARDRT_MIN || reduction->op == SHARDRT_ALL || reduction->op == SHARDRT_ARGMIN;
  call.data.out = call.data.out_where = (int32_t *)out;
  switch (reduction->op) {
  case SHARDRT_SUM:
    return reduce_number<reduce_sum>(call);
  case SHARDRT_PROD:
    return reduce_number<reduce_prod>(call);
  case SHARDRT_MAX:
  case SHARDRT_MIN:
    return reduce_extreme(call);
  case SHARDRT_ANY:
  case SHARDRT_ALL:
    return reduce_truth(call);
  default:
    return reduce_place(call);
  }
}
