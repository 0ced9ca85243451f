// build: plug-in
/* cublas.c - products of matrices of floats by cuBLAS (https://docs.nvidia.com/cuda/cublas), which is opened when the
 * first one is asked for. Those of whole numbers are wrap.cu's.
 *
 * A product of float32 is one of float32, as on the host, unless TF32 is asked for, which has 11 of float32's 24 bits.
 * Those of float16 and bfloat16 are added up in float32, wherever cuBLAS splits the sum, and rounded once. Each device
 * has a handle of its own, and so cuBLAS's workspace is never that of two streams: its documentation wants this for
 * results whose bits are the same each time. */
#include <assert.h>
#include <cublas_v2.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/cuda.h"
#include "device/cuda_alloc.h"

enum { MOST_BATCHES = 65535 }; /* of one call: the second and third sizes of a grid end here */

static struct {
  __typeof__(cublasCreate_v2) *create;
  __typeof__(cublasDestroy_v2) *destroy;
  __typeof__(cublasSetStream_v2) *set_stream;
  __typeof__(cublasSetMathMode) *set_math_mode;
  __typeof__(cublasGetStatusName) *status_name;
  __typeof__(cublasGetStatusString) *status_text;
  __typeof__(cublasGemmEx) *gemm;
  __typeof__(cublasGemmStridedBatchedEx) *gemm_batched; /* found last: not NULL where all are */
} cublas;

/* A device's. */
struct handle {
  int32_t device;
  cublasHandle_t handle;
  struct handle *next;
};
static struct handle *handles;

static int check_cublas(cublasStatus_t status, const char *call, const char *what, int32_t device) {
  if (status == CUBLAS_STATUS_SUCCESS) return SHARDRT_OK;
  char words[256];
  snprintf(words, sizeof words, "%s (%s)", cublas.status_text(status), cublas.status_name(status));
  return cuda_failed(status == CUBLAS_STATUS_ALLOC_FAILED ? SHARDRT_ENOMEM : SHARDRT_EDEVICE, call, words, what,
                     device);
}

/* What cuBLAS takes for itself is not of the pool, which may keep all that was freed: true where the call may be tried
 * again, now that this, and what nobody needs, was given back. A handle that finds no memory also says that CUDA is not
 * initialized. */
static bool lacks_memory(cublasStatus_t status, const char *what, int32_t device) {
  if (status != CUBLAS_STATUS_ALLOC_FAILED && status != CUBLAS_STATUS_NOT_INITIALIZED) return false;
  (void)cuda_alloc_reclaim(device);
  cuda_alloc_gather(what, device);
  return true;
}

/* ---- the library ------------------------------------------------------------------------------------------------ */

static int open_library(const char *what) {
  if (cublas.gemm_batched != NULL) return SHARDRT_OK;
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", NULL};
  void *library = cuda_library(what, names, "pip install nvidia-cublas");
  if (library == NULL) return SHARDRT_EINVAL;
  const struct {
    const char *name;
    void **function; /* as POSIX says for functions */
  } wanted[] = {
      {"cublasCreate_v2", (void **)&cublas.create},
      {"cublasDestroy_v2", (void **)&cublas.destroy},
      {"cublasSetStream_v2", (void **)&cublas.set_stream},
      {"cublasSetMathMode", (void **)&cublas.set_math_mode},
      {"cublasGetStatusName", (void **)&cublas.status_name},
      {"cublasGetStatusString", (void **)&cublas.status_text},
      {"cublasGemmEx", (void **)&cublas.gemm},
      {"cublasGemmStridedBatchedEx", (void **)&cublas.gemm_batched},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    *wanted[i].function = cuda_function(what, library, wanted[i].name);
    if (*wanted[i].function == NULL) return SHARDRT_EINVAL;
  }
  return SHARDRT_OK;
}

int cublas_library(struct accelerator_library *out) {
  const int code = open_library("a product of matrices");
  if (code == SHARDRT_OK) out->within = *(void **)&cublas.create; /* as POSIX says for functions */
  return code;
}

/* What a new handle computes with. */
static int handle_set(const struct handle *self, const char *what) {
  int code = check_cublas(cublas.set_stream(self->handle, cuda_stream(self->device, ACCELERATOR_MAIN)),
                          "cublasSetStream", what, self->device);
  const unsigned mode = (unsigned)CUBLAS_DEFAULT_MATH | (unsigned)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  if (code == SHARDRT_OK)
    code =
        check_cublas(cublas.set_math_mode(self->handle, (cublasMath_t)mode), "cublasSetMathMode", what, self->device);
  return code;
}

