/* dlpack.h - the structures by which programs hand each other arrays in memory: those of DLPack 1.0.
 *
 * Layouts, names and numbers are those of https://github.com/dmlc/dlpack, include/dlpack/dlpack.h; what later 1.x
 * added is not used here. Programs that call shardrt include that header itself. */
#ifndef SHARDRT_MEMORY_DLPACK_H
#define SHARDRT_MEMORY_DLPACK_H

#include "memory/memory_api.h"

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 0, DLPACK_READ_ONLY = 1 << 0 };

/* DLDevice.device_type */
enum { DLPACK_CPU = 1, DLPACK_CUDA = 2 };

/* DLDataType.code */
enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 };

typedef struct DLPackVersion {
  uint32_t major, minor;
} DLPackVersion;

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id; /* of CUDA, as this process counts GPUs; of the CPU 0 */
} DLDevice;

typedef struct DLDataType {
  uint8_t code;
  uint8_t bits; /* of an element */
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data; /* NULL where there is no element */
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self); /* of `self`, too */
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif
