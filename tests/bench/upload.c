/* upload.c - the baseline of a loader's uploads: cudaMemcpyAsync from pinned memory, BLOCKS blocks of BYTES bytes in
 * turn, one after the other on one stream. Prints the bytes per second of the best of several rounds, by the device's
 * clock; where there is no GPU, "no GPU". */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 4, COPIES = 16, ROUNDS = 8 };

static void check(cudaError_t problem, const char *call) {
  if (problem == cudaSuccess) return;
  fprintf(stderr, "upload: %s: %s\n", call, cudaGetErrorString(problem));
  exit(1);
}

static double round_of(void *const *from, void *const *to, size_t bytes, cudaStream_t stream) {
  cudaEvent_t begin, end;
  check(cudaEventCreateWithFlags(&begin, cudaEventDefault), "cudaEventCreateWithFlags");
  check(cudaEventCreateWithFlags(&end, cudaEventDefault), "cudaEventCreateWithFlags");
  check(cudaEventRecord(begin, stream), "cudaEventRecord");
  for (int i = 0; i < COPIES; i++)
    check(cudaMemcpyAsync(to[i % BLOCKS], from[i % BLOCKS], bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  check(cudaEventRecord(end, stream), "cudaEventRecord");
  check(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  check(cudaEventDestroy(end), "cudaEventDestroy");
  check(cudaEventDestroy(begin), "cudaEventDestroy");
  return COPIES * (double)bytes / (1e-3 * (double)milliseconds);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    puts("no GPU");
    return 0;
  }
  const size_t bytes = strtoull(argv[1], NULL, 10);
  void *from[BLOCKS], *to[BLOCKS];
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  for (int i = 0; i < BLOCKS; i++) {
    check(cudaHostAlloc(&from[i], bytes, cudaHostAllocPortable), "cudaHostAlloc");
    memset(from[i], i + 1, bytes);
    check(cudaMalloc(&to[i], bytes), "cudaMalloc");
  }
  double best = 0;
  for (int r = 0; r < ROUNDS; r++) {
    const double rate = round_of(from, to, bytes, stream);
    if (rate > best) best = rate;
  }
  printf("%.0f\n", best);
  return 0;
}
