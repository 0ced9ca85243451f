/* filesystem.h - which file systems several hosts see alike. */
#ifndef SHARDRT_STORAGE_LOCAL_FILESYSTEM_H
#define SHARDRT_STORAGE_LOCAL_FILESYSTEM_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the open file lies on a network's file system (NFS, Lustre, GPFS, BeeGFS, Ceph, SMB, 9P, AFS, PanFS), whose
 * numbers of files mean the same on each host. `device` is its st_dev: the file system is asked once for many files. */
bool filesystem_is_network(int fd, dev_t device);

#endif
