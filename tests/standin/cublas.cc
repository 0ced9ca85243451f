// build: -O3
/* cublas.cc - a stand-in for cuBLAS, which only the tests use: products of column-major matrices, computed plainly when
 * the handle's stream runs. It is as strict as cuBLAS may be: a handle is used on the GPU on which it was made,
 * matrices lie in that GPU's memory whole, a handle puts its products on one stream only (two would share
 * its workspace), and what nobody forbade is done: products of TF32 lose what that has no room for, and sums of float16
 * and bfloat16 are rounded after every addition unless the mode says otherwise.
 *
 * From the environment, beside what cudart.cc reads (STANDIN_FAIL injects statuses: "cublasGemmEx@3=13"):
 *   STANDIN_CUBLAS_LOG  a file to which products are appended, as lines: "function m n k count", m … k as cuBLAS has
 * them
 */
#include <cublas_v2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>
#include <vector>

#include "standin/standin.h"

enum { WORKSPACE = 128 << 10 }; /* bytes that a handle takes on its GPU */

struct cublasContext {
  int gpu;
  cudaStream_t stream;
  unsigned mode;
};

namespace {

std::set<cublasContext *> contexts;

struct matrix {
  cublasOperation_t as;
  char *data;
  cudaDataType type;
  int64_t pitch, step; /* elements from a column, and from a matrix, to the next */
};

struct product {
  int64_t m, n, k, count;
  double alpha, beta;
  matrix a, b, c;
  cublasComputeType_t compute;
  bool rounds; /* the sum, after every addition */
};

size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

float from_half(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = (float)fraction * 0x1p-24f;
  return sign != 0 ? -small : small;
}

/* To the nearest, of equally near ones to the even. */
uint16_t to_half(float x) {
  const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (size < 0x38800000) /* a denormal: whole multiples of 2^-24 */
    return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
  return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

uint16_t to_bfloat(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 64);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float to_tf32(float x) {
  const uint32_t bits = bits_of(x);
  return (bits & 0x7f800000) == 0x7f800000 ? x : float_of((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

double load(cudaDataType type, const char *at) {
  uint16_t half;
  float single;
  double wide;
  switch (type) {
  case CUDA_R_64F:
    memcpy(&wide, at, sizeof wide);
    return wide;
  case CUDA_R_32F:
    memcpy(&single, at, sizeof single);
    return single;
  case CUDA_R_16F:
    memcpy(&half, at, sizeof half);
    return from_half(half);
  default:
    memcpy(&half, at, sizeof half);
    return float_of((uint32_t)half << 16);
  }
}

void store(cudaDataType type, char *at, double x) {
  const float single = (float)x;
  const uint16_t half = type == CUDA_R_16F ? to_half(single) : to_bfloat(single);
  if (type == CUDA_R_64F)
    memcpy(at, &x, sizeof x);
  else if (type == CUDA_R_32F)
    memcpy(at, &single, sizeof single);
  else
    memcpy(at, &half, sizeof half);
}

double rounded(cudaDataType type, double x) {
  char bytes[8];
  store(type, bytes, x);
  return load(type, bytes);
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* The elements of a `rows` by `columns` matrix, after the operation, one column after the other. */
template <class Number>
std::vector<Number> unpacked(const matrix &from, int64_t number, int64_t rows, int64_t columns, bool tf32) {
  std::vector<Number> all((size_t)(rows * columns));
  const size_t size = size_of(from.type);
  const char *data = from.data + (size_t)(number * from.step) * size;
  for (int64_t j = 0; j < columns; j++)
    for (int64_t i = 0; i < rows; i++) {
      const int64_t at = from.as == CUBLAS_OP_N ? i + j * from.pitch : j + i * from.pitch;
      const Number x = (Number)load(from.type, data + (size_t)at * size);
      all[(size_t)(i + j * rows)] = tf32 ? (Number)to_tf32((float)x) : x;
    }
  return all;
}

template <class Number> void compute(const product &p, int64_t number) {
  const bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::vector<Number> a = unpacked<Number>(p.a, number, p.m, p.k, tf32);
  const std::vector<Number> b = unpacked<Number>(p.b, number, p.k, p.n, tf32);
  std::vector<Number> sums((size_t)p.m);
  for (int64_t j = 0; j < p.n; j++) {
    for (Number &sum : sums) sum = 0;
    for (int64_t l = 0; l < p.k; l++) {
      const Number factor = b[(size_t)(l + j * p.k)], *column = a.data() + l * p.m;
      for (int64_t i = 0; i < p.m; i++) sums[(size_t)i] += column[i] * factor;
      for (int64_t i = 0; i < p.m && p.rounds; i++) sums[(size_t)i] = (Number)rounded(p.c.type, sums[(size_t)i]);
    }
    for (int64_t i = 0; i < p.m; i++) {
      char *to = p.c.data + (size_t)(number * p.c.step + i + j * p.c.pitch) * size_of(p.c.type);
      const Number scaled = (Number)p.alpha * sums[(size_t)i];
      store(p.c.type, to, p.beta == 0 ? scaled : scaled + (Number)p.beta * (Number)load(p.c.type, to));
    }
  }
}

/* Whether all of a matrix of so many rows as it lies, `count` times, is in the GPU's memory. */
bool is_there(cudaStream_t stream, const matrix &x, int64_t rows, int64_t columns, int64_t count) {
  const int64_t elements = (count - 1) * x.step + (columns - 1) * x.pitch + rows;
  return x.pitch >= rows && x.step >= 0 && (uintptr_t)x.data % size_of(x.type) == 0 &&
         standin_reaches(stream, x.data, (size_t)elements * size_of(x.type));
}

bool is_supported(const product &p) {
  const cudaDataType from = p.a.type, to = p.c.type;
  if (p.b.type != from) return false;
  if (from == CUDA_R_64F) return to == from && p.compute == CUBLAS_COMPUTE_64F;
  if (p.compute == CUBLAS_COMPUTE_64F || (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && from != CUDA_R_32F))
    return false;
  return to == from || to == CUDA_R_32F;
}

cublasStatus_t enter(const char *call) {
  const cudaError_t error = standin_enter(call);
  if (error == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  return (int)error <= CUBLAS_STATUS_NOT_SUPPORTED ? (cublasStatus_t)error : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t put(const char *call, cublasContext *handle, product p) {
  const cublasStatus_t status = enter(call);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (contexts.count(handle) == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (standin_current_gpu() != handle->gpu)
    standin_wrong("%s: a handle of GPU %d while GPU %d is the current one", call, handle->gpu, standin_current_gpu());
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_supported(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.m == 0 || p.n == 0 || p.count == 0) return CUBLAS_STATUS_SUCCESS;
  const bool a_lies = p.a.as == CUBLAS_OP_N, b_lies = p.b.as == CUBLAS_OP_N;
  if (p.k > 0 && (!is_there(handle->stream, p.a, a_lies ? p.m : p.k, a_lies ? p.k : p.m, p.count) ||
                  !is_there(handle->stream, p.b, b_lies ? p.k : p.n, b_lies ? p.n : p.k, p.count)))
    standin_wrong("%s: an operand is not where it is said to be", call);
  if (!is_there(handle->stream, p.c, p.m, p.n, p.count) || (p.count > 1 && p.c.step < p.c.pitch * (p.n - 1) + p.m))
    standin_wrong("%s: the result is not where it is said to be, or lies over itself", call);
  p.rounds = size_of(p.c.type) == 2 && (handle->mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == 0;
  const char *log = getenv("STANDIN_CUBLAS_LOG");
  if (FILE *file = log == NULL ? NULL : fopen(log, "a")) {
    fprintf(file, "%s %d %d %d %d\n", call, (int)p.m, (int)p.n, (int)p.k, (int)p.count);
    fclose(file);
  }
  standin_put(handle->stream, call, [p] {
    for (int64_t i = 0; i < p.count; i++)
      p.compute == CUBLAS_COMPUTE_64F ? compute<double>(p, i) : compute<float>(p, i);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

double scalar(const void *at, cublasComputeType_t compute) {
  return load(compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F, (const char *)at);
}

} // namespace

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  const cublasStatus_t status = enter("cublasCreate");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!standin_take(standin_current_gpu(), WORKSPACE)) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = new cublasContext{standin_current_gpu(), nullptr, CUBLAS_DEFAULT_MATH};
  contexts.insert(*handle);
  return status;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (contexts.erase(handle) == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  standin_give_back(handle->gpu, WORKSPACE);
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  const cublasStatus_t status = enter("cublasSetStream");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (standin_gpu(stream) != handle->gpu) standin_wrong("cublasSetStream: a stream of another GPU than the handle's");
  if (handle->stream != nullptr) standin_wrong("cublasSetStream: the handle has another stream, and one workspace");
  handle->stream = stream;
  return status;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  const cublasStatus_t status = enter("cublasSetMathMode");
  if (status == CUBLAS_STATUS_SUCCESS) handle->mode = (unsigned)mode;
  return status;
}

const char *cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
#define NAME(name, ...)                                                                                                \
  case name:                                                                                                           \
    return #name;
    STANDIN_CUBLAS_STATUSES(NAME)
#undef NAME
  }
  return "an unknown status";
}

const char *cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
#define TEXT(name, value, text)                                                                                        \
  case name:                                                                                                           \
    return text;
    STANDIN_CUBLAS_STATUSES(TEXT)
#undef TEXT
  }
  return "an unknown status";
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_as, cublasOperation_t b_as, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType a_type, int a_pitch, const void *b,
                            cudaDataType b_type, int b_pitch, const void *beta, void *c, cudaDataType c_type,
                            int c_pitch, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return put("cublasGemmEx", handle,
             {m,
              n,
              k,
              1,
              scalar(alpha, compute),
              scalar(beta, compute),
              {a_as, (char *)a, a_type, a_pitch, 0},
              {b_as, (char *)b, b_type, b_pitch, 0},
              {CUBLAS_OP_N, (char *)c, c_type, c_pitch, 0},
              compute,
              false});
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_as, cublasOperation_t b_as, int m,
                                          int n, int k, const void *alpha, const void *a, cudaDataType a_type,
                                          int a_pitch, long long int a_step, const void *b, cudaDataType b_type,
                                          int b_pitch, long long int b_step, const void *beta, void *c,
                                          cudaDataType c_type, int c_pitch, long long int c_step, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  return put("cublasGemmStridedBatchedEx", handle,
             {m,
              n,
              k,
              count,
              scalar(alpha, compute),
              scalar(beta, compute),
              {a_as, (char *)a, a_type, a_pitch, a_step},
              {b_as, (char *)b, b_type, b_pitch, b_step},
              {CUBLAS_OP_N, (char *)c, c_type, c_pitch, c_step},
              compute,
              false});
}
