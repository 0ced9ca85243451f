/* sharedfile.h - a file that the processes of a job write together, each its own parts, and that appears under its name
 * whole or not at all. Process 0 creates, commits and drops it; the others join it by the number in its temporary name.
 * Nothing here talks to other processes: the caller sees to it that all keep step. */
#ifndef SHARDRT_STORAGE_WRITE_SHAREDFILE_H
#define SHARDRT_STORAGE_WRITE_SHAREDFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sharedfile {
  int fd;          /* -1: closed */
  char *path;      /* the name it shall have; owned */
  char *temporary; /* `path`.<number>.tmp; owned */
  bool mine;       /* this process created it, and it stands under its temporary name */
};

/* A number for a temporary name that no other process picks, also on another host. */
uint64_t sharedfile_number(void);

/* Creates the file, `bytes` long, with its place on the disk taken where the file system can do that. Removes what
 * killed jobs that wrote to the same path left behind. EIO, naming the path: the folder cannot be written, the disk is
 * full, there is a folder of that name. */
int sharedfile_create(const char *path, uint64_t number, size_t bytes, struct sharedfile *out);
/* Opens the file that another process has created. EIO: it is not there. */
int sharedfile_join(const char *path, uint64_t number, struct sharedfile *out);

/* EIO: the disk is full, … */
int sharedfile_write(const struct sharedfile *file, size_t offset, const void *data, size_t bytes);
/* Lets what was written go to the disk, and waits for what this function let go before: so there is never much that
 * sharedfile_sync has to wait for. EIO. */
int sharedfile_flush(const struct sharedfile *file);
/* Brings what this process wrote to the disk. EIO. */
int sharedfile_sync(const struct sharedfile *file);

/* Gives it its name, in place of any file of that name, and brings that to the disk. All processes have synced it. */
int sharedfile_commit(struct sharedfile *file);
/* Closes it; in the process that created it and did not commit it, removes it. Any file that is zeroed (fd -1) or was
 * opened. */
void sharedfile_drop(struct sharedfile *file);

#endif
