/* cuda_runtime_api.h - the part of CUDA's runtime that the plug-in uses, with CUDA 13's names and values, for the
 * stand-in: nothing of it is from NVIDIA. tests/standin/drift.c compiles it beside the real header, where that is, so
 * that neither a value nor a prototype can differ (STANDIN_DRIFT). */
#ifndef STANDIN_CUDA_RUNTIME_API_H
#define STANDIN_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STANDIN_ERRORS(X)                                                                                              \
  X(cudaSuccess, 0)                                                                                                    \
  X(cudaErrorInvalidValue, 1)                                                                                          \
  X(cudaErrorMemoryAllocation, 2)                                                                                      \
  X(cudaErrorInitializationError, 3)                                                                                   \
  X(cudaErrorCudartUnloading, 4)                                                                                       \
  X(cudaErrorInvalidConfiguration, 9)                                                                                  \
  X(cudaErrorInvalidMemcpyDirection, 21)                                                                               \
  X(cudaErrorStubLibrary, 34)                                                                                          \
  X(cudaErrorInsufficientDriver, 35)                                                                                   \
  X(cudaErrorDevicesUnavailable, 46)                                                                                   \
  X(cudaErrorInvalidDeviceFunction, 98)                                                                                \
  X(cudaErrorNoDevice, 100)                                                                                            \
  X(cudaErrorInvalidDevice, 101)                                                                                       \
  X(cudaErrorNoKernelImageForDevice, 209)                                                                              \
  X(cudaErrorECCUncorrectable, 214)                                                                                    \
  X(cudaErrorPeerAccessUnsupported, 217)                                                                               \
  X(cudaErrorInvalidResourceHandle, 400)                                                                               \
  X(cudaErrorNotReady, 600)                                                                                            \
  X(cudaErrorIllegalAddress, 700)                                                                                      \
  X(cudaErrorLaunchOutOfResources, 701)                                                                                \
  X(cudaErrorLaunchTimeout, 702)                                                                                       \
  X(cudaErrorPeerAccessAlreadyEnabled, 704)                                                                            \
  X(cudaErrorAssert, 710)                                                                                              \
  X(cudaErrorTooManyPeers, 711)                                                                                        \
  X(cudaErrorHardwareStackError, 714)                                                                                  \
  X(cudaErrorIllegalInstruction, 715)                                                                                  \
  X(cudaErrorMisalignedAddress, 716)                                                                                   \
  X(cudaErrorInvalidAddressSpace, 717)                                                                                 \
  X(cudaErrorInvalidPc, 718)                                                                                           \
  X(cudaErrorLaunchFailure, 719)                                                                                       \
  X(cudaErrorNotSupported, 801)                                                                                        \
  X(cudaErrorSystemDriverMismatch, 803)                                                                                \
  X(cudaErrorUnknown, 999)
#define STANDIN_ATTRIBUTES(X)                                                                                          \
  X(cudaDevAttrMultiProcessorCount, 16)                                                                                \
  X(cudaDevAttrComputeMode, 20)                                                                                        \
  X(cudaDevAttrPciBusId, 33)                                                                                           \
  X(cudaDevAttrPciDeviceId, 34)                                                                                        \
  X(cudaDevAttrMaxThreadsPerMultiProcessor, 39)                                                                        \
  X(cudaDevAttrPciDomainId, 50)                                                                                        \
  X(cudaDevAttrComputeCapabilityMajor, 75)                                                                             \
  X(cudaDevAttrComputeCapabilityMinor, 76)                                                                             \
  X(cudaDevAttrPageableMemoryAccess, 88)                                                                               \
  X(cudaDevAttrMemoryPoolsSupported, 115)
#define STANDIN_P2P(X)                                                                                                 \
  X(cudaDevP2PAttrPerformanceRank, 1)                                                                                  \
  X(cudaDevP2PAttrAccessSupported, 2)                                                                                  \
  X(cudaDevP2PAttrNativeAtomicSupported, 3)
#define STANDIN_POOL_ATTRIBUTES(X)                                                                                     \
  X(cudaMemPoolReuseFollowEventDependencies, 1)                                                                        \
  X(cudaMemPoolReuseAllowOpportunistic, 2)                                                                             \
  X(cudaMemPoolReuseAllowInternalDependencies, 3)                                                                      \
  X(cudaMemPoolAttrReleaseThreshold, 4)                                                                                \
  X(cudaMemPoolAttrReservedMemCurrent, 5)                                                                              \
  X(cudaMemPoolAttrReservedMemHigh, 6)                                                                                 \
  X(cudaMemPoolAttrUsedMemCurrent, 7)                                                                                  \
  X(cudaMemPoolAttrUsedMemHigh, 8)
