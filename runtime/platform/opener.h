/* opener.h - the program or library that opened a plug-in, as the plug-in sees it. */
#ifndef SHARDRT_PLATFORM_OPENER_H
#define SHARDRT_PLATFORM_OPENER_H

#include "platform/plugin.h"

/* Before anything else is called here. `given` stays where it is. */
void opener_set(const struct plugin_host *given);

#endif
