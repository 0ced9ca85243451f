#include "storage/stored.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/local/url.h"
#include "storage/remote/remote.h"
#include "storage/restart.h"

char *stored_title(const char *path) {
  if (!url_is(path)) return alloc_text("the file %s", path);
  char *shown = url_shown(path), *title = shown != NULL ? alloc_text("the file %s", shown) : NULL;
  alloc_free(shown);
  return title;
}

static int open_remote(const char *url, const shardrt_source_options *options, int64_t changed, struct reader *reader,
                       struct stored *out, bool *there) {
  struct reader own = {0};
  int code = remote_open(url, options, (uint64_t)changed, reader != NULL ? reader : &own, &out->map.remote, there);
  reader_clear(&own);
  if (code != SHARDRT_OK || !*there) return code;
  out->title = stored_title(url);
  out->map.bytes = remote_bytes(out->map.remote);
  out->map.changed = (int64_t)remote_key(out->map.remote);
  return out->title != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static int open_local(const char *path, struct stored *out, bool *there) {
  out->title = stored_title(path);
  int code = out->title != NULL ? mapping_open(path, &out->map) : ALLOC_FAILED;
  *there = code != SHARDRT_EIO || access(path, F_OK) == 0 || errno != ENOENT;
  return *there ? code : SHARDRT_OK;
}

static int open_if(const char *path, const shardrt_source_options *options, int64_t changed, struct reader *reader,
                   struct stored *out, bool *there) {
  *out = (struct stored){.path = alloc_text("%s", path)};
  *there = false;
  int code = out->path == NULL ? ALLOC_FAILED
             : url_is(path)    ? open_remote(path, options, changed, reader, out, there)
                               : open_local(path, out, there);
  if (code < 0 || !*there) {
    stored_close(out);
    return code;
  }
  out->bytes = out->map.bytes;
  out->changed = out->map.changed;
  return SHARDRT_OK;
}

int stored_open_if(const char *path, const shardrt_source_options *options, struct reader *reader, struct stored *out,
                   bool *there) {
  return open_if(path, options, 0, reader, out, there);
}

int stored_open(const char *path, const shardrt_source_options *options, struct stored *out) {
  return stored_open_again(path, options, 0, NULL, out);
}

int stored_open_again(const char *path, const shardrt_source_options *options, int64_t changed, struct reader *reader,
                      struct stored *out) {
  bool there;
  int code = open_if(path, options, changed, reader, out, &there);
  if (code < 0 || there) return code;
  if (!url_is(path)) return error_set(SHARDRT_EIO, "%s: %s", path, strerror(ENOENT));
  char *shown = url_shown(path);
  code = shown != NULL ? error_set(SHARDRT_EIO, "%s: there is no such file on the server (404)", shown) : ALLOC_FAILED;
  alloc_free(shown);
  return code;
}

int stored_guard(struct stored *self, const shardrt_source_options *options, int32_t otherwise) {
  const int32_t verify = guard_verify(options, otherwise);
  if (verify == SHARDRT_VERIFY_NEVER || self->map.remote != NULL || self->restart != NULL || self->bytes == 0)
    return SHARDRT_OK;
  return guard_open_blocks(self->path, &self->map, options->cache, verify, &self->guard);
}

void stored_unmap(struct stored *self) {
  guard_close(self->guard);
  self->guard = NULL;
  restart_close(self->restart);
  self->restart = NULL;
  remote_close(self->map.remote);
  mapping_close(&self->map);
}

void stored_close(struct stored *self) {
  stored_unmap(self);
  alloc_free(self->title);
  alloc_free(self->path);
  *self = (struct stored){0};
}

static int check_stored_range(const struct stored *self, size_t offset, size_t bytes) {
  if (offset <= self->bytes && bytes <= self->bytes - offset) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "%s: %zu bytes from byte %zu on, but it has %zu: it is cut off", self->title, bytes,
                   offset, self->bytes);
}

/* Of what does not lie in memory. What is decoded counts as its compressed bytes, which are counted below. */
static int read_parts(const struct stored *self, size_t offset, size_t bytes, struct reader *reader, uint8_t *dst) {
  if (self->restart != NULL) return restart_read(self->restart, offset, bytes, reader, dst);
  int code = remote_read(self->map.remote, offset, bytes, reader, dst);
  if (code == SHARDRT_OK) reader->bytes_read += (int64_t)bytes;
  return code;
}

int stored_get(const struct stored *self, size_t offset, size_t bytes, struct reader *reader, const uint8_t **out) {
  int code = check_stored_range(self, offset, bytes);
  if (code != SHARDRT_OK) return code;
  if (self->map.remote != NULL || self->restart != NULL) {
    uint8_t *room = reader_room(reader, bytes);
    *out = room;
    return room != NULL ? read_parts(self, offset, bytes, reader, room) : ALLOC_FAILED;
  }
  code = stored_check(self, offset, bytes);
  if (code != SHARDRT_OK) return code;
  *out = self->map.data + offset;
  reader->bytes_read += (int64_t)bytes;
  return SHARDRT_OK;
}

static int get_input(const void *of, size_t offset, size_t bytes, struct reader *arena, const uint8_t **out) {
  return stored_get(of, offset, bytes, arena, out);
}

struct input stored_input(const struct stored *self) {
  return (struct input){.title = self->title, .bytes = self->bytes, .get = get_input, .of = self};
}

int stored_read(const struct stored *self, size_t offset, size_t bytes, struct reader *reader, void *dst) {
  int code = check_stored_range(self, offset, bytes);
  if (code != SHARDRT_OK) return code;
  if (self->map.remote != NULL || self->restart != NULL) return read_parts(self, offset, bytes, reader, dst);
  code = stored_check(self, offset, bytes);
  if (code != SHARDRT_OK) return code;
  memcpy(dst, self->map.data + offset, bytes);
  reader->bytes_read += (int64_t)bytes;
  return SHARDRT_OK;
}

int stored_extents(const struct stored *self, size_t offset, size_t bytes, struct extents *out) {
  return self->restart != NULL ? restart_extents(self->restart, offset, bytes, out)
                               : extents_add(out, &self->map, offset, bytes);
}

bool stored_is_remote(const struct stored *self) {
  return self->restart != NULL ? restart_packed(self->restart)->map.remote != NULL : self->map.remote != NULL;
}

bool stored_tells_changes(const struct stored *self) {
  return self->map.remote != NULL && remote_tells_changes(self->map.remote);
}

size_t stored_packed_bytes(const struct stored *self) {
  return self->restart != NULL ? restart_packed(self->restart)->bytes : 0;
}

uint64_t stored_identity(const struct stored *self) {
  if (stored_is_remote(self)) return stored_fingerprint(self);
  return mapping_identity(self->restart != NULL ? &restart_packed(self->restart)->map : &self->map);
}

uint64_t stored_fingerprint(const struct stored *self) {
  if (self->restart != NULL) return restart_fingerprint(self->restart);
  if (self->map.remote != NULL) return remote_fingerprint(self->map.remote);
  struct mapping held = self->map;
  held.bytes = self->bytes; /* without what the cache notes behind an unpacked file */
  return mapping_fingerprint(&held);
}
