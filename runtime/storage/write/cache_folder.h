/* cache_folder.h - where cached files lie: the user's own folder, one that a group shares, one that is only read. */
#ifndef SHARDRT_STORAGE_WRITE_CACHE_FOLDER_H
#define SHARDRT_STORAGE_WRITE_CACHE_FOLDER_H

#include <stdbool.h>

/* The name of the cache folder, which is made if it is not there, for this user only; owned by the caller. `asked` as
 * in shardrt_source_options. EIO. */
int cache_folder(const char *asked, char **out);

/* The name alone; owned by the caller; NULL: out of memory. *shared: it lies where other users may put things in its
 * place. */
char *cache_folder_name(const char *asked, bool *shared);

/* Whether a folder of that name is to be trusted: EIO where others may put things in its place, and it is there and not
 * this user's alone. */
int cache_folder_trust(const char *folder, bool shared);

/* Makes the folder and those above it, for this user only, and looks again. `folder` is written to and put back. EIO.
 */
int cache_folder_make(char *folder, bool shared);

/* Makes a folder in the cache folder, or in one that was made so, open to whom that is, whatever the umask. False: it
 * cannot be made, with errno; or it is there, EEXIST. */
bool cache_make_inner(const char *path);

/* Opens a new file to whom its folder is open, whatever the umask. */
void cache_open_up(int fd, int folder);

/* $SHARDRT_SITE_CACHE; NULL: it is not set. */
const char *cache_site(void);

#endif
