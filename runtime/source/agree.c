/* agree.c - every process must see the same files. */
#include <stdio.h>

#include "check/same.h"
#include "source/source.h"

/* One number first; only where that differs, what it is made of. Processes may know a file by different paths. */
int shardrt_check_source(const shardrt_source *source) {
  bool differs = false;
  int code = same_compare("comparing the source", "the source", shardrt_source_fingerprint(source), &differs);
  if (!differs) return code;
  int32_t files = source_file_count(source);
  differs = false;
  code = same_compare("counting the source's files", "the number of the source's files", (uint64_t)files, &differs);
  for (int32_t f = 0; code == SHARDRT_OK && f < files; f++) {
    char what[64];
    snprintf(what, sizeof what, "comparing file %d of the source", f);
    code = same_compare(what, source_file_name(source, f), source_file_fingerprint(source, f), &differs);
  }
  if (code < 0) return code;
  return same_compare("comparing the source", "the source (the fields' names, dtypes and shapes)",
                      shardrt_source_fingerprint(source), &differs);
}
