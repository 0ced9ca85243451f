/* transfer.h - bytes to, from and between GPUs: what accelerator.h says of upload, is_pinned, download, copy and zero.
 * Part of the CUDA plug-in. */
#ifndef SHARDRT_DEVICE_TRANSFER_H
#define SHARDRT_DEVICE_TRANSFER_H

#include "shardrt.h"

int transfer_upload(int32_t device, int32_t stream, void *to, const void *from, size_t bytes);
bool transfer_is_pinned(const void *data);
int transfer_download(int32_t device, int32_t stream, void *to, const void *from, size_t bytes);
int transfer_copy(int32_t device, void *to, int32_t other, const void *from, size_t bytes);
int transfer_zero(int32_t device, void *to, size_t bytes);

#endif
