/* object_pieces.h - which bytes of an object each process has: of the pieces that it is made of, those that a window
 * reaches are open, with their arrays on the host. */
#ifndef SHARDRT_ARRAYFILE_OBJECT_PIECES_H
#define SHARDRT_ARRAYFILE_OBJECT_PIECES_H

#include "arrayfile/object_save.h"

struct open_piece;
struct foreign_box;

struct object_range {
  size_t from, to; /* bytes of the object */
};

struct object_pieces {
  shardrt_job *job;
  const char *what; /* for messages; the caller's */
  int64_t count;
  struct open_piece *open; /* [count] */
  int64_t first, end;      /* those that are open */
  /* Boxes of other processes that have bytes of this one's part: by piece, then as these give them. */
  struct foreign_box *foreign;
  int64_t foreign_count, foreign_room;
};

/* Nothing is open yet. `pieces` are the caller's, as long as this is there. ENOMEM. */
int object_pieces_begin(shardrt_job *job, const char *what, int64_t count, const struct object_piece *pieces,
                        struct object_pieces *out);
void object_pieces_end(struct object_pieces *self); /* any that is zeroed or was begun */

/* Opens the pieces that begin before byte `to`, which all processes do together, and finds who else has bytes of
 * `mine`. `code`: what this process failed with before, which the others do not know yet: it opens nothing, and meets
 * them where a piece is laid out anew. That; what laying out and borrowing fail with; ENOMEM. */
int object_pieces_reach(struct object_pieces *self, size_t to, struct object_range mine, int code);
/* Closes those that end by there. */
void object_pieces_leave(struct object_pieces *self, size_t to);

/* Takes `bytes` bytes that belong at `offset` of the object. `data`: NULL where another process has them. */
typedef void object_take(void *context, size_t offset, const uint8_t *data, size_t bytes);

/* All that this process has of a range of open pieces. */
void object_pieces_give(const struct object_pieces *self, struct object_range range, object_take *take, void *context);
/* All that another one has of `mine`, in the order in which that one gives it. */
void object_pieces_get(const struct object_pieces *self, int32_t process, struct object_range mine, object_take *take,
                       void *context);

#endif
