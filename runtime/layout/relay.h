/* relay.h - the way of a box that one process alone holds to all that need it, where these are on several hosts: to
 * each host once, and on from there.
 *
 * An example: process 0 on host A has what all 12 processes of the hosts A, B, C and D need. In round 0 it gives it to
 * the first one on B that is to pass it on. In round 1 both give it away again, to C and D. In round 2 each of these
 * four gives it to all others on its host. So a host's link brings it once, and every round doubles the hosts that have
 * it. Where enough boxes of other processes go the same way, all links are busy anyway: then all hosts get it in round
 * 0, and round 1 is the last.
 *
 * It is arithmetic that every process does by itself, with the same outcome. */
#ifndef SHARDRT_LAYOUT_RELAY_H
#define SHARDRT_LAYOUT_RELAY_H

#include <stdbool.h>
#include <stdint.h>

/* Elements of a box from which on relaying pays: a small one costs the time of messages, and each round has more. */
enum { RELAYED_FROM = 1 << 16 };

/* Those who need one block, host by host. */
struct relay_audience {
  const int32_t *hosts; /* of each process of the job, the first one on its host */
  int32_t *processes;   /* ascending by host, then by number */
  int64_t *begins;      /* [count + 1] of each host's, in `processes` */
  int64_t count;        /* of hosts, */
  int64_t shared;       /* and of those that several of them are on */
};

/* Sorts so many processes, each once. `begins` has room for one more. Both stay the caller's. */
struct relay_audience relay_audience_of(const int32_t *hosts, int32_t *processes, int64_t count, int64_t *begins);

struct relay {
  const struct relay_audience *audience;
  int32_t root;    /* who has the box, and may be one of the audience */
  int64_t spread;  /* whom of a host's the box comes to first: others for other boxes */
  int64_t next;    /* the audience's host that stands after the root's, */
  bool has_home;   /* where some of them are on the root's, too: they are the host before that */
  int64_t stops;   /* hosts to come to, and the root's */
  bool is_at_once; /* all hosts get it in round 0 */
};

/* `boxes`: how many there are that the same audience needs, this one with them. */
struct relay relay_of(const struct relay_audience *audience, int32_t root, int64_t spread, int64_t boxes);
/* Whether that is better than to send it to each: less goes over a link. */
bool relay_saves(const struct relay *relay);

/* What a process that takes part does, one step after the other, from step 0 on; false: no more. Its only receive comes
 * first; the root has none. */
struct relay_step {
  int32_t peer;
  int32_t round;
  bool is_receive;
};
bool relay_step(const struct relay *relay, int32_t process, int64_t number, struct relay_step *out);

#endif
