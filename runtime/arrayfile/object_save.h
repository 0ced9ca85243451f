/* object_save.h - what all processes hold of arrays, as one object of a bucket: the same bytes as in a file.
 *
 * An object goes up in parts of equal size, each of which one process sends. So there are windows of one part for each
 * process: in each, all give each other what belongs into its part, and send their parts while the next window is
 * exchanged. A process needs room for two parts beside those that are under way (object_upload.h). */
#ifndef SHARDRT_ARRAYFILE_OBJECT_SAVE_H
#define SHARDRT_ARRAYFILE_OBJECT_SAVE_H

#include "shardrt.h"

/* A run of the object's bytes: an array's elements, or what process 0 gives. */
struct object_piece {
  size_t offset, bytes;
  const void *data;           /* process 0's; NULL: of the array */
  const shardrt_array *array; /* of which replica 0 of each box is written */
  shardrt_sharding *rows;     /* how it is laid out before it is written; NULL: as it is */
};

/* The pieces lie one behind the other, in their order, from byte 0 to `bytes`. All processes have agreed on them.
 * `what` says in messages what is done: "save s3://bucket/w.safetensors". *sums, which may be NULL, becomes the hashes
 * of every 8 MiB of the object, as shardrt_file_fingerprint's, in every process. *written becomes how many bytes this
 * process sent. An error in one process is an error in all, and the object is what it was. Where SIGTERM asks for an
 * orderly end (shardrt_stop_asked), which ends an upload, it goes up anew. */
int object_save(shardrt_job *job, const char *what, const char *address, size_t bytes, int64_t count,
                const struct object_piece *pieces, shardrt_buffer **sums, int64_t *written);

#endif
