/* notes.h - what this process has heard from each other one outside of gatherings. */
#ifndef SHARDRT_COMM_NOTES_H
#define SHARDRT_COMM_NOTES_H

#include "platform/comm.h"

struct notes_peer {
  uint64_t waiting; /* the gathering it said it was waiting in; 0: none */
  double since;     /* when it came there, by shardrt_clock */
  char where[COMM_WHERE];
  uint64_t failed; /* the hash of the message it is ending with, if has_failed */
  bool has_failed;
  bool has_spoken; /* it prints that message */
};

struct notes {
  const struct comm_transport *transport;
  struct comm_endpoint *endpoint; /* of the transport */
  int32_t index, count;
  struct notes_peer *peers; /* [count] */
  uint64_t waiting;         /* the latest gathering that anybody said it was waiting in */
  uint64_t moves;           /* how often anybody said that it moves data */
  struct comm_note left;    /* of the process that left first (the least number), if has_left */
  bool has_left;
};

int notes_open(struct notes *n, const struct comm_transport *transport, struct comm_endpoint *endpoint, int32_t index,
               int32_t count);
void notes_close(struct notes *n);
void notes_receive(struct notes *n);                                  /* takes every note that has come */
void notes_send(const struct notes *n, const struct comm_note *note); /* all others */

#endif
