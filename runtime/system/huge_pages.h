/* huge_pages.h - large memory, in huge pages where the system grants them: each fault then brings 512 times as much,
 * and rows that are read here and there are found with far fewer looks into the page tables. Where it grants none, the
 * same memory comes in small ones. */
#ifndef SHARDRT_SYSTEM_HUGE_PAGES_H
#define SHARDRT_SYSTEM_HUGE_PAGES_H

#include <stddef.h>

/* Contents undefined, 64-byte aligned, for alloc_free; NULL and the message set when out of memory. */
void *huge_alloc(size_t bytes);

/* The same for huge_room_free, in which the same number of bytes is given: of what is smaller than a huge page, several
 * are in one. All such rooms of the process are in slabs of 8 MiB. The first slab that has room is taken from, so that
 * others become empty: these go back to the system, but for a few. A new one is had where none has room. */
void *huge_room(size_t bytes);
/* NULL is allowed. */
void huge_room_free(void *room, size_t bytes);
/* What a room of so many bytes takes. */
size_t huge_room_size(size_t bytes);

#endif
