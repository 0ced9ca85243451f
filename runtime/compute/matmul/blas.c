#include "compute/matmul/blas.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/simd.h"

/* The sanitizers refuse it. They are not for programs with an OpenBLAS of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DEEPBIND = 0 };
#else
enum { DEEPBIND = RTLD_DEEPBIND };
#endif

/* The C interface of BLAS (https://www.netlib.org/blas/blast-forum/cblas.tgz). */
enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };

typedef void gemm_float(int order, int a_as, int b_as, int m, int n, int k, float alpha, const float *a, int a_pitch,
                        const float *b, int b_pitch, float beta, float *c, int c_pitch);
typedef void gemm_double(int order, int a_as, int b_as, int m, int n, int k, double alpha, const double *a, int a_pitch,
                         const double *b, int b_pitch, double beta, double *c, int c_pitch);
typedef void gemv_float(int order, int a_as, int m, int n, float alpha, const float *a, int a_pitch, const float *x,
                        int x_step, float beta, float *y, int y_step);
typedef void gemv_double(int order, int a_as, int m, int n, double alpha, const double *a, int a_pitch, const double *x,
                         int x_step, double beta, double *y, int y_step);

static struct {
  gemm_float *sgemm;
  gemm_double *dgemm;
  gemv_float *sgemv;
  gemv_double *dgemv;
} blas;

#define LIBRARY "libopenblas.so.0"

/* A copy of a library's file in memory: glibc takes it for another library. -1: there is none. */
static int copy_file(const char *path) {
  enum { PIECE = 1 << 20 };
  const int from = open(path, O_RDONLY | O_CLOEXEC);
  const int to = from < 0 ? -1 : memfd_create(LIBRARY, MFD_CLOEXEC);
  ssize_t copied = to < 0 ? -1 : 1;
  while (copied > 0) copied = sendfile(to, from, NULL, PIECE);
  if (from >= 0) close(from);
  if (copied == 0) return to;
  if (to >= 0) close(to);
  return -1;
}

/* Beside a program's own OpenBLAS, whose threads and settings are the program's: another one, from a copy of its file
 * (37 MB). DEEPBIND: its functions call each other, not the program's, which have the same names. */
static void *open_beside(void *of_program) {
  struct link_map *map = NULL;
  if (dlinfo(of_program, RTLD_DI_LINKMAP, &map) < 0) return NULL;
  const int copy = copy_file(map->l_name);
  if (copy < 0) return NULL;
  char path[64]; /* spelled as nobody else does: glibc knows a library again by its path, too */
  snprintf(path, sizeof path, "/proc/self/./fd/%d", copy);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | DEEPBIND);
  close(copy);
  return library;
}

static void *open_library(void) {
  void *of_program = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  if (of_program == NULL)
    return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | (dlsym(RTLD_DEFAULT, "cblas_sgemm") != NULL ? DEEPBIND : 0));
  void *library = open_beside(of_program);
  dlclose(of_program);
  return library;
}

/* OpenBLAS starts as many threads as the thread that loads it may use cores. So that it starts none, that is one core
 * for the moment. (With one thread it computes on the thread that calls, and any number of threads may call.) */
static void *open_on_one_core(void) {
  cpu_set_t all, one;
  const int core = sched_getcpu();
  CPU_ZERO(&one);
  CPU_SET(core < 0 ? 0 : core, &one);
  const bool alone = sched_getaffinity(0, sizeof all, &all) == 0 && sched_setaffinity(0, sizeof one, &one) == 0;
  void *library = open_library();
  if (alone) sched_setaffinity(0, sizeof all, &all);
  return library;
}

/* The variable that names the processor whose loops OpenBLAS is to take, which it reads when it is loaded. */
#define CORE "OPENBLAS_CORETYPE"

/* Whether OpenBLAS took loops of SSE on a processor that has AVX2, because it does not know it: to OpenBLAS 0.3.21,
 * which Debian 12 has, Xeons from 2023 on are a Prescott of 2004 (https://github.com/OpenMathLib/OpenBLAS/pull/4268).
 * That costs four fifths of the speed. Who names a processor gets it. */
static bool is_mistaken(void *library) {
  static const char *const knows[] = {"Haswell", "Zen", "Excavator", "SkylakeX", "Cooperlake", "SapphireRapids"};
  const char *(*core)(void) = NULL;
  *(void **)&core = dlsym(library, "openblas_get_corename");
  if (core == NULL || !simd_has_avx2() || getenv(CORE) != NULL) return false;
  const char *name = core();
  for (size_t i = 0; i < sizeof knows / sizeof *knows; i++)
    if (strcasecmp(name, knows[i]) == 0) return false;
  return true;
}

/* Opens OpenBLAS as one for that processor. For that moment the process has another environment, with one line more;
 * other threads may go on to read it, so it is never freed. (setenv would change the one that they read. A thread that
 * calls setenv in that moment keeps the line.) */
static void *open_for(char *core) {
  static char **with;
  size_t count = 0;
  while (environ != NULL && environ[count] != NULL) count++;
  with = alloc_array(count + 2, sizeof *with);
  if (with == NULL) return NULL;
  for (size_t i = 0; i < count; i++) with[i] = environ[i];
  with[count] = core;
  with[count + 1] = NULL;
  char **own = environ;
  environ = with;
  void *library = open_on_one_core();
  if (environ == with) environ = own;
  return library;
}

