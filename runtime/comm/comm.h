/* comm.h - what a job offers: gathering from all processes, short notes from one to another, and an end for all.
 *
 * A transport is a const table of functions; a new one is one file that defines such a table. All are called on the
 * main thread only. One gathering at a time is under way: it is started, then asked for until it is done, so that
 * whoever waits decides how (meet.c waits politely and with a deadline).
 */
#ifndef SHARDRT_COMM_COMM_H
#define SHARDRT_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What processes tell each other outside of gatherings. */
typedef enum comm_note_kind {
  COMM_WAITING, /* number: which gathering the sender is waiting in */
  COMM_FAILED,  /* number: the hash of the message that the sender is about to end with */
  COMM_SPEAKING /* number: the same; the sender prints that message */
} comm_note_kind;

typedef struct comm_note {
  uint64_t kind;
  uint64_t number;
} comm_note;

typedef struct comm_transport {
  const char *name;
  /* Joins the job and tells this process's index and how many there are. */
  int (*open)(int32_t *process_index, int32_t *process_count);
  /* Starts to gather `bytes` bytes (at most COMM_PIECE) from each process; those of process p land at all + p * stride,
   * where stride >= bytes. `mine` and `all` are left alone until it is done. */
  int (*gather)(const void *mine, size_t bytes, void *all, size_t stride);
  /* The same where process p gives counts[p] bytes, which land in `all` right after those of the processes before it.
   * The counts are the same in every process, may be 0, and add up to at most INT32_MAX. */
  int (*gather_uneven)(const void *mine, const int32_t *counts, void *all);
  /* Whether what was started is done. */
  int (*test)(bool *done);
  /* Hands over a short note; never waits, and drops the note where the receiver has not taken the last ones. */
  void (*send)(int32_t to, const comm_note *note);
  /* Takes the next note that has come; false where there is none. */
  bool (*receive)(int32_t *from, comm_note *note);
  /* Ends every process of the job at once; does not return. */
  void (*kill)(int status) __attribute__((noreturn));
  /* Leaves the job, when nothing is under way. */
  int (*close)(void);
} comm_transport;

enum { COMM_PIECE = 1 << 24 };

extern const comm_transport comm_solo; /* one process, which needs nobody */
extern const comm_transport comm_mpi;

#endif
