/* threads.c - what tests/library/threads_spec.lua runs: a program whose threads close a recipe's handles while the one
 * that joined leaves the job; and one that has a handler for SIGBUS of its own. Ends with 0 and "fine", or says what is
 * not so.
 *
 *     threads close recipe.lua          threads sigbus recipe.lua
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt.h>

#define CHECK(fact)                                                                                                    \
  do {                                                                                                                 \
    if (!(fact)) {                                                                                                     \
      fprintf(stderr, "line %d: not so: %s; the last message: %s\n", __LINE__, #fact, shardrt_error_message());        \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

enum { ROUNDS = 12, HANDLES = 6, CLOSERS = 3 };

static void join(int handle_sigbus) {
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = 2;
  options.platform = "host";
  options.transport = SHARDRT_TRANSPORT_ALONE;
  options.handle_sigbus = handle_sigbus;
  CHECK(shardrt_join(&options) == SHARDRT_OK);
}

/* ---- handles on several threads ---------------------------------------------------------------------------------- */

static atomic_int begun;

static void *close_handles(void *context) {
  shardrt_recipe **handles = context;
  atomic_fetch_add(&begun, 1);
  while (atomic_load(&begun) <= CLOSERS) continue;
  shardrt_batch *batch;
  char *text;
  CHECK(shardrt_next(handles[0], -1, &batch) == SHARDRT_EINVAL); /* another thread joined the job, or left it by now */
  CHECK(shardrt_state(handles[0], &text) == SHARDRT_EINVAL && shardrt_leave() <= 0);
  for (int i = 0; i < HANDLES; i++) {
    shardrt_recipe *more;
    CHECK(shardrt_recipe_loader(handles[i], "", &more) == SHARDRT_OK && shardrt_steps(more) == 5);
    shardrt_close(handles[i]);
    shardrt_close(more);
  }
  return NULL;
}

/* The handles that the closers have are all there are, or the thread that joined has one more. */
static void close_while_leaving(const char *path, int round) {
  join(0);
  shardrt_recipe *recipe, *handles[CLOSERS][HANDLES];
  CHECK(shardrt_open(path, 0, NULL, &recipe) == SHARDRT_OK);
  for (int t = 0; t < CLOSERS; t++)
    for (int i = 0; i < HANDLES; i++) CHECK(shardrt_recipe_loader(recipe, "", &handles[t][i]) == SHARDRT_OK);
  shardrt_batch *batch;
  CHECK(shardrt_next(recipe, -1, &batch) == 1);
  pthread_t threads[CLOSERS];
  atomic_store(&begun, 0);
  for (int t = 0; t < CLOSERS; t++) CHECK(pthread_create(&threads[t], NULL, close_handles, handles[t]) == 0);
  const bool is_first = round % 2 == 0;
  if (is_first) shardrt_close(recipe);
  while (atomic_load(&begun) < CLOSERS) continue;
  atomic_fetch_add(&begun, 1); /* now */
  if (round % 3 == 0)
    shardrt_abandon();
  else
    CHECK(shardrt_leave() == SHARDRT_OK);
  if (!is_first) shardrt_close(recipe);
  for (int t = 0; t < CLOSERS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  shardrt_batch_free(batch);
}

/* ---- SIGBUS ------------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t first_heard, second_heard;

static void hear_first(int number) {
  first_heard += number == SIGBUS;
}

static void hear_second(int number, siginfo_t *info, void *context) {
  (void)context;
  second_heard += number == SIGBUS && info != NULL;
}

static void set_first(void) {
  struct sigaction action = {.sa_handler = hear_first};
  CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

static void check_sigbus(const char *path) {
  shardrt_recipe *recipe;
  struct sigaction now, second = {.sa_sigaction = hear_second, .sa_flags = SA_SIGINFO};
  set_first();
  for (int round = 1; round <= 2; round++) { /* a job, and one after it */
    join(1);
    CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler != hear_first);
    CHECK(shardrt_open(path, 0, NULL, &recipe) == SHARDRT_OK);
    CHECK(raise(SIGBUS) == 0 && raise(SIGBUS) == 0); /* no file's: it goes to the program, each time */
    CHECK(first_heard == 2 * round);
    shardrt_close(recipe);
    CHECK(shardrt_leave() == SHARDRT_OK);
    CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == hear_first);
  }
  join(1);
  shardrt_abandon();
  CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == hear_first);
  join(0);
  CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == hear_first);
  CHECK(shardrt_leave() == SHARDRT_OK);
  for (int round = 1; round <= 2; round++) { /* what the program sets meanwhile stays */
    join(1);
    if (round == 1) CHECK(sigaction(SIGBUS, &second, NULL) == 0);
    CHECK(shardrt_leave() == SHARDRT_OK);
    CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == hear_second);
    CHECK(raise(SIGBUS) == 0 && second_heard == round && first_heard == 4);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  if (strcmp(argv[1], "sigbus") == 0) check_sigbus(argv[2]);
  for (int round = 0; strcmp(argv[1], "close") == 0 && round < ROUNDS; round++) close_while_leaving(argv[2], round);
  printf("fine\n");
  return 0;
}
