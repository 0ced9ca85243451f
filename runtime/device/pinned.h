/* pinned.h - host memory that GPUs copy from and to by themselves, kept for reuse: pinning costs far more than copying,
 * and waits for the GPU. Part of the CUDA plug-in. */
#ifndef SHARDRT_DEVICE_PINNED_H
#define SHARDRT_DEVICE_PINNED_H

#include "shardrt.h"

/* ENOMEM, EDEVICE. The calling thread's current GPU is one of the process's own. 0 bytes have an address, too. */
int pinned_allocate(size_t bytes, void **out);
/* `bytes` as allocated. NULL: nothing. */
void pinned_free(void *data, size_t bytes);
/* Gives back what waits for reuse. */
void pinned_close(void);

#endif
