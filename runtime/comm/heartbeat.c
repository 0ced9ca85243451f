#include "comm/heartbeat.h"

#include <string.h>

#include "base/alloc.h"
#include "shardrt.h"

int notes_open(notes *n, const comm_transport *transport, int32_t index, int32_t count) {
  notes_peer *peers = alloc_zeros((size_t)count, sizeof *peers);
  if (peers == NULL) return ALLOC_FAILED;
  *n = (notes){.transport = transport, .index = index, .count = count, .peers = peers};
  return SHARDRT_OK;
}

void notes_close(notes *n) {
  alloc_free(n->peers);
  *n = (notes){0};
}

void notes_take(notes *n) {
  int32_t from;
  comm_note note;
  while (n->peers != NULL && n->transport->receive(&from, &note)) {
    notes_peer *peer = &n->peers[from];
    switch ((comm_note_kind)note.kind) {
    case COMM_WAITING:
      peer->waiting = note.number;
      peer->since = shardrt_clock() - note.seconds;
      memcpy(peer->where, note.where, sizeof peer->where);
      if (n->waiting < note.number) n->waiting = note.number;
      break;
    case COMM_MOVING:
      peer->waiting = 0;
      n->moves++;
      break;
    case COMM_SPEAKING:
      peer->has_spoken = true;
      peer->failed = note.number;
      peer->has_failed = true;
      break;
    case COMM_FAILED:
      peer->failed = note.number;
      peer->has_failed = true;
      break;
    }
  }
}

void notes_tell(const notes *n, const comm_note *note) {
  for (int32_t p = 0; p < n->count; p++)
    if (p != n->index) n->transport->send(p, note);
}
