/* tar_walk.h - the members of a tar archive, one after the other: in the formats ustar and pax
 * (https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html) and with GNU's long names
 * (https://www.gnu.org/software/tar/manual/html_node/Standard.html).
 *
 * Blocks of 512 bytes: before each member a header, behind it zeros up to the next block; two blocks of zeros end the
 * archive. Where another archive stands behind them (as after `cat`), it goes on with that one. */
#ifndef SHARDRT_CODEC_TAR_WALK_H
#define SHARDRT_CODEC_TAR_WALK_H

#include "codec/input.h"

enum { TAR_NAME_MOST = 4096 };

struct tar_member {
  char name[TAR_NAME_MOST];
  size_t header; /* where the first of its headers stands, */
  size_t offset; /* and its data */
  size_t bytes;
  bool regular; /* a file, no folder or link */
};

/* Begins with `at` = 0. */
struct tar_walk {
  const struct input *input;
  struct reader *arena; /* what a member needed of it may be released before the next one */
  size_t at;            /* the next header */
  bool ended;           /* what stands before that is zeros, as at an archive's end */
};

/* The next member: 1, or 0 at the end, or EFORMAT: malformed, damaged, cut off; the message names file and offset. */
int tar_walk_next(struct tar_walk *walk, struct tar_member *out);

#endif
