/* main.c - the command: options, the job, one Lua state, the recipe. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/stop_request.h"
#include "comm/transport/launcher.h"
#include "comm/transport/lone_process.h"
#include "library/sigbus.h"
#include "lua/state.h"
#include "run.h"
#include "shardrt.h"

enum { EXIT_USAGE = 2, MAX_DEVICES = 1 << 20 };

static const char help[] =
    "usage: shardrt [options] recipe.lua [arguments]       run a recipe: alone, or in each process under mpirun\n"
    "       shardrt run -n N [options] recipe.lua [args]   start mpirun with N processes of the recipe, also as root "
    "and\n"
    "                                                      with more processes than cores\n"
    "       shardrt run -n N --restarts R [--min M] ...    restart a job that died from its last checkpoint: R times "
    "at\n"
    "                                                      most, with M processes at least\n"
    "       shardrt plan [--processes N] [--devices M] [--process K] recipe.lua [args]\n"
    "                                                      print what each process of an N x M job would read "
    "(--process:\n"
    "                                                      process K only), without running the job\n"
    "       shardrt [options] test [busted's options] PATH\n"
    "                                                      run busted specs inside shardrt (shardrt test --help)\n"
    "       shardrt run -n N [options] test [busted's options] PATH\n"
    "       shardrt [run -n N] index [--check] [--force] FILES...\n"
    "                                                      write checksums of data files beside them, or compare the\n"
    "                                                      files with these (shardrt index --help)\n"
    "\n"
    "Options stand before the recipe, `test` or `index`. Words after these belong to the recipe or to busted.\n"
    "\n"
    "  --platform NAME        host, cuda, or auto: cuda where there is a GPU (default auto; also SHARDRT_PLATFORM)\n"
    "  --devices N            devices of each process (default 1, or with cuda the process's share of the machine's "
    "GPUs;\n"
    "                         also SHARDRT_DEVICES)\n"
    "  --check off|sample|all compare replicas: never; of arrays made by hand and of some loaded batches (default);\n"
    "                         of every batch\n"
    "  --signal NAME          end in an orderly way at this signal, too (USR2), as at TERM and USR1: the next\n"
    "                         checkpoint:step() saves, and the status is 85\n"
    "  --timeout SECONDS      give up waiting for another process after so long (default 300)\n"
    "  --trace FILE           write where the time goes, for https://ui.perfetto.dev (Chrome's trace-event JSON)\n"
    "  --progress, --no-progress\n"
    "                         print the loop's progress on stderr, or not (default: where stderr is a terminal)\n"
    "  --help, --version      print and end\n"
    "\n"
    "SHARDRT_CACHE names the folder of decompressed files and of parts of servers' files (default ~/.cache/shardrt).\n"
    "SHARDRT_LUA_PATH names a folder of Lua files that take the place of those compiled into the program.\n";

enum command { COMMAND_RECIPE, COMMAND_PLAN, COMMAND_TEST, COMMAND_INDEX, COMMAND_RUN };

struct options {
  enum command command;
  shardrt_options job;
  int processes;      /* run: how many to start */
  bool is_counted;    /* their number was given */
  int restarts;       /* run: -1 where the option was not given */
  int fewest;         /* run: processes to go on with; 0 where the option was not given */
  int only_process;   /* plan: -1 for all */
  int stop;           /* --signal: its number; 0: none */
  const char *trace;  /* NULL: none */
  int progress;       /* 1: --progress; -1: --no-progress; 0: neither */
  const char *recipe; /* NULL for test; run: "test" where it starts that */
  int argc;           /* what follows the recipe (for test: the command) */
  char **argv;
  char problem[512]; /* what is wrong with the command line; empty if nothing is */
};

static void complain(struct options *o, const char *format, const char *word) {
  if (o->problem[0] != '\0') return;
  int used = snprintf(o->problem, sizeof o->problem, format, word);
  if (used > 0 && (size_t)used < sizeof o->problem)
    snprintf(o->problem + used, sizeof o->problem - (size_t)used, " (shardrt --help lists the options)");
}

