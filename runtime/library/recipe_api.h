/* recipe_api.h - a program of its own that takes batches from a recipe: a part of shardrt.h.
 *
 * The process belongs to one job at a time here. One thread joins it and makes all calls below until it leaves. Any
 * thread may retain and free batches and look into them, ask a recipe for its loaders, their names and steps, and close
 * handles. A handle is one thread's at a time. Every process of the job makes the same calls in the same order, but for
 * shardrt_abandon, shardrt_close, shardrt_state, shardrt_stats and what is called on batches. EINVAL, beside what each
 * function says: no job is joined, another thread calls, or a process that was forked from the one that joined. ENOMEM:
 * here or in the recipe's Lua no memory is left; the process goes on (but LuaJITs of 2022 crash where memory ends just
 * in code that they compiled). */
#ifndef SHARDRT_LIBRARY_RECIPE_API_H
#define SHARDRT_LIBRARY_RECIPE_API_H

#include "comm/program_api.h"

/* Joins a job, or begins one alone, as shardrt_job_open. Nothing of the options is kept but the callbacks' context.
 * Where it fails, the process is in no job, and may try again. EINVAL: it is in one. EAGAIN, here and from shardrt_open
 * and shardrt_leave: options.slice is over, and the same call goes on; meanwhile all other calls that belong to the
 * thread are EINVAL, but two: shardrt_abandon ends it, and shardrt_leave waits for an opening to end. Over MPI a
 * joining that was abandoned, or ended with ETIMEOUT, is still under way on the communicator: until the process joins
 * again, it starts no other collective there, and makes no communicators. */
int shardrt_join(const shardrt_options *options);
/* Leaves the job when all its processes have come here, and closes what is open. Whatever it returns, the process is
 * out and may join again. EMISMATCH, ETIMEOUT, ECOMM: as shardrt_job_close. EFORMAT: another process or job read other
 * bytes of a file than this one. In no job: 0. */
int shardrt_leave(void);
/* Leaves the job and waits for nobody, after an error or an interrupt; closes what is open. The others hear of it, as
 * after shardrt_job_abandon: at which call this process was, and the message of that call, where it failed. */
void shardrt_abandon(void);
/* The same, for a reason of the program's own, of which they hear the beginning of the first line. NULL: as above. */
void shardrt_abandon_because(const char *why);
/* The job that was joined, for the functions that take one; NULL: none. */
shardrt_job *shardrt_joined(void);

/* Runs the recipe, whose `arg` and `...` are the arguments; it returns a loader, or a table of loaders by name. Several
 * may be open: each has its own Lua state and loaders, and they share the job. EINVAL: the file cannot be read, or the
 * recipe failed (the message begins with its file and line), or returned something else; other codes are those of what
 * failed in it. Where this fails in one process alone, the others wait for it until it abandons the job. *out is the
 * caller's, who closes it. */
int shardrt_open(const char *recipe, int argc, const char *const *argv, shardrt_recipe **out);
/* The loader of that name, as a handle of its own, which the caller closes; "": the one of a recipe that returned one
 * alone. All handles for one loader go on together. EINVAL: there is no such loader; the message lists the names. */
int shardrt_recipe_loader(shardrt_recipe *recipe, const char *name, shardrt_recipe **out);
/* The number of loaders that the recipe returned in a table, 0 where it returned one alone, and the name of one of them
 * (in the order of their names; borrowed from the recipe; NULL: there are not so many). */
int shardrt_recipe_count(const shardrt_recipe *recipe);
const char *shardrt_recipe_name(const shardrt_recipe *recipe, int i);
/* Gives the handle back; with the last one of a recipe its loaders end: on the thread that joined at once, else when
 * the job is left. The recipe's shardrt.temporary_folder goes when the job is left. Batches stay. NULL is allowed. */
void shardrt_close(shardrt_recipe *recipe);

