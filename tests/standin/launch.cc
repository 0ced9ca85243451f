/* launch.cc - runs kernels: blocks one after another, in one of several orders, in a block thread after thread. Threads
 * that wait for each other each have a stack; the barrier is a switch to the next thread that has not come to it. From
 * one barrier to the next threads run in an order that no kernel can know, so that where a barrier is missing some find
 * what is not there yet, or not any more. */
#include <limits.h>
#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
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
constexpr int UNWRITTEN = 0xb5; /* a byte of shared memory before a launch */

/* Where a thread of a block goes on. The last one, of MAX_THREADS, is the runner's own. */
struct fiber {
  ucontext_t context; /* where it begins */
  jmp_buf left;       /* where it left, if it has */
  bool has_left;
  void *stack;
  bool ended;
  const char *file; /* of the barrier that it waits at */
  int line;
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

/* Where the threads have come to: all at one barrier, or all at their end. */
void look_at_barrier(unsigned ended) {
  if (ended == blockDim.x) return;
  const fiber *first = nullptr;
  for (unsigned t = 0; t < blockDim.x; t++) {
    const fiber &f = fibers[t];
    if (f.ended) continue;
    if (first == nullptr) first = &f;
    if (ended > 0)
      standin_wrong("%u of a block's %u threads have ended when others wait at %s:%d", ended, blockDim.x, f.file,
                    f.line);
    if (f.line != first->line || strcmp(f.file, first->file) != 0)
      standin_wrong("a block's threads wait at different barriers, %s:%d and %s:%d", first->file, first->line, f.file,
                    f.line);
  }
}

/* All threads come to a barrier, or all end, before any goes on after it: a round for each barrier, each round in
 * another order. */
void run_together(const std::function<void()> &body) {
  running = &body;
  const unsigned n = blockDim.x;
  for (unsigned t = 0; t < n; t++) prepare(t);
#ifdef __SANITIZE_THREAD__
  runner.tsan = __tsan_get_current_fiber();
#endif
  for (unsigned ended = 0; ended < n;) {
    const unsigned first = standin_random(n);
    unsigned step = 1 + standin_random(n);
    while (std::gcd(step, n) != 1) step++;
    for (unsigned i = 0; i < n; i++) {
      current = (unsigned)((first + (uint64_t)i * step) % n);
      threadIdx.x = current;
      go_to(runner, fibers[current]);
      if (fibers[current].ended) ended++;
    }
    look_at_barrier(ended);
  }
  running = nullptr;
}

/* The thread-local memory of the plug-in, in which `shared` points to something. */
void spoil_shared(const void *shared) {
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *within) {
        for (unsigned i = 0; i < info->dlpi_phnum; i++) {
          const ElfW(Phdr) &part = info->dlpi_phdr[i];
          char *from = (char *)info->dlpi_tls_data;
          if (part.p_type != PT_TLS || from == nullptr || within < from || within >= from + part.p_memsz) continue;
          memset(from, UNWRITTEN, part.p_memsz);
          return 1;
        }
        return 0;
      },
      const_cast<void *>(shared));
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

void standin_sync_threads(const char *file, int line) {
  if (running == nullptr)
    standin_wrong("a kernel calls __syncthreads() that was not launched by KERNEL_LAUNCH_TOGETHER");
  const unsigned self = current;
  fibers[self].file = file;
  fibers[self].line = line;
  go_to(fibers[self], runner);
  threadIdx.x = self;
}

int64_t kernel_narrow() {
  const char *narrow = getenv("STANDIN_NARROW");
  return narrow == nullptr ? INT32_MAX : atoll(narrow);
}

void standin_address(cudaStream_t stream, const void *address) {
  if (address != nullptr && !standin_reaches(stream, address, 0))
    standin_wrong(
        "a kernel is given an address that GPU %d does not reach: the host's, another GPU's, or of freed memory",
        standin_gpu(stream));
}

void standin_launch(cudaStream_t stream, uint64_t wanted, uint64_t each, bool together, const void *(*shared)(),
                    std::function<void()> body) {
  if (wanted == 0 || wanted > INT_MAX || each == 0 || each > MAX_THREADS)
    standin_wrong("a kernel is launched with %llu blocks of %llu threads", (unsigned long long)wanted,
                  (unsigned long long)each);
  const unsigned blocks = (unsigned)wanted, threads = (unsigned)each;
  if (standin_gpu(stream) != standin_current_gpu())
    standin_wrong("a kernel is launched on a stream of GPU %d while GPU %d is the current one", standin_gpu(stream),
                  standin_current_gpu());
  if (standin_enter("kernel") != cudaSuccess) return; /* what cudaGetLastError then says */
  standin_put(stream, "kernel", [blocks, threads, together, shared, body = std::move(body)] {
    spoil_shared(shared());
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
