/* main.c - the command: the job, one Lua state, the recipe. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/stop_request.h"
#include "comm/transport/launcher.h"
#include "comm/transport/lone_process.h"
#include "command_line.h"
#include "library/sigbus.h"
#include "lua/crash.h"
#include "lua/state.h"
#include "run.h"
#include "shardrt.h"

enum { EXIT_USAGE = 2 };

/* On stderr, as what a recipe prints is its own. */
static void note_alone(void) {
  const char *notice = lone_process_notice();
  if (notice != NULL) fprintf(stderr, "shardrt: %s\n", notice);
}

/* `shardrt run`. Does not return where mpirun could be started; else says why. */
static void start(struct command_line *o, const char *self) {
  const char *repeated = lone_process_repeated();
  if (repeated != NULL) {
    snprintf(o->problem, sizeof o->problem, "%s", repeated);
    return;
  }
  if (!o->is_counted && o->processes == 1) note_alone();
  const struct run r = {.self = self,
                        .options = o->job,
                        .processes = o->processes,
                        .restarts = o->restarts > 0 ? o->restarts : 0,
                        .fewest = o->fewest > 0 ? o->fewest : o->processes,
                        .stop = o->stop,
                        .trace = o->trace,
                        .report = o->report,
                        .metrics = o->metrics,
                        .progress = o->progress,
                        .recipe = o->recipe,
                        .is_program = o->is_program,
                        .argc = o->argc,
                        .argv = o->argv};
  const int status = run_job(&r);
  if (status >= 0) exit(status);
  snprintf(o->problem, sizeof o->problem, "cannot start mpirun: %s (Debian's package openmpi-bin holds it)",
           strerror(errno));
}

/* What runs. */
struct invocation {
  struct command_line command_line;
  shardrt_job *job;
  shardrt_trace *trace; /* NULL: none is recorded */
};

/* Loaders end their threads with the state, before what these recorded is written. */
static int end_recipe(struct invocation *p, lua_State *L) {
  lua_close(L);
  const int code = shardrt_trace_finish(p->trace);
  return code < 0 ? code : shardrt_verify_finish();
}

/* The end of the job. */
static void leave(struct invocation *p, lua_State *L) {
  if (end_recipe(p, L) < 0 || shardrt_job_close(p->job) < 0) shardrt_job_abort(p->job, 1, shardrt_error_message());
}

/* os.exit: leaves the job as the end of the recipe does; a status other than 0 ends the whole job, which the other
 * processes should be able to understand. `shardrt test`, `index` and `devices` have said
 * what they have to say. */
static int exit_job(lua_State *L) {
  struct invocation *p = lua_touserdata(L, lua_upvalueindex(1));
  int status = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : luaL_optint(L, 1, 0);
  if (status != 0) {
    status = status & 0xff ? status & 0xff : 1;
    const enum command command = p->command_line.command;
    const bool has_spoken = command == COMMAND_TEST || command == COMMAND_INDEX || command == COMMAND_DEVICES;
    const bool is_quiet = has_spoken || shardrt_job_info_get(p->job)->process_count == 1;
    luaL_where(L, 1);
    lua_pushfstring(L, "%sos.exit ended the job with status %d", lua_tostring(L, -1), status);
    shardrt_job_abort(p->job, status, is_quiet ? "" : lua_tostring(L, -1));
  }
  leave(p, L); /* as os.exit(…, true) does, it does not return to Lua */
  exit(0);
}

/* The orderly end that a signal asked for, after the checkpoint is saved: leaves the job in all processes, with a
 * status that says it. Unless the job is ended as one, OpenMPI's mpirun explains a status other than 0 at length, and
 * Hydra's mpiexec returned 0 for 7 of 20 jobs. */
static int stop_job(lua_State *L) {
  struct invocation *p = lua_touserdata(L, lua_upvalueindex(1));
  stop_request_ignore();
  if (!launcher_is_openmpi() && !launcher_is_hydra()) {
    leave(p, L);
    exit(STOP_STATUS);
  }
  if (end_recipe(p, L) < 0 || shardrt_barrier(p->job, "the end") < 0)
    shardrt_job_abort(p->job, 1, shardrt_error_message());
  shardrt_job_abort(p->job, STOP_STATUS, "");
  return 0; /* not reached */
}

static lua_State *new_state(struct invocation *p) {
  const struct command_line *o = &p->command_line;
  lua_State *L;
  if (lua_state_new(&L) < 0) return NULL;
  lua_getglobal(L, "os");
  lua_pushlightuserdata(L, p);
  lua_pushcclosure(L, exit_job, 1);
  lua_setfield(L, -2, "exit");
  lua_pop(L, 1);
  lua_state_arguments(L, o->recipe, o->argc, (const char *const *)o->argv);
  return L;
}

