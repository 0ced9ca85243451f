#include "system/time_slice.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include "base/alloc.h"
#include "base/error.h"
#include "system/clock.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK = 8 << 20, MESSAGE = 4096, SECOND = 1000000000 };

/* ---- from one stack to another ----------------------------------------------------------------------------------- */

/* Where a stack that does not run goes on. slice_switch leaves the one that runs at `from` and goes on at `to`;
 * `begin_at` makes a place at which `begin` is called, which never returns. */
#if defined(__x86_64__)
typedef void *place; /* its stack pointer, above what a function keeps for its caller (System V ABI) */

/* As swapcontext does, but without its two system calls for the signal mask, which cost more than all the rest. */
__attribute__((visibility("hidden"))) void slice_switch(place *from, const place *to);
__asm__(".text\n\t.globl slice_switch\n\t.hidden slice_switch\n\t.type slice_switch, @function\nslice_switch:\n\t"
        "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
        "subq $8, %rsp\n\tstmxcsr (%rsp)\n\tfnstcw 4(%rsp)\n\t"
        "movq %rsp, (%rdi)\n\tmovq (%rsi), %rsp\n\t"
        "ldmxcsr (%rsp)\n\tfldcw 4(%rsp)\n\taddq $8, %rsp\n\t"
        "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tretq\n\t"
        ".size slice_switch, . - slice_switch");

static void begin_at(place *out, char *stack, size_t bytes, void (*begin)(void)) {
  uint64_t *top = (uint64_t *)(void *)(stack + bytes); /* of a page: aligned, as the ABI has it before a call */
  *--top = 0;                /* where `begin` would return to: debuggers see the end of the stack */
  *--top = (uintptr_t)begin; /* where slice_switch returns to */
  for (int i = 0; i < 6; i++) *--top = 0;
  top--;
  __asm__("stmxcsr (%0)\n\tfnstcw 4(%0)" : : "r"(top) : "memory");
  *out = top;
}
#else
typedef ucontext_t place;

static void slice_switch(place *from, const place *to) {
  swapcontext(from, to);
}

static void begin_at(place *out, char *stack, size_t bytes, void (*begin)(void)) {
  getcontext(out); /* cannot fail on Linux */
  out->uc_stack = (stack_t){.ss_sp = stack, .ss_size = bytes};
  makecontext(out, begin, 0);
}
#endif

struct time_slice {
  void (*run)(void *context);
  void *context;
  bool is_begun;     /* a call, which has not ended */
  bool is_cancelled; /* that call */
  char *stack;       /* its lowest page is the guard */
  size_t page;
  place own, caller;
  struct timespec deadline;
  int64_t due; /* the same in nanoseconds */
  int64_t left, away;
  struct time_slice *outer;         /* which ran when this one was gone on with */
  void (*function)(void *argument); /* to be called on the caller's stack; NULL: none */
  void *argument;
#if defined(__SANITIZE_ADDRESS__)
  void *fake_stack;
  const void *caller_stack;
  size_t caller_bytes;
#endif
#if defined(__SANITIZE_THREAD__)
  void *fiber, *caller_fiber;
#endif
};

static _Thread_local struct time_slice *running;

/* ---- switching, and telling the sanitizers ---------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__)
static void enter(struct time_slice *self) {
  void *fake_stack;
  __sanitizer_start_switch_fiber(&fake_stack, self->stack + self->page, STACK - self->page);
  slice_switch(&self->caller, &self->own);
  __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
}

static void arrive(struct time_slice *self) {
  __sanitizer_finish_switch_fiber(self->fake_stack, &self->caller_stack, &self->caller_bytes);
}

static void leave(struct time_slice *self) {
  __sanitizer_start_switch_fiber(&self->fake_stack, self->caller_stack, self->caller_bytes);
  slice_switch(&self->own, &self->caller);
  arrive(self);
}
#elif defined(__SANITIZE_THREAD__)
static void enter(struct time_slice *self) {
  self->caller_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(self->fiber, 0);
  slice_switch(&self->caller, &self->own);
}

static void arrive(struct time_slice *self) {
  (void)self;
}

static void leave(struct time_slice *self) {
  __tsan_switch_to_fiber(self->caller_fiber, 0);
  slice_switch(&self->own, &self->caller);
}
#else
static void enter(struct time_slice *self) {
  slice_switch(&self->caller, &self->own);
}

static void arrive(struct time_slice *self) {
  (void)self;
}

static void leave(struct time_slice *self) {
  slice_switch(&self->own, &self->caller);
}
#endif

/* All that happens on the stack: call after call. */
static void run_calls(void) {
  struct time_slice *self = running;
  arrive(self);
  for (;;) {
    self->run(self->context);
    self->is_begun = self->is_cancelled = false;
    leave(self);
  }
}

