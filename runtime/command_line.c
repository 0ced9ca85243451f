#include "command_line.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/libraries.h"
#include "comm/transport/lone_process.h"
#include "lua/interpreter.h"
#include "platform/accelerator.h"

enum { MAX_DEVICES = 1 << 20 };

static const char help[] =
    "usage: shardrt [options] recipe.lua [arguments]       run a recipe: alone, or in each process under mpirun\n"
    "       shardrt run -n N [options] recipe.lua [args]   start mpirun with N processes of the recipe, also as root "
    "and\n"
    "                                                      with more processes than cores; without -n in a batch job\n"
    "                                                      of Slurm: with as many as it is for, else with one\n"
    "       shardrt run -n N [--restarts R] PROGRAM [args] the same of a program that opens a recipe, as one in C or\n"
    "                                                      python3\n"
    "       shardrt run -n N --restarts R [--min M] ...    restart a job that died from its last checkpoint: R times "
    "at\n"
    "                                                      most, with M processes at least\n"
    "       shardrt plan [--processes N] [--devices M] [--process K] recipe.lua [args]\n"
    "                                                      print what each process of an N x M job would read "
    "(--process:\n"
    "                                                      process K only), and what each order of an epoch costs,\n"
    "                                                      without running the job\n"
    "       shardrt [options] test [busted's options] PATH\n"
    "                                                      run busted specs inside shardrt (shardrt test --help)\n"
    "       shardrt run -n N [options] test [busted's options] PATH\n"
    "       shardrt [run -n N] index [--check] [--force] FILES...\n"
    "                                                      write checksums of data files beside them, or compare the\n"
    "                                                      files with these (shardrt index --help)\n"
    "       shardrt report [-o PAGE] TRACE...              make a page of what --trace recorded\n"
    "       shardrt [run -n N] [options] devices           show each process's devices, how GPUs are linked, which\n"
    "                                                      libraries they use, and what is missing\n"
    "\n"
    "Options stand before the recipe, `test`, `index` or `devices`. Words after these belong to the recipe or to "
    "busted.\n"
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
    "  --report FILE          write a page for a browser about the job: speed, waiting, bytes, layouts, what was "
    "skipped\n"
    "                         (also SHARDRT_REPORT)\n"
    "  --metrics FILE         keep a file of numbers for Prometheus (node exporter's textfile collector);\n"
    "                         process 2 of several keeps FILE.2, with FILE's ending (also SHARDRT_METRICS)\n"
    "  --trace FILE           write where the time goes, for https://ui.perfetto.dev (Chrome's trace-event JSON)\n"
    "  --progress, --no-progress\n"
    "                         print the loop's progress on stderr, or not (default: where stderr is a terminal)\n"
    "  --help, --version      print and end\n"
    "\n"
    "SHARDRT_CACHE names the folder of decompressed files and of parts of servers' files (default ~/.cache/shardrt).\n"
    "SHARDRT_LUA_PATH names a folder of Lua files that take the place of those compiled into the program.\n";

static void complain(struct command_line *o, const char *format, const char *word) {
  if (o->problem[0] != '\0') return;
  int used = snprintf(o->problem, sizeof o->problem, format, word);
  if (used > 0 && (size_t)used < sizeof o->problem)
    snprintf(o->problem + used, sizeof o->problem - (size_t)used, " (shardrt --help lists the options)");
}

static int parse_count(struct command_line *o, const char *what, const char *text, int lowest) {
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

static double parse_seconds(struct command_line *o, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end != '\0' || !(value > 0 && value <= 1e9)) {
    complain(o, "--timeout wants seconds greater than 0, not \"%s\"", text);
    return 1;
  }
  return value;
}

static int parse_check(struct command_line *o, const char *text) {
  if (strcmp(text, "off") == 0) return SHARDRT_CHECK_OFF;
  if (strcmp(text, "sample") == 0) return SHARDRT_CHECK_SAMPLE;
  if (strcmp(text, "all") == 0) return SHARDRT_CHECK_ALL;
  complain(o, "--check is off, sample or all, not \"%s\"", text);
  return SHARDRT_CHECK_SAMPLE;
}

