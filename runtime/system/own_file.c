#include "system/own_file.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool own_file_path(char *path, size_t room) {
  Dl_info info;
  struct link_map *map;
  const int found = dladdr1((const void *)own_file_path, &info, (void **)&map, RTLD_DL_LINKMAP);
  if (found != 0 && map->l_name[0] != '\0') { /* a library */
    const int length = snprintf(path, room, "%s", map->l_name);
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
