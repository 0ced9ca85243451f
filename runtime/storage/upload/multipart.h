/* multipart.h - objects that come in parts, and what there is to ask a server for then: S3's and Google's multipart
 * uploads (bucket_parts.c), Azure's blocks (azure_blocks.c).
 *
 * An object appears under its key when its upload is completed, whole, in place of any other; until then nobody sees
 * anything of it. Each body goes with its digest, which the server compares with what came (body_digest.h).
 *
 * All of these ask again where that may help (ask.h). EIO: the server refuses, or does not answer; the message names
 * the address and the server's reason. */
#ifndef SHARDRT_STORAGE_UPLOAD_MULTIPART_H
#define SHARDRT_STORAGE_UPLOAD_MULTIPART_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/exchange/exchange.h"

enum {
  MULTIPART_ID = 1024, /* room of an upload's name, with a NUL; a multiple of 8 */
  MULTIPART_TAG = 128, /* the same of what a server says of a part */
  MULTIPART_PARTS = 10000,
  MULTIPART_PART = 8 << 20 /* bytes, a multiple of which all parts have but the last */
};

/* One that was begun. */
struct multipart {
  char id[MULTIPART_ID];         /* what the server calls it; "": there is none */
  char mark[EXCHANGE_MARK_ROOM]; /* random; by it the object is known that it becomes */
};

/* How large the parts of an object are: as small as their number allows. */
size_t multipart_part_bytes(size_t bytes);

/* Whether one that nobody ends stays open at its server, and costs. Azure's blocks vanish by themselves. */
bool multipart_stays_open(const char *address);

int multipart_begin(const char *address, struct multipart *out);
/* Part `number`, from 1 on. *is_given_up, which any thread may set: EIO, soon. Any thread. */
int multipart_put(const char *address, const char *id, int32_t number, const void *data, size_t bytes,
                  const atomic_bool *is_given_up, char tag[MULTIPART_TAG]);
/* `tags`: of parts 1 to `count`. An answer that is lost is found out, or made again. EIO also where the server said 200
 * and then, in its answer, that it failed. */
int multipart_complete(const char *address, const struct multipart *upload, int32_t count,
                       const char (*tags)[MULTIPART_TAG]);
/* One that is not there any more is no error. `tries` as ask.h has it. */
int multipart_abort(const char *address, const char *id, int32_t tries);
/* Ends the uploads that are open of this key, or of all keys that begin so: a killed job's, as many as the first page
 * of the server's list has. Whether the server lets one is not told. */
void multipart_abort_left(const char *address, bool all);

#endif
