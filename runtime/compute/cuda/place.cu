/* place.cu - strided boxes of elements, copied by the device that wants them: transposes, slices, pads, one array
 * behind another, and the boxes of messages. `from` may be another GPU's memory.
 *
 * What is asked for is first made simple on the host: in bytes, written from the front to the back, without loops that
 * are one, and in units as wide as everything allows (16 bytes at best), so that elements of any size are the same
 * thing. Then the way is chosen: one run is a copy, rows that lie askew a copy in two dimensions; where what is
 * neighbours in the result is far apart in the source and the other way round, tiles go through shared memory, so that
 * both sides see whole lines; else each thread works out where its units stand. */
#include <stdlib.h>

#include "compute/cuda/divisor.cuh"
#include "compute/cuda/unit.cuh"

enum {
  LOOPS = SHARDRT_MAX_NDIM + 1, /* the last one is an element's own bytes */
  THREADS = 256,
  BATCH = 4, /* units that a thread has under way at a time */
  SIDE = 32, /* of a tile, in words */
  ROWS = THREADS / SIDE,
  WIDE = 128,     /* an innermost loop so long is divided among threads of its own */
  NARROW = 16,    /* a tile is not worth it where one side is shorter */
  LONG_ROW = 4096 /* bytes: worth a copy in two dimensions where units are narrow */
};

/* Loops, the outermost first; strides are in bytes, then in units. Invariant once simple: those of `to` are positive
 * and descend. */
struct boxes {
  int32_t ndim;
  int64_t extent[LOOPS], to_stride[LOOPS], from_stride[LOOPS];
  char *to;
  const char *from;
};

struct place_launch {
  const char *what;
  int32_t device;
  cudaStream_t stream;
  int64_t unit; /* bytes */
};

/* ---- made simple ------------------------------------------------------------------------------------------------ */

static void add_loop(struct boxes *self, int64_t extent, int64_t to, int64_t from) {
  if (extent == 1) return;
  if (to < 0) { /* the same elements from the other end */
    self->to += (extent - 1) * to;
    self->from += (extent - 1) * from;
    to = -to;
    from = -from;
  }
  int32_t d = self->ndim++;
  for (; d > 0 && self->to_stride[d - 1] < to; d--) {
    self->extent[d] = self->extent[d - 1];
    self->to_stride[d] = self->to_stride[d - 1];
    self->from_stride[d] = self->from_stride[d - 1];
  }
  self->extent[d] = extent;
  self->to_stride[d] = to;
  self->from_stride[d] = from;
}

static void remove_loop(struct boxes *self, int32_t d) {
  self->ndim--;
  for (; d < self->ndim; d++) {
    self->extent[d] = self->extent[d + 1];
    self->to_stride[d] = self->to_stride[d + 1];
    self->from_stride[d] = self->from_stride[d + 1];
  }
}

/* A loop that goes on where the one inside it ends is one with it. */
static void merge_loops(struct boxes *self) {
  for (int32_t d = self->ndim - 1; d > 0; d--) {
    if (self->to_stride[d - 1] != self->extent[d] * self->to_stride[d] ||
        self->from_stride[d - 1] != self->extent[d] * self->from_stride[d])
      continue;
    self->extent[d] *= self->extent[d - 1];
    remove_loop(self, d - 1);
  }
}

static bool has_runs(const struct boxes *self) {
  const int32_t last = self->ndim - 1;
  return self->ndim > 0 && self->to_stride[last] == 1 && self->from_stride[last] == 1;
}

/* Strides and the innermost run become units: as wide as all that they begin at and go by are multiples of. */
static int64_t widen(struct boxes *self) {
  const bool runs = has_runs(self);
  const int32_t outer = self->ndim - (runs ? 1 : 0);
  uint64_t all = (uint64_t)(uintptr_t)self->to | (uint64_t)(uintptr_t)self->from;
  all |= runs ? (uint64_t)self->extent[outer] : 1;
  for (int32_t d = 0; d < outer; d++) all |= (uint64_t)self->to_stride[d] | (uint64_t)self->from_stride[d];
  const int64_t unit = unit_of(all);
  for (int32_t d = 0; d < outer; d++) {
    self->to_stride[d] /= unit;
    self->from_stride[d] /= unit;
  }
  if (runs) self->extent[outer] /= unit;
  if (runs && self->extent[outer] == 1) self->ndim--;
  return unit;
}

