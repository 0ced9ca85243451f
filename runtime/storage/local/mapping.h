/* mapping.h - a file, read-only, as memory. Nothing is read until it is touched. */
#ifndef SHARDRT_STORAGE_LOCAL_MAPPING_H
#define SHARDRT_STORAGE_LOCAL_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapping_entry;

struct remote;

struct mapping {
  const uint8_t *data; /* NULL: closed, or never opened */
  size_t bytes;
  int64_t changed; /* when the file was last written, in ns since 1970; of one on a server, its key (remote.h) */
  struct mapping_entry *entry; /* in the list of what is mapped; NULL for an empty file */
  struct remote *remote; /* the file lies on a server: `data` is NULL, and stored_get reads it; owned by who set it */
};

/* EIO, naming the path and the reason, where it is no regular file that this user may read; an empty file is opened.
 * The file must not shrink while it is mapped: who touches what is gone, or what the disk fails to give, gets the
 * signal SIGBUS. */
int mapping_open(const char *path, struct mapping *out);

/* The path of the file that is mapped at `address`, or NULL; lives until that mapping is closed. A signal handler may
 * ask, in any thread. */
const char *mapping_path_at(const void *address);

/* For who reads a mapped file ahead: a descriptor of it, which lives as long as the mapping, or -1 where there is none:
 * the path names another file by now, or descriptors are running out. It is opened when it is first asked for; from
 * then on a page that is touched and missing comes alone, not with all that is around it. Any thread. */
int mapping_descriptor(const struct mapping *map);

/* Whether mincore tells of this file's pages: Linux tells only those who own the file or may write to it, and others
 * that all of it is there. */
bool mapping_tells(const struct mapping *map);

/* The hash of the file's number in its file system, its length and when it was last written, and of the host: another
 * one for a copy. On a network's file system it is the same on each host. Reads nothing. */
uint64_t mapping_identity(const struct mapping *map);

/* Whether so many more files can be mapped: the system allows a process a number of mappings (vm.max_map_count), of
 * which a quarter is left to others. */
bool mapping_has_room(int64_t more);

/* Any mapping that is zeroed or was opened; zeroes it. */
void mapping_close(struct mapping *map);

/* The hash of its length and first STORAGE_HEAD bytes: enough to tell files apart, and quick. */
enum { STORAGE_HEAD = 65536 };
uint64_t mapping_fingerprint(const struct mapping *map);

#endif
