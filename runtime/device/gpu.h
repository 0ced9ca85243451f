/* gpu.h - this process's GPUs, and its devices, of which several may be one GPU. Part of the CUDA plug-in. */
#ifndef SHARDRT_DEVICE_GPU_H
#define SHARDRT_DEVICE_GPU_H

#include <stdatomic.h>

#include "device/cuda.h"

enum { GPU_MOST = 64, GPU_LAST = 4, GPU_NOTE = 40 };

struct gpu {
  int number;  /* CUDA's */
  int32_t own; /* this process's, from 0 */
  char name[64];
  uint8_t uuid[16];
  size_t memory;
  int32_t multiprocessors;
  bool reads_pageable;    /* the host's memory that is not pinned, by itself: the driver need not stage it */
  int32_t shared;         /* devices that it is */
  int32_t processes;      /* of the job's that have it */
  cudaMemPool_t pool;     /* NULL: it has none */
  bool reaches[GPU_MOST]; /* the memory of another one of this process's */
};

struct gpu_device {
  struct gpu *gpu;
  cudaStream_t streams[ACCELERATOR_STREAMS];
  _Atomic size_t held[ACCELERATOR_HOLDERS]; /* bytes: device/cuda_alloc.c */
  char last[GPU_LAST][GPU_NOTE];            /* what was put on it, a ring: device/failure.c */
  uint32_t noted;
};

/* As accelerator.h says of open, describe, examine, link and reaches. */
int gpu_open(const struct accelerator_wanted *wanted, int32_t *devices);
void gpu_synchronize(void); /* waits for all streams; after an error that stays, CUDA does not wait */
void gpu_close(void);
int32_t gpu_count(uint64_t *which);
int gpu_describe(int32_t device, struct accelerator_info *out);
int gpu_examine(int32_t device, shardrt_gpu *out);
int32_t gpu_link(int32_t device, int32_t other);
bool gpu_reaches(int32_t device, int32_t other);

int32_t gpu_devices(void); /* how many there are; 0: closed, and CUDA has taken everything back */
struct gpu_device *gpu_device_at(int32_t device);
struct gpu *gpu_of(int32_t device);
/* As a thread that has chosen no GPU makes a context on the first one, which need not be this process's, giving back
 * chooses one, too; nobody wants to hear what is wrong then. */
void gpu_come_back(int32_t device);

/* device/failure.c: keeps the name of what is put on a device, for when something fails. */
void gpu_note(const char *what, int32_t device);
/* An error of a call that is about no device. */
int gpu_failed(cudaError_t problem, const char *call, const char *what);

#endif
