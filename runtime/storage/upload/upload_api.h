/* upload_api.h - objects of a bucket that are written and removed: a part of shardrt.h. */
#ifndef SHARDRT_STORAGE_UPLOAD_UPLOAD_API_H
#define SHARDRT_STORAGE_UPLOAD_UPLOAD_API_H

#include "base/base_api.h"

/* Puts an object of `bytes` bytes, at most 5 GiB, at an address ("s3://bucket/key"), whole or not at all, in place of
 * the one that is there. EINVAL: no bucket or key. EIO: the server refuses, or does not answer. Any thread. */
int shardrt_object_put(const char *address, const void *data, size_t bytes);
/* Removes one. One that is not there is no error. */
int shardrt_object_remove(const char *address);
/* Ends the uploads that are open of all keys that begin as this address does: those of killed jobs. Where the server
 * does not let one list or end them, they stay. */
void shardrt_object_end_uploads(const char *prefix);

#endif
