/* reader.h - what one thread needs to read samples: memory that it uses again and again, what random numbers are drawn
 * from, and where its time goes. A reader belongs to one thread at a time; nothing in it is locked. */
#ifndef SHARDRT_STORAGE_LOCAL_READER_H
#define SHARDRT_STORAGE_LOCAL_READER_H

#include <stdatomic.h>

#include "shardrt.h"

/* Where time goes: taking bytes from the storage to where they are needed, decoding, transforming. */
enum { READER_READ, READER_DECODE, READER_TRANSFORM, READER_STAGES };

struct reader_chunk;
struct reader_state;

/* All zeros is a reader that holds nothing yet. */
struct reader {
  uint64_t seed;                      /* of random transforms */
  int64_t epoch;                      /* of all samples of the call at hand, unless */
  const int64_t *epochs;              /* not NULL: of each of them, in the order of the call's samples */
  bool past_caches;                   /* what is written to dst is not soon read: a hint, for whole samples */
  bool thorough;                      /* all of a sample is read and decoded, whatever is needed: to find damage */
  int64_t bytes_read;                 /* taken from the storage, counted by the formats themselves */
  int64_t bytes_from_network;         /* downloaded from servers */
  int64_t blocks_decoded;             /* of sources that are stored in blocks; counted by the formats */
  int64_t nanoseconds[READER_STAGES]; /* READER_READ is left to the owner: it is what the others are not */
  const atomic_bool *given_up;        /* NULL, or whether nobody wants any more what is read */
  struct reader_chunk *chunks;        /* the arena: chunks in the order in which they are used */
  struct reader_chunk *current;       /* the one that room is taken from; those after it are empty */
  struct reader_state *states;
};

/* Frees what it holds; it is all zeros then. */
void reader_clear(struct reader *self);

/* Room for `bytes` in the arena, 64-byte aligned, contents undefined, until it is released; NULL and the message set
 * when out of memory. Memory is kept for later calls, so that reading samples of like sizes allocates nothing. */
void *reader_room(struct reader *self, size_t bytes);

/* Where the arena stands, and giving back all that was taken since. */
struct reader_mark {
  struct reader_chunk *chunk;
  size_t used;
};
struct reader_mark reader_mark(const struct reader *self);
void reader_release(struct reader *self, struct reader_mark mark);

/* What this thread keeps for `owner` (a decoder's handle, a Lua state), made by `make` when it is first asked for (NULL
 * and the message set where that fails) and given to `drop` by reader_clear. The owner outlives the reader. */
typedef void *reader_make(const void *owner);
typedef void reader_drop(void *state);
void *reader_state(struct reader *self, const void *owner, reader_make *make, reader_drop *drop);
/* The same, if it was made; else NULL. */
void *reader_state_made(const struct reader *self, const void *owner);

/* Between samples that may each take long: rests where the slice that runs here is over (system/time_slice.h). ECOMM:
 * nobody wants what is read. */
int reader_pause(const struct reader *self);

/* For timing a stage: nanoseconds since some fixed moment, without those in which a slice rested, and what was done
 * since then, READER_DECODE or _TRANSFORM. */
int64_t reader_now(void);
void reader_spent(struct reader *self, int32_t stage, int64_t start);

#endif
