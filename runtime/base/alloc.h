/* alloc.h - malloc and its kin, with a switch that makes the n-th one fail (shardrt_alloc_fail_at), so that tests can
 * walk every way out of a function. All of the runtime allocates through these. */
#ifndef SHARDRT_BASE_ALLOC_H
#define SHARDRT_BASE_ALLOC_H

#include "shardrt.h"

/* NULL and this thread's message set on failure; n * size is checked for overflow; 0 bytes give a pointer to free. */
void *alloc_array(size_t n, size_t size);            /* contents undefined */
void *alloc_zeros(size_t n, size_t size);            /* zeros */
void *alloc_aligned(size_t alignment, size_t bytes); /* to a power of two; contents undefined */
char *alloc_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void alloc_free(void *memory);

/* Room for one item more in a list of `count` items of `size` bytes, which has room for *room; NULL and 0 where there
 * is none yet: then it is made for `least`, and later for twice as many each time. The list itself where it has the
 * room; else a larger one with its items, and the old one is freed. NULL: the list stays, with the message set. */
void *alloc_one_more(void *list, int64_t count, int64_t *room, int64_t least, size_t size);

/* What a function returns after one of the above gave NULL. */
#define ALLOC_FAILED SHARDRT_ENOMEM

/* True where this allocation must fail; for code that gets memory in other ways (mmap). Sets the message. */
bool alloc_must_fail(size_t bytes);
/* Whether one is to fail yet: then a Lua state that is made has all its allocations counted, too. */
bool alloc_will_fail(void);
/* Says that the caller goes on without what an allocation that failed was for. Tests know such places by these words
 * (static text), and no other: an allocation that fails is told, or named so. */
void alloc_do_without(const char *what);

#endif