/* The next global batch of a loader, in the same order in every process: 1 and *out, which the caller frees; 0 after
 * the last one of the last epoch. Waits for about `seconds`, without end where they are negative. SHARDRT_EAGAIN: they
 * are over and nothing is lost: the next call of the same loader goes on. Until it has returned something else,
 * shardrt_state and shardrt_stats answer, shardrt_close and shardrt_leave wait for it, shardrt_abandon ends it, and all
 * other calls that belong to the thread which joined are EINVAL. ETIMEOUT:
 * another process did not come in the job's timeout, in which what the caller does between two slices does not count.
 * ESTOP, once in a job and only where options.tells_stop is set: a process was asked for an orderly end. All processes
 * are told so before the same batch, within about a second or one batch. Nothing is lost: shardrt_state is where the
 * next call goes on, for a program that saves and ends (with status 85, by which launchers know it), or goes on.
 * ECOMM: another process left the job (shardrt_abandon), at once.
 * The recipe's own Lua state does not run, but for a loader that has a batch_transform, and for the first steps of
 * pipeline = "auto". Its Lua transforms run in states of their own.
 *
 * What is handed out stays the caller's until it is freed, and takes memory beyond the loader's budget, without a
 * limit: shardrt_stats tells how much ("held_bytes"). */
int shardrt_next(shardrt_recipe *recipe, double seconds, shardrt_batch **out);
/* Batches of an epoch; -1 for a recipe that returned a table. */
int64_t shardrt_steps(const shardrt_recipe *recipe);

/* Counts of owners; any thread. Batches outlive recipe and job. NULL is allowed. */
void shardrt_batch_retain(shardrt_batch *batch);
void shardrt_batch_free(shardrt_batch *batch);
/* Its fields, in the order of their names; "mask" is the last, where the loader has one. What the functions return is
 * borrowed from the batch; NULL: there is no such field. Shards are read only: replicas share them. */
int shardrt_batch_fields(const shardrt_batch *batch);
const char *shardrt_batch_name(const shardrt_batch *batch, int field);
const shardrt_array *shardrt_batch_array(const shardrt_batch *batch, int field);
const shardrt_array *shardrt_batch_find(const shardrt_batch *batch, const char *name);

/* Where the loader stands, or all loaders of the recipe, as JSON, the same in every process and of use in a job of any
 * size; and back to there. The text is the caller's, for shardrt_text_free. Not collective, but restore is; it moves
 * all loaders or, where it fails, none. While a call of shardrt_next rests, its batch counts as not handed out; of a
 * loader that has a batch_transform, both this and shardrt_stats wait for that batch, which the next call gives. */
int shardrt_state(shardrt_recipe *recipe, char **json);
int shardrt_restore(shardrt_recipe *recipe, const char *json);
/* Where one loader's next batch begins, without asking Lua: its epoch, and its row there (0: a new epoch begins). */
int shardrt_tell(shardrt_recipe *recipe, int64_t *epoch, int64_t *row);
/* Where one loader stood before its last batch, for a program that is interrupted after it took a batch and before it
 * used it; before the first one, and right after restoring: where it stands. */
int shardrt_state_before(shardrt_recipe *recipe, char **json);
/* What the loader did in this process, as JSON: what loader:stats() gives, and held_bytes. That is the memory of all
 * that is held of its batches: of them, of their arrays, of tensors that DLPack lent. Where it has a batch_transform,
 * held_bytes are those of batches that were not freed; memory that only DLPack's tensors still hold is not among them.
 * Of a recipe that returned a table, one such object for each name. */
int shardrt_stats(shardrt_recipe *recipe, char **json);
void shardrt_text_free(char *text); /* NULL is allowed */

/* The sum of a buffer of the caller's over the processes that the mesh has along `axis`, in place: `n` elements of
 * `dtype` (SHARDRT_FLOAT32, …) at `data`, in the process's own memory. Every process of the job calls it alike. A
 * process gives one buffer, however many devices it has; all of these must lead to the same processes along the axis. A
 * process without a device of the mesh, or with the axis for itself, keeps what it has, and may give NULL. The sums
 * have the same bits in all processes and in every run of as many. Whole numbers wrap; float16 and bfloat16 are added
 * as float32, and rounded once. EINVAL: no such axis, devices that the job has not or that lead to different processes,
 * bool, NULL. EMISMATCH: processes differ in what they call. ETIMEOUT, ECOMM: what is at `data` is undefined, and MPI
 * may still write to it. ENOMEM, in all. */
int shardrt_allreduce(void *data, size_t n, int32_t dtype, const shardrt_mesh *mesh, const char *axis);

#endif
