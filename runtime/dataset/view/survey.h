/* survey.h - what is found out about every sample before the first batch is made: each process looks at its share, on
 * all the cores that it may use, and every process comes to know all of it. */
#ifndef SHARDRT_DATASET_VIEW_SURVEY_H
#define SHARDRT_DATASET_VIEW_SURVEY_H

#include "storage/local/reader.h"

/* Looks at items first … first + count - 1 and writes what it finds of each to `found`, packed. Called in many threads
 * at once, each with a reader of its own. Returns a code, with the message set. */
typedef int survey_look(const void *context, struct reader *reader, int64_t first, int64_t count, void *found);

/* For files on servers, where threads wait for most of the time: in all processes that look together. */
enum { SURVEY_ON_SERVERS = 256 };

struct survey {
  shardrt_job *job;  /* NULL: this process looks at all */
  const char *what;  /* for messages, the same in every process */
  int64_t items;     /* how many there are, */
  size_t item_bytes; /* what is found of one, */
  int64_t chunk;     /* and how many are looked at in one call */
  int32_t threads;   /* at most so many look at once, in the job; 0: in each process as many as there are cores */
  survey_look *look;
  const void *context;
};

/* Every process must call it with the same survey. *out is what was found of all items, packed, to be freed by
 * alloc_free. What fails in one process fails in all. However long looking takes, no process that is done with its own
 * share runs into the job's timeout. */
int survey_run(const struct survey *survey, void **out);

#endif