static int parse_count(struct options *o, const char *what, const char *text, int lowest) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < lowest || value > MAX_DEVICES) {
    char format[128];
    snprintf(format, sizeof format, "%s wants a whole number from %d to %d, not \"%%s\"", what, lowest, MAX_DEVICES);
    complain(o, format, text);
    return lowest;
  }
  return (int)value;
}

static double parse_seconds(struct options *o, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end != '\0' || !(value > 0 && value <= 1e9)) {
    complain(o, "--timeout wants seconds greater than 0, not \"%s\"", text);
    return 1;
  }
  return value;
}

static int parse_check(struct options *o, const char *text) {
  if (strcmp(text, "off") == 0) return SHARDRT_CHECK_OFF;
  if (strcmp(text, "sample") == 0) return SHARDRT_CHECK_SAMPLE;
  if (strcmp(text, "all") == 0) return SHARDRT_CHECK_ALL;
  complain(o, "--check is off, sample or all, not \"%s\"", text);
  return SHARDRT_CHECK_SAMPLE;
}

/* "USR2", "SIGUSR2" or "12". */
static int parse_signal(struct options *o, const char *text) {
  const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
  for (int number = 1; number < SIGRTMIN; number++) {
    char digits[16];
    snprintf(digits, sizeof digits, "%d", number);
    const char *abbreviated = sigabbrev_np(number);
    if (number == SIGKILL || number == SIGSTOP || abbreviated == NULL) continue;
    if (strcmp(digits, text) == 0 || strcasecmp(abbreviated, name) == 0) return number;
  }
  complain(o, "--signal wants the name of a signal that can be caught, as USR2, not \"%s\"", text);
  return 0;
}

static void parse_platform(struct options *o, const char *what, const char *text) {
  static const char *const names[] = {"auto", "host", "cuda"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(text, names[i]) != 0) continue;
    o->job.platform = names[i];
    return;
  }
  char format[64];
  snprintf(format, sizeof format, "%s is host, cuda or auto, not \"%%s\"", what);
  complain(o, format, text);
}

static enum command parse_command(const char *word) {
  if (strcmp(word, "plan") == 0) return COMMAND_PLAN;
  if (strcmp(word, "test") == 0) return COMMAND_TEST;
  if (strcmp(word, "index") == 0) return COMMAND_INDEX;
  if (strcmp(word, "run") == 0) return COMMAND_RUN;
  return COMMAND_RECIPE;
}

static void parse_options(struct options *o, int argc, char **argv) {
  static const struct option longs[] = {{"devices", required_argument, NULL, 'd'},
                                        {"platform", required_argument, NULL, 'a'},
                                        {"check", required_argument, NULL, 'c'},
                                        {"timeout", required_argument, NULL, 't'},
                                        {"processes", required_argument, NULL, 'n'},
                                        {"process", required_argument, NULL, 'k'},
                                        {"signal", required_argument, NULL, 's'},
                                        {"restarts", required_argument, NULL, 'r'},
                                        {"min", required_argument, NULL, 'm'},
                                        {"trace", required_argument, NULL, 'f'},
                                        {"progress", no_argument, NULL, 'p'},
                                        {"no-progress", no_argument, NULL, 'q'},
                                        {"help", no_argument, NULL, 'h'},
                                        {"version", no_argument, NULL, 'v'},
                                        {NULL, 0, NULL, 0}};
  opterr = 0;
  int option, word = optind > 0 ? optind : 1; /* where getopt looks next */
  /* "+": stop at the first word that is no option: it is the command or the recipe, and what follows is its own. */
  while ((option = getopt_long(argc, argv, "+:n:h", longs, NULL)) != -1) {
    switch (option) {
    case 'd':
      o->job.devices = parse_count(o, "--devices", optarg, 1);
      break;
    case 'a':
      parse_platform(o, "--platform", optarg);
      break;
    case 'c':
      o->job.check = parse_check(o, optarg);
      break;
    case 's':
      o->stop = parse_signal(o, optarg);
      break;
    case 't':
      o->job.timeout = parse_seconds(o, optarg);
      break;
    case 'n':
      o->processes = parse_count(o, "-n (--processes)", optarg, 1);
      o->is_counted = true;
      break;
    case 'k':
      o->only_process = parse_count(o, "--process", optarg, 0);
      break;
    case 'r':
      o->restarts = parse_count(o, "--restarts", optarg, 0);
      break;
    case 'm':
      o->fewest = parse_count(o, "--min", optarg, 1);
      break;
    case 'f':
      o->trace = optarg;
      if (optarg[0] == '\0') complain(o, "%s wants the path of a file", "--trace");
      break;
    case 'p':
      o->progress = 1;
      break;
    case 'q':
      o->progress = -1;
      break;
    case 'h':
      fputs(help, stdout);
      exit(0);
    case 'v':
      printf("shardrt %s\n", shardrt_version());
      exit(0);
    case ':':
      complain(o, "option %s wants a value", argv[word]);
      break;
    default:
      complain(o, "unknown option %s", argv[word]);
      break;
    }
    word = optind;
  }
}

