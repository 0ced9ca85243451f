/* fused.cuh - elementwise programs as kernels run them: what elementwise.cu makes of one, and the kernels, which are
 * compiled for each dtype that is computed in (fused_float32.cu, fused_float64.cu, fused_whole.cu).
 *
 * A thread computes 32 bytes of lanes, as groups of four neighbours; a block's groups stand side by side, so that
 * whatever is read or written is so by neighbours. All steps run on these lanes before the next ones, so that only
 * operands and the result go through memory. */
#ifndef SHARDRT_COMPUTE_CUDA_FUSED_CUH
#define SHARDRT_COMPUTE_CUDA_FUSED_CUH

#include <stddef.h>

#include "compute/cuda/divisor.cuh"
#include "compute/cuda/lanes.cuh"

#include "compute/elementwise/formula.h"

enum { FUSED_THREADS = 256, FUSED_BYTES = 32 };

/* A step computes in what is called `last` from values, which become the next `last`. A value is a slot's, a
 * constant's, or what the step before gave. */
enum : uint16_t {
  FUSED_CONSTANT = 0x4000,      /* + its number */
  FUSED_LAST = 0x8000,          /* of a, b, c: the value of the step before */
  FUSED_NOWHERE = FUSED_LAST,   /* of to: no slot */
  FUSED_LOAD = SHARDRT_OP_COUNT /* as op, besides SHARDRT_OP_…: gives operand number `a` */
};

struct fused_step {
  uint16_t op, a, b, c;
  uint16_t to; /* a slot that the value is put into besides */
};

/* A dimension of an operand. */
struct fused_dimension {
  int64_t size, stride;
  divisor by; /* the size; unless the operand is `wide` */
};

/* As struct accelerator_operand. */
struct fused_operand {
  const void *data;
  uint16_t first; /* of its dimensions; */
  uint8_t ndim;   /* 0: one element for all */
  uint8_t dtype;
  bool fours; /* four neighbours that begin at a multiple of 4 are aligned neighbours here, or one element; */
  bool same;  /* the latter: the innermost stride is 0 */
  bool plain; /* its elements are the result's, in their order */
  bool wide;  /* positions may be 2^31 and more */
};

/* What a program is to a kernel, with room for so many. `steps` come one after the other; the last one gives the
 * result. */
template <int step_room, int constant_room, int operand_room, int dimension_room> struct fused_program {
  enum : int { STEPS = step_room, CONSTANTS = constant_room, OPERANDS = operand_room, DIMENSIONS = dimension_room };
  int64_t elements;
  void *out;
  int32_t out_dtype;
  bool fours; /* out is aligned, too */
  uint16_t steps, slots, constants, operands, dimensions;
  fused_step step[step_room];
  uint64_t constant[constant_room]; /* lanes in the first bytes */
  fused_operand operand[operand_room];
  fused_dimension dimension[dimension_room];
};

/* A step that has a kernel of its own: its values are numbers of operands, which are of the compute dtype, or
 * constants. */
typedef fused_program<1, 3, 3, 12> fused_single;
/* What goes with a launch (its 4 KiB), and keeps its slots in the threads' own memory, */
typedef fused_program<96, 48, 12, 32> fused_short;
enum { FUSED_SHORT_SLOTS = 16 };
/* or any: then both lie in the device's memory. */
typedef fused_program<SHARDRT_MAX_REGISTERS, SHARDRT_MAX_REGISTERS, SHARDRT_MAX_REGISTERS,
                      SHARDRT_MAX_REGISTERS * SHARDRT_MAX_NDIM>
    fused_long;
static_assert(sizeof(fused_short) <= 4096 - 64, "it fits a launch");

/* A program, and where `is_single` the same as one step. */
struct fused_plan {
  fused_long program;
  bool is_single;
  fused_single single;
};

