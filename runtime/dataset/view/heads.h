/* heads.h - the beginnings and ends of many files on servers are brought into the cache, many at once, before a format
 * looks at them one by one; each once in the job. */
#ifndef SHARDRT_DATASET_VIEW_HEADS_H
#define SHARDRT_DATASET_VIEW_HEADS_H

#include "shardrt.h"
#include "storage/remote/told.h"

/* So many files are worth a meeting of the processes. */
enum { HEADS_TOGETHER = 64 };

struct heads {
  struct shardrt_told told;       /* what `options` points to */
  shardrt_source_options options; /* to open the files with: those that were given, and what was found */
  shardrt_job *job;               /* whose processes did so together; NULL: this one alone */
};

/* `tail`: so many bytes at the end of a file are what the format looks at first; 0: it begins at the beginning. All
 * processes of the options' job call it with the same files,
 * or where these differ each looks at its own. One that cannot be opened is a failure, of all, and so is what went
 * wrong here before (`code`). What the options point to must live as long as the heads. */
int heads_open(const char *format, int32_t npaths, const char *const *paths, size_t tail,
               const shardrt_source_options *options, int code, struct heads *out);
/* When the files are open, with what came of that: what failed in one process fails in all. */
int heads_close(struct heads *self, int code);

#endif