#define STANDIN_COPIES(X)                                                                                              \
  X(cudaMemcpyHostToHost, 0)                                                                                           \
  X(cudaMemcpyHostToDevice, 1)                                                                                         \
  X(cudaMemcpyDeviceToHost, 2)                                                                                         \
  X(cudaMemcpyDeviceToDevice, 3)                                                                                       \
  X(cudaMemcpyDefault, 4)
#define STANDIN_LOCATIONS(X)                                                                                           \
  X(cudaMemLocationTypeInvalid, 0)                                                                                     \
  X(cudaMemLocationTypeDevice, 1)
#define STANDIN_READS(X)                                                                                               \
  X(cudaMemcpySrcAccessOrderStream, 1)                                                                                 \
  X(cudaMemcpySrcAccessOrderDuringApiCall, 2)                                                                          \
  X(cudaMemcpySrcAccessOrderAny, 3)
#define STANDIN_MEMORIES(X)                                                                                            \
  X(cudaMemoryTypeUnregistered, 0)                                                                                     \
  X(cudaMemoryTypeHost, 1)                                                                                             \
  X(cudaMemoryTypeDevice, 2)
#define STANDIN_ACCESS(X)                                                                                              \
  X(cudaMemAccessFlagsProtNone, 0)                                                                                     \
  X(cudaMemAccessFlagsProtRead, 1)                                                                                     \
  X(cudaMemAccessFlagsProtReadWrite, 3)
#define STANDIN_FLAGS(X)                                                                                               \
  X(cudaStreamNonBlocking, 0x01)                                                                                       \
  X(cudaEventDefault, 0x00)                                                                                            \
  X(cudaEventDisableTiming, 0x02)                                                                                      \
  X(cudaHostAllocDefault, 0x00)                                                                                        \
  X(cudaHostAllocPortable, 0x01)

#ifndef STANDIN_DRIFT

#define STANDIN_VALUE(name, value) name = value,
typedef enum cudaError { STANDIN_ERRORS(STANDIN_VALUE) } cudaError_t;
enum cudaDeviceAttr { STANDIN_ATTRIBUTES(STANDIN_VALUE) };
enum cudaDeviceP2PAttr { STANDIN_P2P(STANDIN_VALUE) };
enum cudaMemPoolAttr { STANDIN_POOL_ATTRIBUTES(STANDIN_VALUE) };
enum cudaMemcpyKind { STANDIN_COPIES(STANDIN_VALUE) };
enum cudaMemLocationType { STANDIN_LOCATIONS(STANDIN_VALUE) };
enum cudaMemAccessFlags { STANDIN_ACCESS(STANDIN_VALUE) };
enum cudaMemcpySrcAccessOrder { STANDIN_READS(STANDIN_VALUE) };
enum cudaMemoryType { STANDIN_MEMORIES(STANDIN_VALUE) };
enum { STANDIN_FLAGS(STANDIN_VALUE) };
#undef STANDIN_VALUE

#define CUDART_VERSION 13000

typedef struct CUstream_st *cudaStream_t;
#define cudaStreamLegacy    ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUmemPoolHandle_st *cudaMemPool_t;

typedef struct CUuuid_st {
  char bytes[16];
} cudaUUID_t;

/* Of the real one's fields those that the plug-in reads. */
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
  int major, minor;
  int multiProcessorCount;
};

struct cudaMemLocation {
  enum cudaMemLocationType type;
  int id;
};

struct cudaMemAccessDesc {
  struct cudaMemLocation location;
  enum cudaMemAccessFlags flags;
};

struct cudaMemcpyAttributes {
  enum cudaMemcpySrcAccessOrder srcAccessOrder;
  struct cudaMemLocation srcLocHint, dstLocHint;
  unsigned int flags;
};

/* Of the real one's fields the one that the plug-in reads. */
struct cudaPointerAttributes {
  enum cudaMemoryType type;
};

#endif

cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int gpu);
cudaError_t cudaGetDevice(int *gpu);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int gpu);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int gpu);
cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int gpu);
cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int gpu, int other);
cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int other);
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned int flags);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);

cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *data);
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *data, cudaStream_t stream);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int gpu);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count);
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags);
cudaError_t cudaFreeHost(void *data);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *data);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t stream);
cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes, size_t count,
                                 struct cudaMemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                                 cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