static int64_t units_of(const struct boxes *self) {
  int64_t units = 1;
  for (int32_t d = 0; d < self->ndim; d++) units *= self->extent[d];
  return units;
}

/* ---- where a loop's number stands ------------------------------------------------------------------------------- */

/* Loops as a kernel counts them: the innermost first, fewer than 2^31 times together. */
struct place_loops {
  int32_t ndim;
  divisor extent[LOOPS];
  int64_t to_stride[LOOPS], from_stride[LOOPS];
};

static __device__ __forceinline__ void place_at(const place_loops &loops, uint32_t number, int64_t *to, int64_t *from) {
  for (int32_t d = 0; d < loops.ndim; d++) {
    const uint32_t index = divisor_split(loops.extent[d], &number);
    *to += (int64_t)index * loops.to_stride[d];
    *from += (int64_t)index * loops.from_stride[d];
  }
}

/* Those but two (-1: none), and how often they run. */
static uint32_t loops_without(const struct boxes *self, int32_t one, int32_t other, place_loops *out) {
  int64_t count = 1;
  out->ndim = 0;
  for (int32_t d = self->ndim - 1; d >= 0; d--) {
    if (d == one || d == other) continue;
    out->extent[out->ndim] = divisor_of(self->extent[d]);
    out->to_stride[out->ndim] = self->to_stride[d];
    out->from_stride[out->ndim++] = self->from_stride[d];
    count *= self->extent[d];
  }
  return (uint32_t)count;
}

/* ---- unit by unit ----------------------------------------------------------------------------------------------- */

/* In the result's order; a block takes THREADS * BATCH units one behind the other. */
template <class Unit>
static __global__ void __launch_bounds__(THREADS)
    place_units(const place_loops loops, const uint32_t count, Unit *__restrict__ to, const Unit *__restrict__ from) {
  const uint32_t first = blockIdx.x * (uint32_t)(THREADS * BATCH) + threadIdx.x;
  int64_t t[BATCH];
  Unit units[BATCH];
  for (int32_t i = 0; i < BATCH; i++) {
    int64_t f = 0;
    t[i] = 0;
    const uint32_t number = first + (uint32_t)(i * THREADS);
    if (number >= count) continue;
    place_at(loops, number, &t[i], &f);
    units[i] = from[f];
  }
  for (int32_t i = 0; i < BATCH; i++)
    if (first + (uint32_t)(i * THREADS) < count) to[t[i]] = units[i];
}

/* The innermost loop's columns are cut into pieces; some threads take one. `run`, if it is more than 1, is a short loop
 * whose units are neighbours in the source, where the columns' are not: what one of its turns leaves of a line, the
 * next finds in the cache. */
struct place_columns {
  place_loops rows;
  uint32_t row_count, columns, piece;
  divisor pieces;
  uint32_t across; /* threads for a piece: a power of 2 */
  int64_t to_stride, from_stride;
  uint32_t run;
  int64_t to_step, from_step;
};

template <class Unit>
static __global__ void __launch_bounds__(THREADS)
    place_columns_of(const place_columns self, Unit *__restrict__ to, const Unit *__restrict__ from) {
  const uint32_t shared = (uint32_t)THREADS / self.across;
  uint32_t row = blockIdx.x * shared + threadIdx.x / self.across;
  const uint32_t first = divisor_split(self.pieces, &row) * self.piece;
  if (row >= self.row_count) return;
  const uint32_t last = self.columns - first < self.piece ? self.columns : first + self.piece;
  int64_t t = 0, f = 0;
  place_at(self.rows, row, &t, &f);
  for (uint32_t c = first + threadIdx.x % self.across; c < last; c += (uint32_t)BATCH * self.across)
    for (uint32_t k = 0; k < self.run; k++) {
      Unit *target = to + t + (int64_t)k * self.to_step;
      const Unit *source = from + f + (int64_t)k * self.from_step;
      Unit units[BATCH];
      for (uint32_t i = 0; i < BATCH; i++) {
        const uint32_t column = c + i * self.across;
        if (column < last) units[i] = source[(int64_t)column * self.from_stride];
      }
      for (uint32_t i = 0; i < BATCH; i++) {
        const uint32_t column = c + i * self.across;
        if (column < last) target[(int64_t)column * self.to_stride] = units[i];
      }
    }
}

