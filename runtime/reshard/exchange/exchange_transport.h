/* exchange_transport.h - the part of an exchange that is with the job's transport (platform/comm.h): which message a
 * slot has, and sending and receiving it. What loads and stores it differs: exchange_host.c, exchange_staged.c. */
#ifndef SHARDRT_RESHARD_EXCHANGE_EXCHANGE_TRANSPORT_H
#define SHARDRT_RESHARD_EXCHANGE_EXCHANGE_TRANSPORT_H

#include "platform/comm.h"
#include "reshard/exchange/channel.h"
#include "reshard/exchange/exchange.h"

enum { EXCHANGE_WINDOW = 16 /* messages in each direction at most */ };

struct transport_slot {
  const struct channel *channel;
  struct message message;
  int32_t tag;
  char *staging; /* memory of a piece, the slot's own */
  char *data;    /* what is sent, or received into; set by the backend's load */
};

/* A backend's context begins with it. */
struct transport_window {
  const struct comm_transport *transport;
  struct comm_endpoint *endpoint; /* of the transport */
  const struct message_rules *rules;
  struct channel_cursor in, out;
  int32_t size;                                     /* slots in each direction */
  int32_t round;                                    /* of the messages under way */
  const struct exchange *exchange;                  /* whose slots these are */
  struct transport_slot slots[2 * EXCHANGE_WINDOW]; /* those that receive, then those that send: receivers come first */
};

/* Functions of an exchange_backend. */
bool transport_take(void *window, int32_t slot);
int transport_post(void *window, int32_t slot);
int transport_poll(void *window, int32_t *slots, int32_t *count, bool *moved);
void transport_awaits(const void *window, int32_t slot, bool *processes);

#endif
