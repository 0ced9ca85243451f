/* standin.h - what the stand-in's parts offer each other: cudart.cc the runtime, launch.cc kernels, and the libraries
 * that the plug-in opens by themselves (the stand-in's cuBLAS and NCCL), which are linked with libstandin.so. */
#ifndef STANDIN_STANDIN_H
#define STANDIN_STANDIN_H

#include <cuda_runtime_api.h>
#include <functional>

/* Puts work on a stream. It runs, with the memory of the stream's GPU (and of those that it has access to) readable and
 * writable, when the stream's turn comes, in one piece and under the stand-in's lock; it must not call the runtime.
 * True: it is done. False: it waits for something outside of this process and is to be tried again. `name` stays. */
void standin_put(cudaStream_t stream, const char *name, std::function<bool()> run);
/* From now on a thread of the stand-in runs what waits on streams, a while after it was put there: GPUs that other
 * processes wait for go on by themselves. */
void standin_go_on();
/* Whether [data, data + bytes) lies in one allocation of the stream's GPU, or of one that this has access to, or in
 * pinned memory. */
bool standin_reaches(cudaStream_t stream, const void *data, size_t bytes);
/* Memory of a GPU that a library takes for itself. What a pool keeps is no memory for others, not even in the process:
 * false where there is not so much beside it. */
bool standin_take(int gpu, size_t bytes);
void standin_give_back(int gpu, size_t bytes);
/* Called at the beginning of every call of a library: not cudaSuccess where a failure is to be injected ("ncclSend",
 * STANDIN_FAIL), or where the context is dead. */
cudaError_t standin_enter(const char *call);
/* An error after which nothing works anymore. */
void standin_die(cudaError_t error);
/* A message on stderr, and the end of the process: the plug-in did what CUDA does not allow. */
[[noreturn]] void standin_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A seeded number below `n`. Under the stand-in's lock (in work that runs). */
unsigned standin_random(unsigned n);
int standin_gpu(cudaStream_t stream);
int standin_current_gpu();

/* For specs that call the plug-in in their own process. */
extern "C" {
/* As at the start of a process, with what the environment says now: the plug-in is closed. */
void standin_reset(void);
/* Bytes that are allocated: of a GPU, of pinned memory (-1). */
size_t standin_held(int gpu);
/* How often a call was made ("cudaHostAlloc"; "any": all). */
long long standin_calls(const char *call);
}

#endif
