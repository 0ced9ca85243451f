/* fold.cu - one axis vanishes: [outer, n, inner] becomes [outer, inner].
 *
 * A thread reads 16 bytes at a time where rows are aligned to that, a few rows ahead, and folds them by pairs. Where an
 * inner axis is left, neighbouring threads take neighbouring columns, and other threads other rows of the same columns;
 * these meet in shared memory, by halves. A team is the threads that make the same elements; a block is one team or
 * several. Of long axes a team takes a chunk, which leaves [outer, chunks, inner] in lanes, to be folded in its turn:
 * so a sum's error grows as the logarithm of n, and few elements of a huge array keep the whole GPU at work. All of
 * this is chosen by the sizes alone, and no result depends on which thread is first: the bits are the same on every
 * GPU. */
#include "compute/cuda/fold.cuh"

#include <type_traits>

namespace {

enum { THREADS = 256 };

/* How it is cut. Rows and columns are counted in units: the elements that a thread reads at a time. */
struct fold_cut {
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
template <class F, int N> __device__ __forceinline__ typename F::kept fold_halves(const typename F::kept *kept) {
  if constexpr (N == 1)
    return kept[0];
  else
    return F::join(fold_halves<F, N / 2>(kept), fold_halves<F, N / 2>(kept + N / 2));
}

/* Joins to what is kept of each of a unit's elements some rows, from `row` on: those that are before `last`, which are
 * all where they are `whole`. `first` is the unit in row 0. */
template <class F, int V, int ROWS, bool whole>
__device__ __forceinline__ void fold_rows(const fold_data &data, const fold_cut &cut, int64_t first, int64_t row,
                                          int64_t last, typename F::kept *kept) {
  typedef typename F::reader::raw raw;
  typename std::conditional<(V > 1), fold_word, raw>::type units[ROWS] = {};
  KERNEL_UNROLL
  for (int r = 0; r < ROWS; r++) {
    const int64_t at = row + r * cut.rows, i = first + at * cut.units;
    if (whole || at < last) {
      if constexpr (V > 1)
        units[r] = ((const fold_word *)data.x)[i];
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
        rows[r] = F::of(data, fold_element<raw>(units[r], k), place);
      else
        rows[r] = F::of(data, units[r], place);
      if (!whole && at >= last) rows[r] = F::none();
    }
    kept[k] = F::join(kept[k], fold_halves<F, ROWS>(rows));
  }
}

/* Threads of one column meet: what they keep is joined by halves, into that of the first. */
template <class F, int V>
__device__ __forceinline__ void fold_meet(const fold_cut &cut, int32_t row, typename F::kept *kept) {
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
static __global__ void __launch_bounds__(THREADS) fold_kernel(const fold_data data, const fold_cut cut) {
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
      fold_rows<F, V, ROWS, true>(data, cut, first, i, last, kept);
    if (i < last) fold_rows<F, V, ROWS, false>(data, cut, first, i, last, kept);
    if constexpr (V > 1)
      for (int32_t k = row; chunk == cut.chunks - 1 && k < cut.tail; k += cut.rows) {
        const int64_t at = cut.n * V + k;
        kept[0] = F::join(kept[0], F::of(data, F::reader::fetch(data, at), (int32_t)at));
      }
  }
  if (cut.rows > 1) fold_meet<F, V>(cut, works ? row : cut.rows, kept);
  if (!works || row > 0) return;
  const int64_t at = outer * cut.chunks + chunk;
  if (!cut.across) {
    F::template put<V>(data, (at * cut.units + unit) * V, kept);
    return;
  }
  const typename F::kept all = fold_halves<F, V>(kept);
  F::template put<1>(data, at, &all);
}

/* ---- launching -------------------------------------------------------------------------------------------------- */

struct fold_call {
  const char *what;
  int32_t device;
  int64_t outer, n, inner;
  fold_data data;
};

int64_t fold_ceiling(int64_t n, int64_t of) {
  return n / of + (n % of > 0);
}

enum {
  DEEP = 64,    /* rows of one thread in a chunk, */
  SHALLOW = 16, /* or down to so few where there are less blocks */
  BLOCKS = 512  /* than keep a GPU at work */
};

/* The columns of few rows are as wide as a block; else rows share it, so that a thread has at least four. */
fold_cut fold_cut_of(const fold_call &call, int32_t v) {
  fold_cut cut = {};
  cut.across = call.inner == 1 && v > 1;
  cut.n = cut.across ? call.n / v : call.n;
  cut.tail = cut.across ? (int32_t)(call.n % v) : 0;
  cut.units = cut.across ? 1 : call.inner / v;
  const int64_t wanted = fold_ceiling(cut.n, 4), widest = wanted > 1 ? THREADS / 2 : THREADS;
  cut.width = (int32_t)fold_ceiling(cut.units, fold_ceiling(cut.units, widest));
  cut.spans = fold_ceiling(cut.units, cut.width);
  const int32_t most = THREADS / cut.width;
  cut.rows = wanted < most ? (int32_t)wanted : most;
  cut.teams = THREADS / (cut.width * cut.rows);
  int32_t deep = DEEP;
  for (; deep > SHALLOW; deep /= 2)
    if (call.outer * cut.spans * fold_ceiling(cut.n, deep * cut.rows) / cut.teams >= BLOCKS) break;
  cut.chunk = deep * cut.rows;
  cut.chunks = fold_ceiling(cut.n, cut.chunk);
  cut.count = call.outer * cut.chunks * cut.spans;
  if (cut.count < cut.teams) cut.teams = (int32_t)cut.count;
  return cut;
}

template <class F, int V> int fold_launch(const fold_call &call, const fold_cut &cut) {
  const int32_t threads = (int32_t)fold_ceiling(cut.teams * cut.width * cut.rows, 32) * 32;
  const int64_t blocks = fold_ceiling(cut.count, cut.teams);
  const cudaStream_t stream = cuda_stream(call.device, ACCELERATOR_MAIN);
  if (cut.rows > 1)
    KERNEL_LAUNCH_TOGETHER((fold_kernel<F, V>), blocks, threads, stream, call.data, cut);
  else
    KERNEL_LAUNCH((fold_kernel<F, V>), blocks, threads, stream, call.data, cut);
  return cuda_launched(call.what, call.device);
}

template <class F> bool fold_is_wide(const fold_call &call) {
  const int64_t v = F::reader::V;
  if (v == 1 || (uintptr_t)call.data.x % 16 != 0 || (uintptr_t)call.data.out % 16 != 0) return false;
  return call.inner > 1 ? call.inner % v == 0 : call.n >= v && (call.n % v == 0 || call.outer == 1);
}

/* What folds what F has left. */
template <class F> struct fold_next;
template <class Op, class Reader> struct fold_next<fold_values<Op, Reader>> {
  typedef fold_values<Op, fold_elements<Reader::LANE, Reader::LANE>> type;
};
template <class Reader> struct fold_next<fold_values<fold_any, Reader>> {
  typedef fold_values<fold_any, fold_truths<4>> type;
};
template <class Reader> struct fold_next<fold_places<Reader>> { typedef fold_places<fold_finds<Reader::LANE>> type; };

template <class F> int fold_run(const fold_call &call) {
  const bool wide = fold_is_wide<F>(call);
  const fold_cut cut = fold_cut_of(call, wide ? (int32_t)F::reader::V : 1);
  int code = cuda_use(call.what, call.device);
  if (code < 0) return code;
  void *scratch = NULL;
  fold_call now = call;
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
    code = wide ? fold_launch<F, F::reader::V>(now, cut) : fold_launch<F, 1>(now, cut);
  else
    code = fold_launch<F, 1>(now, cut);
  if (code == SHARDRT_OK && cut.chunks > 1) {
    fold_call next = call;
    next.n = cut.chunks;
    next.data.x = scratch;
    next.data.where = now.data.out_where;
    next.data.turned = false;
    next.data.truth = ~UINT64_C(0);
    code = fold_run<typename fold_next<F>::type>(next);
  }
  if (scratch != NULL) cuda_scratch_free(call.device, scratch, bytes);
  return code;
}

/* ---- which of them ---------------------------------------------------------------------------------------------- */

template <class Op, int32_t from, int32_t lane> int fold_from(const fold_call &call) {
  return fold_run<fold_values<Op, fold_elements<from, lane>>>(call);
}

/* Sums and products: from the dtypes whose own lanes these are, and bytes as float32, at full speed. */
template <class Op> int fold_number(const fold_call &call) {
  const int32_t from = call.data.from;
  switch (call.data.to) {
  case SHARDRT_INT64:
  case SHARDRT_UINT64:
    if (from == SHARDRT_INT64 || from == SHARDRT_UINT64) return fold_from<Op, SHARDRT_UINT64, SHARDRT_UINT64>(call);
    return fold_run<fold_values<Op, fold_any_elements<SHARDRT_UINT64>>>(call);
  case SHARDRT_FLOAT64:
    if (from == SHARDRT_FLOAT64) return fold_from<Op, SHARDRT_FLOAT64, SHARDRT_FLOAT64>(call);
    return fold_run<fold_values<Op, fold_any_elements<SHARDRT_FLOAT64>>>(call);
  case SHARDRT_FLOAT16:
  case SHARDRT_BFLOAT16:
  case SHARDRT_FLOAT32:
    if (from == SHARDRT_FLOAT32) return fold_from<Op, SHARDRT_FLOAT32, SHARDRT_FLOAT32>(call);
    if (from == SHARDRT_FLOAT16) return fold_from<Op, SHARDRT_FLOAT16, SHARDRT_FLOAT32>(call);
    if (from == SHARDRT_BFLOAT16) return fold_from<Op, SHARDRT_BFLOAT16, SHARDRT_FLOAT32>(call);
    if (from == SHARDRT_UINT8) return fold_from<Op, SHARDRT_UINT8, SHARDRT_FLOAT32>(call);
    return fold_run<fold_values<Op, fold_any_elements<SHARDRT_FLOAT32>>>(call);
  default:
    if (from == SHARDRT_BOOL) return fold_from<Op, SHARDRT_BOOL, SHARDRT_UINT32>(call);
    if (from == SHARDRT_INT8) return fold_from<Op, SHARDRT_INT8, SHARDRT_UINT32>(call);
    if (from == SHARDRT_UINT8) return fold_from<Op, SHARDRT_UINT8, SHARDRT_UINT32>(call);
    if (from == SHARDRT_INT16) return fold_from<Op, SHARDRT_INT16, SHARDRT_UINT32>(call);
    if (from == SHARDRT_UINT16) return fold_from<Op, SHARDRT_UINT16, SHARDRT_UINT32>(call);
    if (from == SHARDRT_INT32 || from == SHARDRT_UINT32) return fold_from<Op, SHARDRT_UINT32, SHARDRT_UINT32>(call);
    return fold_run<fold_values<Op, fold_any_elements<SHARDRT_UINT32>>>(call);
  }
}

/* The bits that tell whether an element is 0: of a float, all but its sign. */
int fold_truth(fold_call call) {
  call.data.truth = ~UINT64_C(0);
  switch (call.data.from) {
  case SHARDRT_BOOL:
  case SHARDRT_INT8:
  case SHARDRT_UINT8:
    return fold_run<fold_values<fold_any, fold_truths<1>>>(call);
  case SHARDRT_FLOAT16:
  case SHARDRT_BFLOAT16:
    call.data.truth >>= 49;
    return fold_run<fold_values<fold_any, fold_truths<2>>>(call);
  case SHARDRT_INT16:
  case SHARDRT_UINT16:
    return fold_run<fold_values<fold_any, fold_truths<2>>>(call);
  case SHARDRT_FLOAT32:
    call.data.truth >>= 33;
    return fold_run<fold_values<fold_any, fold_truths<4>>>(call);
  case SHARDRT_INT32:
  case SHARDRT_UINT32:
    return fold_run<fold_values<fold_any, fold_truths<4>>>(call);
  case SHARDRT_FLOAT64:
    call.data.truth >>= 1;
    return fold_run<fold_values<fold_any, fold_truths<8>>>(call);
  default:
    return fold_run<fold_values<fold_any, fold_truths<8>>>(call);
  }
}

int fold_extreme(const fold_call &call) {
  switch (call.data.from) {
  case SHARDRT_INT8:
    return fold_from<fold_most, SHARDRT_INT8, SHARDRT_INT32>(call);
  case SHARDRT_INT16:
    return fold_from<fold_most, SHARDRT_INT16, SHARDRT_INT32>(call);
  case SHARDRT_INT32:
    return fold_from<fold_most, SHARDRT_INT32, SHARDRT_INT32>(call);
  case SHARDRT_INT64:
    return fold_from<fold_most, SHARDRT_INT64, SHARDRT_INT64>(call);
  case SHARDRT_UINT8:
    return fold_from<fold_most, SHARDRT_UINT8, SHARDRT_UINT32>(call);
  case SHARDRT_UINT16:
    return fold_from<fold_most, SHARDRT_UINT16, SHARDRT_UINT32>(call);
  case SHARDRT_UINT32:
    return fold_from<fold_most, SHARDRT_UINT32, SHARDRT_UINT32>(call);
  case SHARDRT_UINT64:
    return fold_from<fold_most, SHARDRT_UINT64, SHARDRT_UINT64>(call);
  case SHARDRT_FLOAT16:
    return fold_from<fold_most, SHARDRT_FLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_BFLOAT16:
    return fold_from<fold_most, SHARDRT_BFLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT32:
    return fold_from<fold_most, SHARDRT_FLOAT32, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT64:
    return fold_from<fold_most, SHARDRT_FLOAT64, SHARDRT_FLOAT64>(call);
  default: /* the larger of two truths is whether any is */
    return fold_truth(call);
  }
}

template <int32_t from, int32_t lane> int fold_place_from(const fold_call &call) {
  return fold_run<fold_places<fold_elements<from, lane>>>(call);
}

int fold_place(const fold_call &call) {
  switch (call.data.from) {
  case SHARDRT_INT32:
    return fold_place_from<SHARDRT_INT32, SHARDRT_INT32>(call);
  case SHARDRT_INT64:
    return fold_place_from<SHARDRT_INT64, SHARDRT_INT64>(call);
  case SHARDRT_FLOAT16:
    return fold_place_from<SHARDRT_FLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_BFLOAT16:
    return fold_place_from<SHARDRT_BFLOAT16, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT32:
    return fold_place_from<SHARDRT_FLOAT32, SHARDRT_FLOAT32>(call);
  case SHARDRT_FLOAT64:
    return fold_place_from<SHARDRT_FLOAT64, SHARDRT_FLOAT64>(call);
  default:
    return fold_run<fold_places<fold_any_whole>>(call);
  }
}

} // namespace

int cuda_fold(const char *what, int32_t device, const accelerator_fold *fold, const void *x, void *out) {
  if (fold->outer == 0 || fold->n == 0 || fold->inner == 0) return SHARDRT_OK;
  fold_call call = {what, device, fold->outer, fold->n, fold->inner, {}};
  call.data.x = x;
  call.data.from = fold->from;
  call.data.to = fold->to;
  call.data.turned = call.data.turn_back =
      fold->op == SHARDRT_MIN || fold->op == SHARDRT_ALL || fold->op == SHARDRT_ARGMIN;
  call.data.out = call.data.out_where = (int32_t *)out;
  switch (fold->op) {
  case SHARDRT_SUM:
    return fold_number<fold_sum>(call);
  case SHARDRT_PROD:
    return fold_number<fold_prod>(call);
  case SHARDRT_MAX:
  case SHARDRT_MIN:
    return fold_extreme(call);
  case SHARDRT_ANY:
  case SHARDRT_ALL:
    return fold_truth(call);
  default:
    return fold_place(call);
  }
}