static void handle_free(struct handle *self) {
  (void)cublas.destroy(self->handle); /* after what it has put on the stream */
  alloc_free(self);
}

/* The device's handle; its GPU is the one that calls go to. */
static int handle_of(const char *what, int32_t device, struct handle **out) {
  for (struct handle *handle = handles; handle != NULL; handle = handle->next)
    if (handle->device == device) {
      *out = handle;
      return SHARDRT_OK;
    }
  struct handle *made = alloc_array(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *made = (struct handle){.device = device, .next = handles};
  cublasStatus_t status = cublas.create(&made->handle);
  if (lacks_memory(status, what, device)) status = cublas.create(&made->handle);
  int code = check_cublas(status, "cublasCreate", what, device);
  if (code < 0) {
    alloc_free(made);
    return code;
  }
  code = handle_set(made, what);
  if (code < 0) {
    handle_free(made);
    return code;
  }
  *out = handles = made;
  return SHARDRT_OK;
}

void cublas_close(void) {
  while (handles != NULL) {
    struct handle *next = handles->next;
    if (cuda_use("cublasDestroy", handles->device) == SHARDRT_OK) handle_free(handles);
    handles = next;
  }
}

/* ---- a product -------------------------------------------------------------------------------------------------- */

/* `count` products whose matrices lie so many elements apart. */
struct strided_batch {
  int64_t count, a, b, out;
};

struct multiplication {
  const char *what;
  int32_t device;
  struct handle *handle;
  cublasOperation_t a_as, b_as;
  int a_pitch, b_pitch;
  int m, n, k;
  cudaDataType_t type, out_type;
  size_t size, out_size; /* bytes of an element */
  cublasComputeType_t compute;
  bool add;
  int32_t nruns; /* one within the other, the innermost first */
  struct strided_batch runs[SHARDRT_MAX_NDIM];
};

/* The leading dimensions, but for those of 1, where neighbours whose matrices lie evenly are one. */
static void find_runs(struct multiplication *self, const struct accelerator_product *product) {
  int64_t out = product->m * product->n;
  self->nruns = 0;
  for (int32_t d = product->nbatch - 1; d >= 0; d--) {
    if (product->batch[d] == 1) continue;
    const struct strided_batch run = {product->batch[d], product->a_stride[d] * product->m * product->k,
                                      product->b_stride[d] * product->k * product->n, out};
    out *= run.count;
    struct strided_batch *inner = self->nruns == 0 ? NULL : &self->runs[self->nruns - 1];
    if (inner != NULL && run.a == inner->a * inner->count && run.b == inner->b * inner->count)
      inner->count *= run.count;
    else
      self->runs[self->nruns++] = run;
  }
  /* The rows of all left matrices with the same right one are those of one matrix. */
  const struct strided_batch *first = self->runs;
  if (self->nruns == 0 || product->transpose_a || first->b != 0 || first->a != product->m * product->k ||
      first->count > INT_MAX / product->m)
    return;
  self->m *= (int)first->count;
  self->nruns--;
  memmove(self->runs, self->runs + 1, (size_t)self->nruns * sizeof *self->runs);
}

static struct multiplication multiplication_of(const struct accelerator_product *product) {
  assert(product->m <= INT_MAX && product->n <= INT_MAX && product->k <= INT_MAX);
  struct multiplication self = {.m = (int)product->m, .n = (int)product->n, .k = (int)product->k, .add = product->add};
  self.a_as = product->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  self.b_as = product->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  self.a_pitch = product->transpose_a ? self.m : self.k;
  self.b_pitch = product->transpose_b ? self.k : self.n;
  self.size = shardrt_dtype_size(product->dtype);
  self.out_size = shardrt_dtype_size(product->out_dtype);
  const bool wide = product->dtype == SHARDRT_FLOAT64;
  const bool tf32 = product->dtype == SHARDRT_FLOAT32 && product->precision == SHARDRT_PRECISION_TF32;
  self.type = wide                                ? CUDA_R_64F
              : product->dtype == SHARDRT_FLOAT32 ? CUDA_R_32F
              : product->dtype == SHARDRT_FLOAT16 ? CUDA_R_16F
                                                  : CUDA_R_16BF;
  self.out_type = self.out_size == self.size ? self.type : CUDA_R_32F;
  self.compute = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  find_runs(&self, product);
  return self;
}

/* cuBLAS's matrices are column-major: a row-major one is its transposed there, and (a b)' is b' a'. */
static cublasStatus_t call(const struct multiplication *self, const struct strided_batch *run, const char *a,
                           const char *b, char *out) {
  const float one = 1, beta = self->add ? 1 : 0;
  const double wide_one = 1, wide_beta = beta;
  const bool wide = self->compute == CUBLAS_COMPUTE_64F;
  const void *alphas = wide ? (const void *)&wide_one : &one, *betas = wide ? (const void *)&wide_beta : &beta;
  cublasHandle_t handle = self->handle->handle;
  if (run->count == 1)
    return cublas.gemm(handle, self->b_as, self->a_as, self->n, self->m, self->k, alphas, b, self->type, self->b_pitch,
                       a, self->type, self->a_pitch, betas, out, self->out_type, self->n, self->compute,
                       CUBLAS_GEMM_DEFAULT);
  return cublas.gemm_batched(handle, self->b_as, self->a_as, self->n, self->m, self->k, alphas, b, self->type,
                             self->b_pitch, run->b, a, self->type, self->a_pitch, run->a, betas, out, self->out_type,
                             self->n, run->out, (int)run->count, self->compute, CUBLAS_GEMM_DEFAULT);
}

static int multiply_batch(const struct multiplication *self, const struct strided_batch *run, const char *a,
                          const char *b, char *out) {
  cublasStatus_t status = call(self, run, a, b, out);
  if (lacks_memory(status, self->what, self->device)) status = call(self, run, a, b, out);
  return check_cublas(status, run->count == 1 ? "cublasGemmEx" : "cublasGemmStridedBatchedEx", self->what,
                      self->device);
}

/* The longest run by calls of as many products as one may have, those around it one by one. */
static int multiply_all(const struct multiplication *self, const char *a, const char *b, char *out) {
  struct strided_batch longest = {.count = 1};
  int32_t chosen = -1;
  int64_t others = 1;
  for (int32_t r = 0; r < self->nruns; r++) {
    others *= self->runs[r].count;
    if (self->runs[r].count <= longest.count) continue;
    longest = self->runs[r];
    chosen = r;
  }
  others /= longest.count;
  int code = SHARDRT_OK;
  for (int64_t number = 0; number < others; number++) {
    int64_t rest = number, at_a = 0, at_b = 0, at_out = 0;
    for (int32_t r = 0; r < self->nruns; r++) {
      if (r == chosen) continue;
      const struct strided_batch *run = &self->runs[r];
      const int64_t index = rest % run->count;
      rest /= run->count;
      at_a += index * run->a;
      at_b += index * run->b;
      at_out += index * run->out;
    }
    for (int64_t first = 0; first < longest.count && code == SHARDRT_OK; first += MOST_BATCHES) {
      struct strided_batch part = longest;
      part.count = longest.count - first < MOST_BATCHES ? longest.count - first : MOST_BATCHES;
      code = multiply_batch(self, &part, a + (size_t)(at_a + first * longest.a) * self->size,
                            b + (size_t)(at_b + first * longest.b) * self->size,
                            out + (size_t)(at_out + first * longest.out) * self->out_size);
    }
    if (code < 0) return code;
  }
  return cuda_launched(self->what, self->device);
}

int cuda_product(const char *what, int32_t device, const struct accelerator_product *product, const void *a,
                 const void *b, void *out) {
  if (product->m == 0 || product->n == 0 || product->batches == 0) return SHARDRT_OK;
  if (product->dtype < SHARDRT_FLOAT16) return cuda_wrap(what, device, product, a, b, out);
  int code = cuda_use(what, device);
  if (code < 0) return code;
  if (product->k == 0) {
    if (product->add) return SHARDRT_OK;
    const size_t bytes = (size_t)(product->batches * product->m * product->n) * shardrt_dtype_size(product->out_dtype);
    return cuda_check(cudaMemsetAsync(out, 0, bytes, cuda_stream(device, ACCELERATOR_MAIN)), "cudaMemsetAsync", what,
                      device);
  }
  struct handle *handle = NULL;
  code = open_library(what);
  if (code == SHARDRT_OK) code = handle_of(what, device, &handle);
  if (code < 0) return code;
  struct multiplication self = multiplication_of(product);
  self.what = what;
  self.device = device;
  self.handle = handle;
  return multiply_all(&self, a, b, out);
}
