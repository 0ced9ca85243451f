/* wrap.cu - products of matrices of whole numbers, which wrap: of signed and unsigned ones the low bits are the same,
 * so that only an element's size counts. A block of threads computes a tile of the result, from parts of both operands
 * that lie in shared memory; each of its threads a square whose rows and columns are STEP apart in the tile, so that
 * neighbours look at neighbours. */
#include "device/launch.h"

enum { TILE = 64, DEPTH = 16, STEP = 16, EACH = TILE / STEP, THREADS = STEP * STEP, BLOCKS_PER_MULTIPROCESSOR = 16 };

/* What sums are computed in. */
template <class T> struct lane { typedef uint32_t type; };
template <> struct lane<uint64_t> { typedef uint64_t type; };

/* An operand: elements from one to the next along k, and beside it, along m or n. */
struct lies {
  int64_t depth, side;
};

struct wrapped {
  struct accelerator_product product;
  lies a, b;
  int64_t tiles_m, tiles_n, tiles; /* of one product, and of all */
};

/* Elements of an operand from one place on, as far as there are any: zeros beyond. Threads side by side take what lies
 * side by side. */
template <class T, class Part>
static __device__ __forceinline__ void load_part(Part &part, const T *from, lies at, int64_t depth, int64_t side) {
  for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
    const int l = at.depth == 1 ? i % DEPTH : i / TILE, s = at.depth == 1 ? i / DEPTH : i % TILE;
    part[l][s] = l < depth && s < side ? from[l * at.depth + s * at.side] : 0;
  }
}

template <class T>
static __global__ void __launch_bounds__(THREADS, 2)
    multiply(wrapped self, const T *all_a, const T *all_b, T *all_out) {
  typedef typename lane<T>::type number;
  __shared__ number part_a[DEPTH][TILE + 1], part_b[DEPTH][TILE + 1];
  const struct accelerator_product &product = self.product;
  const int row = (int)threadIdx.x / STEP, column = (int)threadIdx.x % STEP;
  for (int64_t tile = blockIdx.x; tile < self.tiles; tile += gridDim.x) {
    const int64_t batch = tile / (self.tiles_m * self.tiles_n), within = tile % (self.tiles_m * self.tiles_n);
    const int64_t i0 = within / self.tiles_n * TILE, j0 = within % self.tiles_n * TILE;
    int64_t rest = batch, a_at = 0, b_at = 0;
    for (int32_t d = product.nbatch - 1; d >= 0; d--) {
      const int64_t index = rest % product.batch[d];
      rest /= product.batch[d];
      a_at += index * product.a_stride[d];
      b_at += index * product.b_stride[d];
    }
    const T *a = all_a + a_at * product.m * product.k + i0 * self.a.side;
    const T *b = all_b + b_at * product.k * product.n + j0 * self.b.side;
    number sums[EACH][EACH] = {};
    for (int64_t l0 = 0; l0 < product.k; l0 += DEPTH) {
      load_part(part_a, a + l0 * self.a.depth, self.a, product.k - l0, product.m - i0);
      load_part(part_b, b + l0 * self.b.depth, self.b, product.k - l0, product.n - j0);
      __syncthreads();
      for (int l = 0; l < DEPTH; l++)
        for (int r = 0; r < EACH; r++)
          for (int c = 0; c < EACH; c++) sums[r][c] += part_a[l][row + r * STEP] * part_b[l][column + c * STEP];
      __syncthreads();
    }
    T *out = all_out + batch * product.m * product.n;
    for (int r = 0; r < EACH; r++)
      for (int c = 0; c < EACH; c++) {
        const int64_t i = i0 + row + r * STEP, j = j0 + column + c * STEP;
        if (i >= product.m || j >= product.n) continue;
        T *to = out + i * product.n + j;
        *to = (T)(sums[r][c] + (product.add ? (number)*to : 0));
      }
  }
}

template <class T>
static int launch(const char *what, int32_t device, const wrapped &self, const void *a, const void *b, void *out) {
  const int64_t most = (int64_t)cuda_multiprocessors(device) * BLOCKS_PER_MULTIPROCESSOR;
  const T *left = (const T *)a, *right = (const T *)b;
  T *to = (T *)out;
  KERNEL_LAUNCH_TOGETHER(multiply<T>, self.tiles < most ? self.tiles : most, THREADS,
                         cuda_stream(device, ACCELERATOR_MAIN), self, left, right, to);
  return cuda_launched(what, device);
}

int cuda_wrap(const char *what, int32_t device, const struct accelerator_product *product, const void *a, const void *b,
              void *out) {
  int code = cuda_use(what, device);
  if (code < 0) return code;
  wrapped self;
  self.product = *product;
  self.a = product->transpose_a ? lies{product->m, 1} : lies{1, product->k};
  self.b = product->transpose_b ? lies{1, product->k} : lies{product->n, 1};
  self.tiles_m = (product->m + TILE - 1) / TILE;
  self.tiles_n = (product->n + TILE - 1) / TILE;
  self.tiles = self.tiles_m * self.tiles_n * product->batches;
  switch (shardrt_dtype_size(product->dtype)) {
  case 1:
    return launch<uint8_t>(what, device, self, a, b, out);
  case 2:
    return launch<uint16_t>(what, device, self, a, b, out);
  case 4:
    return launch<uint32_t>(what, device, self, a, b, out);
  default:
    return launch<uint64_t>(what, device, self, a, b, out);
  }
}
