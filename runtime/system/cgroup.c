#include "system/cgroup.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The limit that the files of one folder set, or INFINITY. */
typedef double limit_in(const char *folder);

/* The first line of folder/name; false: there is none. */
static bool line_of(const char *folder, const char *name, char *line, int size) {
  char path[PATH_MAX];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return false;
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  const bool any = fgets(line, size, file) != NULL;
  fclose(file);
  return any;
}

/* cpu.max: "50000 100000", microseconds of every period's, or "max 100000". */
static double cores_v2(const char *folder) {
  char line[64], *rest;
  if (!line_of(folder, "cpu.max", line, sizeof line)) return INFINITY;
  const double quota = strtod(line, &rest), period = strtod(rest, NULL);
  return rest != line && quota > 0 && period > 0 ? quota / period : INFINITY;
}

/* The same in two files; a quota of -1 is none. */
static double cores_v1(const char *folder) {
  char quota[64], period[64];
  if (!line_of(folder, "cpu.cfs_quota_us", quota, sizeof quota) ||
      !line_of(folder, "cpu.cfs_period_us", period, sizeof period))
    return INFINITY;
  const double microseconds = strtod(quota, NULL), of = strtod(period, NULL);
  return microseconds > 0 && of > 0 ? microseconds / of : INFINITY;
}

static double bytes_in(const char *folder, const char *name) {
  char line[64], *rest;
  if (!line_of(folder, name, line, sizeof line)) return INFINITY;
  const double bytes = strtod(line, &rest);
  return rest != line && bytes > 0 ? bytes : INFINITY; /* "max", or a number beyond all memory: as good as none */
}

static double bytes_v2(const char *folder) {
  return bytes_in(folder, "memory.max");
}

static double bytes_v1(const char *folder) {
  return bytes_in(folder, "memory.limit_in_bytes");
}

/* The least limit of a group and of those above it. Seen from inside a container, the group's path may not be there,
 * and then the root is the container's own group. */
static double least_limit(const char *root, const char *path, limit_in *limit) {
  char folder[PATH_MAX];
  if ((size_t)snprintf(folder, sizeof folder, "%s%s", root, path) >= sizeof folder) return INFINITY;
  double found = INFINITY;
  for (char *end = folder + strlen(folder); end >= folder + strlen(root); end = strrchr(folder, '/')) {
    *end = 0;
    found = fmin(found, limit(folder));
  }
  return found;
}

/* Whether a list of names with commas between them has this one. */
static bool lists(const char *names, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = names;; at++) {
    if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == 0)) return true;
    at = strchr(at, ',');
    if (at == NULL) return false;
  }
}

/* Lines of `groups`: "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1. */
static double limit_of(const char *root, const char *groups, const char *controller, limit_in *v2, limit_in *v1) {
  FILE *file = fopen(groups, "re");
  if (file == NULL) return INFINITY;
  char line[PATH_MAX + 256], folder[PATH_MAX];
  double found = INFINITY;
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = 0;
    char *names = strchr(line, ':'), *path = names != NULL ? strchr(names + 1, ':') : NULL;
    if (path == NULL) continue;
    *path++ = 0;
    names++;
    if (strcmp(path, "/") == 0) path = "";
    if (*names == 0) {
      found = fmin(found, least_limit(root, path, v2));
    } else if (lists(names, controller) &&
               (size_t)snprintf(folder, sizeof folder, "%s/%s", root, controller) < sizeof folder) {
      found = fmin(found, least_limit(folder, path, v1));
    }
  }
  fclose(file);
  return found;
}

double cgroup_cores(const char *root, const char *groups) {
  return limit_of(root, groups, "cpu", cores_v2, cores_v1);
}

double cgroup_bytes(const char *root, const char *groups) {
  return limit_of(root, groups, "memory", bytes_v2, bytes_v1);
}
