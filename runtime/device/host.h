/* host.h - the program or library that opened the plug-in. */
#ifndef SHARDRT_DEVICE_HOST_H
#define SHARDRT_DEVICE_HOST_H

#include "platform/accelerator.h"

/* Before anything else is called here. `given` stays where it is. */
void host_is(const struct accelerator_host *given);

#endif
