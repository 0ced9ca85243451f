/* storage_api.h - checksums of files: a part of shardrt.h. */
#ifndef SHARDRT_STORAGE_STORAGE_API_H
#define SHARDRT_STORAGE_STORAGE_API_H

#include "base/base_api.h"

/* EFORMAT, once, where what this process noted of a file is not what another process or job read there: for the end of
 * a job, when all sources are freed. */
int shardrt_verify_finish(void);

#endif
