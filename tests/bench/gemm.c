/* gemm.c - a product of two square matrices of float32 by OpenBLAS alone, on as many threads as it takes by itself:
 * gemm SIZE ROUNDS prints what compute_once.lua does, the best of several rounds; no bytes are counted. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void gemm(int order, int a_as, int b_as, int m, int n, int k, float alpha, const float *a, int a_pitch,
                  const float *b, int b_pitch, float beta, float *c, int c_pitch);

enum { ROW_MAJOR = 101, AS_IS = 111 };

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static float *matrix(size_t elements) {
  float *made = malloc(elements * sizeof *made);
  for (size_t i = 0; made != NULL && i < elements; i++) made[i] = (float)(i % 1000) / 1000;
  return made;
}

/* At its best: 0.3.21 takes new processors for a Prescott, as compute/matmul/blas.c says. */
static void *open_library(void) {
  const char *(*core)(void) = NULL;
  void *library = dlopen("libopenblas.so.0", RTLD_NOW);
  if (library != NULL) *(void **)&core = dlsym(library, "openblas_get_corename");
#if defined(__x86_64__)
  if (core == NULL || strcmp(core(), "Prescott") != 0 || !__builtin_cpu_supports("avx2")) return library;
  dlclose(library);
  setenv("OPENBLAS_CORETYPE", __builtin_cpu_supports("avx512vl") ? "SkylakeX" : "Haswell", 0);
  library = dlopen("libopenblas.so.0", RTLD_NOW);
#endif
  return library;
}

int main(int argc, char **argv) {
  const int size = argc > 2 ? (int)strtol(argv[1], NULL, 10) : 0,
            rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
  void *library = open_library();
  gemm *multiply = NULL;
  if (library != NULL) *(void **)&multiply = dlsym(library, "cblas_sgemm");
  const size_t elements = (size_t)size * (size_t)size;
  float *a = matrix(elements), *b = matrix(elements), *c = matrix(elements);
  if (size <= 0 || rounds <= 0 || multiply == NULL || a == NULL || b == NULL || c == NULL) {
    fprintf(stderr, "usage: gemm SIZE ROUNDS; it needs libopenblas.so.0 and the memory\n");
    return 1;
  }
  double best = 0, busy = 0;
  for (int round = 0; round <= rounds; round++) { /* the first does not count: what is set up once */
    if (round == 1) busy = now(CLOCK_PROCESS_CPUTIME_ID);
    const double start = now(CLOCK_MONOTONIC);
    multiply(ROW_MAJOR, AS_IS, AS_IS, size, size, size, 1, a, size, b, size, 0, c, size);
    const double took = now(CLOCK_MONOTONIC) - start;
    if (round == 1 || (round > 1 && took < best)) best = took;
  }
  printf("%.9f %.6f 1\n", best, (now(CLOCK_PROCESS_CPUTIME_ID) - busy) / rounds);
  free(c);
  free(b);
  free(a);
  return 0;
}
