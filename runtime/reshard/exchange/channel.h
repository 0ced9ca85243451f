/* channel.h - what goes from one end to another, cut into messages.
 *
 * An end is a process, or a device of one (device_channel.h). Both ends list the same moves in the same order and cut
 * them by the same rules, so nothing but data travels: a large box goes in pieces, small ones go together. */
#ifndef SHARDRT_RESHARD_EXCHANGE_CHANNEL_H
#define SHARDRT_RESHARD_EXCHANGE_CHANNEL_H

#include "layout/route.h"

struct channel {
  bool outgoing;
  int32_t process;                  /* the other one */
  int32_t round;                    /* of the route's: all of one are over before the next begins */
  int32_t device, peer;             /* this process's device and the other one's, from 0, where ends are devices */
  int64_t count;                    /* of moves */
  const shardrt_move *const *moves; /* in the route's order */
  int64_t next, piece;              /* where the next message begins: which move, which piece of it */
};

/* One direction: in the order of the route, by the other process. */
struct channels {
  int64_t count;
  struct channel *items;
  const shardrt_move **moves; /* all of them, channel by channel */
};

/* Whole moves that follow each other, or a part of one. */
struct message {
  const shardrt_move *const *moves;
  int64_t count;
  shardrt_box box; /* of a single move: what of it */
  size_t bytes;
};

/* How moves are cut: the same at both ends. `direct_from` > 0 keeps what is joined apart from what needs no packing. */
struct message_rules {
  const struct block_grid *from, *to;
  size_t element;      /* bytes */
  int64_t piece;       /* elements of a message at most, */
  int64_t joined;      /* of a move that goes with others at most, */
  int64_t direct_from; /* of a move from which it is sent unpacked, where it is one run in its blocks on both sides, */
  int64_t direct;      /* and of a message of such a one at most */
};

/* One channel for each process that the moves of a round are with. */
int channels_by_process(struct channels *c, const struct route_moves *moves, bool outgoing);
void channels_free(struct channels *c);

/* The channel's next message; false after the last. */
bool channel_next(const struct message_rules *rules, struct channel *c, struct message *out);
bool channel_has_more(const struct channel *c);
/* The box of a message's i-th move, or of the part that it has of a single one. */
const shardrt_box *message_box(const struct message *m, int64_t i);

/* Where the next message of a direction comes from. */
struct channel_cursor {
  struct channels *channels;
  int64_t next;
  int32_t number; /* of messages with the same process in the same round */
};

/* Of which round the next message of all is; -1: there is none. */
int32_t channel_cursor_round(const struct channel_cursor *cursor);
/* The next message of all, its channel, and its tag: both ends number the messages of a round between two processes
 * alike, so that one may overtake another. False after the last. */
bool channel_cursor_next(struct channel_cursor *cursor, const struct message_rules *rules, const struct channel **its,
                         struct message *out, int32_t *tag);

#endif
