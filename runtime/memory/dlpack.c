/* dlpack.c - shards as DLPack's tensors, for programs that know it: numpy, PyTorch, JAX, CuPy. */
#include "memory/dlpack.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"
#include "memory/buffer.h"
#include "platform/accelerator.h"

/* A tensor, and what it keeps. */
struct lent_shard {
  union {
    DLManagedTensorVersioned versioned;
    DLManagedTensor legacy;
  } tensor;
  shardrt_buffer *buffer;
  void *stream; /* the consumer's, of a GPU */
  int64_t shape[SHARDRT_MAX_NDIM];
  int64_t strides[SHARDRT_MAX_NDIM];
};

static const uint8_t kinds[SHARDRT_DTYPE_COUNT] = {
    [SHARDRT_BOOL] = DLPACK_BOOL,     [SHARDRT_INT8] = DLPACK_INT,        [SHARDRT_INT16] = DLPACK_INT,
    [SHARDRT_INT32] = DLPACK_INT,     [SHARDRT_INT64] = DLPACK_INT,       [SHARDRT_UINT8] = DLPACK_UINT,
    [SHARDRT_UINT16] = DLPACK_UINT,   [SHARDRT_UINT32] = DLPACK_UINT,     [SHARDRT_UINT64] = DLPACK_UINT,
    [SHARDRT_FLOAT16] = DLPACK_FLOAT, [SHARDRT_BFLOAT16] = DLPACK_BFLOAT, [SHARDRT_FLOAT32] = DLPACK_FLOAT,
    [SHARDRT_FLOAT64] = DLPACK_FLOAT,
};

/* ---- on GPUs: what the consumer's stream waits for, and what waits for it ---------------------------------------- */

static bool is_ordered(const void *stream) {
  return (intptr_t)stream != -1;
}

/* Keeps the devices open for the tensor, which may outlive the job. */
static int lend_device(struct lent_shard *lent, DLDevice *device) {
  const struct accelerator *a = accelerator_get();
  const int32_t number = shardrt_buffer_device(lent->buffer);
  struct accelerator_info info;
  int code = a->describe(number, &info);
  if (code == SHARDRT_OK && is_ordered(lent->stream)) code = a->streams->lend(number, lent->stream);
  if (code < 0) return code;
  *device = (DLDevice){.device_type = DLPACK_CUDA, .device_id = info.gpu};
  accelerator_hold();
  return SHARDRT_OK;
}

