/* zip.h - archives: APPNOTE.TXT, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, as far as numpy's and
 * Python's writers go: members stored or deflated, in one file, sizes of up to 64 bits (zip64), a directory at the end.
 *
 *   for each member a header of 30 bytes, its name, an extra field, its bytes; the directory: for each member an entry
 *   of 46 bytes, its name, an extra field, a comment; where 16 or 32 bits do not suffice, the end of a zip64 directory
 *   and its locator; the end of the directory, 22 bytes and a comment */
#ifndef SHARDRT_CODEC_ZIP_H
#define SHARDRT_CODEC_ZIP_H

#include "codec/input.h"

struct zip_member {
  char *name;    /* owned */
  size_t header; /* where its header begins, */
  size_t data;   /* and its bytes */
  size_t packed; /* how many these are in the file, */
  size_t bytes;  /* and unpacked: the same where it is stored */
  uint32_t crc;  /* CRC-32 of the unpacked ones */
  bool deflated;
};

struct zip {
  size_t directory; /* where it begins; members end before it */
  int64_t count;
  struct zip_member *members;
};

/* Reads the directory and looks at each member's header; all offsets and lengths were then found to lie in the file,
 * before the directory. EFORMAT: malformed, encrypted, or packed in another way; the message names file and byte. */
int zip_open(const struct input *file, struct reader *arena, struct zip *out);
/* Any that is zeroed or was opened, or failed to; zeroes it. */
void zip_close(struct zip *self);

/* Up to `most` of a member's first bytes, in the arena or where they lie. EFORMAT. */
int zip_peek(const struct input *file, const struct zip_member *member, size_t most, struct reader *arena,
             const uint8_t **out, size_t *bytes);

/* Gives all of a member's bytes to `take` (NULL: to nobody), piece by piece. EFORMAT: they are more, fewer or others
 * than the directory tells; no more than it tells of are ever given. */
typedef int zip_take(const uint8_t *data, size_t bytes, void *context);
int zip_read(const struct input *file, const struct zip_member *member, struct reader *arena, zip_take *take,
             void *context);

#endif
