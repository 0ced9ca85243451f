/* plan.h - what one process reads for every batch, and where it goes: made once, the same for all batches but for
 * which samples they are. */
#ifndef SHARDRT_LOADER_PLAN_PLAN_H
#define SHARDRT_LOADER_PLAN_PLAN_H

#include "shardrt.h"

/* One buffer of each batch: rows first_row … first_row + rows of the global batch, and of every row what lies in
 * `inner`, packed. */
struct plan_block {
  int64_t first_row;
  int64_t rows;
  shardrt_box inner;    /* within one sample */
  size_t row_bytes;     /* of one packed row */
  size_t storage_bytes; /* of one row, that the source takes from its storage */
  size_t bytes;         /* rows * row_bytes */
};

struct plan_field {
  const shardrt_field *field; /* borrowed from the source */
  shardrt_array *like;        /* an array without data, for its sharding and shards */
  int64_t first_block;        /* its blocks are plan.blocks[first_block … first_block + nblocks] */
  int64_t nblocks;
  int32_t *shard_blocks; /* for each of its shards in this process, the block that it is, from first_block */
  int64_t task_rows;     /* the most rows of a task; alike for all blocks of a field, as their shapes are */
  int64_t tasks;         /* how many write to each of its blocks; with the global pipeline: to any of them */
  int64_t all_tasks;     /* of all its blocks */
  bool has_replicas;     /* some device of the job holds the same box as another */
  uint16_t trace_name;
};

/* Rows first … first + count of the global batch: for one block, or (block < 0, the global pipeline) the whole rows,
 * for all blocks of the field. */
struct plan_task {
  int32_t field;
  int64_t block;
  int64_t first;
  int64_t count;
};

struct plan {
  shardrt_source *source; /* counted */
  int64_t batch_size;
  int32_t process;
  int32_t devices_per_process;
  int32_t pipeline;
  uint16_t trace_loader; /* of whom the tasks are, where a trace is recorded; 0: not known */
  size_t read_size;      /* bytes of the rows that a task takes, but for one row that is larger */
  int32_t nfields;
  struct plan_field *fields;
  int64_t nblocks;
  struct plan_block *blocks;
  int64_t ntasks;
  struct plan_task *tasks; /* in the order in which they are run */
  size_t batch_bytes;      /* of the blocks together */
  int64_t task_rows;       /* the most rows of a task */
  size_t staging_bytes; /* the most bytes that a task needs to read before it copies; 0 but for the global pipeline */
};

/* Of `options`: source, load_shardings or else shardings, batch_size, pipeline, read_size, process,
 * devices_per_process. EINVAL where a batch does not divide over a field's sharding, which the message names, or where
 * it or the list of its tasks is larger than this machine's memory. */
int plan_new(const shardrt_loader_options *options, struct plan **out);
void plan_free(struct plan *self);

#endif
