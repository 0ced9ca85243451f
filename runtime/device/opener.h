/* opener.h - the program or library that opened the plug-in. */
#ifndef SHARDRT_DEVICE_OPENER_H
#define SHARDRT_DEVICE_OPENER_H

#include "platform/accelerator.h"

/* Before anything else is called here. `given` stays where it is. */
void opener_set(const struct accelerator_host *given);

#endif
