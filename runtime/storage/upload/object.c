/* object.c - whole objects: small ones, that one request writes or removes. */
#include "shardrt.h"
#include "storage/service/ask.h"
#include "storage/upload/multipart.h"

int shardrt_object_put(const char *address, const void *data, size_t bytes) {
  struct exchange_answer answer = {0};
  const struct ask ask = {.method = "PUT", .address = address, .body = data, .bytes = bytes};
  int code = ask_server(&ask, &answer);
  exchange_free(&answer);
  return code;
}

int shardrt_object_remove(const char *address) {
  struct exchange_answer answer = {0};
  struct refusal refused = {0};
  const struct ask ask = {.method = "DELETE", .address = address, .refused = &refused};
  int code = ask_server(&ask, &answer);
  exchange_free(&answer);
  return refused.status == 404 ? SHARDRT_OK : code;
}

void shardrt_object_end_uploads(const char *prefix) {
  multipart_abort_left(prefix, true);
}
