/* own_file.h - the program or the library that this code is in, as a file. */
#ifndef SHARDRT_SYSTEM_OWN_FILE_H
#define SHARDRT_SYSTEM_OWN_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Its path, absolute, as it was when it was loaded; false: it cannot be known, or is longer than `room`. */
bool own_file_path(char *path, size_t room);
/* The folder that it is in. */
bool own_file_folder(char *path, size_t room);
/* A file of that folder; false: there is none of this name that can be read. */
bool own_file_beside(const char *name, char *path, size_t room);

#endif