/* --restarts and --min: whether they make sense beside the rest. */
static void check_restarts(struct options *o) {
  if (o->command != COMMAND_RUN && o->restarts >= 0) complain(o, "%s belongs to `shardrt run`", "--restarts");
  if (o->restarts < 0 && o->fewest > 0) complain(o, "%s belongs to `shardrt run --restarts`", "--min");
  if (o->fewest > o->processes) complain(o, "%s is beyond the job's processes", "--min");
}

static struct options parse(int argc, char **argv) {
  struct options o = {.command = COMMAND_RECIPE, .processes = 1, .restarts = -1, .only_process = -1};
  shardrt_options_init(&o.job);
  const char *devices = getenv("SHARDRT_DEVICES"), *platform = getenv("SHARDRT_PLATFORM");
  if (platform != NULL && platform[0] != '\0') parse_platform(&o, "SHARDRT_PLATFORM", platform);
  if (devices != NULL && devices[0] != '\0') o.job.devices = parse_count(&o, "SHARDRT_DEVICES", devices, 1);
  parse_options(&o, argc, argv);
  if (o.problem[0] == '\0' && optind < argc) o.command = parse_command(argv[optind]);
  if (o.command == COMMAND_TEST || o.command == COMMAND_INDEX) {
    o.argc = argc - optind - 1;
    o.argv = argv + optind + 1;
    return o;
  }
  if (o.command != COMMAND_RECIPE) { /* its own options may follow */
    argc -= optind;
    argv += optind;
    optind = 0; /* GNU getopt: start anew */
    parse_options(&o, argc, argv);
  }
  if (o.command == COMMAND_RECIPE && o.processes != 1)
    complain(&o, "%s belongs to `shardrt run` or `shardrt plan`", "-n");
  if (o.command != COMMAND_PLAN && o.only_process >= 0) complain(&o, "%s belongs to `shardrt plan`", "--process");
  check_restarts(&o);
  if (o.command == COMMAND_PLAN && o.trace != NULL)
    complain(&o, "%s is for jobs that run: a plan reads nothing", "--trace");
  if (o.only_process >= o.processes) complain(&o, "%s is beyond the job's processes", "--process");
  if (o.problem[0] != '\0') return o;
  if (optind >= argc) {
    complain(&o, "%s", "no recipe given");
    return o;
  }
  o.recipe = argv[optind];
  o.argc = argc - optind - 1;
  o.argv = argv + optind + 1;
  const enum command started = parse_command(o.recipe);
  if (o.command == COMMAND_RUN && (started == COMMAND_TEST || started == COMMAND_INDEX)) {
    if (o.restarts >= 0) complain(&o, "%s is for recipes: nothing else has checkpoints", "--restarts");
    return o;
  }
  if (o.command == COMMAND_RUN && parse_command(o.recipe) == COMMAND_PLAN) {
    complain(&o, "%s", "a plan needs no other process: shardrt plan --processes N, without `run`");
    return o;
  }
  struct stat info;
  int problem = access(o.recipe, R_OK) != 0 || stat(o.recipe, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
  if (problem != 0) {
    char format[128];
    snprintf(format, sizeof format, "cannot read the recipe %%s: %s", strerror(problem));
    complain(&o, format, o.recipe);
  }
  if (o.command == COMMAND_PLAN) {
    o.job.planning = 1;
    o.job.size = o.processes;
    o.job.rank = o.only_process < 0 ? 0 : o.only_process;
  }
  return o;
}

/* On stderr, as what a recipe prints is its own. */
static void note_alone(void) {
  const char *notice = lone_process_notice();
  if (notice != NULL) fprintf(stderr, "shardrt: %s\n", notice);
}

/* `shardrt run`. Does not return where mpirun could be started. */
static void start(struct options *o, const char *self) {
  if (!o->is_counted) note_alone();
  const struct run r = {.self = self,
                        .options = o->job,
                        .processes = o->processes,
                        .restarts = o->restarts > 0 ? o->restarts : 0,
                        .fewest = o->fewest > 0 ? o->fewest : o->processes,
                        .stop = o->stop,
                        .trace = o->trace,
                        .progress = o->progress,
                        .recipe = o->recipe,
                        .argc = o->argc,
                        .argv = o->argv};
  const int status = run_job(&r);
  if (status >= 0) exit(status);
  snprintf(o->problem, sizeof o->problem, "cannot start mpirun: %s (Debian's package openmpi-bin holds it)",
           strerror(errno));
}

/* What runs. */
struct invocation {
  struct options options;
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
 * processes should be able to understand. `shardrt test` and `index` have said what they have to say. */
static int exit_job(lua_State *L) {
  struct invocation *p = lua_touserdata(L, lua_upvalueindex(1));
  int status = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : luaL_optint(L, 1, 0);
  if (status != 0) {
    status = status & 0xff ? status & 0xff : 1;
    const bool has_spoken = p->options.command == COMMAND_TEST || p->options.command == COMMAND_INDEX;
    const bool is_quiet = has_spoken || shardrt_job_info_get(p->job)->process_count == 1;
    luaL_where(L, 1);
    lua_pushfstring(L, "%sos.exit ended the job with status %d", lua_tostring(L, -1), status);
    shardrt_job_abort(p->job, status, is_quiet ? "" : lua_tostring(L, -1));
  }
  leave(p, L); /* as os.exit(…, true) does, it does not return to Lua */
  exit(0);
}

/* The orderly end that a signal asked for, after the checkpoint is saved: leaves the job in all processes, with a
 * status that says it. mpirun would explain a status other than 0 at length, unless the job is ended as one. */
static int stop_job(lua_State *L) {
  struct invocation *p = lua_touserdata(L, lua_upvalueindex(1));
  stop_request_ignore();
  if (!launcher_is_openmpi()) {
    leave(p, L);
    exit(STOP_STATUS);
  }
  if (end_recipe(p, L) < 0 || shardrt_barrier(p->job, "the end") < 0)
    shardrt_job_abort(p->job, 1, shardrt_error_message());
  shardrt_job_abort(p->job, STOP_STATUS, "");
  return 0; /* not reached */
}

static lua_State *new_state(struct invocation *p) {
  const struct options *o = &p->options;
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

/* Calls one function of lua/shardrt/program/program.lua. Returns NULL, or the message of the error that ended it, which
 * lives as long as the state. */
static const char *run_program(lua_State *L, const struct invocation *p) {
  const struct options *o = &p->options;
  static const char *const functions[] = {"run", "plan", "test", "index"};
  lua_getglobal(L, "require");
  lua_pushliteral(L, "shardrt.program.program");
  if (lua_pcall(L, 1, 1, 0) != 0) return lua_tostring(L, -1);
  lua_getfield(L, -1, functions[o->command]);
  lua_pushlightuserdata(L, p->job);
  if (o->recipe != NULL)
    lua_pushstring(L, o->recipe);
  else
    lua_pushnil(L);
  if (o->only_process >= 0)
    lua_pushinteger(L, o->only_process);
  else
    lua_pushnil(L);
  if (o->progress != 0)
    lua_pushboolean(L, o->progress > 0);
  else
    lua_pushnil(L);
  lua_pushlightuserdata(L, (void *)p);
  lua_pushcclosure(L, stop_job, 1);
  if (lua_pcall(L, 5, 1, 0) != 0 || !lua_isnil(L, -1)) {
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

int main(int argc, char **argv) {
  whole_lines();
  error_for_command();
  struct invocation p = {.options = parse(argc, argv)};
  struct options *o = &p.options;
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
  const char *message = run_program(L, &p);
  if (message != NULL) shardrt_job_abort(p.job, 1, message);
  leave(&p, L);
  return 0;
}
