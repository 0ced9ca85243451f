/* write_api.h - folders of checkpoints, for one process that keeps them; files: a part of shardrt.h. */
#ifndef SHARDRT_STORAGE_WRITE_WRITE_API_H
#define SHARDRT_STORAGE_WRITE_WRITE_API_H

#include "memory/memory_api.h"

/* A folder that this process holds: locked while the handle lives (a lock on the folder itself, which ends with the
 * process however that ends; where the file system has none, nobody is kept out). */
typedef struct shardrt_folder shardrt_folder;
/* Opens a folder and makes it, with those above it, where it is not there. Waits up to `seconds` for whoever holds it.
 * EIO: it cannot be made or opened; it stays held by another. */
int shardrt_folder_open(const char *path, double seconds, shardrt_folder **out);
void shardrt_folder_free(shardrt_folder *folder); /* lets it go; NULL is allowed */
/* The names in it, without "." and "..", each with its NUL, in no order; ended by an empty one. */
int shardrt_folder_names(const shardrt_folder *folder, shardrt_buffer **out);
/* A new folder within it. EIO: there is one, the disk is full, … */
int shardrt_folder_make(const shardrt_folder *folder, const char *name);
/* Gives what stands within it another name, at once, and brings that to the disk. EIO: nothing has changed (there may
 * be something of that name), or only that it came to the disk is not sure, which the message then says. */
int shardrt_folder_rename(const shardrt_folder *folder, const char *from, const char *to);
/* Removes a folder within it and the files in that one. EIO: something else is in it, … One that is not there is no
 * error. */
int shardrt_folder_remove(const shardrt_folder *folder, const char *name);

/* Writes a file whole or not at all: a temporary name, synced, renamed in place of any file of that name. EIO. */
int shardrt_file_save(const char *path, const void *data, size_t bytes);
/* The same for what is soon written again: it does not wait for the disk. */
int shardrt_file_put(const char *path, const void *data, size_t bytes);
/* Whether a file can be written there, as far as can be known before. Leaves none. EIO. */
int shardrt_file_check(const char *path);
/* Of `bytes` bytes of a file, from `offset` on. EIO: it cannot be read. EFORMAT: it ends before. */
int shardrt_file_fingerprint(const char *path, int64_t offset, int64_t bytes, uint64_t *out);

#endif
