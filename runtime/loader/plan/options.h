/* options.h - what a loader is asked for, before anything is made of it. */
#ifndef SHARDRT_LOADER_PLAN_OPTIONS_H
#define SHARDRT_LOADER_PLAN_OPTIONS_H

#include "shardrt.h"

/* EINVAL: a number is none of those that it may be; the message names it. */
int options_check(const shardrt_loader_options *options);

#endif
