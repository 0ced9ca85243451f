/* cache_limit.h - how much the cache folder holds of unpacked files, and which of them go: "NAME-PATHKEY-KEY". */
#ifndef SHARDRT_STORAGE_WRITE_CACHE_LIMIT_H
#define SHARDRT_STORAGE_WRITE_CACHE_LIMIT_H

#include <stdint.h>

/* $SHARDRT_UNPACKED_BYTES, 100 GiB where it is not set. EINVAL: it is no such number. */
int cache_limit(int64_t *out);

/* Says that an unpacked file is in use: its time of access, which not every file system keeps by itself. */
void cache_note_use(const char *path);

/* Removes unpacked files from a folder, where there are many at most once a minute, after `made` was put there. They
 * were not used for an hour, or on a network's file system for 30 days, as that takes them away from other hosts that
 * read: those made of the same path while it held something else, and the least recently used until all are within
 * `limit` bytes. Whoever on this host has one mapped keeps it. */
void cache_remove_old(const char *folder, const char *made, int64_t limit);

/* How many bytes more the cache folder can have of unpacked files, about: within the limit beside what was used too
 * lately to go, and on the disk. `folder` as in shardrt_source_options. EINVAL: the variable; EIO: the folder cannot be
 * made. */
int cache_room(const char *folder, int64_t *out);

#endif
