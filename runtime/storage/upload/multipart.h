/* multipart.h - what there is to ask a bucket's server for when something is written there: whole objects, and those
 * that come in parts (https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html).
 *
 * An object appears under its key when its upload is completed, whole, in place of any other; until then nobody sees
 * anything of it. Each body is signed by its SHA-256 (x-amz-content-sha256), which the server compares with what came.
 * A shardrt without OpenSSL says UNSIGNED-PAYLOAD instead.
 *
 * All of these ask again where that may help (ask.h). EIO: the server refuses, or does not answer; the message names
 * the address and the server's reason. */
#ifndef SHARDRT_STORAGE_UPLOAD_MULTIPART_H
#define SHARDRT_STORAGE_UPLOAD_MULTIPART_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  MULTIPART_ID = 1024, /* room of an upload's name, with a NUL */
  MULTIPART_TAG = 128, /* the same of what a server says of a part */
  MULTIPART_PARTS = 10000,
  MULTIPART_PART = 8 << 20 /* bytes, a multiple of which all parts have but the last */
};

/* How large the parts of an object are: as small as their number allows. */
size_t multipart_part_bytes(size_t bytes);

int multipart_begin(const char *address, char id[MULTIPART_ID]);
/* Part `number`, from 1 on. *is_given_up, which any thread may set: EIO, soon. Any thread. */
int multipart_put(const char *address, const char *id, int32_t number, const void *data, size_t bytes,
                  const atomic_bool *is_given_up, char tag[MULTIPART_TAG]);
/* `tags`: of parts 1 to `count`. EIO also where the server said 200 and then, in its answer, that it failed. */
int multipart_complete(const char *address, const char *id, int32_t count, const char (*tags)[MULTIPART_TAG]);
/* One that is not there any more is no error. `tries` as ask.h has it. */
int multipart_abort(const char *address, const char *id, int32_t tries);
/* Ends all uploads that are open of this key, or of all keys that begin so: a killed job's. Whether the server lets one
 * is not told. */
void multipart_abort_left(const char *address, bool all);

#endif
