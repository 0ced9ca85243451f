#include "system/own_file.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char library[PATH_MAX]; /* "": it is the program, or cannot be known */

/* A library may have been found by a path that is relative to a folder which the program leaves: so this is asked when
 * it is loaded. */
__attribute__((constructor)) static void note_library(void) {
  Dl_info info;
  struct link_map *map;
  if (dladdr1((const void *)own_file_path, &info, (void **)&map, RTLD_DL_LINKMAP) == 0) return;
  if (map->l_name[0] == '\0') return;
  char folder[PATH_MAX] = "";
  if (map->l_name[0] != '/' && getcwd(folder, sizeof folder) == NULL) return;
  const int length = snprintf(library, sizeof library, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", map->l_name);
  if (length < 0 || (size_t)length >= sizeof library) library[0] = '\0';
}

bool own_file_path(char *path, size_t room) {
  if (library[0] != '\0') {
    const int length = snprintf(path, room, "%s", library);
    return (size_t)length < room;
  }
  const ssize_t length = readlink("/proc/self/exe", path, room);
  if (length < 0 || (size_t)length >= room) return false;
  path[length] = '\0';
  return true;
}

bool own_file_folder(char *path, size_t room) {
  if (!own_file_path(path, room)) return false;
  char *slash = strrchr(path, '/');
  if (slash != NULL)
    *slash = '\0';
  else
    snprintf(path, room, ".");
  return true;
}

bool own_file_beside(const char *name, char *path, size_t room) {
  if (!own_file_folder(path, room)) return false;
  const size_t used = strlen(path);
  const int length = snprintf(path + used, room - used, "/%s", name);
  return (size_t)length < room - used && access(path, R_OK) == 0;
}
