/* collective.h - how processes do something together: every collective call begins with a meeting.
 *
 * In a meeting every process gives a hash of what it calls, with how many bytes, where in the recipe it is, and which
 * steps it took that need no meeting by themselves (a loader's batches). Only when all hashes are the same does
 * anything else happen, so a process that took another way is found before anything can be mixed up. Where they differ,
 * a slot of each process says the same in words, and all processes get the same message about it.
 *
 * The hashes are one all-reduce of 32 bytes, so that a meeting's bytes do not grow with the job. Few processes gather
 * 64 bytes instead: that takes one message's time, and a tree's takes several. What is gathered beside comes along
 * there, if it is small. Where processes can send no notes, it is 256 bytes: the last word of one that leaves, too.
 */
#ifndef SHARDRT_COMM_COLLECTIVE_H
#define SHARDRT_COMM_COLLECTIVE_H

#include "comm/notes.h"
#include "comm/wait.h"
#include "platform/comm.h"

enum { COLLECTIVE_WHAT = 256, COLLECTIVE_WHERE = COMM_WHERE, COLLECTIVE_STEP = 96, COLLECTIVE_INLINE = 32 };
enum { COLLECTIVE_NEAR = 32 }; /* so many processes gather what they meet with, which is quicker than an all-reduce */

/* The steps that a process took so far without meeting anybody. */
struct collective_steps {
  uint64_t count;
  uint64_t hash;              /* of all of them, in their order */
  char last[COLLECTIVE_STEP]; /* cut short where it is longer */
};

struct collective_slot {
  uint64_t call;   /* the hash of all of `what` */
  uint64_t bytes;  /* how many each process gives */
  uint64_t number; /* that is to be the same in all; see collective_compare */
  char what[COLLECTIVE_WHAT];
  char where[COLLECTIVE_WHERE];
  struct collective_steps steps;
  int32_t code; /* < 0: this process cannot take part, and only says so */
};

/* What processes meet with. Of all, the bitwise and is looked at: where each gave the same, the second of a pair is
 * still what the first is not. One that cannot take part gives zeros. */
struct collective_token {
  uint64_t call, not_call;                  /* of the slot, all but the number */
  uint64_t number, not_number;              /* of the slot */
  unsigned char payload[COLLECTIVE_INLINE]; /* near only: the bytes themselves where they fit */
};
/* What goes along with each token where the transport has no notes. */
struct collective_farewell {
  int32_t has_left;                /* 1: the process abandons the job, and this is the last that it says */
  char where[COMM_WHERE], why[92]; /* as in a note */
};
enum { COLLECTIVE_FOLDED = 4 }; /* numbers of a token, of which the and is taken */

struct collective {
  const struct comm_transport *transport;
  struct comm_endpoint *endpoint; /* of the transport */
  int32_t index, count;
  double timeout;                /* seconds */
  struct notes notes;            /* which says who else is waiting, once this takes long */
  char where[COLLECTIVE_WHERE];  /* "recipe.lua:12"; "": not in the recipe */
  uint64_t sequence;             /* how many gatherings were started, the same in every process */
  uint64_t meetings;             /* how many of them began a collective call: each process comes to the same */
  uint64_t completed;            /* the last of these that ended well, so far, with all that followed it */
  bool broken;                   /* one did not end: what is under way can neither be ended nor trusted */
  bool has_said;                 /* the others were told that this process leaves, and why */
  int32_t waits;                 /* of collective_until that are under way */
  struct collective_steps steps; /* this process's */
  double came;                   /* when this process came to the last gathering, by shardrt_clock */
  double seen;                   /* when the last gathering was that all came to */
  int32_t near;                  /* COLLECTIVE_NEAR, unless a test has other plans */
  /* The first call of the program's that has ended since: the others came to its end, or were on the way there. "":
   * none has. */
  char since[COLLECTIVE_WHERE];
  struct collective_slot *room; /* mine, words, last, next; tokens */
  char *rounds;                 /* NULL, or [1 + count] pieces of a large gathering: what is given, and by all, */
  size_t rounds_each;           /* of so many bytes */
  void *in_use;                 /* room or rounds: all that a gathering under way may use */
  struct collective_slot *mine;
  char *words; /* [sizeof(collective_slot)] a part of the message that this process failed with */
  /* [count] each: what everyone said in words last, and the time before; a gathering under way writes to the second,
   * and then they change places. Memory that nobody has written to takes none of the machine's. */
  struct collective_slot *last, *next;
  char *tokens;               /* this process's, that of all together, and [count] where these are gathered, */
  size_t token_bytes;         /* each with its farewell, where there are any */
  struct collective_slot met; /* what this process said in the last meeting, */
  bool is_alike;              /* and all others; else `last` has what they said */
};

