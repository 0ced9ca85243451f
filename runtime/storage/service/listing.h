/* listing.h - a listing that another process made. */
#ifndef SHARDRT_STORAGE_SERVICE_LISTING_H
#define SHARDRT_STORAGE_SERVICE_LISTING_H

#include "shardrt.h"

/* One object more, at the end; the address is copied. ENOMEM. */
int listing_append(shardrt_listing *self, const char *address, int64_t bytes);
/* Without objects; NULL and the message set. */
shardrt_listing *listing_empty(void);

#endif
