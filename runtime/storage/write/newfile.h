/* newfile.h - a file that appears under its name whole or not at all. */
#ifndef SHARDRT_STORAGE_WRITE_NEWFILE_H
#define SHARDRT_STORAGE_WRITE_NEWFILE_H

#include <stdbool.h>
#include <stddef.h>

struct newfile {
  int fd;          /* -1: closed */
  char *path;      /* the name it shall have; owned */
  char *temporary; /* a name of its own in the same folder; owned */
  bool named;      /* the file stands under that name now */
};

/* Starts a file that shall be called `path`. Where the system can (O_TMPFILE, and /proc to name it), it has no name
 * while it is written, so that not even a killed process leaves anything behind. EIO, naming the path: the folder
 * cannot be written. */
int newfile_open(const char *path, struct newfile *out);

/* Appends. EIO: the disk is full, … */
int newfile_write(struct newfile *file, const void *data, size_t bytes);

/* Brings it to the disk, gives it its name, in place of any file of that name, and brings that to the disk. Closes it
 * in any case; after a failure nothing is left of it, but where only the last failed, which the message then says. */
int newfile_commit(struct newfile *file);
/* The same for what its reader can tell to be whole, and can do without: it is not waited for until the disk has it, so
 * after a loss of power the name may be that of a part of it. */
int newfile_put(struct newfile *file);

/* Gives it up: nothing is left of it. Does nothing after newfile_commit. */
void newfile_drop(struct newfile *file);

/* The folder that a path is in; owned by the caller, NULL when out of memory. */
char *newfile_folder(const char *path);

#endif
