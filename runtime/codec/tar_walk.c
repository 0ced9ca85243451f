#include "codec/tar_walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { BLOCK = 512 };

static int bad_member(const struct tar_walk *w, const char *what) {
  return error_set(SHARDRT_EFORMAT, "%s: the member at byte %zu: %s", w->input->title, w->at, what);
}

/* A number in octal, or (the first bit set) in big-endian binary, as GNU has large ones. */
static bool read_number(const uint8_t *text, size_t length, uint64_t *out) {
  uint64_t value = 0;
  size_t i = 0;
  if (text[0] & 0x80) {
    for (i = 1; i < length; i++) {
      if (value >> 55) return false;
      value = value << 8 | text[i];
    }
    *out = value;
    return text[0] == 0x80;
  }
  while (i < length && text[i] == ' ') i++;
  for (; i < length && text[i] >= '0' && text[i] <= '7'; i++) value = value << 3 | (uint64_t)(text[i] - '0');
  *out = value;
  return i == length || text[i] == '\0' || text[i] == ' ';
}

/* Some old archives add the bytes as signed ones. */
static bool checksum_fits(const uint8_t *block) {
  int64_t as_unsigned = 0, as_signed = 0;
  uint64_t noted;
  for (size_t i = 0; i < BLOCK; i++) {
    const bool in_sum = i >= 148 && i < 156; /* the sum itself counts as spaces */
    as_unsigned += in_sum ? ' ' : block[i];
    as_signed += in_sum ? ' ' : (int8_t)block[i];
  }
  return read_number(block + 148, 8, &noted) && ((int64_t)noted == as_unsigned || (int64_t)noted == as_signed);
}

static bool is_zero(const uint8_t *block, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (block[i] != 0) return false;
  return true;
}

/* Goes on to the next block that is not zeros, or the file's end. */
static int skip_zeros(struct tar_walk *w) {
  while (w->at < w->input->bytes) {
    const struct reader_mark mark = reader_mark(w->arena);
    const size_t left = w->input->bytes - w->at, bytes = left < BLOCK ? left : BLOCK;
    const uint8_t *block;
    int code = input_get(w->input, w->at, bytes, w->arena, &block);
    if (code != SHARDRT_OK) return code;
    const bool zeros = is_zero(block, bytes);
    reader_release(w->arena, mark);
    if (!zeros) return SHARDRT_OK;
    w->at += bytes;
    w->ended = true;
  }
  return SHARDRT_OK;
}

/* The name in a plain header; ustar's may go on before it. */
static void read_name(const uint8_t *block, struct tar_member *out) {
  size_t at = 0;
  if (memcmp(block + 257, "ustar\0", 6) == 0 && block[345] != '\0') {
    at = strnlen((const char *)block + 345, 155);
    memcpy(out->name, block + 345, at);
    out->name[at++] = '/';
  }
  const size_t length = strnlen((const char *)block, 100);
  memcpy(out->name + at, block, length);
  out->name[at + length] = '\0';
}

/* Reads what a long name or pax header holds: `bytes` at `offset`, as text. */
static int read_extended(const struct tar_walk *w, size_t offset, uint64_t bytes, const char **out) {
  if (bytes >= (uint64_t)TAR_NAME_MOST * 64) return bad_member(w, "its extended header is longer than any name");
  const uint8_t *data;
  int code = input_get(w->input, offset, (size_t)bytes, w->arena, &data);
  char *text = code == SHARDRT_OK ? reader_room(w->arena, (size_t)bytes + 1) : NULL;
  if (code != SHARDRT_OK) return code;
  if (text == NULL) return ALLOC_FAILED;
  memcpy(text, data, (size_t)bytes);
  text[bytes] = '\0';
  *out = text;
  return SHARDRT_OK;
}

/* What headers before a member's own say of it. */
struct overrides {
  const char *name; /* NULL: nothing */
  size_t name_bytes;
  bool sized;
  uint64_t size;
};

