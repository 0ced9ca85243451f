/* loader_api.h - batches of samples, in order, on their devices: a part of shardrt.h. */
#ifndef SHARDRT_LOADER_LOADER_API_H
#define SHARDRT_LOADER_LOADER_API_H

#include "dataset/dataset_api.h"

enum { SHARDRT_DROP, SHARDRT_PAD, SHARDRT_ERROR }; /* the rest of an epoch that does not fill a batch */
/* The order of an epoch: the source's own; a permutation of all samples; or the blocks that the source is stored in,
 * permuted, and the rows of `window` blocks that follow one another mixed (runtime/dataset/order/block_order.h). */
enum { SHARDRT_IN_ORDER, SHARDRT_SHUFFLED, SHARDRT_BY_BLOCKS };
enum { SHARDRT_PER_PROCESS, SHARDRT_GLOBAL, SHARDRT_PER_DEVICE }; /* who reads what */

typedef struct shardrt_loader shardrt_loader;

typedef struct shardrt_loader_options {
  shardrt_job *job;       /* whose processes read together, and which outlives the loader; NULL: this process alone */
  shardrt_source *source; /* a count is taken */
  shardrt_sharding *const *shardings; /* one for each field, then one for the mask (may be NULL unless PAD) */
  /* One for each field: how a batch is laid out when it is read, before it goes over the links between processes to
   * the layout that is asked for. NULL: it is read as it is asked for. */
  shardrt_sharding *const *load_shardings;
  int64_t batch_size;  /* rows of the global batch */
  uint64_t seed;       /* of the order */
  int64_t epochs;      /* < 0: without end */
  int64_t first_step;  /* the number of the first batch, for messages and for which are checked */
  int64_t window;      /* of SHARDRT_BY_BLOCKS: blocks whose rows are mixed, */
  int64_t lanes;       /* and rows of a batch, as the order has it; 0: batch_size */
  int32_t shuffle;     /* SHARDRT_IN_ORDER, … */
  int32_t remainder;   /* SHARDRT_DROP, … */
  int32_t pipeline;    /* SHARDRT_PER_PROCESS, … */
  int32_t num_workers; /* 0: chosen from the machine, and from how the steps go */
  int32_t prefetch;    /* batches made ahead; 0: chosen in the same way */
  int64_t read_size;   /* bytes that a worker reads at once, if they are more than a row; 0: chosen from the machine */
  int32_t process;
  int32_t devices_per_process;
} shardrt_loader_options;

/* What is read ahead counts when its batch is handed out. */
typedef struct shardrt_loader_stats {
  int64_t bytes_read;     /* taken from the source's storage by this process */
  int64_t bytes_moved;    /* received from other processes */
  int64_t bytes_uploaded; /* to devices with memory of their own; of batches that have arrived there */
  int64_t samples;        /* rows of the global batches handed out, without padding */
  int64_t steps;
  int64_t steps_checked;       /* in which replicas were compared; 0 where no field has any */
  int64_t bytes_fingerprinted; /* by this process, for that: of fields that have replicas, in steps that are checked */
  double seconds;              /* from the call for the first batch to the last call's end */
  double wait_seconds;         /* of these, spent waiting for a batch */
  double read_seconds;         /* spent reading, by all workers together, */
  double decode_seconds;       /* decoding, */
  double transform_seconds;    /* transforming, */
  double scatter_seconds;      /* copying rows that were read whole to where they belong, */
  double check_seconds;        /* and taking fingerprints of replicas */
  double move_seconds;         /* spent moving, each time from when all processes had come to it */
  double upload_seconds;       /* that these uploads took, by the devices' clocks, each batch's longest, */
  double upload_wait_seconds;  /* and of these, when what was asked of the devices had to wait for them */
  size_t batch_bytes;          /* of this process's shards of one batch */
  size_t budget_bytes;         /* of batches made ahead and handed out, and slack_bytes */
  size_t pinned_bytes;         /* of the host's memory from which batches are uploaded, at most; 0: none are */
  size_t slack_bytes;          /* that batches which the caller let go may take before they are collected */
  int32_t num_workers;         /* these three as they are now */
  int32_t prefetch;
  size_t read_size;
  const char *why;            /* they are so; valid until the loader's next step */
  int64_t bytes_ahead;        /* read before the workers needed them, because they were not in the page cache */
  int64_t bytes_from_network; /* downloaded from servers by this process, also ahead */
  int64_t blocks;             /* that the source is stored in; the samples, where each stands alone */
  int64_t blocks_decoded;     /* by this process: each as often as it was */
  const char *ahead; /* how: "io_uring", "threads"; NULL: it was not needed yet; "none": cannot be had; "off" */
} shardrt_loader_stats;

