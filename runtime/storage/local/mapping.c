#include "storage/local/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/local/filesystem.h"
#include "system/machine.h"

static const uint8_t nothing[1]; /* what an empty file maps to: mmap refuses 0 bytes */

/* ---- what is mapped, for who asks in a signal handler ---- */

enum { PATH_BYTES = 512, NOT_ASKED = -2 };
enum { MAPPINGS_USUAL = 65530 }; /* where vm.max_map_count cannot be read */

/* Entries are put at the list's head and never leave it: one that is free is used again. So the list can be walked
 * without a lock at any time. An entry's path and size are written while it is free. */
struct mapping_entry {
  _Atomic(const uint8_t *) data; /* NULL: free */
  _Atomic size_t bytes;
  struct mapping_entry *next;
  struct mapping_entry *next_free; /* for who holds the lock */
  _Atomic int descriptor;          /* NOT_ASKED, -1 (cannot be had) or an open one */
  bool tells;                      /* as mapping_tells */
  dev_t device;
  ino_t inode;
  bool is_network;       /* the file system's */
  char path[PATH_BYTES]; /* of a longer one the end */
};

static _Atomic(struct mapping_entry *) entries;
static struct mapping_entry *free_entries;                       /* the last that became free first */
static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER; /* for those that change the list */

/* What mincore asks before it tells of a file's pages. */
static bool may_see_pages(int fd, const struct stat *status) {
  char name[32];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  return status->st_uid == geteuid() || access(name, W_OK) == 0;
}

/* NULL: out of memory. */
static struct mapping_entry *entry_add(const char *path, int fd, const struct stat *status, const uint8_t *data) {
  pthread_mutex_lock(&entries_lock);
  struct mapping_entry *entry = free_entries;
  const bool is_new = entry == NULL;
  if (!is_new) free_entries = entry->next_free;
  if (is_new) entry = alloc_zeros(1, sizeof *entry);
  if (entry != NULL) {
    const size_t length = strlen(path);
    snprintf(entry->path, sizeof entry->path, "%s", length < PATH_BYTES ? path : path + length - (PATH_BYTES - 1));
    entry->tells = may_see_pages(fd, status);
    entry->device = status->st_dev;
    entry->inode = status->st_ino;
    entry->is_network = filesystem_is_network(fd, status->st_dev);
    atomic_store(&entry->descriptor, NOT_ASKED);
    atomic_store(&entry->bytes, (size_t)status->st_size);
    atomic_store(&entry->data, data);
    if (is_new) {
      entry->next = atomic_load(&entries);
      atomic_store(&entries, entry);
    }
  }
  pthread_mutex_unlock(&entries_lock);
  return entry;
}

static void entry_remove(struct mapping_entry *entry) {
  pthread_mutex_lock(&entries_lock);
  atomic_store(&entry->data, NULL);
  const int fd = atomic_load(&entry->descriptor);
  if (fd >= 0) close(fd);
  entry->next_free = free_entries;
  free_entries = entry;
  pthread_mutex_unlock(&entries_lock);
}

const char *mapping_path_at(const void *address) {
  for (const struct mapping_entry *entry = atomic_load(&entries); entry != NULL; entry = entry->next) {
    const uintptr_t start = (uintptr_t)atomic_load(&entry->data), at = (uintptr_t)address;
    if (start != 0 && at >= start && at - start < atomic_load(&entry->bytes)) return entry->path;
  }
  return NULL;
}

/* ---- mapping ---- */

static int map_file(const char *path, int fd, struct mapping *out) {
  struct stat status;
  if (fstat(fd, &status) != 0) return error_set(SHARDRT_EIO, "%s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode))
    return error_set(SHARDRT_EIO, "%s: %s; only a file can be read as a source", path,
                     S_ISDIR(status.st_mode) ? "is a folder" : "is no regular file");
  const size_t bytes = (size_t)status.st_size;
  const void *data = nothing;
  struct mapping_entry *entry = NULL;
  if (bytes != 0) {
    if (alloc_must_fail(bytes)) return error_prefix(ALLOC_FAILED, "%s", path);
    data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
      return error_set(SHARDRT_EIO, "%s: cannot be mapped, %zu bytes: %s", path, bytes, strerror(errno));
    entry = entry_add(path, fd, &status, data);
    if (entry == NULL) {
      munmap((void *)data, bytes);
      return error_prefix(ALLOC_FAILED, "%s", path);
    }
  }
  *out = (struct mapping){.data = data,
                          .bytes = bytes,
                          .changed = (int64_t)status.st_mtim.tv_sec * 1000000000 + (int64_t)status.st_mtim.tv_nsec,
                          .entry = entry};
  return SHARDRT_OK;
}

int mapping_open(const char *path, struct mapping *out) {
  /* Not blocking: a pipe would wait for a writer. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return error_set(SHARDRT_EIO, "%s: %s", path, strerror(errno));
  int code = map_file(path, fd, out);
  close(fd);
  return code;
}

bool mapping_has_room(int64_t more) {
  long long most = MAPPINGS_USUAL;
  FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
  if (file != NULL) {
    if (fscanf(file, "%lld", &most) != 1) most = MAPPINGS_USUAL;
    fclose(file);
  }
  int64_t mapped = 0;
  for (const struct mapping_entry *entry = atomic_load(&entries); entry != NULL; entry = entry->next)
    mapped += atomic_load(&entry->data) != NULL;
  return mapped + more <= most / 4 * 3;
}

/* ---- for who reads ahead ---- */

/* Of a file that is open already, another descriptor; -1 where it is not that file, or where it would be one of the
 * last that this process may have. */
static int open_again(const struct mapping_entry *entry) {
  struct stat status;
  struct rlimit limit;
  int fd = open(entry->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  if (fstat(fd, &status) == 0 && status.st_dev == entry->device && status.st_ino == entry->inode &&
      getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd < limit.rlim_cur / 2)
    return fd;
  close(fd);
  return -1;
}

int mapping_descriptor(const struct mapping *map) {
  struct mapping_entry *entry = map->entry;
  if (entry == NULL) return -1;
  int fd = atomic_load(&entry->descriptor);
  if (fd != NOT_ASKED) return fd;
  pthread_mutex_lock(&entries_lock);
  fd = atomic_load(&entry->descriptor);
  if (fd == NOT_ASKED) {
    fd = open_again(entry);
    if (fd >= 0) {
      posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* it is read by the range */
      madvise((void *)map->data, map->bytes, MADV_RANDOM);
    }
    atomic_store(&entry->descriptor, fd);
  }
  pthread_mutex_unlock(&entries_lock);
  return fd;
}

bool mapping_tells(const struct mapping *map) {
  return map->entry != NULL && map->entry->tells;
}

void mapping_close(struct mapping *map) {
  if (map->entry != NULL) {
    entry_remove(map->entry); /* before another mapping can get its addresses */
    munmap((void *)map->data, map->bytes);
  }
  *map = (struct mapping){0};
}

uint64_t mapping_identity(const struct mapping *map) {
  const struct mapping_entry *entry = map->entry;
  const uint64_t host = entry == NULL || entry->is_network ? 0 : hash_number(machine_host(), (int64_t)entry->device);
  const uint64_t known[] = {entry != NULL ? entry->inode : 0, host, map->bytes, (uint64_t)map->changed};
  return hash_bytes(0, known, sizeof known);
}

uint64_t mapping_fingerprint(const struct mapping *map) {
  return hash_bytes(hash_number(0, (int64_t)map->bytes), map->data,
                    map->bytes < STORAGE_HEAD ? map->bytes : STORAGE_HEAD);
}
