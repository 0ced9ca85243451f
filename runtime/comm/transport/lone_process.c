/* lone_process.c - the environment variables in which launchers say what they started. */
#include "comm/transport/lone_process.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

enum { HEAD_START = 2 }; /* seconds that process 0 has to say what is wrong */

#define FIRST_SPECIAL_STEP 0xfffffff0U /* Slurm's batch scripts and interactive shells are steps with such numbers */

/* What a launcher says, the inner one first where one starts the other: mpirun starts its daemons by srun. */
struct launch {
  const char *size; /* the variable that says how many it started */
  const char *rank; /* and which this one is: the output of all comes to where that of 0 does */
  const char *why;  /* they are alone */
};

static const char other_mpi[] = "no MPI that this program can open speaks with the launcher";

static const struct launch launches[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", other_mpi}, /* OpenMPI */
    {"PMI_SIZE", "PMI_RANK", other_mpi},                         /* MPICH, Intel, Cray, and srun --mpi=pmi2 */
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", other_mpi},   /* MVAPICH */
    {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", other_mpi},     /* jsrun */
    {"FLUX_JOB_SIZE", "FLUX_TASK_RANK", other_mpi},              /* flux run */
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL},
};
enum { LAUNCHES = sizeof launches / sizeof *launches };

static const char STEP[] = "SLURM_STEP_NUM_TASKS", TORCH[] = "WORLD_SIZE", TORCH_RANK[] = "LOCAL_RANK";

/* A whole number from the environment; -1: there is none. */
static int number_in_environment(const char *name) {
  const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): threads come later */
  char *end;
  const long number = text != NULL ? strtol(text, &end, 10) : -1;
  return text == NULL || end == text || *end != '\0' || number < 0 || number > INT_MAX ? -1 : (int)number;
}

static bool is_set(const char *name) {
  return getenv(name) != NULL; /* NOLINT(concurrency-mt-unsafe): threads come later */
}

bool lone_process_has_launcher(void) {
  for (int i = 0; i < LAUNCHES; i++)
    if (number_in_environment(launches[i].size) > (strcmp(launches[i].size, STEP) == 0 ? 1 : 0)) return true;
  return is_set("PMIX_RANK") || is_set("PMI_RANK");
}

enum lone_process_launcher lone_process_launcher(void) {
  const bool is_pmi = is_set("PMI_RANK") || is_set("PMI_SIZE") || is_set("MV2_COMM_WORLD_SIZE");
  const bool is_pmix = is_set("PMIX_RANK") || is_set("PMIX_NAMESPACE");
  if (is_set("OMPI_COMM_WORLD_SIZE")) return LAUNCHER_OPENMPI;
  return is_pmi && !is_pmix ? LAUNCHER_PMI : LAUNCHER_UNKNOWN;
}

/* ---- alone, and should not be ----------------------------------------------------------------------------------- */

static void refuse_several(struct lone_process_finding *out, const char *size, const char *rank, const char *why) {
  const size_t room = sizeof out->message;
  const int count = number_in_environment(size);
  char use[128];
  const char *started = error_words("shardrt recipe.lua", "PROGRAM");
  const int begun = snprintf(use, sizeof use, "mpirun -n %d %s", count, started);
  snprintf(use + begun, sizeof use - (size_t)begun, error_words(", or shardrt run -n %d recipe.lua", ""), count);
  const int used =
      snprintf(out->message, room, "the launcher started %d processes, but each finds itself alone: %s is %d, and ",
               count, size, count);
  if (why != NULL && !is_set(STEP)) out->reason = used;
  if (strcmp(size, TORCH) == 0)
    snprintf(out->message + used, room - (size_t)used,
             "what sets it, as torchrun, joins nobody to an MPI job; in Python use shardrt.open(…, "
             "transport=shardrt.torch.transport()), else %s (where it is left over: unset it)",
             use);
  else if (why == NULL || is_set(STEP))
    snprintf(out->message + used, room - (size_t)used,
             "srun did not join them; use srun --mpi=pmix -n %d shardrt recipe.lua, or, without srun, %s", count, use);
  else
    snprintf(out->message + used, room - (size_t)used, "%s; with another, use %s", why, use);
  out->waits = number_in_environment(rank) > 0;
  out->is_quiet = out->waits && is_set(STEP);
}

bool lone_process_has_pmix_server(void) {
  static const char prefix[] = "PMIX_SERVER_URI";
  for (char **each = environ; *each != NULL; each++)
    if (strncmp(*each, prefix, sizeof prefix - 1) == 0) return true;
  return false;
}

static bool is_of_pmix(void) {
  return is_set("PMIX_RANK") || is_set("PMIX_NAMESPACE");
}