/* Puts it on MAIN of the device; it has elements. Each is for the dtypes that its name says. */
int fused_run_float32(const char *what, int32_t device, const fused_plan *plan);
int fused_run_float64(const char *what, int32_t device, const fused_plan *plan);
int fused_run_whole32(const char *what, int32_t device, int32_t dtype, const fused_plan *plan);
int fused_run_whole64(const char *what, int32_t device, int32_t dtype, const fused_plan *plan);

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* `known`: it is one of lanes of dtype D, and gives of(a, b, c). `parted`: it is far(…) ? slow(…) : of(…). */
template <int32_t D, int32_t op> struct fused_op {
  enum : bool { known = false, parted = false };
};
#define FUSED_OP(D, T, op, expression)                                                                                 \
  template <> struct fused_op<SHARDRT_##D, SHARDRT_OP_##op> {                                                          \
    enum : bool { known = true, parted = false };                                                                      \
    static __device__ __forceinline__ T of(T a, T b, T c) {                                                            \
      (void)b;                                                                                                         \
      (void)c;                                                                                                         \
      return (T)(expression);                                                                                          \
    }                                                                                                                  \
  };
#define FUSED_OP_FAR(D, T, op, expression, is_far, otherwise)                                                          \
  template <> struct fused_op<SHARDRT_##D, SHARDRT_OP_##op> {                                                          \
    enum : bool { known = true, parted = true };                                                                       \
    static __device__ __forceinline__ T of(T a, T b, T) {                                                              \
      (void)b;                                                                                                         \
      return (T)(expression);                                                                                          \
    }                                                                                                                  \
    static __device__ __forceinline__ bool far(T a, T b) {                                                             \
      (void)b;                                                                                                         \
      return is_far;                                                                                                   \
    }                                                                                                                  \
    static __device__ __noinline__ T slow(T a, T b) {                                                                  \
      (void)b;                                                                                                         \
      return (T)(otherwise);                                                                                           \
    }                                                                                                                  \
  };
#define FUSED_FLOAT32(op, expression)                FUSED_OP(FLOAT32, float, op, expression)
#define FUSED_FLOAT32_FAR(op, expression, far, slow) FUSED_OP_FAR(FLOAT32, float, op, expression, far, slow)
#define FUSED_FLOAT64(op, expression)                FUSED_OP(FLOAT64, double, op, expression)
#define FUSED_INT32(op, expression)                  FUSED_OP(INT32, int32_t, op, expression)
#define FUSED_UINT32(op, expression)                 FUSED_OP(UINT32, uint32_t, op, expression)
#define FUSED_INT64(op, expression)                  FUSED_OP(INT64, int64_t, op, expression)
#define FUSED_UINT64(op, expression)                 FUSED_OP(UINT64, uint64_t, op, expression)
FORMULA_FLOATS(FUSED_FLOAT32)
FORMULA_FLOAT32(FUSED_FLOAT32)
FORMULA_FLOAT32_FAR(FUSED_FLOAT32_FAR)
FORMULA_FLOATS(FUSED_FLOAT64)
FORMULA_FLOAT64(FUSED_FLOAT64)
FORMULA_WHOLE(FUSED_INT32, i32, int32_t, uint32_t)
FORMULA_WHOLE(FUSED_UINT32, u32, uint32_t, uint32_t)
FORMULA_WHOLE(FUSED_INT64, i64, int64_t, uint64_t)
FORMULA_WHOLE(FUSED_UINT64, u64, uint64_t, uint64_t)

/* Loops over a thread's lanes are unrolled, so that they are in registers; or not, where that would be much code. */
#ifdef __CUDACC__
#define FUSED_UNROLL _Pragma("unroll")
#define FUSED_ONCE   _Pragma("unroll 1")
#else
#define FUSED_UNROLL
#define FUSED_ONCE
#endif

template <int32_t D> using lane_t = lanes_type<D>;
/* Of a thread. */
template <int32_t D> constexpr int fused_lanes = FUSED_BYTES / (int)sizeof(lane_t<D>);
template <int32_t D> constexpr int fused_groups = fused_lanes<D> / LANES_FOUR;
template <int32_t D> constexpr int fused_tile = FUSED_THREADS *fused_lanes<D>; /* of a block */

