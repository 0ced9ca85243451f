/* comm.h - what a job offers: gathering from all processes, messages and short notes from one to another, and an end
 * for all.
 *
 * A transport is a const table of functions; a new one is one file that defines such a table. All are called on the
 * thread that opened the job only. One gathering or fold at a time is under way: it is started, then asked for until it
 * is done, so that whoever waits decides how (comm/wait.c waits politely and with a deadline).
 */
#ifndef SHARDRT_PLATFORM_COMM_H
#define SHARDRT_PLATFORM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"

/* What processes tell each other outside of gatherings. */
enum comm_note_kind {
  COMM_WAITING,  /* number: which gathering the sender is waiting in; 0: in none any more */
  COMM_MOVING,   /* number: in which one the sender moved data just now */
  COMM_FAILED,   /* number: the hash of the message that the sender is about to end with */
  COMM_SPEAKING, /* number: the same; the sender prints that message */
  COMM_LEFT      /* number: the last collective call that the process came through before it abandoned the job */
};

enum { COMM_WHERE = 96, COMM_WHY = 256 };

struct comm_note {
  uint64_t kind;
  uint64_t number;
  double seconds;         /* COMM_WAITING: how long the sender has been there already */
  char where[COMM_WHERE]; /* COMM_WAITING: "recipe.lua:12", or what it waits in; COMM_LEFT: where the process was */
  /* COMM_LEFT only: */
  int32_t process;    /* that left: the sender, or one that the sender heard this of */
  char why[COMM_WHY]; /* the beginning of its error's first line; "": it had none */
};

/* For who waits in `what`: a message of COMM_LEFT. */
static inline int comm_report_left(const char *what, const struct comm_note *left) {
  return error_set(SHARDRT_ECOMM, "%.*s: process %d left the job (abandoned it)%s%s%s%s", (int)strcspn(what, "\n"),
                   what, left->process, left->where[0] == '\0' ? "" : ", in ", left->where,
                   left->why[0] == '\0' ? "" : ", because of: ", left->why);
}

/* A process's place in the job. */
struct comm_place {
  int32_t index, count;
  int32_t here;             /* processes of the job on this host; 0: not known */
  bool are_ours;            /* `kill` ends the other processes, too */
  bool is_bound_by_default; /* the launcher bound it to cores, and nobody had asked for that */
};

struct shardrt_options;

/* One process's part in one job, of whatever transport; a process may be in several jobs. */
struct comm_endpoint;

struct comm_transport {
  uint32_t version; /* of a plug-in's: COMM_VERSION */
  const char *name;
  bool has_notes; /* else none ever comes, who is missing cannot be told, and who leaves says so in a gathering */
  /* Whether what started this process speaks with this transport; where not, `open` may end the process. NULL: it
   * always does. */
  bool (*is_reachable)(void);
  /* Goes on joining the job that the options ask for; never waits. It is asked until *is_open: then it has told this
   * process's place, and *endpoint is `close`'s or `abandon`'s to give back. Or nobody asks any more: where this
   * process tries again later, joining goes on from where it was. */
  int (*open)(const struct shardrt_options *options, struct comm_place *place, struct comm_endpoint **endpoint,
              bool *is_open);
  /* Sets the message of a joining that took longer than options->timeout, and returns ETIMEOUT: who has not come, as
   * far as that is known. NULL: `open` needs nobody. */
  int (*report_absent)(const struct shardrt_options *options);
  /* Starts to gather `bytes` bytes (at most COMM_PIECE) from each process; those of process p land at all + p * stride,
   * where stride >= bytes. `mine` and `all` are left alone until it is done. */
  int (*gather)(struct comm_endpoint *endpoint, const void *mine, size_t bytes, void *all, size_t stride);
  /* Starts to take the bitwise and of `count` numbers (at most COMM_FOLD) of each process; `all` is [count], and both
   * are left alone until it is done. NULL: this transport cannot. */
  int (*fold)(struct comm_endpoint *endpoint, const uint64_t *mine, int32_t count, uint64_t *all);
  /* Whether what was started is done. */
  int (*test)(struct comm_endpoint *endpoint, bool *done);
  /* Begins to send or to receive one message of exactly `bytes` bytes, at most COMM_PIECE; `data` is left alone until
   * it has ended. Messages between the same two processes with the same `tag` (>= 0) meet in their order. A message
   * that was sent has ended only when its receiver has begun to take it. `request` < COMM_REQUESTS is a number for it
   * that none of those under way has. */
  int (*isend)(struct comm_endpoint *endpoint, int32_t request, int32_t to, int32_t tag, const void *data,
               size_t bytes);
  int (*irecv)(struct comm_endpoint *endpoint, int32_t request, int32_t from, int32_t tag, void *data, size_t bytes);
  /* The requests that have ended since the last call. ECOMM: one failed, or had another size. */
  int (*testsome)(struct comm_endpoint *endpoint, int32_t *requests, int32_t *count);
  /* Hands over a short note; never waits, and drops the note where the receiver has not taken the last ones. */
  void (*send_note)(struct comm_endpoint *endpoint, int32_t to, const struct comm_note *note);
  /* Hands over the last note of all, COMM_LEFT, before `abandon`, to every other process; it is not dropped, and this
   * takes a fraction of a second at most. NULL: there are no notes. */
  void (*send_last_note)(struct comm_endpoint *endpoint, const struct comm_note *note);
  /* Takes the next note that has come; false where there is none. */
  bool (*receive_note)(struct comm_endpoint *endpoint, int32_t *from, struct comm_note *note);
  /* Ends every process of the job at once, or this one alone where the others are not ours to end; does not return. */
  void (*kill)(struct comm_endpoint *endpoint, int status) __attribute__((noreturn));
  /* Leaves the job, when nothing is under way; all its processes do. The endpoint is gone, whatever it returns. */
  int (*close)(struct comm_endpoint *endpoint);
  /* Leaves the job and waits for nobody. What is under way keeps its memory until it ends, if ever; `room`, of alloc's,
   * is part of that, and freed by the transport then. NULL: none. */
  void (*abandon)(struct comm_endpoint *endpoint, void *room);
};

enum { COMM_PIECE = 1 << 24, COMM_REQUESTS = 64, COMM_FOLD = 60 };
/* Grows with each change of what stands here or in shardrt_options. MPI's transport is a plug-in
 * (comm/transport/mpi.c), which exports "shardrt_mpi"; comm/transport/mpi_choice.h opens it. */
enum { COMM_VERSION = 5 };

extern const struct comm_transport comm_alone;     /* one process, which needs nobody */
extern const struct comm_transport comm_callbacks; /* an all-gather that the program brings, and nothing else */

#endif
