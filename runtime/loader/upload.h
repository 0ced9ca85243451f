/* upload.h - a batch's way to devices that have memory of their own (platform/accelerator.h): from the pinned blocks
 * that the tasks filled to memory of each shard on its device, by the devices' IN streams, beside what they compute.
 *
 * An upload is started once the blocks are full, on any thread; handed over, on the main one, by telling the devices'
 * MAIN streams to wait for it, where no thread waits; and has landed when these have come to that and gone on. (That
 * the blocks are not used again before keeps a recipe from being ahead of its devices by as many batches as their
 * memory holds.) One that is not handed over is dropped: its device memory is freed in the order of the IN streams. It
 * has landed when nothing reads its blocks any more. */
#ifndef SHARDRT_LOADER_UPLOAD_H
#define SHARDRT_LOADER_UPLOAD_H

#include "loader/plan/plan.h"
#include "platform/accelerator.h"

struct upload_account;

struct upload_shard {
  int32_t field;
  int32_t device; /* of this process, from 0 */
  int64_t block;  /* of the plan */
  size_t bytes;
};

/* What goes where, the same for all batches. */
struct upload_plan {
  const struct accelerator *a;
  const struct plan *plan;
  int64_t nshards;
  struct upload_shard *shards; /* field after field, as the fields' arrays have them */
  int64_t *first_shard;        /* for each field */
  int32_t ndevices;
  int64_t *by_device;    /* shards, device after device, */
  int64_t *first_of;     /* and where in this list each device begins; ndevices + 1 of them */
  size_t batch_bytes;    /* of all shards */
  bool compares;         /* some field has replicas; */
  size_t compared_bytes; /* of the shards of such fields */
  struct upload_account *account;
};

/* NULL where the devices are the host's. The plan stays the caller's and must live as long. */
int upload_plan_new(const struct plan *plan, struct upload_plan **out);
void upload_plan_free(struct upload_plan *self);
/* Counts the memory of an array that is handed out, until it is given back. */
void upload_count(const struct upload_plan *self, shardrt_array *array);
/* The bytes that are so counted now. */
size_t upload_counted(const struct upload_plan *self);

/* What happens on one device. Invariant: if `used`, something was put on IN, which has ended when `ready` (or, where
 * that is NULL, `copied`) is reached; where both are NULL that is not known yet. */
struct upload_device {
  bool used;
  struct accelerator_event *begin, *copied; /* marks around the copies */
  struct accelerator_event *ready;          /* fingerprints have been taken, too; NULL: none are */
  struct accelerator_event *asked, *given;  /* marks on MAIN, around its waiting for that; NULL: not handed over */
};

/* The upload of one batch. */
struct upload {
  const struct upload_plan *plan; /* NULL: the devices are the host's, and there is nothing to do */
  bool is_started;
  bool is_fingerprinted;
  shardrt_buffer **buffers; /* of each of the plan's shards, between start and drop */
  uint64_t *fingerprints;   /* of each; pinned; NULL: no field has replicas */
  struct upload_device *devices;
};

/* Of uploads that were handed over and have landed. Several devices copy at the same time: a batch's seconds are those
 * of the device that took longest. */
struct upload_stats {
  int64_t bytes;
  double seconds; /* that copying took */
  double waited;  /* that MAIN stood still for it */
};

int upload_set(struct upload *self, const struct upload_plan *plan);
/* It was dropped. Waits until nothing is under way from the blocks; false: it cannot be known, as a device fails. */
bool upload_end(struct upload *self);
void upload_clear(struct upload *self);

/* Takes memory on the devices, and puts copies of the plan's blocks on their IN streams, and what takes fingerprints of
 * fields that have replicas. The message of a failure names the field. After any failure it may be tried again. */
int upload_start(struct upload *self, shardrt_buffer *const *blocks, bool fingerprinted);
/* MAIN of every device goes on when its part is there, and the buffers are MAIN's. */
int upload_hand_over(struct upload *self);
/* The fingerprints of a field's shards, in its array's order; waits for the upload. */
int upload_fingerprints(struct upload *self, int32_t field, uint64_t *out);
/* Gives up the counts of the buffers. */
void upload_drop(struct upload *self);
/* Whether something may be; as far as is known without asking the devices. */
bool upload_is_under_way(const struct upload *self);
/* Whether it has landed; if `wait`, not before. An upload that was never started has. What it took is added to the
 * stats. */
int upload_land(struct upload *self, bool wait, struct upload_stats *stats, bool *landed);

#endif
