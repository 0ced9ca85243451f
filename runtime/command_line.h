/* command_line.h - what the user asks for: options, a command, a recipe or a program, and its arguments. */
#ifndef SHARDRT_COMMAND_LINE_H
#define SHARDRT_COMMAND_LINE_H

#include <stdbool.h>

#include "shardrt.h"

enum command {
  COMMAND_RECIPE,
  COMMAND_PLAN,
  COMMAND_TEST,
  COMMAND_INDEX,
  COMMAND_REPORT,
  COMMAND_DEVICES,
  COMMAND_RUN
};

struct command_line {
  enum command command;
  shardrt_options job;
  int processes;     /* run: how many to start */
  bool is_counted;   /* their number was given */
  int restarts;      /* run: -1 where the option was not given */
  int fewest;        /* run: processes to go on with; 0 where the option was not given */
  int only_process;  /* plan: -1 for all */
  int stop;          /* --signal: its number; 0: none */
  const char *trace; /* NULL: none; so, too, the next two */
  const char *report;
  const char *metrics;
  int progress;       /* 1: --progress; -1: --no-progress; 0: neither */
  const char *recipe; /* NULL for test; run: "test" where it starts that, or a program */
  bool is_program;    /* run: it is no recipe, but starts by itself, as what a C compiler made */
  const char *own;    /* an option that only what shardrt runs takes, as --devices; NULL: none was given */
  int argc;           /* what follows the recipe (for test: the command) */
  char **argv;
  char problem[512]; /* what is wrong with the command line; empty if nothing is */
};

/* Reads it, and SHARDRT_DEVICES, SHARDRT_PLATFORM, SHARDRT_REPORT and SHARDRT_METRICS. What it holds lives as long as
 * the process. --help and
 * --version print, and end it. */
struct command_line command_line_parse(int argc, char **argv);

#endif
