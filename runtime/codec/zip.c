#include "codec/zip.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "codec/inflate.h"

enum {
  HEADER = 30,  /* bytes of a member's header, */
  ENTRY = 46,   /* of its entry in the directory, */
  END = 22,     /* of the directory's end, */
  LOCATOR = 20, /* of what says where the end of a zip64 directory is, */
  END_64 = 56,  /* and of that */
  COMMENT_MOST = 65535,
  PIECE = 1 << 18, /* bytes that are unpacked together */
  RATIO = 1032,    /* what deflate makes of one byte at most, https://zlib.net/zlib_tech.html */
};

static uint32_t zip_number(const uint8_t *at, int32_t bytes) {
  uint32_t value = 0;
  for (int32_t i = bytes; i-- > 0;) value = value << 8 | at[i];
  return value;
}

static uint64_t long_number(const uint8_t *at) {
  return zip_number(at, 4) | (uint64_t)zip_number(at + 4, 4) << 32;
}

static bool is_signed(const uint8_t *at, uint8_t third, uint8_t fourth) {
  return at[0] == 'P' && at[1] == 'K' && at[2] == third && at[3] == fourth;
}

/* ---- the directory ---------------------------------------------------------------------------------------------- */

struct directory {
  uint64_t count, offset, bytes;
};

/* Where a zip64 directory is, whose locator stands before `end`. */
static int find_long(const struct input *file, size_t end, struct reader *arena, struct directory *out) {
  const uint8_t *at = NULL;
  int code = end >= LOCATOR ? input_get(file, end - LOCATOR, LOCATOR, arena, &at) : SHARDRT_OK;
  if (code < 0) return code;
  if (at == NULL || !is_signed(at, 6, 7)) return SHARDRT_OK; /* these numbers are just that large */
  const uint64_t where = long_number(at + 8);
  if (where > end - LOCATOR || end - LOCATOR - where < END_64)
    return error_set(SHARDRT_EFORMAT, "%s: its zip64 directory would end at byte %llu, beyond its locator at %zu",
                     file->title, (unsigned long long)where, end - LOCATOR);
  code = input_get(file, (size_t)where, END_64, arena, &at);
  if (code < 0) return code;
  if (!is_signed(at, 6, 6))
    return error_set(SHARDRT_EFORMAT, "%s: the end of its zip64 directory is not at byte %llu", file->title,
                     (unsigned long long)where);
  *out = (struct directory){long_number(at + 32), long_number(at + 48), long_number(at + 40)};
  return SHARDRT_OK;
}

static int find_directory(const struct input *file, struct reader *arena, struct directory *out) {
  const uint8_t *tail = NULL;
  const size_t have = file->bytes < END + COMMENT_MOST ? file->bytes : END + COMMENT_MOST;
  int code = input_get(file, file->bytes - have, have, arena, &tail);
  if (code < 0) return code;
  for (size_t left = END; left <= have; left++) { /* bytes from the end's first one on */
    const uint8_t *at = tail + have - left;
    if (!is_signed(at, 5, 6) || zip_number(at + 20, 2) != left - END) continue;
    const size_t end = file->bytes - left;
    *out = (struct directory){zip_number(at + 10, 2), zip_number(at + 16, 4), zip_number(at + 12, 4)};
    if (zip_number(at + 4, 2) != zip_number(at + 6, 2) || zip_number(at + 4, 2) != 0)
      return error_set(SHARDRT_EFORMAT, "%s: is one of several parts of an archive", file->title);
    const bool more = out->count == UINT16_MAX || out->offset == UINT32_MAX || out->bytes == UINT32_MAX;
    code = more ? find_long(file, end, arena, out) : SHARDRT_OK;
    if (code < 0 || (out->offset <= end && out->bytes <= end - out->offset && out->count <= out->bytes / ENTRY))
      return code;
    return error_set(SHARDRT_EFORMAT,
                     "%s: its directory tells of %llu members in %llu bytes from byte %llu on, and ends at byte %zu",
                     file->title, (unsigned long long)out->count, (unsigned long long)out->bytes,
                     (unsigned long long)out->offset, end);
  }
  return error_set(SHARDRT_EFORMAT, "%s: has no zip directory at its end: it is cut off, or no archive (.npz)",
                   file->title);
}

