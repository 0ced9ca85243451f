#include "comm/notes.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "shardrt.h"

int notes_open(struct notes *n, const struct comm_transport *transport, struct comm_endpoint *endpoint, int32_t index,
               int32_t count) {
  struct notes_peer *peers = alloc_zeros((size_t)count, sizeof *peers);
  if (peers == NULL) return ALLOC_FAILED;
  *n = (struct notes){.transport = transport, .endpoint = endpoint, .index = index, .count = count, .peers = peers};
  return SHARDRT_OK;
}

void notes_close(struct notes *n) {
  alloc_free(n->peers);
  *n = (struct notes){0};
}

void notes_receive(struct notes *n) {
  int32_t from;
  struct comm_note note;
  while (n->peers != NULL && n->transport->receive_note(n->endpoint, &from, &note)) {
    assert(from >= 0 && from < n->count && from != n->index);
    struct notes_peer *peer = &n->peers[from];
    switch ((enum comm_note_kind)note.kind) {
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
    case COMM_LEFT:
      if (!n->has_left || note.number < n->left.number) n->left = note;
      n->has_left = true;
      break;
    }
  }
}

void notes_send(const struct notes *n, const struct comm_note *note) {
  for (int32_t p = 0; p < n->count; p++)
    if (p != n->index) n->transport->send_note(n->endpoint, p, note);
}
