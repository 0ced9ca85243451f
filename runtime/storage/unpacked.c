#include "storage/unpacked.h"

#include <string.h>

#ifndef SHARDRT_WITHOUT_ZSTD
#include <zstd.h>
#endif

#include "base/alloc.h"
#include "base/error.h"
#include "storage/write/cache.h"
#include "system/machine.h"
#include "system/team.h"

enum {
  INPUT_BYTES = 1 << 20,
  OUTPUT_BYTES = 1 << 18,
  FRAME_MOST = 1 << 26, /* bytes of a frame that is unpacked in memory */
  THREADS_MOST = 16,
};

/* Behind the contents. */
struct unpacked_footer {
  char magic[8];
  uint64_t bytes; /* of the contents */
};
static const char footer_magic[8] = "shrdunpk";

/* What is wanted of the cache. */
struct unpacking {
  const struct stored *file;
  enum unpack_kind kind;
  struct newfile *out;
  uint64_t bytes; /* that were written */
};

static bool read_unpacked_footer(const struct mapping *cached, struct unpacked_footer *out) {
  if (cached->bytes < sizeof *out) return false;
  memcpy(out, cached->data + cached->bytes - sizeof *out, sizeof *out);
  return memcmp(out->magic, footer_magic, sizeof footer_magic) == 0 && out->bytes == cached->bytes - sizeof *out;
}

static bool unpacked_fits(const struct mapping *cached, const void *context) {
  struct unpacked_footer footer;
  (void)context;
  return read_unpacked_footer(cached, &footer);
}

static int put_bytes(struct unpacking *u, const void *data, size_t bytes) {
  u->bytes += bytes;
  return newfile_write(u->out, data, bytes);
}

/* ---- one piece after the other ----------------------------------------------------------------------------------- */

static int unpack_piece(struct unpacking *u, struct unpack_stream *stream, const uint8_t *data, size_t bytes,
                        uint8_t *room) {
  size_t taken = 0, made = OUTPUT_BYTES;
  int code = SHARDRT_OK;
  /* What a full buffer left inside the decoder comes out although all was taken. */
  while (code == SHARDRT_OK && (bytes > 0 || (made == OUTPUT_BYTES && !unpack_stream_ends(stream)))) {
    code = unpack_stream_run(stream, data, bytes, &taken, room, OUTPUT_BYTES, &made);
    data += taken;
    bytes -= taken;
    if (code == SHARDRT_OK && made > 0) code = put_bytes(u, room, made);
  }
  return code;
}

static int unpack_from(struct unpacking *u, struct unpack_stream *stream, size_t at, uint8_t *room) {
  const struct stored *file = u->file;
  struct reader reader = {0};
  int code = SHARDRT_OK;
  while (at < file->bytes && code == SHARDRT_OK) {
    const struct reader_mark mark = reader_mark(&reader);
    const size_t bytes = file->bytes - at < INPUT_BYTES ? file->bytes - at : INPUT_BYTES;
    const uint8_t *data = NULL;
    code = stored_get(file, at, bytes, &reader, &data);
    if (code < 0) break;
    code = unpack_piece(u, stream, data, bytes, room);
    if (code < 0) error_prefix(code, "%s: within the %zu bytes from byte %zu on", file->title, bytes, at);
    reader_release(&reader, mark);
    at += bytes;
  }
  reader_clear(&reader);
  if (code == SHARDRT_OK && !unpack_stream_ends(stream))
    code = error_set(SHARDRT_EFORMAT, "%s: is cut off: its compressed data does not end within its %zu bytes",
                     file->title, file->bytes);
  return code;
}

static int unpack_in_turn(struct unpacking *u, size_t at) {
  struct unpack_stream *stream = NULL;
  if (at == u->file->bytes) return SHARDRT_OK;
  uint8_t *room = alloc_array(OUTPUT_BYTES, 1);
  if (room == NULL) return ALLOC_FAILED;
  int code = unpack_stream_open(u->kind, &stream);
  if (code == SHARDRT_OK) code = unpack_from(u, stream, at, room);
  unpack_stream_free(stream);
  alloc_free(room);
  return code;
}

/* ---- frames by all cores ------------------------------------------------------------------------------------------
 */

#ifndef SHARDRT_WITHOUT_ZSTD

/* A frame that is unpacked by one thread. */
struct unpacking_frame {
  const uint8_t *data;
  size_t data_bytes;
  uint8_t *contents; /* NULL: there was no memory */
  size_t bytes;
  bool is_good;
};

static void unpack_frame(void *context, int64_t number) {
  struct unpacking_frame *frame = (struct unpacking_frame *)context + number;
  frame->is_good = ZSTD_decompress(frame->contents, frame->bytes, frame->data, frame->data_bytes) == frame->bytes;
}