/* What an entry says in 64 bits, where 32 were not enough: in its extra field, those in this order. */
static bool read_long(const uint8_t *extra, size_t bytes, uint64_t *size, uint64_t *packed, uint64_t *offset) {
  uint64_t *const fields[] = {size, packed, offset};
  while (bytes >= 4) {
    const size_t length = zip_number(extra + 2, 2);
    if (length > bytes - 4) return false;
    if (zip_number(extra, 2) == 1) {
      size_t at = 0;
      for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (*fields[i] != UINT32_MAX) continue;
        if (length - at < 8) return false;
        *fields[i] = long_number(extra + 4 + at);
        at += 8;
      }
      return true;
    }
    extra += 4 + length;
    bytes -= 4 + length;
  }
  return *size != UINT32_MAX && *packed != UINT32_MAX && *offset != UINT32_MAX;
}

static int refuse_member(const struct input *file, const struct zip_member *member, const char *why) {
  return error_set(SHARDRT_EFORMAT, "%s: its member \"%s\" at byte %zu %s", file->title, member->name, member->header,
                   why);
}

/* Finds a member's bytes behind its own header. */
static int find_data(const struct input *file, const struct zip *self, uint32_t method, struct reader *arena,
                     struct zip_member *member) {
  const size_t length = strlen(member->name), end = self->directory;
  const uint8_t *at = NULL;
  if (member->header > end || end - member->header < HEADER + length)
    return refuse_member(file, member, "does not lie before the directory");
  int code = input_get(file, member->header, HEADER + length, arena, &at);
  if (code < 0) return code;
  if (!is_signed(at, 3, 4) || zip_number(at + 26, 2) != length || memcmp(at + HEADER, member->name, length) != 0 ||
      zip_number(at + 8, 2) != method)
    return refuse_member(file, member, "has a header that is not as in the directory");
  const size_t head = HEADER + length + zip_number(at + 28, 2);
  if (end - member->header < head || end - member->header - head < member->packed)
    return refuse_member(file, member, "reaches into the directory");
  member->data = member->header + head;
  return SHARDRT_OK;
}

/* One entry, of at most `left` bytes; *used is how many it has. */
static int read_entry(const struct input *file, const struct zip *self, const uint8_t *at, size_t left,
                      struct reader *arena, struct zip_member *out, size_t *used) {
  if (left < ENTRY || !is_signed(at, 1, 2))
    return error_set(SHARDRT_EFORMAT, "%s: its directory is damaged, or cut off", file->title);
  const size_t name = zip_number(at + 28, 2), extra = zip_number(at + 30, 2);
  *used = ENTRY + name + extra + zip_number(at + 32, 2);
  if (*used > left || memchr(at + ENTRY, '\0', name) != NULL)
    return error_set(SHARDRT_EFORMAT, "%s: its directory has a name or an extra field that is damaged", file->title);
  out->name = alloc_text("%.*s", (int)name, (const char *)at + ENTRY);
  if (out->name == NULL) return ALLOC_FAILED;
  uint64_t bytes = zip_number(at + 24, 4), packed = zip_number(at + 20, 4), header = zip_number(at + 42, 4);
  if (!read_long(at + ENTRY + name, extra, &bytes, &packed, &header))
    return refuse_member(file, out, "has an extra field that is damaged");
  const uint32_t method = zip_number(at + 10, 2);
  out->header = (size_t)header;
  out->bytes = (size_t)bytes;
  out->packed = (size_t)packed;
  out->crc = zip_number(at + 16, 4);
  out->deflated = method == Z_DEFLATED;
  if ((zip_number(at + 8, 2) & 1) != 0) return refuse_member(file, out, "is encrypted");
  if (method != Z_DEFLATED && method != 0)
    return refuse_member(file, out,
                         "is packed in another way than by deflate; numpy.savez and savez_compressed do not");
  if (method == 0 && bytes != packed) return refuse_member(file, out, "is stored, and tells of two lengths");
  if (bytes / RATIO > packed)
    return refuse_member(file, out, "tells of more bytes than deflate can make of what it has");
  return find_data(file, self, method, arena, out);
}

