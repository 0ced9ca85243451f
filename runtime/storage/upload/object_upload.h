/* object_upload.h - an object that the processes of a job write together: each sends its own parts, several at once,
 * from a bounded room. Process 0 begins and completes it. Nothing here talks to other processes: the caller sees to it
 * that all keep step, and carries the upload's name and what the server said of the parts.
 *
 * An object of one part is sent as it is, when it is completed. On the main thread all but the sending. */
#ifndef SHARDRT_STORAGE_UPLOAD_OBJECT_UPLOAD_H
#define SHARDRT_STORAGE_UPLOAD_OBJECT_UPLOAD_H

#include <stdbool.h>

#include "storage/upload/multipart.h"

struct upload_slot;

enum { UPLOAD_SLOTS = 4, UPLOAD_ROOM = 64 << 20 /* bytes under way, unless one part is larger */ };

struct object_upload {
  const char *address;      /* the caller's */
  size_t bytes, part_bytes; /* of the object, of each part but the last */
  int32_t parts;
  struct multipart upload;     /* its id is "": none is open */
  char (*tags)[MULTIPART_TAG]; /* [parts]; "": not sent by this process */
  uint64_t *sums; /* of each MULTIPART_PART bytes: their hash, as shardrt_file_fingerprint's; 0: not sent */
  int64_t sums_count;
  struct upload_slot *slots;
  int32_t slot_count;
  struct upload_state *state; /* of the threads that send */
};

/* Nothing is asked yet. ENOMEM. */
int object_upload_open(const char *address, size_t bytes, struct object_upload *out);
/* Process 0: opens it at the server, which tells its name. What a killed job left open of the same key ends. From here
 * on a signal that ends the process ends the upload first, where it would stay open. What multipart_begin fails with.
 */
int object_upload_begin(struct object_upload *self);
/* The others: process 0's name. */
int object_upload_join(struct object_upload *self, const char *id);

/* Bytes of part `number`, from 1 on. */
size_t object_upload_part_size(const struct object_upload *self, int32_t number);
/* Room for a part; waits for one to be sent. EIO, …: a part that was given before could not be sent, or a signal came.
 */
int object_upload_take(struct object_upload *self, char **room);
/* Sends what is in the room that was taken last. */
int object_upload_give(struct object_upload *self, int32_t number);
/* Waits until all have been sent. */
int object_upload_finish(struct object_upload *self);

/* Gives up what is being sent: afterwards nothing is. */
void object_upload_stop(struct object_upload *self);

/* Process 0, with the tags of all parts: the object appears. */
int object_upload_complete(struct object_upload *self);
/* Any that is zeroed or was opened. `ends`: the upload ends at the server, if it was not completed. */
void object_upload_close(struct object_upload *self, bool ends);

#endif