/* `to` may be `a`. */
template <int32_t D, int32_t op>
static __device__ __forceinline__ void fused_apply(const lane_t<D> *a, const lane_t<D> *b, const lane_t<D> *c,
                                                   lane_t<D> *to) {
  typedef fused_op<D, op> kind;
  if constexpr (kind::parted) {
    bool any = false;
    FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) any |= kind::far(a[u], b[u]);
    if (any) {
      FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) {
        to[u] = kind::far(a[u], b[u]) ? kind::slow(a[u], b[u]) : kind::of(a[u], b[u], c[u]);
      }
      return;
    }
  }
  if constexpr (kind::known) FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) to[u] = kind::of(a[u], b[u], c[u]);
}

/* ---- operands and results --------------------------------------------------------------------------------------- */

template <class program> static __device__ __forceinline__ int64_t fused_index(const program &self, int k, int64_t at) {
  const fused_operand &operand = self.operand[k];
  if (operand.plain) return at;
  const fused_dimension *dimension = self.dimension + operand.first;
  int64_t index = 0, left = at;
  FUSED_ONCE for (int d = operand.ndim - 1; d > 0; d--) {
    const int64_t over = operand.wide ? left / dimension[d].size : divisor_quotient(dimension[d].by, (uint32_t)left);
    index += (left - over * dimension[d].size) * dimension[d].stride;
    left = over;
  }
  return index + left * dimension[0].stride;
}

template <int32_t D> static __device__ __forceinline__ lane_t<D> fused_constant(uint64_t bits) {
  lane_t<D> lane;
  memcpy(&lane, &bits, sizeof lane);
  return lane;
}

/* Where the g-th group of this thread begins in a tile. */
static __device__ __forceinline__ int fused_place(int g) {
  return (g * FUSED_THREADS + (int)threadIdx.x) * LANES_FOUR;
}

/* This thread's lanes of operand `number` in the tile at `first`; 0 beyond the end. dtype: the operand's. Lanes
 * that come one by one go through the last register, and move on: so all stay in registers, in a short loop. */
template <int32_t D, class program>
static __device__ __forceinline__ void fused_load(const program &self, int number, int32_t dtype, int64_t first,
                                                  lane_t<D> *to) {
  const fused_operand &operand = self.operand[number];
  if (operand.ndim == 0) {
    const lane_t<D> lane = lanes_load<D>(dtype, operand.data, 0);
    FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) to[u] = lane;
  } else if (operand.fours && first + fused_tile<D> <= self.elements) {
    FUSED_UNROLL for (int g = 0; g < fused_groups<D>; g++) {
      const int64_t index = fused_index(self, number, first + fused_place(g));
      if (!operand.same) {
        lanes_load_four<D>(dtype, operand.data, index, to + g * LANES_FOUR);
        continue;
      }
      const lane_t<D> lane = lanes_load<D>(dtype, operand.data, index);
      FUSED_UNROLL for (int u = 0; u < LANES_FOUR; u++) to[g * LANES_FOUR + u] = lane;
    }
  } else {
    FUSED_UNROLL for (int k = 0; k < fused_lanes<D>; k++) to[k] = 0;
    FUSED_ONCE for (int u = 0; u < fused_lanes<D>; u++) {
      const int64_t at = first + fused_place(u / LANES_FOUR) + u % LANES_FOUR;
      FUSED_UNROLL for (int k = 1; k < fused_lanes<D>; k++) to[k - 1] = to[k];
      to[fused_lanes<D> - 1] =
          at < self.elements ? lanes_load<D>(dtype, operand.data, fused_index(self, number, at)) : (lane_t<D>)0;
    }
  }
}