int zip_open(const struct input *file, struct reader *arena, struct zip *out) {
  struct directory directory = {0};
  const uint8_t *at = NULL;
  *out = (struct zip){0};
  int code = find_directory(file, arena, &directory);
  if (code < 0) return code;
  out->directory = (size_t)directory.offset;
  code = input_get(file, out->directory, (size_t)directory.bytes, arena, &at);
  if (code < 0) return code;
  out->members = alloc_zeros((size_t)directory.count, sizeof *out->members);
  if (out->members == NULL) return ALLOC_FAILED;
  size_t left = (size_t)directory.bytes;
  while (code == SHARDRT_OK && out->count < (int64_t)directory.count) {
    size_t used = 0;
    struct zip_member *member = &out->members[out->count++];
    code = read_entry(file, out, at, left, arena, member, &used);
    at += used;
    left -= used < left ? used : left;
  }
  if (code == SHARDRT_OK && left > 0)
    code = error_set(SHARDRT_EFORMAT, "%s: its directory has %zu bytes more than its %lld members need", file->title,
                     left, (long long)out->count);
  if (code < 0) zip_close(out);
  return code;
}

void zip_close(struct zip *self) {
  for (int64_t i = 0; i < self->count; i++) alloc_free(self->members[i].name);
  alloc_free(self->members);
  *self = (struct zip){0};
}

/* ---- members ---------------------------------------------------------------------------------------------------- */

/* A member as it is unpacked. */
struct zip_unpacking {
  const struct input *file;
  const struct zip_member *member;
  struct reader *arena;
  z_stream stream;
  size_t taken; /* of the packed bytes, by zlib */
  bool ended;
};

static int unpack_begin(const struct input *file, const struct zip_member *member, struct reader *arena,
                        struct zip_unpacking *out) {
  *out = (struct zip_unpacking){.file = file, .member = member, .arena = arena};
  out->stream = inflate_stream();
  return inflateInit2(&out->stream, -MAX_WBITS) == Z_OK ? SHARDRT_OK : ALLOC_FAILED; /* no wrapper: zip has its own */
}

/* Up to `room` bytes; fewer only at the end. */
static int unpack_next(struct zip_unpacking *u, uint8_t *dst, size_t room, size_t *got) {
  u->stream.next_out = dst;
  u->stream.avail_out = (uInt)room;
  while (u->stream.avail_out > 0 && !u->ended) {
    const size_t left = u->member->packed - u->taken, have = left < PIECE ? left : PIECE;
    const uint8_t *data = NULL;
    const struct reader_mark mark = reader_mark(u->arena);
    int code = input_get(u->file, u->member->data + u->taken, have, u->arena, &data);
    if (code < 0) return code;
    u->stream.next_in = (Bytef *)data;
    u->stream.avail_in = (uInt)have;
    const int state = inflate(&u->stream, Z_NO_FLUSH);
    u->taken += have - u->stream.avail_in;
    reader_release(u->arena, mark);
    u->ended = state == Z_STREAM_END;
    if (state == Z_MEM_ERROR) return error_set(SHARDRT_ENOMEM, "%s: out of memory while unpacking", u->file->title);
    if (state != Z_OK && state != Z_STREAM_END)
      return error_set(SHARDRT_EFORMAT, "%s: its member \"%s\" is damaged at byte %zu: %s", u->file->title,
                       u->member->name, u->member->data + u->taken,
                       u->stream.msg != NULL ? u->stream.msg : "its deflated data is cut off");
  }
  *got = room - u->stream.avail_out;
  return SHARDRT_OK;
}

