/* launch.cc - runs kernels: blocks one after another, in one of several orders, in a block thread after thread. Threads
 * that wait for each other each have a stack; the barrier is a switch to the next thread that has not come to it. */
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <utility>

#include "standin/kernel.h"
#include "standin/standin.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

standin_index threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr unsigned MAX_THREADS = 1024;
constexpr size_t STACK = 256 << 10;

/* Where a thread of a block goes on. The last one, of MAX_THREADS, is the runner's own. */
struct fiber {
  ucontext_t context; /* where it begins */
  jmp_buf left;       /* where it left, if it has */
  bool has_left;
  void *stack;
  bool ended;
#ifdef __SANITIZE_THREAD__
  void *tsan;
#endif
};

fiber fibers[MAX_THREADS];
fiber runner;
unsigned current;
const std::function<void()> *running;

#ifdef __SANITIZE_ADDRESS__
const void *runner_stack;
size_t runner_bytes;
#endif

/* swapcontext would ask the kernel for the signals that are blocked, at every switch: most of a kernel's time. The
 * sanitizers know nothing else. */
void leave(fiber &from, fiber &to) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  swapcontext(&from.context, &to.context);
#else
  from.has_left = true;
  if (_setjmp(from.left) != 0) return;
  if (to.has_left) _longjmp(to.left, 1);
  setcontext(&to.context);
#endif
}

/* The sanitizers are told: each has its own idea of a stack. */
void go_to(fiber &from, fiber &to) {
#ifdef __SANITIZE_ADDRESS__
  void *fake;
  if (&from == &runner) {
    __sanitizer_start_switch_fiber(&fake, to.stack, STACK);
    leave(from, to);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  } else {
    __sanitizer_start_switch_fiber(&fake, runner_stack, runner_bytes);
    leave(from, to);
    __sanitizer_finish_switch_fiber(fake, &runner_stack, &runner_bytes);
  }
#else
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(to.tsan, 0);
#endif
  leave(from, to);
#endif
}

void thread_main() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &runner_stack, &runner_bytes);
#endif
  for (;;) {
    (*running)();
    fiber &self = fibers[current];
    self.ended = true;
    go_to(self, runner); /* comes back as the same thread of another block */
  }
}

void prepare(unsigned thread) {
  fiber &f = fibers[thread];
  f.ended = false;
  if (f.stack != nullptr) return;
  f.stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (f.stack == MAP_FAILED) standin_wrong("no memory for a thread's stack");
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = STACK;
  f.context.uc_link = nullptr;
  makecontext(&f.context, thread_main, 0);
#ifdef __SANITIZE_THREAD__
  f.tsan = __tsan_create_fiber(0);
#endif
}

/* All threads come to a barrier, or end, before any goes on after it: a round for each barrier, each round beginning
 * with another thread. */
void run_together(const std::function<void()> &body) {
  running = &body;
  for (unsigned t = 0; t < blockDim.x; t++) prepare(t);
#ifdef __SANITIZE_THREAD__
  runner.tsan = __tsan_get_current_fiber();
#endif
  for (unsigned left = blockDim.x; left > 0;) {
    const unsigned first = standin_random(blockDim.x);
    for (unsigned i = 0; i < blockDim.x; i++) {
      current = (first + i) % blockDim.x;
      if (fibers[current].ended) continue;
      threadIdx.x = current;
      go_to(runner, fibers[current]);
      if (fibers[current].ended) left--;
    }
  }
  running = nullptr;
}

void run_block(bool together, const std::function<void()> &body) {
  if (together) {
    run_together(body);
    return;
  }
  const bool backwards = standin_random(2) == 1;
  for (unsigned i = 0; i < blockDim.x; i++) {
    threadIdx.x = backwards ? blockDim.x - 1 - i : i;
    body();
  }
}

} // namespace

void standin_sync_threads() {
  if (running == nullptr)
    standin_wrong("a kernel calls __syncthreads() that was not launched by KERNEL_LAUNCH_TOGETHER");
  const unsigned self = current;
  go_to(fibers[self], runner);
  threadIdx.x = self;
}

void standin_address(cudaStream_t stream, const void *address) {
  if (address != nullptr && !standin_reaches(stream, address, 0))
    standin_wrong(
        "a kernel is given an address that GPU %d does not reach: the host's, another GPU's, or of freed memory",
        standin_gpu(stream));
}

void standin_launch(cudaStream_t stream, unsigned blocks, unsigned threads, bool together, std::function<void()> body) {
  if (blocks == 0 || threads == 0 || threads > MAX_THREADS)
    standin_wrong("a kernel is launched with %u blocks of %u threads", blocks, threads);
  if (standin_gpu(stream) != standin_current_gpu())
    standin_wrong("a kernel is launched on a stream of GPU %d while GPU %d is the current one", standin_gpu(stream),
                  standin_current_gpu());
  if (standin_enter("kernel") != cudaSuccess) return; /* what cudaGetLastError then says */
  standin_put(stream, "kernel", [blocks, threads, together, body = std::move(body)] {
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    const unsigned first = standin_random(blocks);
    const bool backwards = standin_random(2) == 1;
    for (unsigned i = 0; i < blocks; i++) {
      const unsigned at = (first + i) % blocks;
      blockIdx = {backwards ? blocks - 1 - at : at, 0, 0};
      threadIdx = {0, 0, 0};
      run_block(together, body);
    }
    return true;
  });
}
