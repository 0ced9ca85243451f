#include "storage/unpacked.h"

#include <errno.h>
#include <string.h>

#ifndef SHARDRT_WITHOUT_ZSTD
#include <zstd.h>
#endif

#include "base/alloc.h"
#include "base/error.h"
#include "storage/restart.h"
#include "storage/write/cache.h"
#include "storage/write/cache_limit.h"
#include "system/machine.h"
#include "system/team.h"

enum {
  INPUT_BYTES = 1 << 20,
  OUTPUT_BYTES = 1 << 18,
  FRAME_MOST = 1 << 26, /* bytes of a frame that is unpacked in memory */
  THREADS_MOST = 16,
  RATIO_SMALL = 20, /* a file that is so many times smaller than the room is unpacked without a look */
};

/* Behind the contents. */
struct unpacked_footer {
  char magic[8];
  uint64_t bytes; /* of the contents */
};
static const char footer_magic[8] = "shrdunpk";

/* Whether the cache has room for what a file holds. */
struct unpacking_room {
  uint64_t bytes;    /* of room */
  uint64_t known;    /* bytes that the file holds; 0: not known */
  bool is_too_small; /* it is */
};

/* What is wanted of the cache. */
struct unpacking {
  const struct stored *file;
  enum unpack_kind kind;
  const char *folder; /* as in shardrt_source_options */
  struct newfile *out;
  uint64_t bytes; /* that were written */
  struct unpacking_room *room;
  struct restart_writer *points; /* NULL: bytes are written; else this is told of them */
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

static int refuse_bytes(const struct unpacking *u) {
  u->room->is_too_small = true;
  return error_set(SHARDRT_EOVERFLOW, "%s: the cache has no room for what it holds", u->file->title);
}

static int put_bytes(struct unpacking *u, const void *data, size_t bytes) {
  u->bytes += bytes;
  if (u->points != NULL) {
    restart_writer_take(u->points, data, bytes);
    return SHARDRT_OK;
  }
  if (u->bytes > u->room->bytes) return refuse_bytes(u);
  errno = 0;
  const int code = newfile_write(u->out, data, bytes);
  return code < 0 && (errno == ENOSPC || errno == EDQUOT) ? refuse_bytes(u) : code;
}

/* ---- one piece after the other ----------------------------------------------------------------------------------- */

static int unpack_piece(struct unpacking *u, struct unpack_stream *stream, size_t at, const uint8_t *data, size_t bytes,
                        uint8_t *room) {
  size_t taken = 0, made = OUTPUT_BYTES;
  int code = SHARDRT_OK;
  /* What a full buffer left inside the decoder comes out although all was taken. */
  while (code == SHARDRT_OK && (bytes > 0 || (made == OUTPUT_BYTES && !unpack_stream_ends(stream)))) {
    code = unpack_stream_run(stream, data, bytes, &taken, room, OUTPUT_BYTES, &made);
    data += taken;
    at += taken;
    bytes -= taken;
    if (code == SHARDRT_OK && made > 0) code = put_bytes(u, room, made);
    if (code == SHARDRT_OK && u->points != NULL && at < u->file->bytes)
      code = restart_writer_look(u->points, stream, at);
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
    code = unpack_piece(u, stream, at, data, bytes, room);
    if (code < 0 && !u->room->is_too_small)
      error_prefix(code, "%s: within the %zu bytes from byte %zu on", file->title, bytes, at);
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
  if (code == SHARDRT_OK && u->points != NULL) unpack_stream_by_blocks(stream);
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

/* About how many bytes the file holds: as its first ones do. */
static int estimate_bytes(const struct unpacking *u, uint64_t *out) {
  const size_t bytes = u->file->bytes < INPUT_BYTES ? u->file->bytes : INPUT_BYTES;
  struct reader reader = {0};
  struct unpack_stream *stream = NULL;
  const uint8_t *data = NULL;
  size_t left = bytes, taken = 0, made = 0, total = 0;
  *out = u->room->known;
  if (*out > 0 || u->file->bytes < u->room->bytes / RATIO_SMALL) return SHARDRT_OK;
  uint8_t *room = alloc_array(OUTPUT_BYTES, 1);
  int code = room != NULL ? stored_get(u->file, 0, bytes, &reader, &data) : ALLOC_FAILED;
  if (code == SHARDRT_OK) code = unpack_stream_open(u->kind, &stream);
  while (code == SHARDRT_OK && left > 0 &&
         unpack_stream_run(stream, data, left, &taken, room, OUTPUT_BYTES, &made) == SHARDRT_OK) {
    data += taken; /* what is malformed, unpacking it finds */
    left -= taken;
    total += made;
  }
  *out = 2 * (uint64_t)((double)total * (double)u->file->bytes / (double)bytes); /* it may well be more */
  unpack_stream_free(stream);
  alloc_free(room);
  reader_clear(&reader);
  return code;
}

static int write_unpacked(struct newfile *out, const void *context) {
  struct unpacking u = *(const struct unpacking *)context;
  struct unpacked_footer footer = {0};
  size_t at = 0;
  uint64_t likely = 0;
  int64_t room = 0;
  u.out = out;
  int code = cache_room(u.folder, &room);
  u.room->bytes = (uint64_t)room;
  if (code == SHARDRT_OK) code = estimate_bytes(&u, &likely);
  if (code == SHARDRT_OK && likely > u.room->bytes) code = refuse_bytes(&u);
  if (code == SHARDRT_OK && u.kind == UNPACK_ZSTD) code = unpack_frames(&u, &at);
  if (code == SHARDRT_OK) code = unpack_in_turn(&u, at);
  if (code < 0) return code;
  memcpy(footer.magic, footer_magic, sizeof footer.magic);
  footer.bytes = u.bytes;
  return newfile_write(out, &footer, sizeof footer);
}

static int get_unpacked(struct unpacking *u, struct stored *file) {
  const struct cache_request request = {.path = file->path,
                                        .file = &file->map,
                                        .folder = u->folder,
                                        .work_bytes = file->bytes,
                                        .fits = unpacked_fits,
                                        .make = write_unpacked,
                                        .context = u};
  struct unpacked_footer footer;
  struct mapping contents = {0};
  u->room->is_too_small = false;
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

/* ---- reading it where it lies ------------------------------------------------------------------------------------ */

static int write_points(struct newfile *out, const void *context) {
  struct unpacking u = *(const struct unpacking *)context;
  struct restart_writer points = {.out = out};
  u.points = &points;
  int code = restart_writer_begin(&points);
  if (code == SHARDRT_OK) code = unpack_in_turn(&u, 0);
  if (code == SHARDRT_OK) code = restart_writer_end(&points, u.file, u.kind);
  restart_writer_clear(&points);
  return code;
}

static bool points_fit(const struct mapping *cached, const void *context) {
  const struct unpacking *u = context;
  struct restart_footer footer;
  return restart_table_read(cached, u->file, u->kind, &footer);
}

static int refuse_span(const struct stored *file, const struct unpacking *u, const struct restart_footer *footer) {
  return error_set(
      SHARDRT_EOVERFLOW,
      "%s: it holds %llu bytes, and the cache has room for %llu; reading it where it lies does not do either, as %llu "
      "bytes in a row can only be decompressed together%s; a larger SHARDRT_UNPACKED_BYTES, another cache folder, or "
      "compressing it %s helps",
      file->title, (unsigned long long)footer->bytes, (unsigned long long)u->room->bytes,
      (unsigned long long)footer->longest, u->kind == UNPACK_ZSTD ? ", being one frame" : "",
      u->kind == UNPACK_ZSTD ? "in frames, as `pzstd` does" : "anew");
}

/* Has the table, and the file's mapping, become what it is read by. */
static int read_in_place(struct stored *file, const struct unpacking *u, const struct restart_footer *footer,
                         struct mapping *table) {
  struct stored packed = {.title = alloc_text("%s", file->title), .bytes = file->bytes, .changed = file->changed};
  if (packed.title == NULL) {
    mapping_close(table);
    return ALLOC_FAILED;
  }
  packed.map = file->map;
  file->map = (struct mapping){.bytes = (size_t)footer->bytes, .changed = file->changed};
  file->bytes = (size_t)footer->bytes;
  return restart_open(&packed, u->kind, table, &file->restart);
}

static int replace_in_place(struct stored *file, struct unpacking *u) {
  const struct cache_request request = {.path = file->path,
                                        .file = &file->map,
                                        .folder = u->folder,
                                        .suffix = RESTART_SUFFIX,
                                        .work_bytes = file->bytes,
                                        .fits = points_fit,
                                        .make = write_points,
                                        .context = u};
  struct restart_footer footer;
  struct mapping table = {0};
  u->room->is_too_small = false;
  int code = cache_get(&request, &table);
  if (code < 0) return code;
  if (!restart_table_read(&table, file, u->kind, &footer))
    code = error_set(SHARDRT_EIO, "%s: the index of its restart points changed while it was opened", file->title);
  if (code == SHARDRT_OK && u->room->known == 0 && footer.bytes > 0 && footer.bytes <= u->room->bytes) {
    u->room->known = footer.bytes; /* it would fit after all */
    code = get_unpacked(u, file);
    if (!u->room->is_too_small) {
      mapping_close(&table);
      return code;
    }
    code = SHARDRT_OK;
  }
  if (code == SHARDRT_OK && footer.longest > RESTART_SPAN_MOST) code = refuse_span(file, u, &footer);
  if (code == SHARDRT_OK) return read_in_place(file, u, &footer, &table);
  mapping_close(&table);
  return code;
}

int unpacked_replace(struct stored *file, enum unpack_kind kind, const shardrt_source_options *options) {
  struct unpacking_room room = {0};
  struct unpacking unpacking = {.file = file, .kind = kind, .folder = options->cache, .room = &room};
  int code = get_unpacked(&unpacking, file);
  return room.is_too_small ? replace_in_place(file, &unpacking) : code;
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