/* The frame at `at`, where it is whole and tells of its length. */
static bool find_frame(const struct stored *file, size_t at, struct unpacking_frame *out) {
  const uint8_t *data = file->map.data + at;
  if (at >= file->bytes || unpack_kind_of(data, file->bytes - at) != UNPACK_ZSTD) return false;
  const size_t packed = ZSTD_findFrameCompressedSize(data, file->bytes - at);
  if (ZSTD_isError(packed)) return false;
  const unsigned long long bytes = ZSTD_getFrameContentSize(data, packed);
  if (bytes > FRAME_MOST) return false; /* also one that does not tell */
  *out = (struct unpacking_frame){.data = data, .data_bytes = packed, .bytes = (size_t)bytes};
  return true;
}

/* Unpacks the next frames together; *at goes past them. Whatever is not right is left for who unpacks in turn. */
static int unpack_together(struct unpacking *u, struct team *team, struct unpacking_frame *frames, int32_t most,
                           size_t *at) {
  int32_t n = 0;
  size_t next = *at;
  int code = SHARDRT_OK;
  for (; n < most && find_frame(u->file, next, &frames[n]); n++) {
    frames[n].contents = alloc_array(frames[n].bytes + 1, 1);
    if (frames[n].contents == NULL) break;
    next += frames[n].data_bytes;
  }
  if (n > 0) team_spread(team, unpack_frame, frames, n);
  while (team_left(team) > 0)
    if (!team_help(team)) team_stop(team);
  bool is_good = true;
  for (int32_t i = 0; i < n; i++) {
    is_good = is_good && frames[i].is_good;
    if (is_good && code == SHARDRT_OK) {
      code = put_bytes(u, frames[i].contents, frames[i].bytes);
      *at += frames[i].data_bytes;
    }
    alloc_free(frames[i].contents);
  }
  return code;
}

static int unpack_frames(struct unpacking *u, size_t *at) {
  struct unpacking_frame frames[THREADS_MOST], first;
  struct team *team = NULL;
  int32_t threads = machine_cores();
  if (threads > THREADS_MOST) threads = THREADS_MOST;
  if (threads < 2 || u->file->map.remote != NULL || !find_frame(u->file, 0, &first) ||
      first.data_bytes == u->file->bytes)
    return SHARDRT_OK; /* one frame, or none that can be told beforehand */
  int code = team_new(threads - 1, &team);
  for (size_t before = 1; code == SHARDRT_OK && before != *at;) {
    before = *at;
    code = unpack_together(u, team, frames, threads, at);
  }
  team_free(team);
  return code;
}

#else

static int unpack_frames(struct unpacking *u, size_t *at) {
  (void)u, (void)at;
  return SHARDRT_OK;
}

#endif

/* ---- the file in the cache --------------------------------------------------------------------------------------- */

static int write_unpacked(struct newfile *out, const void *context) {
  struct unpacking u = *(const struct unpacking *)context;
  struct unpacked_footer footer = {0};
  size_t at = 0;
  u.out = out;
  int code = u.kind == UNPACK_ZSTD ? unpack_frames(&u, &at) : SHARDRT_OK;
  if (code == SHARDRT_OK) code = unpack_in_turn(&u, at);
  if (code < 0) return code;
  memcpy(footer.magic, footer_magic, sizeof footer.magic);
  footer.bytes = u.bytes;
  return newfile_write(out, &footer, sizeof footer);
}

int unpacked_replace(struct stored *file, enum unpack_kind kind, const shardrt_source_options *options) {
  const struct unpacking unpacking = {.file = file, .kind = kind};
  const struct cache_request request = {.path = file->path,
                                        .file = &file->map,
                                        .folder = options->cache,
                                        .work_bytes = file->bytes,
                                        .fits = unpacked_fits,
                                        .make = write_unpacked,
                                        .context = &unpacking};
  struct unpacked_footer footer;
  struct mapping contents = {0};
  int code = cache_get(&request, &contents);
  if (code < 0) return code;
  if (!read_unpacked_footer(&contents, &footer)) {
    mapping_close(&contents);
    return error_set(SHARDRT_EIO, "%s: what it holds changed in the cache while it was opened", file->title);
  }
  stored_unmap(file);
  file->map = contents;
  file->bytes = (size_t)footer.bytes;
  return SHARDRT_OK;
}

size_t unpacked_peek(enum unpack_kind kind, const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
  struct unpack_stream *stream = NULL;
  size_t total = 0, taken = 0, made = 1;
  int code = unpack_stream_open(kind, &stream);
  while (code == SHARDRT_OK && total < room && bytes > 0 && (taken > 0 || made > 0)) {
    code = unpack_stream_run(stream, data, bytes, &taken, dst + total, room - total, &made);
    data += taken;
    bytes -= taken;
    total += made;
  }
  unpack_stream_free(stream);
  return total;
}