static void give_back(struct lent_shard *lent) {
  const int32_t device = shardrt_buffer_device(lent->buffer);
  if (device != BUFFER_HOST && is_ordered(lent->stream)) accelerator_get()->streams->take_back(device, lent->stream);
  shardrt_buffer_free(lent->buffer);
  if (device != BUFFER_HOST) accelerator_close();
  alloc_free(lent);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int check_shard(const shardrt_array *array, int64_t shard, const void *stream) {
  const int64_t count = shardrt_array_shard_count(array);
  if (shard < 0 || shard >= count)
    return error_set(SHARDRT_EINVAL, "there is no shard %" PRId64 ": this process has %" PRId64 " of the array%s",
                     shard, count, count == 0 ? "" : ", counted from 0");
  const shardrt_buffer *buffer = shardrt_array_buffer(array, shard);
  if (buffer == NULL)
    return error_set(SHARDRT_EDATA, "the array has no data: it was made for a plan, or is still being made");
  if (shardrt_buffer_device(buffer) == BUFFER_HOST && stream != NULL && is_ordered(stream))
    return error_set(SHARDRT_EINVAL,
                     "a stream is given for data in the host's memory, which waits for none: NULL would "
                     "do, which is None in Python");
  return SHARDRT_OK;
}

static int lend(const shardrt_array *array, int64_t shard, void *stream, DLTensor *tensor, struct lent_shard *lent) {
  lent->buffer = shardrt_array_buffer(array, shard);
  lent->stream = stream;
  const bool is_on_device = shardrt_buffer_device(lent->buffer) != BUFFER_HOST;
  DLDevice device = {.device_type = DLPACK_CPU};
  int code = is_on_device ? lend_device(lent, &device) : SHARDRT_OK;
  if (code < 0) return code;
  shardrt_buffer_retain(lent->buffer);
  const int32_t dtype = shardrt_array_dtype(array), ndim = shardrt_array_ndim(array);
  const shardrt_box *box = &shardrt_array_shard(array, shard)->box;
  int64_t elements = 1;
  for (int32_t d = ndim - 1; d >= 0; d--) {
    lent->shape[d] = box->stop[d] - box->start[d];
    lent->strides[d] = elements;
    elements *= lent->shape[d];
  }
  *tensor = (DLTensor){
      .data = elements == 0 ? NULL : shardrt_buffer_data(lent->buffer),
      .device = device,
      .ndim = ndim,
      .dtype = {.code = kinds[dtype], .bits = (uint8_t)(8 * shardrt_dtype_size(dtype)), .lanes = 1},
      .shape = lent->shape,
      .strides = lent->strides,
  };
  return SHARDRT_OK;
}

static void delete_versioned(DLManagedTensorVersioned *self) {
  give_back(self->manager_ctx);
}

static void delete_legacy(DLManagedTensor *self) {
  give_back(self->manager_ctx);
}

/* NULL, and *code says why. */
static struct lent_shard *lend_new(const shardrt_array *array, int64_t shard, void *stream, bool is_versioned,
                                   int *code) {
  *code = check_shard(array, shard, stream);
  if (*code < 0) return NULL;
  struct lent_shard *lent = alloc_zeros(1, sizeof *lent);
  *code = lent == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (lent == NULL) return NULL;
  *code = lend(array, shard, stream, is_versioned ? &lent->tensor.versioned.dl_tensor : &lent->tensor.legacy.dl_tensor,
               lent);
  if (*code == SHARDRT_OK) return lent;
  alloc_free(lent);
  return NULL;
}

int shardrt_array_dlpack(const shardrt_array *array, int64_t i, void *stream, struct DLManagedTensorVersioned **out) {
  int code;
  struct lent_shard *lent = lend_new(array, i, stream, true, &code);
  if (lent == NULL) return code;
  DLManagedTensorVersioned *made = &lent->tensor.versioned;
  made->version = (DLPackVersion){.major = DLPACK_MAJOR, .minor = DLPACK_MINOR};
  made->flags = DLPACK_READ_ONLY;
  made->manager_ctx = lent;
  made->deleter = delete_versioned;
  *out = made;
  return SHARDRT_OK;
}

int shardrt_array_dlpack_legacy(const shardrt_array *array, int64_t i, void *stream, struct DLManagedTensor **out) {
  int code;
  struct lent_shard *lent = lend_new(array, i, stream, false, &code);
  if (lent == NULL) return code;
  DLManagedTensor *made = &lent->tensor.legacy;
  made->manager_ctx = lent;
  made->deleter = delete_legacy;
  *out = made;
  return SHARDRT_OK;
}

/* ---- Python's capsules ------------------------------------------------------------------------------------------- */

static struct {
  int (*is_valid)(void *capsule, const char *name);
  void *(*pointer)(void *capsule, const char *name);
} python;

void shardrt_dlpack_python(int (*is_valid)(void *capsule, const char *name),
                           void *(*pointer)(void *capsule, const char *name)) {
  python.is_valid = is_valid;
  python.pointer = pointer;
}

/* Whoever consumes a capsule gives it another name, and calls the deleter. */
void shardrt_dlpack_capsule_free(void *capsule) {
  static const char versioned[] = "dltensor_versioned", legacy[] = "dltensor";
  if (python.is_valid(capsule, versioned)) {
    DLManagedTensorVersioned *tensor = python.pointer(capsule, versioned);
    tensor->deleter(tensor);
  } else if (python.is_valid(capsule, legacy)) {
    DLManagedTensor *tensor = python.pointer(capsule, legacy);
    tensor->deleter(tensor);
  }
}
