/* nccl.h - the part of NCCL that the plug-in uses, with its names and values, for the stand-in: nothing of it is from
 * NVIDIA. tests/standin/nccl_drift.c compiles it beside the real header, where that is, so that neither a value nor a
 * prototype can differ (STANDIN_DRIFT). */
#ifndef STANDIN_NCCL_H
#define STANDIN_NCCL_H

#include <cuda_runtime_api.h>
#include <limits.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STANDIN_NCCL_RESULTS(X)                                                                                        \
  X(ncclSuccess, 0, "no error")                                                                                        \
  X(ncclUnhandledCudaError, 1, "unhandled cuda error")                                                                 \
  X(ncclSystemError, 2, "unhandled system error")                                                                      \
  X(ncclInternalError, 3, "internal error")                                                                            \
  X(ncclInvalidArgument, 4, "invalid argument")                                                                        \
  X(ncclInvalidUsage, 5, "invalid usage")                                                                              \
  X(ncclRemoteError, 6, "remote process exited or there was a network error")                                          \
  X(ncclInProgress, 7, "NCCL operation in progress")
#define STANDIN_NCCL_TYPES(X)                                                                                          \
  X(ncclInt8, 0)                                                                                                       \
  X(ncclUint8, 1)                                                                                                      \
  X(ncclInt32, 2)                                                                                                      \
  X(ncclUint32, 3)                                                                                                     \
  X(ncclInt64, 4)                                                                                                      \
  X(ncclUint64, 5)                                                                                                     \
  X(ncclFloat32, 7)                                                                                                    \
  X(ncclFloat64, 8)
#define STANDIN_NCCL_OPS(X) X(ncclSum, 0)

#ifndef STANDIN_DRIFT

#define STANDIN_VALUE(name, value, ...) name = value,
typedef enum { STANDIN_NCCL_RESULTS(STANDIN_VALUE) } ncclResult_t;
typedef enum { STANDIN_NCCL_TYPES(STANDIN_VALUE) } ncclDataType_t;
typedef enum { STANDIN_NCCL_OPS(STANDIN_VALUE) } ncclRedOp_t;
#undef STANDIN_VALUE

#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE     NCCL_VERSION(2, 28, 9)

typedef struct ncclComm *ncclComm_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* Of the real one's fields those that the plug-in sets, and what tells a config that was initialized. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR    -1
#define NCCL_CONFIG_INITIALIZER                                                                                        \
  { sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT }

#endif

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
#ifdef __cplusplus
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
#else
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
#endif
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
