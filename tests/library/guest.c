/* guest.c - a program that has its own mind about all that a process has only once: numbers, signals, exit handlers,
 * output. Looks after each call whether that is as it was, and prints the bytes of the batches.
 *
 *     guest recipe.lua [odd]     odd: rounds upward, without denormals, with traps, and writes 1,5
 */
#include <fenv.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifdef GUEST_HAS_MPI
#include <mpi.h>
#endif
#include <shardrt.h>

enum { SIGNALS = 65, TEXT = 1 << 16 };

static struct state {
  struct {
    void (*handler)(int);
    int flags;
    bool masks[SIGNALS];
  } actions[SIGNALS];
  sigset_t mask;
  stack_t stack;
  cpu_set_t cores;
  struct rlimit limits[3];
  int rounding, traps, flags, priority;
  unsigned control;
  mode_t umask;
  locale_t locale;
  char locales[1024], folder[1024], environment[TEXT];
} before;

static void look(struct state *out) {
  memset(out, 0, sizeof *out);
  for (int s = 1; s < SIGNALS; s++) {
    struct sigaction action;
    if (sigaction(s, NULL, &action) < 0) continue; /* the C library's own */
    out->actions[s].handler = action.sa_handler;
    out->actions[s].flags = action.sa_flags;
    for (int other = 1; other < SIGNALS; other++)
      out->actions[s].masks[other] = sigismember(&action.sa_mask, other) == 1;
  }
  sigprocmask(SIG_BLOCK, NULL, &out->mask);
  sigaltstack(NULL, &out->stack);
  sched_getaffinity(0, sizeof out->cores, &out->cores);
  getrlimit(RLIMIT_NOFILE, &out->limits[0]);
  getrlimit(RLIMIT_CORE, &out->limits[1]);
  getrlimit(RLIMIT_STACK, &out->limits[2]);
  out->rounding = fegetround();
  out->traps = fegetexcept();
  out->flags = fetestexcept(FE_ALL_EXCEPT);
#if defined(__x86_64__)
  out->control = _mm_getcsr();
#endif
  out->priority = getpriority(PRIO_PROCESS, 0);
  out->umask = umask(022);
  umask(out->umask);
  out->locale = uselocale((locale_t)0);
  snprintf(out->locales, sizeof out->locales, "%s %s", setlocale(LC_ALL, NULL), localeconv()->decimal_point);
  if (getcwd(out->folder, sizeof out->folder) == NULL) exit(3);
  size_t used = 0;
  for (char **e = environ; *e != NULL && used < TEXT; e++)
    used += (size_t)snprintf(out->environment + used, TEXT - used, "%s\n", *e);
}

static void same(const char *call) {
  static struct state now;
  const int flags = fetestexcept(FE_ALL_EXCEPT); /* what is looked at raises none, but who knows */
  look(&now);
  now.flags = flags;
#define SAME(part)                                                                                                     \
  do {                                                                                                                 \
    if (memcmp(&now.part, &before.part, sizeof now.part) != 0) {                                                       \
      fprintf(stderr, "%s changed the program's " #part "\n", call);                                                   \
      exit(3);                                                                                                         \
    }                                                                                                                  \
  } while (0)
  SAME(actions);
  SAME(mask);
  SAME(stack);
  SAME(cores);
  SAME(limits);
  SAME(rounding);
  SAME(traps);
  SAME(flags);
  SAME(control);
  SAME(priority);
  SAME(umask);
  SAME(locale);
  SAME(locales);
  SAME(folder);
  SAME(environment);
}

static void must(const char *call, int code) {
  if (code < 0) fprintf(stderr, "%s: %s\n", call, shardrt_error_message());
  if (code < 0) exit(3);
  same(call);
}

static void ends_first(void) {
  printf("last\n");
}
static void ends_last(void) {
  printf("first\n");
}
static void on_signal(int number) {
  (void)number;
}

static void be_odd(void) {
  if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL || strcmp(localeconv()->decimal_point, ",") != 0) exit(4);
  feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
  fesetround(FE_UPWARD);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040); /* what is below the normal numbers is 0: results, operands */
#endif
}

static void print_batch(const shardrt_batch *batch) {
  for (int f = 0; f < shardrt_batch_fields(batch); f++) {
    const shardrt_array *array = shardrt_batch_array(batch, f);
    for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
      const unsigned char *bytes = shardrt_buffer_data(shardrt_array_buffer(array, i));
      printf("%s %d ", shardrt_batch_name(batch, f), (int)i);
      for (size_t b = 0; b < shardrt_array_shard_bytes(array); b++) printf("%02x", bytes[b]);
      printf("\n");
    }
  }
}

int main(int argc, char **argv) {
#ifdef GUEST_HAS_MPI
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
#endif
  atexit(ends_first);
  signal(SIGUSR1, on_signal);
  signal(SIGPIPE, on_signal);
  signal(SIGINT, SIG_IGN);
  if (argc > 2) be_odd();
  shardrt_options options;
  shardrt_recipe *recipe;
  shardrt_batch *batch;
  char *state, *stats;
  shardrt_options_init(&options);
  options.devices = 2;
  look(&before);
  must("shardrt_join", shardrt_join(&options));
  atexit(ends_last);
  must("shardrt_open", shardrt_open(argv[1], 0, NULL, &recipe));
  int code = 0;
  for (int step = 0; (code = shardrt_next(recipe, step % 2 == 0 ? -1 : 3600, &batch)) == 1; step++) {
    same("shardrt_next");
    print_batch(batch);
    shardrt_batch_free(batch);
    same("shardrt_batch_free");
    must("shardrt_state", shardrt_state(recipe, &state));
    printf("%s\n", state);
    must("shardrt_stats", shardrt_stats(recipe, &stats));
    must("shardrt_restore", shardrt_restore(recipe, state));
    shardrt_text_free(state);
    shardrt_text_free(stats);
  }
  must("shardrt_next", code);
  if (shardrt_open("none.lua", 0, NULL, &recipe) == 0) exit(3);
  same("shardrt_open, which failed,");
  shardrt_close(recipe);
  same("shardrt_close");
  must("shardrt_leave", shardrt_leave());
  must("shardrt_join", shardrt_join(&options));
  shardrt_abandon();
  same("shardrt_abandon");
#ifdef GUEST_HAS_MPI
  MPI_Finalize();
#endif
  return 5;
}