template <class Unit> static int units_run(const struct place_launch *self, const struct boxes *boxes) {
  place_loops loops;
  const uint32_t count = loops_without(boxes, -1, -1, &loops);
  const uint32_t blocks = (count - 1) / (THREADS * BATCH) + 1;
  KERNEL_LAUNCH(place_units<Unit>, blocks, THREADS, self->stream, loops, count, (Unit *)boxes->to,
                (const Unit *)boxes->from);
  return cuda_launched(self->what, self->device);
}

template <class Unit> static int columns_run(const struct place_launch *self, const struct boxes *boxes, int32_t run) {
  const int32_t inner = boxes->ndim - 1;
  place_columns columns = {};
  columns.row_count = loops_without(boxes, inner, run, &columns.rows);
  columns.columns = (uint32_t)boxes->extent[inner];
  columns.across = SIDE;
  while (columns.across < THREADS && columns.across * 2 * BATCH <= columns.columns) columns.across *= 2;
  const uint32_t most = 2 * BATCH * columns.across, pieces = (columns.columns - 1) / most + 1;
  columns.piece = (columns.columns - 1) / pieces + 1;
  columns.piece = (columns.piece + SIDE - 1) / SIDE * SIDE; /* whole lines, where rows begin with them */
  columns.pieces = divisor_of((columns.columns - 1) / columns.piece + 1);
  columns.to_stride = boxes->to_stride[inner];
  columns.from_stride = boxes->from_stride[inner];
  columns.run = run < 0 ? 1 : (uint32_t)boxes->extent[run];
  columns.to_step = run < 0 ? 0 : boxes->to_stride[run];
  columns.from_step = run < 0 ? 0 : boxes->from_stride[run];
  const uint32_t shared = (uint32_t)THREADS / columns.across;
  const uint32_t blocks = (columns.row_count * columns.pieces.by - 1) / shared + 1;
  KERNEL_LAUNCH(place_columns_of<Unit>, blocks, THREADS, self->stream, columns, (Unit *)boxes->to,
                (const Unit *)boxes->from);
  return cuda_launched(self->what, self->device);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------ */

/* A plane of words in which `a` is the result's innermost loop and `b` the source's. Of small units a word holds N: a
 * thread turns N words of N units around, which come from N rows and go to N. */
struct place_planes {
  place_loops outer;
  divisor tiles_a, tiles_b;
  uint32_t words_a, words_b; /* of the plane */
  int64_t a_to, b_from;      /* in words, from one word to the next */
  int64_t b_to, a_from;      /* from one unit to the next */
};

/* Unit r of word q is unit q of word r. */
template <int N> static __device__ __forceinline__ void turn(const uint32_t *from, uint32_t *to) {
  const uint32_t bits = 32 / N, mask = N == 1 ? ~(uint32_t)0 : ((uint32_t)1 << (bits % 32)) - 1;
  for (uint32_t q = 0; q < N; q++) {
    to[q] = 0;
    for (uint32_t r = 0; r < N; r++) to[q] |= (from[r] >> (bits * q) & mask) << (bits * r);
  }
}
template <int N, class Word> static __device__ __forceinline__ void turn(const Word *from, Word *to) {
  to[0] = from[0];
}

template <class Word, int N>
static __global__ void __launch_bounds__(THREADS)
    place_tiles(const place_planes self, Word *__restrict__ to, const Word *__restrict__ from) {
  __shared__ Word tile[N][SIDE][SIDE + 1]; /* one more, so that a column's words are in different banks */
  uint32_t outer = blockIdx.x;
  const uint32_t a = divisor_split(self.tiles_a, &outer) * SIDE, b = divisor_split(self.tiles_b, &outer) * SIDE;
  const uint32_t x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  int64_t t = 0, f = 0;
  place_at(self.outer, outer, &t, &f);
  Word words[SIDE / ROWS][N];
  from += f + (int64_t)((a + y) * N) * self.a_from + (int64_t)(b + x) * self.b_from;
  KERNEL_UNROLL
  for (uint32_t j = 0; j < SIDE / ROWS; j++, from += N * ROWS * self.a_from) {
    if (a + y + j * ROWS >= self.words_a || b + x >= self.words_b) continue;
    for (uint32_t r = 0; r < N; r++) words[j][r] = from[r * self.a_from];
  }
  KERNEL_UNROLL
  for (uint32_t j = 0; j < SIDE / ROWS; j++) {
    if (a + y + j * ROWS >= self.words_a || b + x >= self.words_b) continue;
    Word turned[N];
    turn<N>(words[j], turned);
    for (uint32_t q = 0; q < N; q++) tile[q][x][y + j * ROWS] = turned[q];
  }
  __syncthreads();
  to += t + (int64_t)((b + y) * N) * self.b_to + (int64_t)(a + x) * self.a_to;
  KERNEL_UNROLL
  for (uint32_t j = 0; j < SIDE / ROWS; j++, to += N * ROWS * self.b_to) {
    if (b + y + j * ROWS >= self.words_b || a + x >= self.words_a) continue;
    for (uint32_t q = 0; q < N; q++) to[q * self.b_to] = tile[q][y + j * ROWS][x];
  }
}

template <class Word, int N>
static int tiles_run(const struct place_launch *self, const struct boxes *boxes, int32_t b) {
  const int32_t a = boxes->ndim - 1;
  place_planes planes = {};
  uint32_t blocks = loops_without(boxes, a, b, &planes.outer);
  for (int32_t d = 0; d < planes.outer.ndim; d++) {
    planes.outer.to_stride[d] /= N;
    planes.outer.from_stride[d] /= N;
  }
  planes.words_a = (uint32_t)(boxes->extent[a] / N);
  planes.words_b = (uint32_t)(boxes->extent[b] / N);
  planes.a_to = boxes->to_stride[a];
  planes.b_from = boxes->from_stride[b];
  planes.b_to = boxes->to_stride[b] / N;
  planes.a_from = boxes->from_stride[a] / N;
  planes.tiles_a = divisor_of((planes.words_a - 1) / SIDE + 1);
  planes.tiles_b = divisor_of((planes.words_b - 1) / SIDE + 1);
  blocks *= planes.tiles_a.by * planes.tiles_b.by;
  KERNEL_LAUNCH_TOGETHER((place_tiles<Word, N>), blocks, THREADS, self->stream, planes, (Word *)boxes->to,
                         (const Word *)boxes->from);
  return cuda_launched(self->what, self->device);
}

/* The loop whose units are closest to each other in the source: -1 where that is the innermost one. */
static int32_t source_inner(const struct boxes *self) {
  const int32_t inner = self->ndim - 1;
  int32_t best = inner;
  for (int32_t d = inner - 1; d >= 0; d--) {
    const int64_t stride = llabs(self->from_stride[d]), least = llabs(self->from_stride[best]);
    if (stride != 0 && stride < least) best = d;
  }
  return best == inner ? -1 : best;
}

/* Whether N units make a word everywhere in a plane whose loops are the last one and b. */
static bool makes_words(const struct boxes *self, int64_t unit, int32_t b, int64_t n) {
  const int32_t a = self->ndim - 1;
  if (self->to_stride[a] != 1 || self->from_stride[b] != 1 || self->extent[a] % n != 0 || self->extent[b] % n != 0)
    return false;
  uint64_t all = (uint64_t)((uintptr_t)self->to | (uintptr_t)self->from) / (uint64_t)unit;
  for (int32_t d = 0; d < self->ndim; d++) {
    if (d != a) all |= (uint64_t)self->to_stride[d];
    if (d != b) all |= (uint64_t)self->from_stride[d];
  }
  return all % (uint64_t)n == 0;
}

static int tiles_choose(const struct place_launch *self, const struct boxes *boxes, int32_t b) {
  switch (self->unit) {
  case 1:
    return makes_words(boxes, 1, b, 4) ? tiles_run<uint32_t, 4>(self, boxes, b) : tiles_run<uint8_t, 1>(self, boxes, b);
  case 2:
    return makes_words(boxes, 2, b, 2) ? tiles_run<uint32_t, 2>(self, boxes, b)
                                       : tiles_run<uint16_t, 1>(self, boxes, b);
  case 4:
    return tiles_run<uint32_t, 1>(self, boxes, b);
  case 8:
    return tiles_run<uint64_t, 1>(self, boxes, b);
  default:
    return tiles_run<unit_wide, 1>(self, boxes, b);
  }
}

/* ---- the way ---------------------------------------------------------------------------------------------------- */

template <class Unit> static int unit_run(const struct place_launch *self, const struct boxes *boxes, int32_t run) {
  if (boxes->extent[boxes->ndim - 1] >= WIDE) return columns_run<Unit>(self, boxes, run);
  return units_run<Unit>(self, boxes);
}

static int unit_choose(const struct place_launch *self, const struct boxes *boxes, int32_t run) {
  switch (self->unit) {
  case 1:
    return unit_run<uint8_t>(self, boxes, run);
  case 2:
    return unit_run<uint16_t>(self, boxes, run);
  case 4:
    return unit_run<uint32_t>(self, boxes, run);
  case 8:
    return unit_run<uint64_t>(self, boxes, run);
  default:
    return unit_run<unit_wide>(self, boxes, run);
  }
}

/* Rows that do not begin where wide units do: the driver's copy moves them as fast as its memory. */
static bool is_rows(const struct boxes *self, int64_t unit) {
  return self->ndim == 2 && has_runs(self) && unit < UNIT_WIDEST && self->extent[1] * unit >= LONG_ROW &&
         self->from_stride[0] >= self->extent[1] && self->from_stride[0] <= INT32_MAX / unit &&
         self->to_stride[0] <= INT32_MAX / unit;
}

static int rows_copy(const struct place_launch *self, const struct boxes *boxes) {
  const size_t unit = (size_t)self->unit;
  cudaError_t problem = cudaMemcpy2DAsync(boxes->to, (size_t)boxes->to_stride[0] * unit, boxes->from,
                                          (size_t)boxes->from_stride[0] * unit, (size_t)boxes->extent[1] * unit,
                                          (size_t)boxes->extent[0], cudaMemcpyDeviceToDevice, self->stream);
  return cuda_check(problem, "cudaMemcpy2DAsync", self->what, self->device);
}

/* Boxes that are simple, but for their number of units. */
static int run_boxes(const struct place_launch *self, const struct boxes *boxes) {
  const int64_t units = units_of(boxes);
  if (boxes->ndim == 0 || (boxes->ndim == 1 && has_runs(boxes))) {
    const size_t bytes = (size_t)(units * self->unit);
    cudaError_t problem = cudaMemcpyAsync(boxes->to, boxes->from, bytes, cudaMemcpyDeviceToDevice, self->stream);
    return cuda_check(problem, "cudaMemcpyAsync", self->what, self->device);
  }
  if (is_rows(boxes, self->unit)) return rows_copy(self, boxes);
  if (units > kernel_narrow()) { /* more than kernels count: one half after the other */
    struct boxes half = *boxes;
    half.extent[0] = boxes->extent[0] / 2;
    struct boxes rest = *boxes;
    rest.extent[0] -= half.extent[0];
    rest.to += half.extent[0] * boxes->to_stride[0] * self->unit;
    rest.from += half.extent[0] * boxes->from_stride[0] * self->unit;
    if (half.extent[0] == 1) remove_loop(&half, 0);
    if (rest.extent[0] == 1) remove_loop(&rest, 0);
    int code = run_boxes(self, &half);
    return code < 0 ? code : run_boxes(self, &rest);
  }
  const int32_t b = source_inner(boxes), a = boxes->ndim - 1;
  if (b >= 0 && boxes->extent[a] >= NARROW && boxes->extent[b] >= NARROW) return tiles_choose(self, boxes, b);
  return unit_choose(self, boxes, b >= 0 && boxes->extent[b] < NARROW ? b : -1);
}

int cuda_place(const char *what, int32_t device, size_t element, const struct accelerator_place *place, void *to,
               const void *from) {
  const int64_t bytes = (int64_t)element;
  struct boxes boxes = {};
  boxes.to = (char *)to + place->to_first * bytes;
  boxes.from = (const char *)from + place->from_first * bytes;
  for (int32_t d = 0; d < place->ndim; d++) {
    if (place->extent[d] == 0) return SHARDRT_OK;
    add_loop(&boxes, place->extent[d], place->to_stride[d] * bytes, place->from_stride[d] * bytes);
  }
  add_loop(&boxes, bytes, 1, 1);
  merge_loops(&boxes);
  int code = cuda_use(what, device);
  if (code < 0) return code;
  const struct place_launch self = {what, device, cuda_stream(device, ACCELERATOR_MAIN), widen(&boxes)};
  return run_boxes(&self, &boxes);
}