int zip_peek(const struct input *file, const struct zip_member *member, size_t most, struct reader *arena,
             const uint8_t **out, size_t *bytes) {
  struct zip_unpacking u;
  *bytes = member->bytes < most ? member->bytes : most;
  if (!member->deflated) return input_get(file, member->data, *bytes, arena, out);
  uint8_t *dst = reader_room(arena, *bytes);
  if (dst == NULL) return ALLOC_FAILED;
  int code = unpack_begin(file, member, arena, &u);
  if (code < 0) return code;
  for (size_t done = 0, got = 0; done < *bytes && code == SHARDRT_OK && !u.ended; done += got)
    code = unpack_next(&u, dst + done, *bytes - done < PIECE ? *bytes - done : PIECE, &got);
  if (code == SHARDRT_OK && u.stream.total_out < *bytes) *bytes = u.stream.total_out;
  inflateEnd(&u.stream);
  *out = dst;
  return code;
}

/* Tells `take` of a piece, as `total` bytes were before it. */
static int pass_piece(const struct zip_unpacking *u, const uint8_t *data, size_t bytes, size_t total, uLong *crc,
                      zip_take *take, void *context) {
  if (bytes > u->member->bytes - total)
    return refuse_member(u->file, u->member, "unpacks to more bytes than the directory tells of");
  *crc = crc32(*crc, data, (uInt)bytes);
  return take != NULL ? take(data, bytes, context) : SHARDRT_OK;
}

static int check_unpacked(const struct zip_unpacking *u, size_t total, uLong crc) {
  if (total != u->member->bytes || (u->member->deflated && u->taken != u->member->packed))
    return refuse_member(u->file, u->member,
                         "unpacks to fewer bytes than the directory tells of, or has more behind them");
  if (crc == u->member->crc) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "%s: its member \"%s\" at byte %zu is damaged: its CRC-32 is %08lx, not %08x",
                   u->file->title, u->member->name, u->member->header, crc, u->member->crc);
}

static int read_stored(const struct zip_unpacking *u, zip_take *take, void *context) {
  uLong crc = crc32(0, NULL, 0);
  int code = SHARDRT_OK;
  size_t at = 0;
  for (size_t bytes = 0; at < u->member->bytes && code == SHARDRT_OK; at += bytes) {
    const uint8_t *data = NULL;
    const struct reader_mark mark = reader_mark(u->arena);
    bytes = u->member->bytes - at < PIECE ? u->member->bytes - at : PIECE;
    code = input_get(u->file, u->member->data + at, bytes, u->arena, &data);
    if (code == SHARDRT_OK) code = pass_piece(u, data, bytes, at, &crc, take, context);
    reader_release(u->arena, mark);
  }
  return code == SHARDRT_OK ? check_unpacked(u, at, crc) : code;
}

static int read_deflated(struct zip_unpacking *u, zip_take *take, void *context) {
  uLong crc = crc32(0, NULL, 0);
  const struct reader_mark mark = reader_mark(u->arena);
  uint8_t *piece = reader_room(u->arena, PIECE);
  if (piece == NULL) return ALLOC_FAILED;
  int code = unpack_begin(u->file, u->member, u->arena, u);
  if (code < 0) return code;
  size_t total = 0;
  while (code == SHARDRT_OK && !u->ended) {
    size_t got = 0;
    code = unpack_next(u, piece, PIECE, &got);
    if (code == SHARDRT_OK) code = pass_piece(u, piece, got, total, &crc, take, context);
    total += got;
  }
  inflateEnd(&u->stream);
  reader_release(u->arena, mark);
  return code == SHARDRT_OK ? check_unpacked(u, total, crc) : code;
}

int zip_read(const struct input *file, const struct zip_member *member, struct reader *arena, zip_take *take,
             void *context) {
  struct zip_unpacking u = {.file = file, .member = member, .arena = arena};
  return member->deflated ? read_deflated(&u, take, context) : read_stored(&u, take, context);
}
