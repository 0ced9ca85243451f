/* give_way.c - a program that ends when it is asked to, and goes on from there when it is started again.
 *
 *     cc -O2 -o give_way give_way.c $(pkg-config --cflags --libs shardrt)
 *     mpirun -n 2 ./give_way state.json data.lua    # 85: stopped, start it again; 0: at the end
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <shardrt.h>

enum { STOPPED = 85, MOST = 4096 };

static int must(int code) {
  if (code >= 0) return code;
  fprintf(stderr, "give_way: %s\n", shardrt_error_message());
  shardrt_abandon();
  exit(1);
}

static void on_signal(int number) {
  (void)number;
  shardrt_stop_ask();
}

/* The first process writes the file, under another name first: it is there whole or not at all. */
static void save(shardrt_recipe *recipe, const char *path) {
  char *state, other[MOST];
  must(shardrt_state(recipe, &state));
  snprintf(other, sizeof other, "%s.new", path);
  FILE *file = fopen(other, "w");
  if (file == NULL || fputs(state, file) < 0 || fclose(file) != 0 || rename(other, path) != 0) {
    perror(path);
    shardrt_abandon();
    exit(1);
  }
  shardrt_text_free(state);
}

/* All processes go on from there. */
static void restore(shardrt_recipe *recipe, const char *path) {
  char state[MOST] = "";
  FILE *file = fopen(path, "r");
  if (file == NULL) return; /* the first start */
  state[fread(state, 1, sizeof state - 1, file)] = '\0';
  fclose(file);
  must(shardrt_restore(recipe, state));
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: give_way state.json data.lua [arguments of the recipe]\n");
    return 2;
  }
  shardrt_options options;
  shardrt_options_init(&options);
  options.tells_stop = 1;
  signal(SIGTERM, on_signal); /* which calls shardrt_stop_ask() */
  signal(SIGUSR1, on_signal);
  shardrt_recipe *recipe;
  shardrt_batch *batch;
  int64_t epoch, row, taken = 0;
  int code;
  must(shardrt_join(&options));
  must(shardrt_open(argv[2], argc - 3, (const char *const *)argv + 3, &recipe));
  restore(recipe, argv[1]);
  while ((code = shardrt_next(recipe, -1, &batch)) == 1) {
    taken++; /* a step of the training */
    shardrt_batch_free(batch);
  }
  const int32_t process = shardrt_job_info_get(shardrt_joined())->process_index;
  if (code == SHARDRT_ESTOP) { /* in all processes, before the same batch */
    if (process == 0) save(recipe, argv[1]);
  } else {
    must(code);
  }
  must(shardrt_tell(recipe, &epoch, &row));
  printf("process %d took %lld batches, up to row %lld of epoch %lld\n", (int)process, (long long)taken, (long long)row,
         (long long)epoch);
  shardrt_close(recipe);
  must(shardrt_leave()); /* all have come here: the file is there */
  return code == SHARDRT_ESTOP ? STOPPED : 0;
}
