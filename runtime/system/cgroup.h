/* cgroup.h - what Linux's control groups leave to this process: containers are limited by them. */
#ifndef SHARDRT_SYSTEM_CGROUP_H
#define SHARDRT_SYSTEM_CGROUP_H

/* The least limit of the groups that a process is in, which `groups` lists (/proc/self/cgroup), below `root`
 * (/sys/fs/cgroup): of version 2, or of version 1 with its controllers' own folders. Cores need not be whole.
 * INFINITY: none. */
double cgroup_cores(const char *root, const char *groups);
double cgroup_bytes(const char *root, const char *groups);

#endif