static void refuse_pmix(struct lone_process_finding *out, const char *why) {
  const char *name = is_set("PMIX_RANK") ? "PMIX_RANK" : "PMIX_NAMESPACE";
  snprintf(
      out->message, sizeof out->message,
      "a launcher started this process by PMIx (%s is %s), but it finds itself alone: %s; use srun --mpi=pmix -n N "
      "shardrt recipe.lua, mpirun -n N shardrt recipe.lua, or shardrt run -n N recipe.lua",
      name, getenv(name), why); /* NOLINT(concurrency-mt-unsafe): threads come later */
  out->is_by_pmix = true;
}

/* PMIx has no variable for how many there are. */
static void look_at_pmix(struct lone_process_finding *out) {
  if (number_in_environment("PMIX_RANK") > 0 || (is_of_pmix() && !out->is_one && !lone_process_has_pmix_server()))
    refuse_pmix(out, "no PMIx server that an MPI speaks with answers");
}

void lone_process_look(struct lone_process_finding *out) {
  *out = (struct lone_process_finding){.waits = false};
  for (int i = 0; i < LAUNCHES && !out->is_one; i++) {
    const int count = number_in_environment(launches[i].size);
    out->is_one = count == 1;
    if (count <= 1) continue;
    refuse_several(out, launches[i].size, launches[i].rank, launches[i].why);
    return;
  }
  look_at_pmix(out);
  /* torchrun says both; the first alone may be left from something else, where a launcher says that this is one. */
  if (out->message[0] == '\0' && number_in_environment(TORCH) > 1 && (!out->is_one || is_set(TORCH_RANK)))
    refuse_several(out, TORCH, TORCH_RANK, NULL);
}

void lone_process_blame(struct lone_process_finding *looked, const char *reason) {
  if (looked->reason == 0) { /* what started them joins nobody, or perhaps did not start several */
    if (is_of_pmix() && !looked->is_one && (looked->message[0] == '\0' || looked->is_by_pmix))
      refuse_pmix(looked, reason);
    return;
  }
  char rest[256];
  char *at = looked->message + looked->reason;
  snprintf(rest, sizeof rest, "%s", strchr(at, ';'));
  snprintf(at, sizeof looked->message - (size_t)looked->reason, "%s%s", reason, rest);
}

int lone_process_check(const struct lone_process_finding *looked) {
  if (looked->message[0] == '\0') return SHARDRT_OK;
  if (looked->waits) nanosleep(&(struct timespec){.tv_sec = HEAD_START}, NULL);
  return error_set(SHARDRT_ECOMM, "%s", looked->is_quiet ? "" : looked->message);
}

/* ---- alone in an allocation ------------------------------------------------------------------------------------- */

/* srun's steps are what somebody wanted to be one process; a batch script and a shell just stand in the allocation. */
bool lone_process_is_step(void) {
  const char *text = getenv("SLURM_STEP_ID"); /* NOLINT(concurrency-mt-unsafe): threads come later */
  return text != NULL && strtoul(text, NULL, 10) < FIRST_SPECIAL_STEP;
}

int lone_process_allocation(void) {
  const int count = number_in_environment("SLURM_NTASKS");
  const bool is_ours = is_set("SLURM_JOB_ID") && count > 0 && !lone_process_is_step() && !lone_process_has_launcher();
  return is_ours ? count : 1;
}

const char *lone_process_repeated(void) {
  static char line[384];
  int count = -1;
  const char *size = NULL;
  for (int i = 0; i < LAUNCHES && count < 1; i++) {
    size = launches[i].size;
    count = number_in_environment(size);
  }
  if (count <= 1) return NULL;
  snprintf(line, sizeof line,
           "a launcher started `shardrt run` %d times (%s is %d), and each would start a job of its own; use %s -n %d "
           "shardrt recipe.lua, or once and by itself shardrt run -n %d recipe.lua",
           count, size, count, is_set(STEP) ? "srun --mpi=pmix" : "mpirun", count, count);
  return line;
}

const char *lone_process_notice(void) {
  static char line[256];
  const char *name = number_in_environment("SLURM_NTASKS") >= 0 ? "SLURM_NTASKS" : "SLURM_JOB_NUM_NODES";
  const int count = number_in_environment(name);
  if (!is_set("SLURM_JOB_ID") || count <= 1 || lone_process_is_step() || lone_process_has_launcher()) return NULL;
  snprintf(line, sizeof line,
           "this is one process, though %s is %d; srun --mpi=pmix shardrt recipe.lua, mpirun shardrt recipe.lua or "
           "shardrt run -n %d recipe.lua uses the allocation",
           name, count, count);
  return line;
}
