/* audit.h - what `shardrt index` does with a file: all of its parts are gone through, by all cores, and their checksums
 * noted, or compared with those that were noted before. */
#ifndef SHARDRT_DATASET_AUDIT_H
#define SHARDRT_DATASET_AUDIT_H

#include "storage/guard.h"
#include "storage/stored.h"

/* What became of a part. */
struct audit_look {
  int64_t bytes;  /* that were read */
  bool unknown;   /* no checksum was known, and none is noted where parts are compared */
  int64_t offset; /* of what is damaged, for its message */
  size_t damaged;
};

/* How the parts of one thing are gone through. */
struct audit_kind {
  /* EFORMAT: the part is damaged, and others are looked at. */
  int (*look)(void *own, int64_t part, bool compares, struct reader *reader, struct audit_look *out);
  int (*save)(void *own);
  void (*drop)(void *own);
};

struct shardrt_audit {
  const struct audit_kind *kind;
  void *own;
  int64_t parts;
  int64_t part_bytes; /* about */
  bool together;      /* the parts may be gone through by several processes */
  struct audit_bad *bad;
  int64_t nbad;
};

/* Of a Zarr array's chunks and shards. */
int zarr_audit(const char *folder, const shardrt_source_options *options, bool compares, shardrt_audit *out);

#endif
