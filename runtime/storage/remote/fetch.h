/* fetch.h - parts of files on HTTP servers (RFC 9110), several in flight, asked for again where a server or the way to
 * it fails.
 *
 * An attempt that fails in a way that may pass (no connection, a broken one, one that stands still, a status of 408,
 * 429 or 5xx, fewer bytes than were promised) is made again: FETCH_TRIES times in all, after pauses of up to 0.25, 0.5,
 * 1, … seconds, chosen at random so that many processes do not come back together, or as long as Retry-After says.
 * $SHARDRT_HTTP_TIMEOUT is the time in seconds for one attempt (30), and four times that for all of them together;
 * large parts get more: as if the line gave FETCH_SLOWEST bytes per second.
 *
 * Redirects are followed. A server of https must have a certificate that the authorities of authorities.h vouch for.
 * Bytes are taken as they are on the server: nothing is asked to be compressed. */
#ifndef SHARDRT_STORAGE_REMOTE_FETCH_H
#define SHARDRT_STORAGE_REMOTE_FETCH_H

#include <stdatomic.h>

#include "storage/remote/fetch_request.h"

enum {
  FETCH_TRIES = 6,
  FETCH_SLOWEST = 262144,
  FETCH_IN_FLIGHT = 16, /* requests at once */
  FETCH_WAIT = 1000     /* milliseconds, for fetch_go_on */
};

/* Is called once for each request that succeeded, in any order. */
typedef int fetch_ended(void *context, struct fetch_request *request);

/* What all requests that are under way together have in common. */
struct fetch_rules {
  int32_t tries; /* attempts at most */
  fetch_ended *ended;
  void *context;               /* for it */
  const atomic_bool *given_up; /* NULL, or whether nobody wants them any more: ECOMM, soon */
};

/* Connections, which are kept; for one thread at a time. */
struct fetch;

int fetch_new(struct fetch **out);
void fetch_free(struct fetch *self);

/* How long to wait for somebody else's request of so many bytes, seconds: longer than it can take. */
double fetch_patience(size_t bytes);

/* Makes n requests; ends with the first failure. EIO, naming address, bytes, what the server said and how often it was
 * asked; or the file is not of its version any more. What `ended` or `take` fails with. */
int fetch_run(struct fetch *self, struct fetch_request *requests, int64_t n, const struct fetch_rules *rules);

/* The same by steps, for who adds requests while others are under way: which stay where they are until they have ended,
 * or all are stopped. Fails as fetch_run does; all are to be stopped then. */
bool fetch_is_free(const struct fetch *self); /* one more may be begun */
bool fetch_is_busy(const struct fetch *self); /* some are under way */
int fetch_begin(struct fetch *self, struct fetch_request *request);
/* Until an attempt has ended, or something came, or nothing did for `most` milliseconds. */
int fetch_go_on(struct fetch *self, const struct fetch_rules *rules, int most);
void fetch_stop(struct fetch *self);

#endif
