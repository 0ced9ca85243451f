#include "storage/upload/multipart.h"

#include <inttypes.h>
#include <stdio.h>

#include <sys/random.h>

#include "base/error.h"
#include "storage/local/url.h"
#include "storage/service/services.h"
#include "storage/upload/multipart_kind.h"

size_t multipart_part_bytes(size_t bytes) {
  const size_t parts = (bytes + MULTIPART_PART - 1) / MULTIPART_PART;
  const size_t times = (parts + MULTIPART_PARTS - 1) / MULTIPART_PARTS;
  return (times > 0 ? times : 1) * (size_t)MULTIPART_PART;
}

static const struct multipart_kind *kind_of(const char *address) {
  return service_of(address) == &service_azure ? &azure_blocks : &bucket_parts;
}

bool multipart_stays_open(const char *address) {
  return kind_of(address)->abort != NULL;
}

int multipart_begin(const char *address, struct multipart *out) {
  uint64_t random[2];
  *out = (struct multipart){0};
  if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
    return url_refuse(SHARDRT_EIO, address, "the system gives no random number");
  snprintf(out->mark, sizeof out->mark, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
  return kind_of(address)->begin(address, out);
}

int multipart_put(const char *address, const char *id, int32_t number, const void *data, size_t bytes,
                  const atomic_bool *is_given_up, char tag[MULTIPART_TAG]) {
  return kind_of(address)->put(address, id, number, data, bytes, is_given_up, tag);
}

int multipart_complete(const char *address, const struct multipart *upload, int32_t count,
                       const char (*tags)[MULTIPART_TAG]) {
  return kind_of(address)->complete(address, upload, count, tags);
}

int multipart_abort(const char *address, const char *id, int32_t tries) {
  const struct multipart_kind *kind = kind_of(address);
  return kind->abort != NULL ? kind->abort(address, id, tries) : SHARDRT_OK;
}

void multipart_abort_left(const char *address, bool all) {
  const struct multipart_kind *kind = kind_of(address);
  if (kind->abort_left != NULL) kind->abort_left(address, all);
}