static void *open_alone(void) {
  static char avx512[] = CORE "=SkylakeX", avx2[] = CORE "=Haswell";
  void *library = open_on_one_core();
  if (library == NULL || !is_mistaken(library)) return library;
  dlclose(library);
  library = open_for(simd_has_avx512() ? avx512 : avx2);
  return library != NULL ? library : open_on_one_core();
}

/* NULL, or what is wrong with a library. */
static const char *find_functions(void *library) {
  *(void **)&blas.sgemm = dlsym(library, "cblas_sgemm");
  *(void **)&blas.dgemm = dlsym(library, "cblas_dgemm");
  *(void **)&blas.sgemv = dlsym(library, "cblas_sgemv");
  *(void **)&blas.dgemv = dlsym(library, "cblas_dgemv");
  void (*threads)(int) = NULL;
  const char *(*config)(void) = NULL;
  *(void **)&threads = dlsym(library, "openblas_set_num_threads");
  *(void **)&config = dlsym(library, "openblas_get_config");
  if (blas.sgemm == NULL || blas.dgemm == NULL || blas.sgemv == NULL || blas.dgemv == NULL || threads == NULL ||
      config == NULL)
    return "is no OpenBLAS with the C interface";
  if (strstr(config(), "USE64BITINT") != NULL) return "is an OpenBLAS that is called with integers of 64 bits, not 32";
  threads(1); /* whatever the environment says */
  return NULL;
}

int blas_open(void) {
  if (blas.dgemv != NULL) return SHARDRT_OK;
  void *library = open_alone();
  if (library == NULL) {
    const char *why = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc's is of this thread */
    return error_set(SHARDRT_EINVAL,
                     "products of matrices are computed by OpenBLAS, from Debian's package libopenblas0-pthread: %s",
                     why != NULL ? why : "the program has it, and there is no memory for a copy of its file");
  }
  const char *wrong = find_functions(library);
  if (wrong == NULL) return SHARDRT_OK;
  blas.dgemv = NULL;
  dlclose(library);
  return error_set(SHARDRT_EINVAL,
                   "products of matrices are computed by OpenBLAS; the libopenblas.so.0 that is found %s; that of "
                   "Debian's package libopenblas0-pthread would do",
                   wrong);
}

/* A product of which one side is a single row or column is one of a matrix and a vector, for which OpenBLAS has loops
 * that are several times as fast. The vector's elements are `step` apart. */
struct vector {
  struct blas_matrix matrix;
  int32_t rows, columns; /* as it stands in memory */
  bool transposed;       /* out = matrix' vector, not matrix vector */
  const void *data;
  int32_t step;
  int32_t out_step;
};

/* Zeros first, so that OpenBLAS adds to what is a number: some of its versions multiply by a beta of 0 what the memory
 * held before, and leave NaNs there. */
static void clear_vector(bool wide, int32_t n, void *out, int32_t step) {
  const size_t bytes = wide ? sizeof(double) : sizeof(float);
  if (step == 1) memset(out, 0, (size_t)n * bytes);
  for (int32_t i = 0; i < n && step != 1; i++) memset((char *)out + (size_t)i * (size_t)step * bytes, 0, bytes);
}

static void multiply_vector(bool wide, bool add, const struct vector *v, void *out) {
  const int as = v->transposed ? TRANSPOSED : AS_IS, rows = v->rows, columns = v->columns;
  if (!add) clear_vector(wide, v->transposed ? columns : rows, out, v->out_step);
  if (wide)
    blas.dgemv(ROW_MAJOR, as, rows, columns, 1, v->matrix.data, v->matrix.pitch, v->data, v->step, 1, out, v->out_step);
  else
    blas.sgemv(ROW_MAJOR, as, rows, columns, 1, v->matrix.data, v->matrix.pitch, v->data, v->step, 1, out, v->out_step);
}

void blas_multiply(bool wide, bool add, int32_t m, int32_t n, int32_t k, struct blas_matrix a, struct blas_matrix b,
                   void *out, int32_t pitch) {
  if (m == 1) {
    const struct vector v = {.matrix = b,
                             .rows = b.transposed ? n : k,
                             .columns = b.transposed ? k : n,
                             .transposed = !b.transposed,
                             .data = a.data,
                             .step = a.transposed ? a.pitch : 1,
                             .out_step = 1};
    multiply_vector(wide, add, &v, out);
    return;
  }
  if (n == 1) {
    const struct vector v = {.matrix = a,
                             .rows = a.transposed ? k : m,
                             .columns = a.transposed ? m : k,
                             .transposed = a.transposed,
                             .data = b.data,
                             .step = b.transposed ? 1 : b.pitch,
                             .out_step = pitch};
    multiply_vector(wide, add, &v, out);
    return;
  }
  const double beta = add ? 1 : 0;
  const int a_as = a.transposed ? TRANSPOSED : AS_IS, b_as = b.transposed ? TRANSPOSED : AS_IS;
  if (wide)
    blas.dgemm(ROW_MAJOR, a_as, b_as, m, n, k, 1, a.data, a.pitch, b.data, b.pitch, beta, out, pitch);
  else
    blas.sgemm(ROW_MAJOR, a_as, b_as, m, n, k, 1, a.data, a.pitch, b.data, b.pitch, (float)beta, out, pitch);
}