template <int32_t D, class program>
static __device__ __forceinline__ void fused_store(const program &self, int32_t dtype, int64_t first,
                                                   const lane_t<D> *from) {
  if (self.fours && first + fused_tile<D> <= self.elements) {
    FUSED_UNROLL for (int g = 0; g < fused_groups<D>; g++)
        lanes_store_four<D>(dtype, self.out, first + fused_place(g), from + g * LANES_FOUR);
    return;
  }
  lane_t<D> left[fused_lanes<D>];
  FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) left[u] = from[u];
  FUSED_ONCE for (int u = 0; u < fused_lanes<D>; u++) {
    const int64_t at = first + fused_place(u / LANES_FOUR) + u % LANES_FOUR;
    if (at < self.elements) lanes_store<D>(dtype, self.out, at, left[0]);
    FUSED_UNROLL for (int k = 1; k < fused_lanes<D>; k++) left[k - 1] = left[k];
  }
}

/* ---- one step --------------------------------------------------------------------------------------------------- */

/* a, b, c: FUSED_CONSTANT + its number, or an operand's number. */
template <int32_t D>
static __device__ __forceinline__ void fused_value(const fused_single &self, uint16_t from, int64_t first,
                                                   lane_t<D> *to) {
  if (from < FUSED_CONSTANT) {
    fused_load<D>(self, from, D, first, to);
    return;
  }
  FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) to[u] = fused_constant<D>(self.constant[from - FUSED_CONSTANT]);
}

template <int32_t D, int32_t op, int32_t out_dtype, int nvalues>
static __global__ void __launch_bounds__(FUSED_THREADS) fused_single_kernel(fused_single self) {
  const int64_t first = (int64_t)blockIdx.x * fused_tile<D>;
  lane_t<D> a[fused_lanes<D>], b[fused_lanes<D>], c[fused_lanes<D>], to[fused_lanes<D>];
  FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) b[u] = c[u] = 0;
  fused_value<D>(self, self.step[0].a, first, a);
  if (nvalues > 1) fused_value<D>(self, self.step[0].b, first, b);
  if (nvalues > 2) fused_value<D>(self, self.step[0].c, first, c);
  fused_apply<D, op>(a, b, c, to);
  fused_store<D>(self, out_dtype, first, to);
}

/* Which steps have one. In dtypes other than float32 the rest are rare: they run as programs of many steps do, and the
 * compiler is spared them. */
static constexpr bool fused_has_single(int32_t dtype, int32_t op) {
  return dtype == SHARDRT_FLOAT32 || op <= SHARDRT_OP_MUL;
}

/* Whether a step gives what is true or not, */
static constexpr bool fused_is_truth(int32_t op) {
  return (op >= SHARDRT_OP_EQ && op <= SHARDRT_OP_LOGICAL_NOT) || op >= SHARDRT_OP_ISNAN;
}

/* so that this is what it comes to in the kernel of its own. */
template <int32_t D> static constexpr int32_t fused_single_out(int32_t op) {
  return fused_is_truth(op) ? (int32_t)SHARDRT_BOOL : D;
}

#define FUSED_SINGLE_CASE(name, code, operands)                                                                        \
  case code:                                                                                                           \
    if constexpr (fused_op<D, code>::known && fused_has_single(D, code))                                               \
      KERNEL_LAUNCH((fused_single_kernel<D, code, fused_single_out<D>(code), operands>), tiles, FUSED_THREADS, stream, \
                    single);                                                                                           \
    break;

/* ---- many ------------------------------------------------------------------------------------------------------- */

/* The slots of a thread: its own memory, */
template <int32_t D> struct fused_own_slots {
  alignas(16) lane_t<D> lane[FUSED_SHORT_SLOTS][fused_lanes<D>];
  __device__ __forceinline__ lane_t<D> &at(int slot, int u) { return lane[slot][u]; }
};

/* or the device's: [slot, lane, thread]. */
template <int32_t D> struct fused_far_slots {
  lane_t<D> *lane;
  int64_t threads;
  __device__ __forceinline__ lane_t<D> &at(int slot, int u) {
    return lane[((int64_t)slot * fused_lanes<D> + u) * threads + (int64_t)blockIdx.x * FUSED_THREADS + threadIdx.x];
  }
};

