/* settings.h - where people say who they are: variables, files of sections, files of tokens. */
#ifndef SHARDRT_STORAGE_EXCHANGE_SETTINGS_H
#define SHARDRT_STORAGE_EXCHANGE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* A variable of the environment; NULL where it is empty, too. */
const char *settings_variable(const char *name);

/* The text without space around it, in place. */
char *settings_trimmed(char *text);

/* The value of a name in the section [section], or [profile section], of a file. Owned; NULL: none. *found becomes true
 * where there is such a section. `path` may be NULL: there is no such file. */
char *settings_value(const char *path, const char *section, const char *name, bool *found);

/* The whole of a small file, at most 1 MiB, with a NUL behind it; owned. EIO: "PATH, WHAT: why"; ENOMEM. */
int settings_file(const char *path, const char *what, char **out, size_t *bytes);
/* The same of its first line, without space around it, which must have something in it. */
int settings_line(const char *path, const char *what, char **out);

#endif
