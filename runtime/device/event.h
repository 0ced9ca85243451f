/* event.h - events on streams: what accelerator.h says of record, mark, elapsed, wait, reached, finish, event_free,
 * after, lend and take_back. Part of the CUDA plug-in. */
#ifndef SHARDRT_DEVICE_EVENT_H
#define SHARDRT_DEVICE_EVENT_H

#include "platform/accelerator.h"

int event_record(int32_t device, int32_t stream, struct accelerator_event **out);
int event_mark(int32_t device, int32_t stream, struct accelerator_event **out);
int event_elapsed(struct accelerator_event *from, struct accelerator_event *to, double *seconds);
int event_wait(int32_t device, int32_t stream, struct accelerator_event *event);
int event_reached(struct accelerator_event *event, bool *out);
int event_finish(struct accelerator_event *event);
int event_after(int32_t device, int32_t other);
int event_lend(int32_t device, void *stream);
void event_take_back(int32_t device, void *stream);
void event_free(struct accelerator_event *event);
/* Gives back those that wait for reuse. */
void event_close(void);

#endif