template <int32_t D, class program, class slot_room>
static __device__ __forceinline__ void fused_fetch(const program &self, slot_room &slots, uint16_t from,
                                                   const lane_t<D> *last, lane_t<D> *to) {
  if (from == FUSED_LAST) {
    FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) to[u] = last[u];
  } else if (from >= FUSED_CONSTANT) {
    const lane_t<D> lane = fused_constant<D>(self.constant[from - FUSED_CONSTANT]);
    FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) to[u] = lane;
  } else {
    FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) to[u] = slots.at(from, u);
  }
}

/* Steps load operands one after the other: what the next ones have for a whole tile is asked for while the first one
 * comes, so that a block waits for the memory once. */
enum { FUSED_AHEAD = 4 };
template <int32_t D> static __device__ __forceinline__ void fused_ask(const fused_short &self, int64_t first) {
  if (threadIdx.x > 0 || self.elements < first + fused_tile<D>) return;
  FUSED_ONCE for (int k = 1; k < self.operands && k < FUSED_AHEAD; k++) {
    const fused_operand &operand = self.operand[k];
    const uint32_t size = lanes_size(operand.dtype);
    if (operand.plain && operand.fours)
      kernel_cache_fetch((const char *)operand.data + first * size, fused_tile<D> * size);
  }
}

/* What it takes besides the step before comes first: that one's lanes become the result's. */
#define FUSED_CASE(name, code, operands)                                                                               \
  case code: {                                                                                                         \
    lane_t<D> b[fused_lanes<D>] = {}, c[fused_lanes<D>] = {};                                                          \
    if (operands > 1) fused_fetch<D>(self, slots, step.b, last, b);                                                    \
    if (operands > 2) fused_fetch<D>(self, slots, step.c, last, c);                                                    \
    if (step.a != FUSED_LAST) fused_fetch<D>(self, slots, step.a, last, last);                                         \
    fused_apply<D, code>(last, b, c, last);                                                                            \
  } break;

/* A step is decoded once for all lanes of a thread; so do all threads, together. */
template <int32_t D, class program, class slot_room>
static __device__ __forceinline__ void fused_steps(const program &self, slot_room &slots, int64_t first) {
  lane_t<D> last[fused_lanes<D>] = {};
  for (int i = 0; i < self.steps; i++) {
    const fused_step step = self.step[i];
    switch (step.op) {
      SHARDRT_OPS(FUSED_CASE)
    default: /* FUSED_LOAD */
      fused_load<D>(self, step.a, self.operand[step.a].dtype, first, last);
    }
    if (step.to == FUSED_NOWHERE) continue;
    FUSED_UNROLL for (int u = 0; u < fused_lanes<D>; u++) slots.at(step.to, u) = last[u];
  }
  fused_store<D>(self, self.out_dtype, first, last);
}

template <int32_t D> static __global__ void __launch_bounds__(FUSED_THREADS, 4) fused_short_kernel(fused_short self) {
  const int64_t first = (int64_t)blockIdx.x * fused_tile<D>;
  fused_own_slots<D> slots;
  fused_ask<D>(self, first);
  fused_steps<D>(self, slots, first);
}

template <int32_t D>
static __global__ void __launch_bounds__(FUSED_THREADS)
    fused_long_kernel(const fused_long *self, lane_t<D> *lane, int64_t tiles) {
  fused_far_slots<D> slots = {lane, (int64_t)gridDim.x * FUSED_THREADS};
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) fused_steps<D>(*self, slots, tile * fused_tile<D>);
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* What there is of a program goes where there is less room. */
static void fused_shorten(const fused_long *from, fused_short *to) {
  to->elements = from->elements;
  to->out = from->out;
  to->out_dtype = from->out_dtype;
  to->fours = from->fours;
  to->steps = from->steps;
  to->operands = from->operands;
  memcpy(to->step, from->step, from->steps * sizeof *to->step);
  memcpy(to->constant, from->constant, from->constants * sizeof *to->constant);
  memcpy(to->operand, from->operand, from->operands * sizeof *to->operand);
  memcpy(to->dimension, from->dimension, from->dimensions * sizeof *to->dimension);
}

