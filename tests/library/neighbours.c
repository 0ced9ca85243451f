/* neighbours.c - a program that uses OpenBLAS, HDF5 and a Lua by itself, beside a recipe that multiplies matrices and
 * reads HDF5. Looks whether each works as before, and OpenBLAS has the threads that the program gave it, before,
 * between and during the library's calls.
 *
 *     neighbours recipe.lua liblua5.1.so.0
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>
#include <shardrt.h>

enum { THREADS = 3, N = 64 };

int openblas_get_num_threads(void);
void openblas_set_num_threads(int threads);
void cblas_dgemm(int order, int a_as, int b_as, int m, int n, int k, double alpha, const double *a, int a_pitch,
                 const double *b, int b_pitch, double beta, double *c, int c_pitch);

static void fail(const char *what) {
  fprintf(stderr, "%s; the last message: %s\n", what, shardrt_error_message());
  exit(1);
}

/* ---- OpenBLAS, asked all the while ------------------------------------------------------------------------------- */

static atomic_bool ends;
static atomic_int looks, others; /* how often other threads were found */

static void *watch(void *nothing) {
  while (!atomic_load(&ends)) {
    if (openblas_get_num_threads() != THREADS) atomic_fetch_add(&others, 1);
    atomic_fetch_add(&looks, 1);
  }
  return nothing;
}

static void multiply(void) {
  static double a[N * N], b[N * N], c[N * N];
  for (int i = 0; i < N * N; i++) a[i] = 1, b[i] = i % N;
  cblas_dgemm(101, 111, 111, N, N, N, 1, a, N, b, N, 0, c, N);
  for (int i = 0; i < N * N; i++)
    if (c[i] != N * (i % N)) fail("the program's own product is wrong");
}

/* ---- HDF5, whose errors the program prints ------------------------------------------------------------------------
 */

static int printed;

static herr_t count_print(hid_t stack, void *context) {
  (void)stack, (void)context;
  printed++;
  return 0;
}

static void ask_hdf5(hid_t file) {
  const int before = printed;
  hsize_t size;
  if (H5Fget_filesize(file, &size) < 0 || size == 0) fail("the program's own file is closed");
  if (H5Dopen2(file, "none", H5P_DEFAULT) >= 0 || printed != before + 1) fail("HDF5's errors are printed no more");
}

/* ---- Lua, by whatever it calls itself -------------------------------------------------------------------------------
 */

static struct {
  void *(*newstate)(void), (*openlibs)(void *), (*close)(void *), (*getfield)(void *, int, const char *);
  int (*loadstring)(void *, const char *), (*pcall)(void *, int, int, int);
  double (*tonumber)(void *, int);
} lua;

static void find_lua(const char *name) {
  void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL); /* its names are in the way of LuaJIT's */
  if (library == NULL) fail(name);
  *(void **)&lua.newstate = dlsym(library, "luaL_newstate");
  *(void **)&lua.openlibs = dlsym(library, "luaL_openlibs");
  *(void **)&lua.close = dlsym(library, "lua_close");
  *(void **)&lua.loadstring = dlsym(library, "luaL_loadstring");
  *(void **)&lua.pcall = dlsym(library, "lua_pcall");
  *(void **)&lua.tonumber = dlsym(library, "lua_tonumber");
}

static void ask_lua(void *state) {
  const int multiple = -1;
  if (lua.loadstring(state, "count = (count or 0) + 1; return 6 * 7 + 0 * #table.concat({ 'a', count })") != 0 ||
      lua.pcall(state, 0, multiple, 0) != 0 || lua.tonumber(state, -1) != 42)
    fail("the program's own Lua fails");
}

/* ---- the program ------------------------------------------------------------------------------------------------ */

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  openblas_set_num_threads(THREADS);
  find_lua(argv[2]);
  void *state = lua.newstate();
  lua.openlibs(state);
  H5Eset_auto2(H5E_DEFAULT, count_print, NULL);
  const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_core(list, 1 << 12, false);
  const hid_t file = H5Fcreate("own.h5", H5F_ACC_TRUNC, H5P_DEFAULT, list);
  pthread_t watcher;
  if (file < 0 || pthread_create(&watcher, NULL, watch, NULL) != 0) return 2;
  shardrt_options options;
  shardrt_recipe *recipe;
  shardrt_batch *batch;
  shardrt_options_init(&options);
  options.devices = 2;
  multiply();
  if (shardrt_join(&options) < 0 || shardrt_open(argv[1], 0, NULL, &recipe) < 0) fail("no recipe");
  int code, batches = 0;
  while ((code = shardrt_next(recipe, -1, &batch)) == 1) {
    shardrt_batch_free(batch);
    multiply();
    ask_hdf5(file);
    ask_lua(state);
    batches++;
  }
  if (code < 0) fail("no batch");
  shardrt_close(recipe);
  if (shardrt_leave() < 0) fail("no end");
  multiply();
  ask_hdf5(file);
  ask_lua(state);
  atomic_store(&ends, true);
  pthread_join(watcher, NULL);
  lua.close(state);
  H5Fclose(file);
  H5Pclose(list);
  printf("%d batches; OpenBLAS had other threads %d times; %s\n", batches, atomic_load(&others),
         atomic_load(&looks) > 100 ? "looked often" : "hardly looked");
  return 0;
}
