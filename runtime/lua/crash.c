/* crash.c - finds out at the crash whether the code that runs is LuaJIT's. */
#include "lua/crash.h"

#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST_RANGES = 16 };

/* The handler calls only what signal-safety(7) lists; what else it needs is made before. */
static struct {
  struct {
    uintptr_t first, end;
  } ranges[MOST_RANGES]; /* of addresses that hold the code in question */
  size_t count;
  struct sigaction before; /* OpenMPI's, a sanitizer's, or the default */
  char line[512];
} crash;

static int crash_add_ranges(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size;
  (void)unused;
  if (strstr(info->dlpi_name, "libluajit") == NULL && strstr(info->dlpi_name, "libgcc_s") == NULL) return 0;
  for (size_t i = 0; i < info->dlpi_phnum && crash.count < MOST_RANGES; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    crash.ranges[crash.count].first = info->dlpi_addr + part->p_vaddr;
    crash.ranges[crash.count].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    crash.count++;
  }
  return 0;
}

static uintptr_t crash_instruction(const void *context) {
  const ucontext_t *at = context;
#if defined __x86_64__
  return (uintptr_t)at->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
  return (uintptr_t)at->uc_mcontext.pc;
#else
  (void)at;
  return 0;
#endif
}

static void crash_signal(int number, siginfo_t *info, void *context) {
  const uintptr_t at = crash_instruction(context);
  bool is_of_lua = false;
  for (size_t i = 0; i < crash.count; i++)
    is_of_lua = is_of_lua || (at >= crash.ranges[i].first && at < crash.ranges[i].end);
  const bool is_told = is_of_lua && info->si_code > 0 && write(STDERR_FILENO, crash.line, strlen(crash.line)) > 0;
  (void)is_told;                          /* where stderr is gone, nobody is there to tell */
  sigaction(number, &crash.before, NULL); /* it happens again, for who came before us */
  if (info->si_code <= 0) raise(number);
}

void lua_crash_watch(const shardrt_job_info *info) {
  char who[64] = "";
  if (info->process_count > 1 && !info->planning)
    snprintf(who, sizeof who, "process %d of %d: ", info->process_index, info->process_count);
  snprintf(
      crash.line, sizeof crash.line,
      "shardrt: %sLuaJIT crashed (SIGSEGV). Most likely a function of the recipe calls itself without end, of which "
      "this version of LuaJIT does not always make the error \"stack overflow\"; or the recipe reads or writes by a "
      "pointer of the FFI's that leads nowhere\n",
      who);
  dl_iterate_phdr(crash_add_ranges, NULL);
  struct sigaction action = {.sa_sigaction = crash_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &crash.before);
}