/* How a loader goes about it, and what is chosen from how its steps went: for tests, too. */
typedef struct shardrt_pace {
  int32_t workers, most_workers;
  int32_t prefetch, most_prefetch;
  bool workers_fixed, prefetch_fixed;
  int32_t prefetch_before; /* more than so many are being tried; 0: no */
  double waited_before;    /* when they were that many */
} shardrt_pace;
/* After a number of steps; four parts between 0 and 1: of the time that the recipe waited for data, of the time that
 * each of the workers was busy, of the steps which began when all batches that may be made ahead were there, and of the
 * time that the recipe slept. Returns whether anything was changed. */
bool shardrt_pace_look(shardrt_pace *pace, double waited, double busy, double full, double slept);

/* What one whole batch costs a process, by the plans alone. */
typedef struct shardrt_loader_cost {
  int64_t bytes_read;     /* taken from the source's storage */
  int64_t bytes_received; /* from other processes */
  int64_t bytes_sent;     /* to other processes */
} shardrt_loader_cost;
/* For options->process, whichever that is. Nothing is read, nobody is asked. EINVAL where a batch does
 * not divide over a sharding. */
int shardrt_loader_cost_of(const shardrt_loader_options *options, shardrt_loader_cost *out);

/* What an order would cost options->process in an epoch. */
typedef struct shardrt_order_cost {
  int64_t blocks;     /* that it reads something of, each as often as it comes to it; of SHARDRT_SHUFFLED about */
  int64_t bytes;      /* that these take where they are stored, about */
  int64_t kept;       /* where blocks are decoded: how many stay so, about */
  int32_t decoded;    /* 1: they are */
  int32_t downloaded; /* 1: some file lies on a server */
} shardrt_order_cost;
/* For options->shuffle. Nothing is read. Blocks that are neither decoded nor downloaded are not counted. EINVAL: the
 * source is a mix, whose parts have orders of their own; what shardrt_loader_cost_of says. */
int shardrt_loader_order_cost(const shardrt_loader_options *options, shardrt_order_cost *out);

/* A loader that moves its batches (load_shardings) makes collective calls in shardrt_loader_next. */
int shardrt_loader_new(const shardrt_loader_options *options, shardrt_loader **out);
void shardrt_loader_free(shardrt_loader *loader); /* joins the workers; arrays already handed out stay valid */
/* The next global batch: writes one array for each field (then the mask, with PAD), which are the caller's.
 * Returns 1, or 0 after the last one, or an error. Compares the replicas of the fields (EMISMATCH), with the job's
 * check `sample` in the first ten steps and then one in a hundred; the mask is computed alike everywhere, and not
 * compared. Every process must call it alike: the number of steps was fixed by shardrt_loader_new, and every step is
 * told to shardrt_job_step, so that a process which took others is found. Masks of full batches share one memory. */
int shardrt_loader_next(shardrt_loader *loader, shardrt_array **arrays);
int64_t shardrt_loader_steps_per_epoch(const shardrt_loader *loader); /* batches, by the source and the remainder */
/* Of what was handed out so far; may be called between any two steps. */
void shardrt_loader_stats_get(const shardrt_loader *loader, shardrt_loader_stats *out);
/* Where the next batch stands: its epoch and its first row in the epoch's order. seek goes there: O(1). EINVAL:
 * outside the epoch. */
void shardrt_loader_tell(const shardrt_loader *loader, int64_t *epoch, int64_t *row);
int shardrt_loader_seek(shardrt_loader *loader, int64_t epoch, int64_t row);
/* From now on the order over blocks is that of a loader with batches of so many rows, as a state of it wants; seek is
 * called next. Blocks may then be read by more processes than one. EINVAL: not above 0. */
int shardrt_loader_set_lanes(shardrt_loader *loader, int64_t lanes);
/* Bytes of buffers that arrays handed out by this loader still hold: lets a garbage collector keep pace. */
size_t shardrt_loader_outstanding(const shardrt_loader *loader);

#endif
