/* machine.h - what of this machine is this process's: other processes of the job on the same host take as much. */
#ifndef SHARDRT_SYSTEM_MACHINE_H
#define SHARDRT_SYSTEM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Says, as a job is opened, how many of its processes are on this host, and the launcher (0: none) whose
 * cores they share. Until then this process is the only one. */
void machine_share(int32_t processes, pid_t launcher);

/* A number that processes on the same host have in common, and, of containers, those in the same one. */
uint64_t machine_host(void);

/* Where this process may use one core only, lets it use all that its launcher may; threads float then. Returns whether
 * it did. For one that was bound though nobody had asked for it; threads that are there already stay where they are. */
bool machine_widen(void);

/* How many threads of this process can run at the same time: its share of the cores that the job may use here by
 * affinity and by the quota of its control groups, and at most as many as $SHARDRT_THREADS says, or without it
 * $OMP_NUM_THREADS and $SLURM_CPUS_PER_TASK; at least 1. */
int32_t machine_cores(void);

/* EINVAL: $SHARDRT_THREADS is no such number. */
int machine_check_threads(void);

/* Its share of the memory, in bytes: of the machine's, or of what its control groups allow. */
size_t machine_memory(void);

/* The machine's memory, in bytes, whoever may use it. */
size_t machine_all_memory(void);

/* The cache that cores share (the last level), in bytes; 32 MiB where the system does not say. */
size_t machine_shared_cache(void);

/* A core's own cache (the second level), in bytes; 1 MiB where the system does not say. */
size_t machine_cache(void);

#endif
