/* multipart_kind.h - what multipart.h says, for each kind of servers. */
#ifndef SHARDRT_STORAGE_UPLOAD_MULTIPART_KIND_H
#define SHARDRT_STORAGE_UPLOAD_MULTIPART_KIND_H

#include "storage/upload/multipart.h"

enum { MULTIPART_PER_SECOND = 20 /* parts of which a server puts together that many a second, at least */ };

struct multipart_kind {
  int (*begin)(const char *address, struct multipart *upload); /* its mark is set already */
  int (*put)(const char *address, const char *id, int32_t number, const void *data, size_t bytes,
             const atomic_bool *is_given_up, char tag[MULTIPART_TAG]);
  int (*complete)(const char *address, const struct multipart *upload, int32_t count,
                  const char (*tags)[MULTIPART_TAG]);
  /* NULL, both: nothing stays open. */
  int (*abort)(const char *address, const char *id, int32_t tries);
  void (*abort_left)(const char *address, bool all);
};

extern const struct multipart_kind bucket_parts, azure_blocks;

#endif
