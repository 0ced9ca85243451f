/* inventory_api.h - what `shardrt devices` shows of this process: a part of shardrt.h. */
#ifndef SHARDRT_PLATFORM_INVENTORY_API_H
#define SHARDRT_PLATFORM_INVENTORY_API_H

#include "base/base_api.h"

/* What of the machine is this process's; memory in bytes. */
typedef struct shardrt_machine {
  int32_t cores;      /* threads that can run at the same time */
  int64_t memory;     /* its share */
  int64_t all_memory; /* of the machine, whoever may use it */
} shardrt_machine;
void shardrt_machine_get(shardrt_machine *out);

/* A GPU, as the driver knows it; memory in bytes. */
typedef struct shardrt_gpu {
  char name[64];    /* "NVIDIA H200" */
  char bus[32];     /* "0000:1b:00.0" */
  uint8_t uuid[16]; /* no other GPU has it */
  int32_t number;   /* CUDA's, in this process */
  int32_t major;    /* of its compute capability, 9.0: 9, */
  int32_t minor;    /* and 0 */
  int64_t memory;
  int64_t available; /* that nobody has taken */
} shardrt_gpu;
/* The GPU that a device of this process is, counted from 0. Several devices may be one GPU. EINVAL: the devices are the
 * host's, or it has no such device. EDEVICE. */
int shardrt_gpu_get(int32_t device, shardrt_gpu *out);
/* How GPUs are linked, each with each, by their uuids, 16 bytes each: links[i * count + k]. Of those that this process
 * does not see nothing is known. EINVAL: the devices are the host's. EDEVICE. */
int shardrt_gpu_links(int32_t count, const uint8_t *uuids, int32_t *links);
/* A link in a word: "same", "nvlink", "peer" (peer access by PCIe), "host" (through the host's memory); "": unknown.
 * Static. */
const char *shardrt_gpu_link_name(int32_t link);

/* One of the files that GPUs need. */
typedef struct shardrt_gpu_library {
  char name[64];      /* "NCCL" */
  char version[32];   /* "2.28.3"; "": it does not say */
  char path[4096];    /* of the file that is loaded; "": there is none */
  char problem[2048]; /* why it cannot be used, and what would do; "": it can */
} shardrt_gpu_library;
/* Number `index` of these files, from 0: the plug-in, the driver's library, then what the plug-in opens. Loads them
 * where they were not yet; they stay. False: there are no more, and *out is untouched. Any thread. */
bool shardrt_gpu_library_get(int32_t index, shardrt_gpu_library *out);

#endif