/* What is asked for, by name: lua/shardrt/program/program.lua describes it. */
static void push_invocation(lua_State *L, const struct invocation *p) {
  const struct command_line *o = &p->command_line;
  const struct {
    const char *name, *text;
  } texts[] = {{"recipe", o->recipe}, {"report", o->report}, {"metrics", o->metrics}};
  lua_newtable(L);
  lua_pushlightuserdata(L, p->job);
  lua_setfield(L, -2, "job");
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    lua_pushstring(L, texts[i].text); /* nil for NULL */
    lua_setfield(L, -2, texts[i].name);
  }
  if (o->only_process >= 0) {
    lua_pushinteger(L, o->only_process);
    lua_setfield(L, -2, "only_process");
  }
  if (o->progress != 0) {
    lua_pushboolean(L, o->progress > 0);
    lua_setfield(L, -2, "shows_progress");
  }
  lua_pushlightuserdata(L, (void *)p);
  lua_pushcclosure(L, stop_job, 1);
  lua_setfield(L, -2, "stop_job");
}

/* Calls one function of lua/shardrt/program/program.lua. Returns NULL, or the message of the error that ended it, which
 * lives as long as the state. */
static const char *run_program(lua_State *L, const struct invocation *p) {
  const struct command_line *o = &p->command_line;
  static const char *const functions[] = {"run", "plan", "test", "index", "report", "devices"};
  lua_getglobal(L, "require");
  lua_pushliteral(L, "shardrt.program.program");
  if (lua_pcall(L, 1, 1, 0) != 0) return lua_tostring(L, -1);
  lua_getfield(L, -1, functions[o->command]);
  push_invocation(L, p);
  if (lua_pcall(L, 1, 1, 0) != 0 || !lua_isnil(L, -1)) {
    const char *message = lua_tostring(L, -1);
    return message != NULL ? message : "error that is not a text";
  }
  return NULL;
}

/* OpenMPI 5's mpirun takes output from a pipe, by 4 KB, and loses what stands there behind the last whole line when
 * something is said on stderr meanwhile. So lines are handed over whole, as to OpenMPI 4's, which is a terminal. That
 * one's driver cuts lines at tabs as long as it may change output, and other processes' lines come between; where it
 * is to change nothing (OPOST alone), it is told not to look. */
static void whole_lines(void) {
  if (getenv("PRTE_LAUNCHED") != NULL) setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  struct termios terminal;
  if (tcgetattr(STDOUT_FILENO, &terminal) != 0 || terminal.c_oflag != OPOST) return;
  terminal.c_oflag = 0;
  tcsetattr(STDOUT_FILENO, TCSANOW, &terminal);
}

/* `shardrt run` keeps SIGTERM from mpirun, and some mpirun's processes begin with what is blocked there. */
static void hear_sigterm(void) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &ends, NULL);
}

int main(int argc, char **argv) {
  hear_sigterm();
  whole_lines();
  error_for_command();
  struct invocation p = {.command_line = command_line_parse(argc, argv)};
  struct command_line *o = &p.command_line;
  if (o->problem[0] == '\0' && o->command == COMMAND_RUN) start(o, argv[0]);
  /* A wrong command line is wrong in every process: only the whole job can say so once. */
  shardrt_options plain;
  shardrt_options_init(&plain);
  plain.devices = 1;
  plain.check = SHARDRT_CHECK_OFF;
  plain.timeout = 30;
  plain.platform = "host";
  const int code = shardrt_job_open(o->problem[0] != '\0' ? &plain : &o->job, &p.job);
  const bool is_told = code < 0 && shardrt_error_message()[0] == '\0'; /* by another process */
  if (o->problem[0] != '\0') shardrt_job_abort(p.job, EXIT_USAGE, is_told ? "" : o->problem);
  if (code < 0) shardrt_job_abort(p.job, 1, shardrt_error_message());
  const shardrt_job_info *info = shardrt_job_info_get(p.job);
  if (!info->planning && info->process_count == 1) note_alone();
  sigbus_watch(info);
  if (o->command == COMMAND_RECIPE) stop_request_watch(info, o->stop);
  if (o->trace != NULL && shardrt_trace_start(p.job, o->trace, &p.trace) < 0)
    shardrt_job_abort(p.job, EXIT_USAGE, shardrt_error_message());
  lua_State *L = new_state(&p);
  if (L == NULL) shardrt_job_abort(p.job, 1, shardrt_error_message());
  lua_crash_watch(info);
  const char *message = run_program(L, &p);
  if (message != NULL) shardrt_job_abort(p.job, 1, message);
  leave(&p, L);
  return 0;
}