int collective_open(struct collective *m, const struct comm_transport *transport, struct comm_endpoint *endpoint,
                    int32_t index, int32_t count, double timeout);
void collective_close(struct collective *m);
/* Leaves without the others, when no wait is under way; what the transport still uses is its own from now on. They hear
 * where this process is, and why it left (the first line of `why`; "": it does not say; NULL: they hear nothing):
 * whatever they wait for then, or come to, fails at once. Where a gathering is under way in a transport without notes,
 * nobody can be told. */
void collective_abandon(struct collective *m, const char *why);
/* Says that, before the process ends. */
void collective_farewell(struct collective *m, const char *why);
/* Where the transport has notes: the same now, before what takes time; collective_abandon follows. */
void collective_say_why(struct collective *m, const char *why);
/* Whether the last meeting failed in all processes alike, as all called the same in it. */
bool collective_is_over(const struct collective *m);

/* Where in the recipe this process is ("recipe.lua:12"), for the gatherings to come; NULL: nowhere in it. */
void collective_at(struct collective *m, const char *where);
/* A program's call ("shardrt_open of recipe.lua") has ended, and this process is in the program again. */
void collective_after(struct collective *m, const char *call);

/* Of a text that says what is called, all is compared, and what stands before its first line's end is shown. */
void collective_shorten(char *what);
/* Whether both call the same, after the same steps. */
bool collective_slot_equal(const struct collective_slot *a, const struct collective_slot *b);

/* Notes a step that every process takes alike, for the gatherings to come. */
void collective_step(struct collective *m, const char *what);

/* Gives `bytes` bytes to all and gets those of all, `bytes` apart, in `all`. `what` says what is called ("barrier").
 * EMISMATCH: processes call different things, or took different steps before.
 * ETIMEOUT: one did not come. ECOMM: one left, the transport failed, or a wait failed before. Whatever it returns,
 * `mine` and `all` are the caller's again. ENOMEM, in all. */
int collective_gather(struct collective *m, const char *what, const void *mine, size_t bytes, void *all);

/* As collective_gather, without copies between. After ETIMEOUT and ECOMM the transport may still be at work on `mine`
 * and `all`, for good: these must then be kept. */
int collective_gather_direct(struct collective *m, const char *what, const void *mine, size_t bytes, void *all);

/* As collective_gather, for a process that may have failed before it came: with what `own` says, and its message. If
 * any has, nothing is gathered and all return the code of the first of these, with its message, which names the process
 * unless all failed alike; `mine` and `all` may be NULL in one that failed. It is not compared with what others call,
 * so that nobody needs memory to fail in company. */
int collective_join(struct collective *m, const char *what, int own, const void *mine, size_t bytes, void *all);

/* As collective_join: each of the numbers becomes the bitwise and of what all processes have there. What is known to
 * one, where all others have UINT64_MAX, is known to all then. */
int collective_fold(struct collective *m, const char *what, int own, uint64_t *numbers, size_t count);

/* As collective_join, of a number that is to be the same in all, at the price of a barrier. Where it is not, *differs
 * becomes true, and others[p] ([count]) whether process p gave another than process 0. */
int collective_compare(struct collective *m, const char *what, int own, uint64_t number, bool *others, bool *differs);

/* What a process said in the last meeting that all came to. */
const struct collective_slot *collective_said(const struct collective *m, int32_t process);

/* Where in the recipe this process is, or what it does outside of it. */
const char *collective_place(const struct collective *m);

#endif
