/* heartbeat.h - what this process has heard from each other one outside of gatherings. */
#ifndef SHARDRT_COMM_HEARTBEAT_H
#define SHARDRT_COMM_HEARTBEAT_H

#include "platform/comm.h"

typedef struct notes_peer {
  uint64_t waiting; /* the gathering it said it was waiting in; 0: none */
  double since;     /* when it came there, by shardrt_clock */
  char where[COMM_WHERE];
  uint64_t failed; /* the hash of the message it is ending with, if has_failed */
  bool has_failed;
  bool has_spoken; /* it prints that message */
} notes_peer;

typedef struct notes {
  const comm_transport *transport;
  int32_t index, count;
  notes_peer *peers; /* [count] */
  uint64_t waiting;  /* the latest gathering that anybody said it was waiting in */
  uint64_t moves;    /* how often anybody said that it moves data */
} notes;

int notes_open(notes *n, const comm_transport *transport, int32_t index, int32_t count);
void notes_close(notes *n);
void notes_take(notes *n);                              /* takes every note that has come */
void notes_tell(const notes *n, const comm_note *note); /* all others */

#endif
