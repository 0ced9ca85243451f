/* allreduce.h - the sum of a buffer that every process has, in every process.
 *
 * Each process of a group adds up one part of it, of all, in the order of the processes, and gives it to the others: so
 * the sums have the same bits in all of them, and in every run with as many processes. An element goes over a link as
 * rarely as can be: each process sends and receives 2 * (count - 1) / count of the buffer. */
#ifndef SHARDRT_RESHARD_ALLREDUCE_H
#define SHARDRT_RESHARD_ALLREDUCE_H

#include "shardrt.h"

/* In place: the `n` elements of `dtype` at `data`, in the process's own memory, become their sums over the processes
 * that the mesh has along `axis`. Every process of the job calls it, with the same n, dtype, mesh and axis; one that
 * owns no device of the mesh keeps what it has, as does one that has the axis for itself, and may give NULL.
 *
 * A process gives one buffer, however many devices it has: all of them must lead to the same processes along the axis,
 * as they do where they have one coordinate along the other axes, or each process has all of these.
 *
 * Whole numbers wrap; float16 and bfloat16 are added as float32, and rounded once. EINVAL: no job, no such axis,
 * devices that the job has not or that lead to different processes, bool, NULL. EMISMATCH: processes differ in what
 * they call. ETIMEOUT, ECOMM: a process stopped, and the message names it; what is at `data` is undefined, and MPI may
 * still write to it. ENOMEM, in all: one has no memory for messages, 1 MiB, or 16 KiB for each process
 * where that is more. */
int allreduce_run(shardrt_job *job, void *data, size_t n, int32_t dtype, const shardrt_mesh *mesh, const char *axis);

#endif