/* ---- one slice -------------------------------------------------------------------------------------------------- */

/* Huge pages would make the first touch one of two megabytes. */
static int take_stack(struct time_slice *self) {
  self->page = (size_t)sysconf(_SC_PAGESIZE);
  if (alloc_must_fail(STACK)) return ALLOC_FAILED;
  char *stack =
      mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return error_set(SHARDRT_ENOMEM, "a stack of %d bytes: %s", (int)STACK, strerror(errno));
  madvise(stack, STACK, MADV_NOHUGEPAGE);
  if (mprotect(stack, self->page, PROT_NONE) != 0) {
    const int problem = errno;
    munmap(stack, STACK);
    return error_set(SHARDRT_ENOMEM, "a stack of %d bytes: %s", (int)STACK, strerror(problem));
  }
  self->stack = stack;
  return SHARDRT_OK;
}

int time_slice_new(void (*run)(void *context), void *context, struct time_slice **out) {
  struct time_slice *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->run = run;
  made->context = context;
  int code = take_stack(made);
  if (code < 0) {
    alloc_free(made);
    return code;
  }
  begin_at(&made->own, made->stack + made->page, STACK - made->page, run_calls);
#if defined(__SANITIZE_THREAD__)
  made->fiber = __tsan_create_fiber(0);
#endif
  *out = made;
  return SHARDRT_OK;
}

void time_slice_free(struct time_slice *self) {
  if (self == NULL) return;
  assert(!self->is_begun);
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(self->fiber);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(self->stack + self->page, STACK - self->page);
#endif
  munmap(self->stack, STACK);
  alloc_free(self);
}

/* ---- from outside ----------------------------------------------------------------------------------------------- */

static void set_deadline(struct time_slice *self, int64_t now, double seconds) {
  const double most = (double)(INT64_MAX / 2) / SECOND; /* also what infinity is */
  self->due = now;
  if (seconds > 0) self->due += (int64_t)((seconds < most ? seconds : most) * SECOND);
  self->deadline = (struct timespec){.tv_sec = self->due / SECOND, .tv_nsec = self->due % SECOND};
}

bool time_slice_go(struct time_slice *self, double seconds) {
  assert(running != self && self->function == NULL);
  const int64_t now = clock_now();
  if (self->is_begun) self->away += now - self->left;
  self->is_begun = true;
  set_deadline(self, now, seconds);
  self->outer = running;
  for (;;) {
    running = self;
    enter(self);
    running = self->outer;
    if (self->function == NULL) break;
    self->function(self->argument);
    self->function = NULL;
  }
  if (self->is_begun) self->left = clock_now();
  return !self->is_begun;
}

void time_slice_cancel(struct time_slice *self) {
  self->is_cancelled = self->is_begun;
}

/* ---- from inside ------------------------------------------------------------------------------------------------ */

bool time_slice_due(void) {
  return running != NULL && clock_now() >= running->due;
}

const struct timespec *time_slice_deadline(void) {
  return running != NULL ? &running->deadline : NULL;
}

void time_slice_rest(void) {
  assert(running != NULL);
  char message[MESSAGE];
  const int number = errno;
  snprintf(message, sizeof message, "%s", shardrt_error_message());
  leave(running);
  error_set(SHARDRT_OK, "%s", message);
  errno = number;
}

bool time_slice_is_cancelled(void) {
  return running != NULL && running->is_cancelled;
}

int time_slice_pause(void) {
  if (!time_slice_is_cancelled() && time_slice_due()) time_slice_rest();
  return time_slice_is_cancelled() ? error_set(SHARDRT_ECOMM, "the job was abandoned") : SHARDRT_OK;
}

int64_t time_slice_away(void) {
  return running != NULL ? running->away : 0;
}

void time_slice_call(void (*function)(void *argument), void *argument) {
  if (running == NULL) {
    function(argument);
    return;
  }
  running->function = function;
  running->argument = argument;
  leave(running);
}
