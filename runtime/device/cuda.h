/* cuda.h - what the files of the CUDA plug-in share, the kernels in *.cu among them; device/cuda.c lists the files.
 * Nothing else includes it. */
#ifndef SHARDRT_DEVICE_CUDA_H
#define SHARDRT_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "platform/accelerator.h"
#include "platform/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All of it, and how the plug-in exports it. */
extern const struct accelerator cuda_accelerator;
const void *shardrt_accelerator(const struct plugin_host *host);

/* Makes the device's GPU the one that this thread's calls go to. */
int cuda_use(const char *what, int32_t device);
cudaStream_t cuda_stream(int32_t device, int32_t stream);
/* The number that recipes know the device by, for messages. */
int32_t cuda_id(int32_t device);
/* SHARDRT_OK, or EDEVICE (ENOMEM where memory is missing) with a message that names the call ("cudaMemcpyAsync"), the
 * operation, the device, CUDA's own words, and what was put on the device last, which may be what failed. */
int cuda_check(cudaError_t problem, const char *call, const char *what, int32_t device);
/* The same for what another library of CUDA says, in `words`, whose call failed. Returns the code. */
int cuda_failed(int code, const char *call, const char *words, const char *what, int32_t device);
/* After a kernel was launched: what the launch itself says. Notes `what` as the last that was put on the device. */
int cuda_launched(const char *what, int32_t device);
/* Memory for the time of some kernels, on MAIN; given back in its order, so that one may do so right after launching.
 */
int cuda_scratch(const char *what, int32_t device, size_t bytes, void **out);
void cuda_scratch_free(int32_t device, void *data, size_t bytes);
/* Multiprocessors of the device's GPU: how many blocks are worth launching at a time. */
int32_t cuda_multiprocessors(int32_t device);

/* device/library.c: opens one of CUDA's libraries, the first of `names` ("libcublas.so.13", …; NULL ends them) that is
 * in a folder of $SHARDRT_CUDA_LIBRARIES (with ":" between), else where the toolkit was when this was built, else where
 * the system looks. NULL, with the message set for EINVAL: there is none; `what` wants it, and the command `remedy`
 * installs it. */
void *cuda_library(const char *what, const char *const *names, const char *remedy);
/* One of its functions; NULL, with the message set for EINVAL, where it has none of that name. */
void *cuda_function(const char *what, void *library, const char *name);

/* As struct accelerator says of `library`: device/library.c. */
int cuda_library_at(int32_t index, struct accelerator_library *out);
/* Of these the ones that have files of their own, for which they leave the name out. EINVAL. */
int cublas_library(struct accelerator_library *out);
int nccl_library(struct accelerator_library *out);

/* The functions of struct accelerator that have files of their own, as it says of each. */
/* Of two GPUs with access to each other, by CUDA's numbers. Atomic operations go over NVLink and not over PCIe; that is
 * what the runtime tells of it. (What it calls a link's performance rank only compares links of one kind.) */
int32_t cuda_peer_link(int gpu, int other);
int cuda_topology(int32_t count, const uint8_t (*uuids)[16], int32_t *links); /* device/topology.c */
int cuda_place(const char *what, int32_t device, size_t element, const struct accelerator_place *place, void *to,
               const void *from); /* compute/cuda/place.cu */
int cuda_fingerprint(int32_t device, int32_t stream, const void *data, size_t bytes,
                     uint64_t *out); /* check/fingerprint.cu */
int cuda_elementwise(const char *what, int32_t device, const struct accelerator_program *program,
                     const struct accelerator_operand *operands, int32_t out_dtype, void *out,
                     int64_t elements); /* compute/cuda/elementwise.cu */
int cuda_reduce(const char *what, int32_t device, const struct accelerator_reduction *reduction, const void *x,
                void *out); /* compute/cuda/reduce.cu */
int cuda_product(const char *what, int32_t device, const struct accelerator_product *product, const void *a,
                 const void *b, void *out); /* compute/cuda/cublas.c */
/* Whole numbers, which wrap: compute/cuda/wrap.cu, for cuda_product. */
int cuda_wrap(const char *what, int32_t device, const struct accelerator_product *product, const void *a, const void *b,
              void *out);
int cuda_check_indices(const char *what, int32_t device, const struct accelerator_taking *taking,
                       const void *indices); /* compute/cuda/take.cu */
int cuda_take(const char *what, int32_t device, const struct accelerator_taking *taking, const void *x,
              const void *indices, void *out);
int cuda_take_add(const char *what, int32_t device, const struct accelerator_taking *taking, const void *dy,
                  const void *indices, void *out);
int cuda_argsort(const char *what, int32_t device, const struct order_kind *kind, int64_t rows, int64_t n,
                 const void *x, int32_t *out); /* compute/cuda/order.cu */
int cuda_cumsum(const char *what, int32_t device, int32_t dtype, bool backward, int64_t outer, int64_t n, int64_t inner,
                const void *x, void *out); /* compute/cuda/cumulative.cu */
int cuda_count_along(const char *what, int32_t device, int32_t dtype, double start, double step, int64_t begin,
                     int64_t outer, int64_t n, int64_t inner, void *out); /* compute/cuda/iota.cu */
int cuda_random(const char *what, int32_t device, const struct accelerator_random *random,
                void *out); /* compute/cuda/random.cu */

/* Gives back what these keep; cuda.c calls them when the platform is closed. */
void cublas_close(void);

/* comm/transport/nccl.c */
extern const struct accelerator_links nccl_links;

#ifdef __cplusplus
}
#endif

#endif
