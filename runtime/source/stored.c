#include "source/stored.h"

#include "base/alloc.h"
#include "base/error.h"

int stored_open(const char *path, struct stored *out) {
  *out = (struct stored){.path = alloc_text("%s", path), .title = alloc_text("the file %s", path)};
  int code = out->path != NULL && out->title != NULL ? mapping_open(path, &out->map) : ALLOC_FAILED;
  if (code < 0) {
    stored_close(out);
    return code;
  }
  out->bytes = out->map.bytes;
  out->changed = out->map.changed;
  return SHARDRT_OK;
}

void stored_close(struct stored *self) {
  mapping_close(&self->map);
  alloc_free(self->title);
  alloc_free(self->path);
  *self = (struct stored){0};
}

int stored_get(const struct stored *self, size_t offset, size_t bytes, struct reader *reader, const uint8_t **out) {
  if (offset > self->bytes || bytes > self->bytes - offset)
    return error_set(SHARDRT_EFORMAT, "%s: %zu bytes from byte %zu on, but it has %zu: it is cut off", self->title,
                     bytes, offset, self->bytes);
  *out = self->map.data + offset;
  reader->bytes_read += (int64_t)bytes;
  return SHARDRT_OK;
}

uint64_t stored_fingerprint(const struct stored *self) {
  return mapping_fingerprint(&self->map);
}
