/* dense.h - fields whose samples lie one after the other in memory, C-contiguous: mapped files, host arrays; or so
 * in files on servers. What the
 * formats npy, idx and array have in common. */
#ifndef SHARDRT_DATASET_ARRAY_DENSE_H
#define SHARDRT_DATASET_ARRAY_DENSE_H

#include "dataset/source.h"
#include "storage/stored.h"

/* Where the samples of one field are. */
struct dense_part {
  char *title;             /* for messages: "the file a.npy" */
  struct stored file;      /* the file that the user named; closed where it is an array */
  struct mapping unpacked; /* where that file is compressed: what it holds, */
  struct guard *watch;     /* its guard, */
  char *watched;           /* and its name for messages */
  shardrt_buffer *buffer;  /* a count; NULL where it is a file */
  uint64_t fingerprint;    /* of that buffer's data, which is as large as a user made it: taken once */
  const uint8_t *data;     /* of the first sample; NULL: there is no data (planning), or */
  bool remote;             /* it is read from `file`, which lies on a server, */
  size_t first;            /* where it begins here */
  struct guard *guard;     /* of the file that `data` lies in; borrowed. NULL: it is not checked */
  bool swap;               /* elements are big-endian */
  int32_t dtype;
  int32_t ndim; /* of all samples together: shape[0] is their number */
  int64_t shape[SHARDRT_MAX_NDIM];
};

struct dense_source {
  shardrt_source base;
  struct dense_part *parts; /* one for each field */
};

/* Opens the part's file, and gives what it begins with, in memory or the reader's arena: `most` bytes, or all. */
int dense_head(const char *path, const shardrt_source_options *options, size_t most, struct reader *reader,
               struct dense_part *part, const uint8_t **head, size_t *have);
/* Notes that the samples begin at byte `first` of the part's file; EFORMAT: what stands before it is damaged. */
int dense_place(struct dense_part *part, size_t first);

/* Fills a zeroed part from a file, with its data's bytes found to be there; what it leaves in the part after a failure
 * is closed too. */
typedef int dense_map(const char *path, const shardrt_source_options *options, struct dense_part *part);

/* What a format's `open` does, given how it maps one file. */
int dense_open(const struct source_format *format, int32_t nfields, const char *const *names, const char *const *paths,
               const shardrt_source_options *options, dense_map *map, shardrt_source **out);

/* A source of nfields zeroed parts, to be filled and then finished; NULL when out of memory. */
struct dense_source *dense_new(const struct source_format *format, int32_t nfields);
/* Makes the fields and the count from the parts. EINVAL: a part without dimensions, parts of different length. */
int dense_finish(struct dense_source *source, const char *const *names);

/* A format's functions. */
int dense_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                 const shardrt_box *inner, struct reader *reader, void *dst);
const void *dense_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes);
int dense_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
                bool *handled);
int dense_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct extents *out);
void dense_close(shardrt_source *source);
#define DENSE_SOURCE                                                                                                   \
  .gather = dense_gather, .value = dense_value, .find = dense_find, .extents = dense_extents, SOURCE_RUNS,             \
  .close = dense_close

#endif