static bool fused_is_short(const fused_long *self) {
  return self->steps <= fused_short::STEPS && self->constants <= fused_short::CONSTANTS &&
         self->operands <= fused_short::OPERANDS && self->dimensions <= fused_short::DIMENSIONS &&
         self->slots <= FUSED_SHORT_SLOTS;
}

/* Bytes that go to a device as what a kernel is launched with, so that nothing waits for a copy. */
enum { FUSED_PART_WORDS = 2000 };
struct fused_part {
  uint64_t word[FUSED_PART_WORDS];
};

static __global__ void fused_write_kernel(fused_part part, uint64_t *to, int32_t words) {
  for (int32_t i = (int32_t)threadIdx.x; i < words; i += FUSED_THREADS) to[i] = part.word[i];
}

static int fused_write(const char *what, int32_t device, const void *from, size_t bytes, void *to) {
  int code = SHARDRT_OK;
  for (size_t done = 0; done < bytes && code == SHARDRT_OK; done += sizeof(fused_part)) {
    fused_part part;
    const size_t size = bytes - done < sizeof part ? bytes - done : sizeof part;
    memcpy(&part, (const char *)from + done, size);
    KERNEL_LAUNCH(fused_write_kernel, 1, FUSED_THREADS, cuda_stream(device, ACCELERATOR_MAIN), part,
                  (uint64_t *)((char *)to + done), (int32_t)((size + 7) / 8));
    code = cuda_launched(what, device);
  }
  return code;
}

/* The slots of so many blocks are worth having: more need more memory than they gain. */
enum { FUSED_LONG_BYTES = 64 << 20, FUSED_LONG_BLOCKS = 2 /* of a multiprocessor */ };

template <int32_t D>
static int fused_run_long(const char *what, int32_t device, const fused_long *self, int64_t tiles) {
  const size_t used = offsetof(fused_long, dimension) + self->dimensions * sizeof *self->dimension;
  const size_t head = (used + 255) / 256 * 256;
  const size_t block = (size_t)(self->slots > 0 ? self->slots : 1) * FUSED_THREADS * FUSED_BYTES;
  int64_t blocks = (int64_t)FUSED_LONG_BLOCKS * cuda_multiprocessors(device);
  if (blocks > (int64_t)(FUSED_LONG_BYTES / block)) blocks = (int64_t)(FUSED_LONG_BYTES / block);
  if (blocks > tiles) blocks = tiles;
  void *room;
  int code = cuda_scratch(what, device, head + (size_t)blocks * block, &room);
  if (code != SHARDRT_OK) return code;
  code = fused_write(what, device, self, used, room);
  if (code == SHARDRT_OK) {
    KERNEL_LAUNCH(fused_long_kernel<D>, blocks, FUSED_THREADS, cuda_stream(device, ACCELERATOR_MAIN),
                  (const fused_long *)room, (lane_t<D> *)((char *)room + head), tiles);
    code = cuda_launched(what, device);
  }
  cuda_scratch_free(device, room, head + (size_t)blocks * block);
  return code;
}

template <int32_t D>
static int fused_run_single(const char *what, int32_t device, const fused_single &single, int64_t tiles) {
  cudaStream_t stream = cuda_stream(device, ACCELERATOR_MAIN);
  switch (single.step[0].op) { SHARDRT_OPS(FUSED_SINGLE_CASE) }
  return cuda_launched(what, device);
}

template <int32_t D> static int fused_run(const char *what, int32_t device, const fused_plan *plan) {
  const int64_t tiles = (plan->program.elements - 1) / fused_tile<D> + 1;
  if (plan->is_single) return fused_run_single<D>(what, device, plan->single, tiles);
  if (!fused_is_short(&plan->program)) return fused_run_long<D>(what, device, &plan->program, tiles);
  fused_short program;
  fused_shorten(&plan->program, &program);
  KERNEL_LAUNCH(fused_short_kernel<D>, tiles, FUSED_THREADS, cuda_stream(device, ACCELERATOR_MAIN), program);
  return cuda_launched(what, device);
}

#endif