/* "USR2", "SIGUSR2" or "12". */
static int parse_signal(struct command_line *o, const char *text) {
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

static void parse_platform(struct command_line *o, const char *what, const char *text) {
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
  if (strcmp(word, "report") == 0) return COMMAND_REPORT;
  if (strcmp(word, "devices") == 0) return COMMAND_DEVICES;
  if (strcmp(word, "run") == 0) return COMMAND_RUN;
  return COMMAND_RECIPE;
}

/* What runs in all processes of a job, and takes what follows as its own. */
static bool runs_no_recipe(enum command command) {
  return command == COMMAND_TEST || command == COMMAND_INDEX || command == COMMAND_DEVICES;
}

static void print_version(void) {
  char gpus[1024];
  accelerator_text(gpus, sizeof gpus);
  printf("shardrt %s\nMPI: %s\nGPUs: %s\nLuaJIT: %s\nbuilt in: %s\n", shardrt_version(), libraries_mpi(), gpus,
         LUAJIT_VERSION, libraries_built_in());
}

static void parse_options(struct command_line *o, int argc, char **argv) {
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
                                        {"report", required_argument, NULL, 'w'},
                                        {"metrics", required_argument, NULL, 'x'},
                                        {"progress", no_argument, NULL, 'p'},
                                        {"no-progress", no_argument, NULL, 'q'},
                                        {"help", no_argument, NULL, 'h'},
                                        {"version", no_argument, NULL, 'v'},
                                        {NULL, 0, NULL, 0}};
  opterr = 0;
  int option, word = optind > 0 ? optind : 1; /* where getopt looks next */
  /* "+": stop at the first word that is no option: it is the command or the recipe, and what follows is its own. */
  while ((option = getopt_long(argc, argv, "+:n:h", longs, NULL)) != -1) {
    if (strchr("dactsfpq", option) != NULL) o->own = argv[word];
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
    case 'w':
      o->report = optarg;
      if (optarg[0] == '\0') complain(o, "%s wants the path of a file", "--report");
      break;
    case 'x':
      o->metrics = optarg;
      if (optarg[0] == '\0') complain(o, "%s wants the path of a file", "--metrics");
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
      print_version();
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

/* The interpreter that the first line of a script names: "luajit" of "#!/usr/bin/env luajit". */
static const char *interpreter_of(char *line) {
  const char *name = "";
  char *rest;
  for (char *word = strtok_r(line + 2, " \t\r\n", &rest); word != NULL; word = strtok_r(NULL, " \t\r\n", &rest)) {
    const char *slash = strrchr(word, '/');
    name = slash != NULL ? slash + 1 : word;
    if (strcmp(name, "env") != 0 && word[0] != '-') break; /* "-S" is env's */
  }
  return name;
}

/* Whether the kernel starts the file without shardrt: an ELF file, or a script for another interpreter than Lua's. */
static bool starts_by_itself(const char *path) {
  char head[128] = "";
  FILE *file = fopen(path, "rbe");
  if (file == NULL) return false;
  const size_t bytes = fread(head, 1, sizeof head - 1, file);
  fclose(file);
  if (bytes >= 4 && memcmp(head, "\177ELF", 4) == 0) return true;
  if (bytes < 2 || memcmp(head, "#!", 2) != 0) return false;
  head[strcspn(head, "\n")] = '\0';
  const char *interpreter = interpreter_of(head);
  return strncmp(interpreter, "lua", 3) != 0 && strcmp(interpreter, "shardrt") != 0;
}

static bool is_of_python(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot != NULL && strcmp(dot, ".py") == 0;
}

/* Whether a shell would find a program of that name. */
static bool is_in_path(const char *name) {
  const char *folder = getenv("PATH");
  while (folder != NULL && folder[0] != '\0') {
    const int length = (int)strcspn(folder, ":");
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%.*s/%s", length, folder, name);
    if (access(path, X_OK) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode)) return true;
    folder += length + (folder[length] == ':');
  }
  return false;
}

/* A program where a recipe is wanted. */
static void refuse_program(struct command_line *o, bool starts) {
  const char *starter = starts ? "" : "python3 ";
  char format[256];
  if (o->command == COMMAND_PLAN)
    snprintf(format, sizeof format,
             "%%s is a program, no recipe in Lua: `shardrt plan` takes the recipe that it opens");
  else
    snprintf(
        format, sizeof format,
        "%%1$s is a program, no recipe in Lua: `%s%%1$s` starts it, and `shardrt run -n N %s%%1$s` N processes of it",
        starter, starter);
  complain(o, format, o->recipe);
}

/* The file that is to run, which can be read, is a recipe; or `shardrt run` starts it as a program. */
static void check_kind(struct command_line *o) {
  const bool starts = starts_by_itself(o->recipe);
  if (!starts && !is_of_python(o->recipe)) return;
  o->is_program = true;
  if (strchr(o->recipe, '/') == NULL) { /* mpirun looks for such a name in PATH */
    static char path[4096];
    snprintf(path, sizeof path, "./%s", o->recipe);
    o->recipe = path;
  }
  if (o->command != COMMAND_RUN)
    refuse_program(o, starts);
  else if (!starts)
    complain(o, "%1$s is no recipe in Lua: `shardrt run -n N python3 %1$s` starts a program in Python", o->recipe);
  else if (access(o->recipe, X_OK) != 0)
    complain(o, "%1$s is a program that may not be executed: `chmod +x %1$s` allows it", o->recipe);
}

/* Looks at what is to run. */
static void check_recipe(struct command_line *o) {
  struct stat info = {0};
  int problem = access(o->recipe, R_OK) != 0 || stat(o->recipe, &info) != 0 ? errno
                : S_ISDIR(info.st_mode)                                     ? EISDIR
                                                                            : 0;
  if (problem == ENOENT && o->command == COMMAND_RUN && strchr(o->recipe, '/') == NULL)
    o->is_program = is_in_path(o->recipe);
  if (problem == 0 && S_ISREG(info.st_mode)) check_kind(o); /* of a pipe nothing is read yet */
  if (problem != 0 && !o->is_program) {
    char format[128];
    snprintf(format, sizeof format, "cannot read the recipe %%s: %s", strerror(problem));
    complain(o, format, o->recipe);
  }
  if (o->is_program && o->own != NULL)
    complain(o, "%s is for recipes: a program sets its own (shardrt_options)", o->own);
}

/* --restarts and --min: whether they make sense beside the rest. */
static void check_restarts(struct command_line *o) {
  if (o->command != COMMAND_RUN && o->restarts >= 0) complain(o, "%s belongs to `shardrt run`", "--restarts");
  if (o->restarts < 0 && o->fewest > 0) complain(o, "%s belongs to `shardrt run --restarts`", "--min");
  if (o->fewest > o->processes) complain(o, "%s is beyond the job's processes", "--min");
}

/* NULL where the environment names none. */
static const char *named_path(const char *variable) {
  const char *path = getenv(variable);
  return path != NULL && path[0] != '\0' ? path : NULL;
}

struct command_line command_line_parse(int argc, char **argv) {
  struct command_line o = {.command = COMMAND_RECIPE, .processes = 1, .restarts = -1, .only_process = -1};
  shardrt_options_init(&o.job);
  const char *devices = getenv("SHARDRT_DEVICES"), *platform = getenv("SHARDRT_PLATFORM");
  if (platform != NULL && platform[0] != '\0') parse_platform(&o, "SHARDRT_PLATFORM", platform);
  if (devices != NULL && devices[0] != '\0') o.job.devices = parse_count(&o, "SHARDRT_DEVICES", devices, 1);
  parse_options(&o, argc, argv);
  if (o.problem[0] == '\0' && optind < argc) o.command = parse_command(argv[optind]);
  if (runs_no_recipe(o.command) || o.command == COMMAND_REPORT) {
    if (o.report != NULL || o.metrics != NULL) complain(&o, "%s are for recipes", "--report and --metrics");
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
  if (o.command == COMMAND_RUN && !o.is_counted) o.processes = lone_process_allocation();
  if (o.command == COMMAND_RECIPE && o.processes != 1)
    complain(&o, "%s belongs to `shardrt run` or `shardrt plan`", "-n");
  if (o.command != COMMAND_PLAN && o.only_process >= 0) complain(&o, "%s belongs to `shardrt plan`", "--process");
  check_restarts(&o);
  if (o.command == COMMAND_PLAN && o.trace != NULL)
    complain(&o, "%s is for jobs that run: a plan reads nothing", "--trace");
  if (o.command == COMMAND_PLAN && (o.report != NULL || o.metrics != NULL))
    complain(&o, "%s are for jobs that run: a plan reads nothing", "--report and --metrics");
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
  if (o.command == COMMAND_RUN && runs_no_recipe(started)) {
    if (o.restarts >= 0) complain(&o, "%s is for recipes: nothing else has checkpoints", "--restarts");
    if (o.report != NULL || o.metrics != NULL) complain(&o, "%s are for recipes", "--report and --metrics");
    return o;
  }
  if (o.command == COMMAND_RUN && started == COMMAND_REPORT) {
    complain(&o, "%s", "a report of a trace needs no other process: shardrt report TRACE, without `run`");
    return o;
  }
  if (o.command == COMMAND_RUN && parse_command(o.recipe) == COMMAND_PLAN) {
    complain(&o, "%s", "a plan needs no other process: shardrt plan --processes N, without `run`");
    return o;
  }
  check_recipe(&o);
  if (o.command != COMMAND_PLAN) {
    if (o.report == NULL) o.report = named_path("SHARDRT_REPORT");
    if (o.metrics == NULL) o.metrics = named_path("SHARDRT_METRICS");
  }
  if (o.command == COMMAND_PLAN) {
    o.job.planning = 1;
    o.job.size = o.processes;
    o.job.rank = o.only_process < 0 ? 0 : o.only_process;
  }
  return o;
}