/* pax: lines of "length key=value\n", the length being the whole line's. */
static int read_pax(const struct tar_walk *w, const char *text, size_t bytes, struct overrides *out) {
  for (size_t at = 0; at < bytes;) {
    char *end;
    const unsigned long long length = strtoull(text + at, &end, 10);
    if (*end != ' ' || length > bytes - at || length < (size_t)(end + 1 - (text + at)) + 1 ||
        text[at + length - 1] != '\n')
      return bad_member(w, "its pax header is malformed");
    const char *key = end + 1, *stop = text + at + length - 1, *equal = memchr(key, '=', (size_t)(stop - key));
    if (equal == NULL) return bad_member(w, "its pax header is malformed");
    if (equal - key == 4 && memcmp(key, "path", 4) == 0) {
      out->name = equal + 1;
      out->name_bytes = (size_t)(stop - equal - 1);
    } else if (equal - key == 4 && memcmp(key, "size", 4) == 0) {
      out->sized = true;
      out->size = strtoull(equal + 1, &end, 10);
      if (end != stop) return bad_member(w, "its pax header is malformed");
    } else if (equal - key >= 10 && memcmp(key, "GNU.sparse", 10) == 0) {
      return bad_member(w, "is a sparse file, which cannot be read where it lies; `tar --no-sparse` makes others");
    }
    at += length;
  }
  return SHARDRT_OK;
}

static int apply_overrides(const struct tar_walk *w, const struct overrides *o, struct tar_member *out,
                           uint64_t *size) {
  if (o->sized) *size = o->size;
  if (o->name == NULL) return SHARDRT_OK;
  if (o->name_bytes >= sizeof out->name) return bad_member(w, "its name is longer than 4,095 bytes");
  memcpy(out->name, o->name, o->name_bytes);
  out->name[o->name_bytes] = '\0';
  return SHARDRT_OK;
}

/* One header: whether it is a member's own, or says something of the next one. */
static int read_tar_header(struct tar_walk *w, struct overrides *o, struct tar_member *out, bool *done) {
  const uint8_t *block;
  uint64_t size;
  if (w->input->bytes - w->at < BLOCK) return bad_member(w, "its header is cut off");
  int code = input_get(w->input, w->at, BLOCK, w->arena, &block);
  if (code != SHARDRT_OK) return code;
  if (!checksum_fits(block)) return bad_member(w, w->at == 0 ? "is no tar header" : "its header is damaged (checksum)");
  if (!read_number(block + 124, 12, &size)) return bad_member(w, "its size is no number");
  const char type = (char)block[156];
  const size_t data = w->at + BLOCK;
  const bool extends = type == 'L' || type == 'K' || type == 'x' || type == 'g';
  out->regular = type == '0' || type == '\0' || type == '7';
  if (type == 'S')
    return bad_member(w, "is a sparse file, which cannot be read where it lies; `tar --no-sparse` makes others");
  if (!extends) {
    read_name(block, out);
    code = apply_overrides(w, o, out, &size);
    if (code != SHARDRT_OK) return code;
  }
  if (type >= '1' && type <= '6') size = 0; /* links, devices and folders have no data, whatever they say */
  if (size > w->input->bytes - data) return bad_member(w, "is cut off");
  if (type == 'L' || type == 'x') {
    const char *text = "";
    code = read_extended(w, data, size, &text);
    if (code == SHARDRT_OK && type == 'x') code = read_pax(w, text, (size_t)size, o);
    if (code != SHARDRT_OK) return code;
    if (type == 'L') {
      o->name = text;
      o->name_bytes = strlen(text);
    }
  }
  out->offset = data;
  out->bytes = (size_t)size;
  w->at = data + (size_t)((size + BLOCK - 1) / BLOCK * BLOCK);
  if (w->at > w->input->bytes)
    w->at = w->input->bytes; /* the last member's zeros are not there, nor the end: seen next */
  *done = !extends;
  return SHARDRT_OK;
}

int tar_walk_next(struct tar_walk *w, struct tar_member *out) {
  struct overrides overrides = {0};
  int code = skip_zeros(w);
  if (code != SHARDRT_OK) return code;
  if (w->at == w->input->bytes && w->ended) return 0;
  if (w->at == w->input->bytes)
    return bad_member(w, w->at == 0 ? "the file is empty"
                                    : "the archive ends without the zeros that end one: it is cut off");
  w->ended = false;
  out->header = w->at;
  for (bool done = false; !done && code == SHARDRT_OK;) code = read_tar_header(w, &overrides, out, &done);
  return code == SHARDRT_OK ? 1 : code;
}
