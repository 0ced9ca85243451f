/* cublas_v2.h - the part of cuBLAS that the plug-in uses, with its names and values, for the stand-in: nothing of it is
 * from NVIDIA. tests/standin/cublas_drift.c compiles it beside the real header, where that is, so that neither a value
 * nor a prototype can differ (STANDIN_DRIFT). */
#ifndef STANDIN_CUBLAS_V2_H
#define STANDIN_CUBLAS_V2_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STANDIN_CUBLAS_STATUSES(X)                                                                                     \
  X(CUBLAS_STATUS_SUCCESS, 0, "the operation completed successfully")                                                  \
  X(CUBLAS_STATUS_NOT_INITIALIZED, 1, "the library was not initialized")                                               \
  X(CUBLAS_STATUS_ALLOC_FAILED, 3, "the resource allocation failed")                                                   \
  X(CUBLAS_STATUS_INVALID_VALUE, 7, "an invalid value was used as an argument")                                        \
  X(CUBLAS_STATUS_EXECUTION_FAILED, 13, "the function failed to launch on the GPU")                                    \
  X(CUBLAS_STATUS_INTERNAL_ERROR, 14, "an internal operation failed")                                                  \
  X(CUBLAS_STATUS_NOT_SUPPORTED, 15, "the functionality is not supported")
#define STANDIN_CUBLAS_OPERATIONS(X) X(CUBLAS_OP_N, 0) X(CUBLAS_OP_T, 1)
#define STANDIN_CUBLAS_ALGORITHMS(X) X(CUBLAS_GEMM_DEFAULT, -1)
#define STANDIN_CUBLAS_MODES(X)                                                                                        \
  X(CUBLAS_DEFAULT_MATH, 0)                                                                                            \
  X(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16)
#define STANDIN_CUBLAS_COMPUTES(X)                                                                                     \
  X(CUBLAS_COMPUTE_32F, 68)                                                                                            \
  X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                                                                  \
  X(CUBLAS_COMPUTE_64F, 70)
#define STANDIN_CUBLAS_TYPES(X) X(CUDA_R_32F, 0) X(CUDA_R_64F, 1) X(CUDA_R_16F, 2) X(CUDA_R_16BF, 14)

#ifndef STANDIN_DRIFT

#define STANDIN_VALUE(name, value, ...) name = value,
typedef enum { STANDIN_CUBLAS_STATUSES(STANDIN_VALUE) } cublasStatus_t;
typedef enum { STANDIN_CUBLAS_OPERATIONS(STANDIN_VALUE) } cublasOperation_t;
typedef enum { STANDIN_CUBLAS_ALGORITHMS(STANDIN_VALUE) } cublasGemmAlgo_t;
typedef enum { STANDIN_CUBLAS_MODES(STANDIN_VALUE) } cublasMath_t;
typedef enum { STANDIN_CUBLAS_COMPUTES(STANDIN_VALUE) } cublasComputeType_t;
typedef enum cudaDataType_t { STANDIN_CUBLAS_TYPES(STANDIN_VALUE) } cudaDataType;
typedef enum cudaDataType_t cudaDataType_t;
#undef STANDIN_VALUE

typedef struct cublasContext *cublasHandle_t;

#endif

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
const char *cublasGetStatusName(cublasStatus_t status);
const char *cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_as, cublasOperation_t b_as, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType a_type, int a_pitch, const void *b,
                            cudaDataType b_type, int b_pitch, const void *beta, void *c, cudaDataType c_type,
                            int c_pitch, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_as, cublasOperation_t b_as, int m,
                                          int n, int k, const void *alpha, const void *a, cudaDataType a_type,
                                          int a_pitch, long long int a_step, const void *b, cudaDataType b_type,
                                          int b_pitch, long long int b_step, const void *beta, void *c,
                                          cudaDataType c_type, int c_pitch, long long int c_step, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm);

#ifdef __cplusplus
}
#endif

#endif
