#include "storage/write/cache_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/write/newfile.h"

/* The variable's value, or NULL where it is not set or empty. */
static const char *env_value(const char *name) {
  const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  return value != NULL && value[0] != '\0' ? value : NULL;
}

char *cache_folder_name(const char *asked, bool *shared) {
  *shared = false;
  if (asked != NULL && asked[0] != '\0') return alloc_text("%s", asked);
  if (env_value("SHARDRT_CACHE") != NULL) return alloc_text("%s", env_value("SHARDRT_CACHE"));
  if (env_value("XDG_CACHE_HOME") != NULL) return alloc_text("%s/shardrt", env_value("XDG_CACHE_HOME"));
  const char *home = env_value("HOME");
  if (home != NULL && access(home, W_OK) == 0) return alloc_text("%s/.cache/shardrt", home);
  *shared = true;
  return alloc_text("/tmp/shardrt-%lu", (unsigned long)getuid());
}

const char *cache_site(void) {
  return env_value("SHARDRT_SITE_CACHE");
}

/* The bits of a folder that others may write, for what lies in it; of any other folder none. A sticky bit, as /tmp has
 * it, keeps each user's own: nothing is shared there. */
static mode_t shared_mode(const struct stat *folder) {
  if ((folder->st_mode & S_ISVTX) != 0) return 0;
  return (folder->st_mode & (S_IWGRP | S_IWOTH)) != 0 ? folder->st_mode & 02777 : 0;
}

bool cache_make_inner(const char *path) {
  struct stat above;
  if (mkdir(path, 0700) != 0) return false;
  char *folder = newfile_folder(path);
  if (folder != NULL && stat(folder, &above) == 0 && shared_mode(&above) != 0) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); /* not what lies there instead by now */
    if (fd >= 0) (void)fchmod(fd, shared_mode(&above));
    if (fd >= 0) close(fd);
  }
  if (folder == NULL) alloc_do_without("the mode of a folder of the cache");
  alloc_free(folder);
  return true;
}

void cache_open_up(int fd, int folder) {
  struct stat above;
  if (fstat(folder, &above) == 0 && shared_mode(&above) != 0) (void)fchmod(fd, shared_mode(&above) & 0666);
}

int cache_folder_make(char *folder, bool shared) {
  for (char *end = folder + 1; end[-1] != '\0'; end++) {
    if (*end != '/' && *end != '\0') continue;
    const char old = *end;
    *end = '\0';
    const bool made = mkdir(folder, 0700) == 0 || errno == EEXIST || access(folder, F_OK) == 0;
    const int why = errno;
    *end = old;
    if (!made)
      return error_set(SHARDRT_EIO,
                       "the cache folder %s cannot be made: %s; $SHARDRT_CACHE (or cache = …) can name another one",
                       folder, strerror(why));
  }
  return cache_folder_trust(folder, shared);
}

/* In /tmp anybody may have made it first. */
int cache_folder_trust(const char *folder, bool shared) {
  struct stat status;
  if (!shared || (lstat(folder, &status) != 0 && errno == ENOENT)) return SHARDRT_OK;
  if (lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == getuid() &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return SHARDRT_OK;
  return error_set(SHARDRT_EIO, "the cache folder %s is not this user's alone; $SHARDRT_CACHE can name another one",
                   folder);
}

int cache_folder(const char *asked, char **out) {
  bool shared;
  char *folder = cache_folder_name(asked, &shared);
  int code = folder != NULL ? cache_folder_trust(folder, shared) : ALLOC_FAILED;
  if (code == SHARDRT_OK) code = cache_folder_make(folder, shared);
  if (code != SHARDRT_OK) {
    alloc_free(folder);
    return code;
  }
  *out = folder;
  return SHARDRT_OK;
}
