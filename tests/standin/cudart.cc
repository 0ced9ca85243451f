/* cudart.cc - a stand-in for CUDA's runtime, which only the tests use: GPUs made of this process's memory, as strict as
 * GPUs are not, so that what would go wrong on one at times goes wrong here at once.
 *
 * Memory: an arena for each GPU, which nobody can read or write but work that runs on streams; host code that touches a
 * device's address dies with a message. Fresh memory is full of NaNs, freed memory of large numbers, each in the
 * stream's order. Behind each allocation lies a guard that is looked at when it is freed. Addresses are checked, when a
 * copy is put on a stream and when a kernel is given one as an argument.
 *
 * Streams: what is put on one stays there until somebody waits: for the stream, an event, the end of a copy from the
 * device to pageable memory, or when an event was asked for often. Then streams run in an order chosen by the seed
 * among all that are possible: the one waited for first, or last, or any. What lacks an event to wait for, or is read
 * before it is there, is thereby wrong rather soon. Copies from pinned memory read it when they run.
 *
 * From the environment:
 *   STANDIN_GPUS     how many there are (2); 0: none, as where there is no driver. CUDA_VISIBLE_DEVICES, a list of
 *                    numbers, hides and orders them
 *   STANDIN_MEMORY   bytes of each (1073741824)
 *   STANDIN_HELD     bytes of each that other processes hold (0)
 *   STANDIN_LINKS    how each two are linked: nvlink (all), pcie (all, with peer access), none, or pairs,
 *                    "0-1:nvlink,2-3:pcie", where the rest is none (pcie)
 *   STANDIN_HOST     of a text of whose GPUs these are, for uuids (the host's name)
 *   STANDIN_POOLS    0: no stream-ordered allocation (1)
 *   STANDIN_PAGEABLE 1: GPUs read and write pageable memory by themselves, and when a copy runs, not when it is put on
 *                    a stream (0)
 *   STANDIN_SEED     of the order (1)
 *   STANDIN_NARROW   so many elements kernels count in 32 bits (2147483647)
 *   STANDIN_FAIL     calls that fail: "cudaMallocAsync@3=2,cudaHostAlloc@1=2": the third and the first of this process,
 *                    with that error of CUDA; "any@7=700" the seventh call; "run@5=700" the fifth piece of work that
 *                    runs, which is known later only. Errors of the device (700, 719, …) stay, as CUDA's do
 *   STANDIN_HANG     "2": GPU 2 never goes on
 *   STANDIN_FLIP     "5": of the fifth copy from pinned memory to a device, the first byte arrives with another bit
 *   STANDIN_LOG      a file to which calls ("call cudaMallocAsync") and work that runs ("run kernel stream 3 gpu 1")
 *                    are appended, as lines that begin with the process's id
 */
#include "standin/standin.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr int MAX_GPUS = 64;
constexpr size_t ALIGNMENT = 512, GUARD = 512, STEP = 2 << 20;
constexpr int FRESH = 0xff; /* a NaN in every floating-point type */
constexpr int FREED = 0xfd; /* large in every one */
constexpr int GUARDED = 0xc3;

/* A piece of work; where `after` is not NULL, one that waits until that stream has done `at` pieces. */
struct work {
  const char *name;
  std::function<bool()> run;
  CUstream_st *after;
  uint64_t at;
};

struct pinned {
  size_t bytes, room;
  int64_t users; /* work that reads or writes it and has not run */
};

struct block {
  size_t bytes; /* with the guard */
  size_t asked;
  bool used, pooled;
  CUstream_st *freed_on; /* not used, and freed there by work that has not run; NULL: it has */
  uint64_t freed_by;
};

} // namespace

struct CUstream_st {
  int gpu, number;
  uint64_t put, done;
  std::deque<work> queue;
  bool destroyed, legacy;
};

struct CUevent_st {
  int gpu;
  CUstream_st *stream; /* NULL: never recorded */
  uint64_t at;
  int asked;
  bool timed;
};

struct CUmemPoolHandle_st {
  int gpu;
  unsigned long long threshold;
};

namespace {

struct gpu_state {
  int physical;
  char *arena;
  size_t opened;                  /* bytes that are accessible now */
  size_t reach;                   /* bytes that were ever in use */
  size_t used, reserved, high;    /* of what is allocated here; `reserved` has what a pool keeps, too */
  size_t taken;                   /* by libraries */
  std::map<char *, block> blocks; /* all of the arena, no two free ones side by side */
  bool peer[MAX_GPUS], pool_access[MAX_GPUS];
  CUmemPoolHandle_st pool;
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct held {
  held() { pthread_mutex_lock(&lock); }
  ~held() { pthread_mutex_unlock(&lock); }
};

/* What is made by `new` stays when the process ends: threads may go on until then. */
bool ready; /* the rest is made */
int gpus;
gpu_state *const states = new gpu_state[MAX_GPUS]();
size_t memory;
size_t held_by_others;
bool pools, reads_pageable;
uint64_t state_of_random;
int hanging = -1;
uint64_t flipped, copied_in; /* from pinned memory */
FILE *logged;
auto &streams = *new std::vector<CUstream_st *>;
auto &events = *new std::set<CUevent_st *>;
auto &pinned_blocks = *new std::map<char *, pinned>;
cudaError_t dead = cudaSuccess;
auto &calls = *new std::map<std::string, int64_t>;
auto &failures = *new std::vector<std::pair<std::string, int>>; /* "name@n", error */
uint64_t frees;
bool goes_on, ends; /* that thread runs; the process ends, and what that thread would run with is taken down */
int64_t runs;
struct sigaction old_handler;

thread_local int current_gpu;
thread_local bool has_chosen; /* a GPU: cudaSetDevice was called on this thread */
thread_local cudaError_t last_error = cudaSuccess;

unsigned random_below(unsigned n) {
  state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
  return n == 0 ? 0 : (unsigned)((state_of_random >> 33) % n);
}

size_t number_of(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text == NULL || text[0] == '\0' ? otherwise : strtoull(text, NULL, 10);
}

__attribute__((format(printf, 1, 2))) void note(const char *format, ...) {
  if (logged == NULL) return;
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(logged, "%d %s\n", (int)getpid(), text);
  fflush(logged);
}

gpu_state *arena_of(const void *data) {
  for (int g = 0; g < gpus; g++)
    if ((const char *)data >= states[g].arena && (const char *)data < states[g].arena + 2 * memory) return &states[g];
  return NULL;
}

/* Says whose fault it was; then the fault goes its way. */
void touched(int number, siginfo_t *info, void *context) {
  (void)context;
  if (arena_of(info->si_addr) != NULL) {
    static const char text[] = "stand-in: host code, or a kernel of a GPU without access, touches a device's memory\n";
    (void)!write(2, text, sizeof text - 1);
    void *frames[32];
    backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
  }
  sigaction(number, &old_handler, NULL);
}

void read_failures(const char *text) {
  while (text != NULL && *text != '\0') {
    const char *equals = strchr(text, '=');
    if (equals == NULL) standin_wrong("STANDIN_FAIL: \"%s\" is not name@n=error", text);
    failures.emplace_back(std::string(text, equals), atoi(equals + 1));
    text = strchr(equals, ',');
    if (text != NULL) text++;
  }
}

void make_ready() {
  if (ready) return;
  ready = true;
  memory = number_of("STANDIN_MEMORY", (size_t)1 << 30) / STEP * STEP;
  held_by_others = number_of("STANDIN_HELD", 0);
  pools = number_of("STANDIN_POOLS", 1) != 0;
  reads_pageable = number_of("STANDIN_PAGEABLE", 0) != 0;
  state_of_random = number_of("STANDIN_SEED", 1) * 2654435761u + 12345;
  flipped = number_of("STANDIN_FLIP", 0);
  if (getenv("STANDIN_HANG") != NULL) hanging = atoi(getenv("STANDIN_HANG"));
  if (getenv("STANDIN_LOG") != NULL) logged = fopen(getenv("STANDIN_LOG"), "a");
  read_failures(getenv("STANDIN_FAIL"));
  const int there = (int)number_of("STANDIN_GPUS", 2);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  int chosen[MAX_GPUS];
  if (visible == NULL) {
    for (; gpus < there && gpus < MAX_GPUS; gpus++) chosen[gpus] = gpus;
  } else { /* up to the first that there is not, as CUDA does */
    for (const char *at = visible; *at >= '0' && *at <= '9' && gpus < MAX_GPUS;) {
      char *end;
      const long gpu = strtol(at, &end, 10);
      if (gpu >= there) break;
      chosen[gpus++] = (int)gpu;
      at = *end == ',' ? end + 1 : end;
    }
  }
  for (int g = 0; g < gpus; g++) {
    gpu_state &s = states[g];
    s.physical = chosen[g];
    /* Twice the memory, as addresses: what is freed and still in use by a stream is not given to another. */
    void *arena = mmap(NULL, 2 * memory + STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) standin_wrong("no addresses for a GPU's memory");
    s.arena = (char *)(((uintptr_t)arena + STEP - 1) / STEP * STEP);
    const size_t before = (size_t)(s.arena - (char *)arena);
    if (before > 0) munmap(arena, before);
    munmap(s.arena + 2 * memory, STEP - before);
    madvise(s.arena, 2 * memory, MADV_HUGEPAGE); /* few pages to open and to close, again and again */
    s.blocks[s.arena] = block{2 * memory, 0, false, false, NULL, 0};
    s.pool = CUmemPoolHandle_st{g, 0};
  }
  static bool watched;
  if (watched) return;
  watched = true;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = touched;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &old_handler);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

bool stays(cudaError_t error) {
  switch (error) {
  case cudaErrorECCUncorrectable:
  case cudaErrorIllegalAddress:
  case cudaErrorLaunchTimeout:
  case cudaErrorAssert:
  case cudaErrorHardwareStackError:
  case cudaErrorIllegalInstruction:
  case cudaErrorMisalignedAddress:
  case cudaErrorInvalidAddressSpace:
  case cudaErrorInvalidPc:
  case cudaErrorLaunchFailure:
  case cudaErrorUnknown:
    return true;
  default:
    return false;
  }
}

/* What cudaGetLastError says next, be it only that something is not ready. */
cudaError_t fails(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

bool injected(const std::string &name, int64_t n, cudaError_t *error) {
  const std::string wanted = name + "@" + std::to_string(n);
  for (const auto &failure : failures)
    if (failure.first == wanted) {
      *error = (cudaError_t)failure.second;
      return true;
    }
  return false;
}

/* Whether a call makes a context on the thread's GPU, where there is none. A thread that has chosen no GPU makes it on
 * the first one, be that another process's: hundreds of megabytes, and a second. NCCL's calls that end a communicator
 * work on its GPU, and then go back to the thread's by cudaSetDevice. */
bool makes_context(const char *call) {
  static const char *const others[] = {"cudaGetDevice", "cudaDeviceGet", "cudaDeviceCan",        "cudaSetDevice",
                                       "cudaMemPool",   "ncclGet",       "ncclCommGetAsyncError"};
  for (const char *other : others)
    if (strncmp(call, other, strlen(other)) == 0) return false;
  return strncmp(call, "cuda", 4) == 0 || strncmp(call, "nccl", 4) == 0 || strncmp(call, "cublas", 6) == 0;
}

cudaError_t enter(const char *call) {
  make_ready();
  note("call %s", call);
  if (dead != cudaSuccess) return fails(dead);
  if (!has_chosen && makes_context(call)) standin_wrong("%s is called on a thread that has chosen no GPU", call);
  cudaError_t error;
  const int64_t n = ++calls[call], all = ++calls["any"];
  if (!injected(call, n, &error) && !injected("any", all, &error)) return cudaSuccess;
  if (stays(error)) dead = error;
  return fails(error);
}
#define ENTER(call)                                                                                                    \
  held lock_is_held;                                                                                                   \
  {                                                                                                                    \
    const cudaError_t entered = enter(call);                                                                           \
    if (entered != cudaSuccess) return entered;                                                                        \
  }

/* The current GPU's legacy default stream, which a program uses that names none. */
CUstream_st *legacy_stream() {
  for (CUstream_st *known : streams)
    if (known->legacy && known->gpu == current_gpu) return known;
  streams.push_back(new CUstream_st{current_gpu, (int)streams.size(), 0, 0, {}, false, true});
  return streams.back();
}

CUstream_st *checked(cudaStream_t stream, const char *call) {
  if (stream == cudaStreamLegacy) return legacy_stream();
  if (stream == NULL) standin_wrong("%s is called with the null stream, which the others do not wait for", call);
  for (CUstream_st *known : streams)
    if (known == stream) {
      if (stream->destroyed) standin_wrong("%s is called with a stream that was destroyed", call);
      return stream;
    }
  standin_wrong("%s is called with what is no stream", call);
}

/* Of copies whose memory may be of a pool, CUDA's Programming Guide ("Current Context/Device Sensitivity") wants this.
 */
void check_current(cudaStream_t stream, const char *call) {
  if (checked(stream, call)->gpu != current_gpu)
    standin_wrong("%s: a stream of GPU %d while GPU %d is the current one", call, stream->gpu, current_gpu);
}

/* ---- what runs --------------------------------------------------------------------------------------------------- */

bool may_reach(int gpu, int other) {
  return gpu == other || (pools ? states[other].pool_access[gpu] : states[gpu].peer[other]);
}

void open_arena(gpu_state &s, bool wanted) {
  const size_t bytes = wanted ? (s.reach + STEP - 1) / STEP * STEP : 0;
  if (bytes == s.opened) return;
  if (bytes > s.opened)
    mprotect(s.arena, bytes, PROT_READ | PROT_WRITE);
  else
    mprotect(s.arena, s.opened, PROT_NONE);
  s.opened = bytes;
}

void close_arenas() {
  for (int g = 0; g < gpus; g++) open_arena(states[g], false);
}

bool blocked(const CUstream_st *stream) {
  const work &next = stream->queue.front();
  return stream->gpu == hanging || (next.after != NULL && next.after->done < next.at);
}

/* Runs the stream's next piece. False: it waits for something outside. */
bool step(CUstream_st *stream) {
  work &next = stream->queue.front();
  if (next.run) {
    const bool copies = strncmp(next.name, "copy", 4) == 0;
    for (int g = 0; g < gpus; g++) open_arena(states[g], copies || may_reach(stream->gpu, g));
    if (!next.run()) return false;
    note("run %s stream %d gpu %d", next.name, stream->number, stream->gpu);
    cudaError_t error;
    if (injected("run", ++runs, &error)) dead = error;
  }
  stream->queue.pop_front();
  stream->done++;
  return true;
}

/* The one that the target waits for in the end; NULL: it waits for something outside. */
CUstream_st *leaf(CUstream_st *target) {
  while (!target->queue.empty()) {
    const work &next = target->queue.front();
    if (target->gpu == hanging) return NULL;
    if (next.after == NULL || next.after->done >= next.at) return target;
    target = next.after;
  }
  return NULL;
}

CUstream_st *pick(CUstream_st *target, unsigned manner, const std::vector<CUstream_st *> &stuck) {
  std::vector<CUstream_st *> may;
  for (CUstream_st *stream : streams) {
    if (stream->queue.empty() || blocked(stream)) continue;
    bool is_stuck = false;
    for (CUstream_st *s : stuck) is_stuck = is_stuck || s == stream;
    if (!is_stuck) may.push_back(stream);
  }
  if (may.empty()) return NULL;
  CUstream_st *needed = target == NULL ? NULL : leaf(target);
  if (manner == 0 && needed != NULL) { /* first what is waited for */
    for (CUstream_st *stream : may)
      if (stream == needed) return stream;
  } else if (manner == 1 && may.size() > 1) { /* last */
    for (size_t i = 0; i < may.size(); i++)
      if (may[i] == needed) may.erase(may.begin() + (long)i--);
  }
  return may[random_below((unsigned)may.size())];
}

/* Until the target has done `at` pieces; nobody sees a device's memory afterwards. As somebody waited, the pool gives
 * back what it keeps beyond its threshold. */
cudaError_t run_until(CUstream_st *target, uint64_t at) {
  const unsigned manner = random_below(3);
  std::vector<CUstream_st *> stuck;
  while (dead == cudaSuccess && target->done < at) {
    CUstream_st *stream = pick(target, manner, stuck);
    if (stream != NULL) {
      if (step(stream))
        stuck.clear();
      else
        stuck.push_back(stream);
      continue;
    }
    if (stuck.empty() && hanging < 0) standin_wrong("streams wait for each other in a circle");
    close_arenas();
    stuck.clear();
    pthread_mutex_unlock(&lock);
    usleep(1000);
    pthread_mutex_lock(&lock);
  }
  close_arenas();
  gpu_state &s = states[target->gpu];
  const size_t keeps = s.pool.threshold < s.used ? s.used : (size_t)s.pool.threshold;
  if (s.reserved > keeps) s.reserved = keeps;
  return fails(dead);
}

/* A few pieces, as time goes by: somebody asks whether the target is there. */
void run_some(CUstream_st *target, unsigned pieces) {
  std::vector<CUstream_st *> stuck;
  while (dead == cudaSuccess && pieces-- > 0) {
    CUstream_st *stream = pick(target, random_below(2) * 2, stuck);
    if (stream == NULL) break;
    if (!step(stream)) stuck.push_back(stream);
  }
  close_arenas();
}

/* Taken down before what stands above. */
struct ending {
  ~ending() {
    held lock_is_held;
    ends = true;
  }
} at_the_end;

void *go_on(void *nothing) {
  for (;;) {
    usleep(5000);
    held lock_is_held;
    if (ends) return nothing;
    run_some(NULL, 1 + random_below(50));
  }
  return nothing;
}

void put(CUstream_st *stream, const char *name, std::function<bool()> run) {
  stream->queue.push_back(work{name, std::move(run), NULL, 0});
  stream->put++;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The allocation that holds all of it; NULL: there is none. */
const block *used_block(const void *data, size_t bytes, char **first = NULL) {
  gpu_state *s = arena_of(data);
  if (s == NULL) return NULL;
  auto found = s->blocks.upper_bound((char *)data);
  if (found == s->blocks.begin()) return NULL;
  --found;
  if (first != NULL) *first = found->first;
  const block &b = found->second;
  return b.used && (size_t)((const char *)data - found->first) + bytes <= b.asked ? &b : NULL;
}

std::map<char *, pinned>::iterator pinned_block(const void *data, size_t bytes) {
  auto found = pinned_blocks.upper_bound((char *)data);
  if (found == pinned_blocks.begin()) return pinned_blocks.end();
  --found;
  const bool inside = (size_t)((const char *)data - found->first) + bytes <= found->second.bytes;
  return inside ? found : pinned_blocks.end();
}

bool is_free(const block &b) {
  return !b.used && b.freed_on == NULL;
}

/* What is free now of that block, with what is free beside it: no two free ones lie side by side. */
void merge(gpu_state &s, char *data, size_t bytes) {
  auto it = s.blocks.lower_bound(data);
  if (it != s.blocks.begin()) --it;
  while (it != s.blocks.end() && it->first < data + bytes) {
    auto next = std::next(it);
    if (next != s.blocks.end() && is_free(it->second) && is_free(next->second)) {
      it->second.bytes += next->second.bytes;
      s.blocks.erase(next);
    } else {
      it = next;
    }
  }
}

/* Where `bytes` may lie: with what the stream itself has freed before, if it can be: whoever still uses that is found
 * out. */
std::map<char *, block>::iterator find_room(gpu_state &s, CUstream_st *stream, size_t bytes) {
  for (int round = stream == NULL ? 1 : 0; round < 2; round++)
    for (auto it = s.blocks.begin(); it != s.blocks.end(); ++it) {
      const block &b = it->second;
      if (b.used || b.bytes < bytes) continue;
      if (round == 0 ? b.freed_on == stream : b.freed_on == NULL) return it;
    }
  return s.blocks.end();
}

cudaError_t allocate(int gpu, CUstream_st *stream, size_t bytes, void **out) {
  gpu_state &s = states[gpu];
  const size_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, whole = room + GUARD;
  if (bytes > memory || s.used + room > memory - held_by_others - s.taken) return fails(cudaErrorMemoryAllocation);
  auto it = find_room(s, stream, whole);
  if (it == s.blocks.end()) return fails(cudaErrorMemoryAllocation);
  char *data = it->first;
  const block rest = it->second;
  it->second = block{whole, bytes, true, stream != NULL, NULL, 0};
  if (rest.bytes > whole)
    s.blocks[data + whole] = block{rest.bytes - whole, 0, false, false, rest.freed_on, rest.freed_by};
  s.used += room;
  if (s.used > s.reserved) s.reserved = s.used;
  if (s.used > s.high) s.high = s.used;
  if ((size_t)(data + whole - s.arena) > s.reach) s.reach = (size_t)(data + whole - s.arena);
  auto fill = [data, bytes, whole] {
    memset(data, FRESH, bytes);
    memset(data + bytes, GUARDED, whole - bytes);
    return true;
  };
  if (stream != NULL) {
    put(stream, "allocate", fill);
  } else {
    open_arena(s, true);
    (void)fill();
    close_arenas();
  }
  *out = data;
  return cudaSuccess;
}

void look_at_guard(const char *data, size_t bytes, size_t whole) {
  for (size_t i = bytes; i < whole; i++)
    if ((unsigned char)data[i] != GUARDED)
      standin_wrong("work of a device wrote %zu bytes behind the end of an allocation of %zu bytes, or it is freed "
                    "before the stream that allocates it has done so",
                    i - bytes, bytes);
}

/* The block, which is checked to be an allocation's beginning. */
block &to_free(gpu_state &s, void *data, bool pooled, const char *call) {
  auto it = s.blocks.find((char *)data);
  if (it == s.blocks.end() || !it->second.used)
    standin_wrong("%s is called with what is no allocation, or was freed before", call);
  if (it->second.pooled != pooled) standin_wrong("%s is called with memory that was not allocated for it", call);
  return it->second;
}

cudaError_t free_async(void *data, CUstream_st *stream) {
  gpu_state *s = arena_of(data);
  if (s == NULL) standin_wrong("cudaFreeAsync is called with what is no device memory");
  block &b = to_free(*s, data, true, "cudaFreeAsync");
  if (s != &states[stream->gpu])
    standin_wrong("memory of GPU %d is freed on a stream of GPU %d", (int)(s - states), stream->gpu);
  const size_t bytes = b.asked, whole = b.bytes;
  const uint64_t by = ++frees;
  b.used = false;
  b.freed_on = stream;
  b.freed_by = by;
  s->used -= whole - GUARD;
  char *from = (char *)data;
  put(stream, "free", [s, from, bytes, whole, by] {
    look_at_guard(from, bytes, whole);
    memset(from, FREED, whole);
    for (auto it = s->blocks.lower_bound(from); it != s->blocks.end() && it->first < from + whole; ++it)
      if (!it->second.used && it->second.freed_on != NULL && it->second.freed_by == by) it->second.freed_on = NULL;
    merge(*s, from, whole);
    return true;
  });
  return cudaSuccess;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

enum where { DEVICE, PINNED, PAGEABLE };

where where_is(const void *data, size_t bytes, const char *call) {
  if (arena_of(data) != NULL) {
    if (used_block(data, bytes) == NULL)
      standin_wrong("%s is called with %zu bytes that lie not in one allocation of the device, or in freed memory",
                    call, bytes);
    return DEVICE;
  }
  return pinned_block(data, bytes) == pinned_blocks.end() ? PAGEABLE : PINNED;
}

void use_pinned(const void *data, int64_t more) {
  auto found = pinned_block(data, 0);
  if (found != pinned_blocks.end()) found->second.users += more;
}

struct rows {
  char *to;
  size_t to_pitch;
  const char *from;
  size_t from_pitch, width, height;
};

void copy_rows(const rows &r) {
  for (size_t i = 0; i < r.height; i++) memmove(r.to + i * r.to_pitch, r.from + i * r.from_pitch, r.width);
}

cudaError_t copy(const rows &r, enum cudaMemcpyKind kind, CUstream_st *stream, const char *call,
                 bool read_now = false) {
  if (r.width == 0 || r.height == 0) return cudaSuccess;
  const where to = where_is(r.to, (r.height - 1) * r.to_pitch + r.width, call);
  const where from = where_is(r.from, (r.height - 1) * r.from_pitch + r.width, call);
  if (to != DEVICE && from != DEVICE) standin_wrong("%s copies from the host to the host", call);
  const enum cudaMemcpyKind is =
      to == DEVICE ? (from == DEVICE ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice) : cudaMemcpyDeviceToHost;
  if (kind != cudaMemcpyDefault && kind != is) return fails(cudaErrorInvalidValue);
  if (read_now || (from == PAGEABLE && !reads_pageable)) { /* has been read when the call returns */
    if (from == DEVICE) standin_wrong("%s reads a device's memory at once", call);
    auto kept = std::make_shared<std::vector<char>>(r.width * r.height);
    copy_rows(rows{kept->data(), r.width, r.from, r.from_pitch, r.width, r.height});
    put(stream, "copy in", [kept, r] {
      copy_rows(rows{r.to, r.to_pitch, kept->data(), r.width, r.width, r.height});
      return true;
    });
    return cudaSuccess;
  }
  if (to == PINNED) use_pinned(r.to, 1);
  if (from == PINNED) use_pinned(r.from, 1);
  const bool flips = from == PINNED && ++copied_in == flipped;
  put(stream, to == DEVICE ? (from == DEVICE ? "copy" : "copy in") : "copy out", [r, to, from, flips] {
    copy_rows(r);
    if (flips) *r.to ^= 1;
    if (to == PINNED) use_pinned(r.to, -1);
    if (from == PINNED) use_pinned(r.from, -1);
    return true;
  });
  return to == PAGEABLE && !reads_pageable ? run_until(stream, stream->put) : cudaSuccess;
}

/* How two GPUs are linked: 0 not, 1 by PCIe, 2 by NVLink. */
int link_of(int gpu, int other) {
  const char *text = getenv("STANDIN_LINKS");
  if (text == NULL || strcmp(text, "pcie") == 0) return 1;
  if (strcmp(text, "nvlink") == 0) return 2;
  const int a = states[gpu].physical, b = states[other].physical;
  for (const char *at = text; at != NULL; at = strchr(at, ','), at = at == NULL ? NULL : at + 1) {
    int x, y;
    char kind[8];
    if (sscanf(at, "%d-%d:%7[a-z]", &x, &y, kind) == 3 && ((x == a && y == b) || (x == b && y == a)))
      return strcmp(kind, "nvlink") == 0 ? 2 : 1;
  }
  return 0;
}

bool is_gpu(int gpu) {
  return gpu >= 0 && gpu < gpus;
}

CUevent_st *checked(cudaEvent_t event, const char *call) {
  if (events.count(event) == 0) standin_wrong("%s is called with what is no event, or was destroyed", call);
  return event;
}

} // namespace

/* ---- what the other parts use ------------------------------------------------------------------------------------ */

void standin_wrong(const char *format, ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "stand-in: %s\n", text);
  void *frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
  abort();
}

void standin_put(cudaStream_t stream, const char *name, std::function<bool()> run) {
  held lock_is_held;
  put(checked(stream, name), name, std::move(run));
}

void standin_go_on() {
  held lock_is_held;
  if (goes_on) return;
  goes_on = true;
  pthread_t thread;
  if (pthread_create(&thread, NULL, go_on, NULL) != 0) standin_wrong("no thread for the GPUs");
  pthread_detach(thread);
}

bool standin_reaches(cudaStream_t stream, const void *data, size_t bytes) {
  held lock_is_held;
  const gpu_state *s = arena_of(data);
  if (s == NULL) return pinned_block(data, bytes) != pinned_blocks.end();
  return may_reach(stream->gpu, (int)(s - states)) && used_block(data, bytes) != NULL;
}

bool standin_take(int gpu, size_t bytes) {
  held lock_is_held;
  gpu_state &s = states[gpu];
  if (memory - held_by_others - s.taken - s.reserved < bytes) return false;
  s.taken += bytes;
  return true;
}

void standin_give_back(int gpu, size_t bytes) {
  held lock_is_held;
  states[gpu].taken -= bytes;
}

cudaError_t standin_enter(const char *call) {
  held lock_is_held;
  return enter(call);
}

void standin_reset(void) {
  held lock_is_held;
  for (int g = 0; g < gpus; g++) {
    munmap(states[g].arena, 2 * memory);
    states[g] = gpu_state();
  }
  for (CUstream_st *stream : streams) delete stream;
  streams.clear();
  for (CUevent_st *event : events) delete event;
  events.clear();
  for (auto &known : pinned_blocks) munmap(known.first, known.second.room);
  pinned_blocks.clear();
  calls.clear();
  failures.clear();
  if (logged != NULL) fclose(logged);
  logged = NULL;
  dead = last_error = cudaSuccess;
  gpus = current_gpu = 0;
  has_chosen = false;
  hanging = -1;
  runs = 0;
  ready = false;
}

size_t standin_held(int gpu) {
  held lock_is_held;
  if (gpu >= 0) return states[gpu].used;
  size_t bytes = 0;
  for (const auto &known : pinned_blocks) bytes += known.second.bytes;
  return bytes;
}

long long standin_calls(const char *call) {
  held lock_is_held;
  return calls[call];
}

void standin_die(cudaError_t error) {
  dead = error;
}

unsigned standin_random(unsigned n) {
  return random_below(n);
}

int standin_gpu(cudaStream_t stream) {
  held lock_is_held;
  return checked(stream, "a kernel's launch")->gpu;
}

int standin_current_gpu() {
  return current_gpu;
}

/* ---- the runtime ------------------------------------------------------------------------------------------------- */

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  held lock_is_held;
  make_ready();
  *version = gpus == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) {
  held lock_is_held;
  return dead != cudaSuccess ? dead : last_error;
}

cudaError_t cudaGetLastError(void) {
  held lock_is_held;
  const cudaError_t error = dead != cudaSuccess ? dead : last_error;
  last_error = cudaSuccess;
  return error;
}

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(name, value)                                                                                              \
  case name:                                                                                                           \
    return #name;
    STANDIN_ERRORS(NAME)
#undef NAME
  }
  return "cudaErrorUnrecognized";
}

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return "no error";
  case cudaErrorMemoryAllocation:
    return "out of memory";
  case cudaErrorIllegalAddress:
    return "an illegal memory access was encountered";
  case cudaErrorLaunchFailure:
    return "unspecified launch failure";
  case cudaErrorNoDevice:
    return "no CUDA-capable device is detected";
  default:
    return "the stand-in's text of an error";
  }
}

cudaError_t cudaGetDeviceCount(int *count) {
  ENTER("cudaGetDeviceCount");
  *count = gpus;
  return gpus == 0 ? fails(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu) {
  ENTER("cudaSetDevice");
  if (!is_gpu(gpu)) return fails(cudaErrorInvalidDevice);
  current_gpu = gpu;
  has_chosen = true;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *gpu) {
  ENTER("cudaGetDevice");
  *gpu = current_gpu;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int gpu) {
  ENTER("cudaDeviceGetAttribute");
  if (!is_gpu(gpu)) return fails(cudaErrorInvalidDevice);
  switch (attribute) {
  case cudaDevAttrMultiProcessorCount:
    *value = 3;
    break;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    *value = 2048;
    break;
  case cudaDevAttrComputeCapabilityMajor:
    *value = 9;
    break;
  case cudaDevAttrComputeMode:
  case cudaDevAttrComputeCapabilityMinor:
  case cudaDevAttrPciDomainId:
  case cudaDevAttrPciDeviceId:
    *value = 0;
    break;
  case cudaDevAttrPciBusId:
    *value = states[gpu].physical + 1;
    break;
  case cudaDevAttrPageableMemoryAccess:
    *value = reads_pageable;
    break;
  case cudaDevAttrMemoryPoolsSupported:
    *value = pools;
    break;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int gpu) {
  ENTER("cudaGetDeviceProperties");
  if (!is_gpu(gpu)) return fails(cudaErrorInvalidDevice);
  memset(properties, 0, sizeof *properties);
  snprintf(properties->name, sizeof properties->name, "Stand-in %d", states[gpu].physical);
  char host[64] = "";
  if (getenv("STANDIN_HOST") != NULL)
    snprintf(host, sizeof host, "%s", getenv("STANDIN_HOST"));
  else
    gethostname(host, sizeof host - 1);
  uint64_t hash = 1469598103934665603u;
  for (const char *at = host; *at != '\0'; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211u;
  memcpy(properties->uuid.bytes, &hash, sizeof hash);
  properties->uuid.bytes[15] = (char)(states[gpu].physical + 1);
  properties->totalGlobalMem = memory;
  properties->major = 9;
  properties->multiProcessorCount = 3;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int gpu) {
  ENTER("cudaDeviceGetPCIBusId");
  if (!is_gpu(gpu)) return fails(cudaErrorInvalidDevice);
  snprintf(text, (size_t)room, "0000:%02x:00.0", states[gpu].physical + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int gpu, int other) {
  ENTER("cudaDeviceGetP2PAttribute");
  if (!is_gpu(gpu) || !is_gpu(other) || gpu == other) return fails(cudaErrorInvalidDevice);
  const int link = link_of(gpu, other);
  switch (attribute) {
  case cudaDevP2PAttrPerformanceRank: /* 0 is the best */
    *value = link == 2 ? 0 : 1;
    break;
  case cudaDevP2PAttrAccessSupported:
    *value = link > 0;
    break;
  case cudaDevP2PAttrNativeAtomicSupported: /* by NVLink, not by PCIe */
    *value = link == 2;
    break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int other) {
  ENTER("cudaDeviceCanAccessPeer");
  if (!is_gpu(gpu) || !is_gpu(other)) return fails(cudaErrorInvalidDevice);
  *can = gpu != other && link_of(gpu, other) > 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned int flags) {
  ENTER("cudaDeviceEnablePeerAccess");
  if (flags != 0 || !is_gpu(other)) return fails(cudaErrorInvalidDevice);
  if (other == current_gpu || link_of(current_gpu, other) == 0) return fails(cudaErrorPeerAccessUnsupported);
  if (states[current_gpu].peer[other]) return fails(cudaErrorPeerAccessAlreadyEnabled);
  states[current_gpu].peer[other] = true;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  ENTER("cudaDeviceSynchronize");
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i]->gpu == current_gpu && run_until(streams[i], streams[i]->put) != cudaSuccess) return fails(dead);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  ENTER("cudaMemGetInfo");
  const gpu_state &s = states[current_gpu];
  *total = memory;
  *available = memory - held_by_others - s.taken - s.reserved;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
  ENTER("cudaMalloc");
  return allocate(current_gpu, NULL, bytes, out);
}

/* Waits for all of the GPU's streams, as CUDA's does. */
cudaError_t cudaFree(void *data) {
  ENTER("cudaFree");
  if (data == NULL) return cudaSuccess;
  gpu_state *s = arena_of(data);
  if (s == NULL) standin_wrong("cudaFree is called with what is no device memory");
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i]->gpu == (int)(s - states) && run_until(streams[i], streams[i]->put) != cudaSuccess)
      return fails(dead);
  block &b = to_free(*s, data, false, "cudaFree");
  open_arena(*s, true);
  look_at_guard((char *)data, b.asked, b.bytes);
  memset(data, FREED, b.bytes);
  close_arenas();
  b.used = false;
  s->used -= b.bytes - GUARD;
  s->reserved = s->used;
  merge(*s, (char *)data, b.bytes);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) {
  ENTER("cudaMallocAsync");
  if (!pools) return fails(cudaErrorNotSupported);
  checked(stream, "cudaMallocAsync");
  return allocate(stream->gpu, stream, bytes, out);
}

cudaError_t cudaFreeAsync(void *data, cudaStream_t stream) {
  ENTER("cudaFreeAsync");
  return free_async(data, checked(stream, "cudaFreeAsync"));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int gpu) {
  ENTER("cudaDeviceGetDefaultMemPool");
  if (!is_gpu(gpu)) return fails(cudaErrorInvalidDevice);
  if (!pools) return fails(cudaErrorNotSupported);
  *pool = &states[gpu].pool;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
  ENTER("cudaMemPoolSetAttribute");
  if (attribute == cudaMemPoolAttrReleaseThreshold) memcpy(&pool->threshold, value, sizeof pool->threshold);
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
  ENTER("cudaMemPoolGetAttribute");
  const gpu_state &s = states[pool->gpu];
  unsigned long long is = 0;
  if (attribute == cudaMemPoolAttrReleaseThreshold) is = pool->threshold;
  if (attribute == cudaMemPoolAttrReservedMemCurrent) is = s.reserved;
  if (attribute == cudaMemPoolAttrUsedMemCurrent) is = s.used;
  if (attribute == cudaMemPoolAttrUsedMemHigh) is = s.high;
  if (attribute == cudaMemPoolReuseFollowEventDependencies || attribute == cudaMemPoolReuseAllowOpportunistic ||
      attribute == cudaMemPoolReuseAllowInternalDependencies) {
    const int yes = 1;
    memcpy(value, &yes, sizeof yes);
    return cudaSuccess;
  }
  memcpy(value, &is, sizeof is);
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  ENTER("cudaMemPoolTrimTo");
  gpu_state &s = states[pool->gpu];
  if (s.reserved > keep) s.reserved = s.used > keep ? s.used : keep;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count) {
  ENTER("cudaMemPoolSetAccess");
  for (size_t i = 0; i < count; i++) {
    const int other = list[i].location.id;
    if (list[i].location.type != cudaMemLocationTypeDevice || !is_gpu(other)) return fails(cudaErrorInvalidValue);
    if (other != pool->gpu && link_of(other, pool->gpu) == 0) return fails(cudaErrorPeerAccessUnsupported);
    states[pool->gpu].pool_access[other] = list[i].flags == cudaMemAccessFlagsProtReadWrite;
  }
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags) {
  ENTER("cudaHostAlloc");
  if (flags != cudaHostAllocDefault && flags != cudaHostAllocPortable) return fails(cudaErrorInvalidValue);
  const size_t page = 4096, room = (bytes + page - 1) / page * page + page;
  void *data = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return fails(cudaErrorMemoryAllocation);
  mprotect((char *)data + room - page, page, PROT_NONE);
  memset(data, FRESH, bytes);
  pinned_blocks[(char *)data] = pinned{bytes, room, 0};
  *out = data;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *data) {
  ENTER("cudaFreeHost");
  auto found = pinned_blocks.find((char *)data);
  if (found == pinned_blocks.end()) standin_wrong("cudaFreeHost is called with what it did not allocate");
  if (found->second.users != 0) standin_wrong("cudaFreeHost is called with memory that a stream is still to use");
  munmap(data, found->second.room);
  pinned_blocks.erase(found);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *data) {
  ENTER("cudaPointerGetAttributes");
  const where is = where_is(data, 0, "cudaPointerGetAttributes");
  attributes->type = is == DEVICE   ? cudaMemoryTypeDevice
                     : is == PINNED ? cudaMemoryTypeHost
                                    : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  ENTER("cudaStreamCreateWithFlags");
  if (flags != cudaStreamNonBlocking) standin_wrong("a stream is created that waits for the null stream");
  CUstream_st *made = new CUstream_st{current_gpu, (int)streams.size(), 0, 0, {}, false, false};
  streams.push_back(made);
  *stream = made;
  return cudaSuccess;
}

/* What is on it runs still. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER("cudaStreamDestroy");
  checked(stream, "cudaStreamDestroy")->destroyed = true;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER("cudaStreamSynchronize");
  stream = checked(stream, "cudaStreamSynchronize");
  return run_until(stream, stream->put);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER("cudaStreamQuery");
  checked(stream, "cudaStreamQuery");
  run_some(stream, random_below(4));
  if (dead != cudaSuccess) return fails(dead);
  return fails(stream->done == stream->put ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  ENTER("cudaStreamWaitEvent");
  if (flags != 0) return fails(cudaErrorInvalidValue);
  stream = checked(stream, "cudaStreamWaitEvent");
  checked(event, "cudaStreamWaitEvent");
  if (event->stream == NULL) standin_wrong("a stream is to wait for an event that was never recorded");
  stream->queue.push_back(work{"wait", nullptr, event->stream, event->at});
  stream->put++;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  ENTER("cudaEventCreateWithFlags");
  if (flags != cudaEventDisableTiming && flags != cudaEventDefault) return fails(cudaErrorInvalidValue);
  *event = new CUevent_st{current_gpu, NULL, 0, 0, flags == cudaEventDefault};
  events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENTER("cudaEventDestroy");
  events.erase(checked(event, "cudaEventDestroy"));
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER("cudaEventRecord");
  stream = checked(stream, "cudaEventRecord");
  if (checked(event, "cudaEventRecord")->gpu != stream->gpu)
    standin_wrong("an event of GPU %d is recorded on a stream of GPU %d", event->gpu, stream->gpu);
  event->stream = stream;
  event->at = stream->put;
  event->asked = 0;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER("cudaEventQuery");
  if (checked(event, "cudaEventQuery")->stream == NULL) standin_wrong("an event is asked for that was never recorded");
  if (event->stream->done < event->at) run_some(event->stream, event->asked++ < 3 ? random_below(2) : 8);
  if (dead != cudaSuccess) return fails(dead);
  return fails(event->stream->done >= event->at ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER("cudaEventSynchronize");
  if (checked(event, "cudaEventSynchronize")->stream == NULL)
    standin_wrong("an event is waited for that was never recorded");
  return run_until(event->stream, event->at);
}

/* A millisecond for each piece of work between them. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  ENTER("cudaEventElapsedTime");
  if (!checked(from, "cudaEventElapsedTime")->timed || !checked(to, "cudaEventElapsedTime")->timed)
    return fails(cudaErrorInvalidResourceHandle);
  if (from->stream == NULL || to->stream == NULL) return fails(cudaErrorInvalidResourceHandle);
  if (from->stream->done < from->at || to->stream->done < to->at) return fails(cudaErrorNotReady);
  *milliseconds = from->stream == to->stream ? (float)(to->at - from->at) : 1;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  ENTER("cudaMemcpyAsync");
  check_current(stream, "cudaMemcpyAsync");
  stream = checked(stream, "cudaMemcpyAsync");
  return copy(rows{(char *)to, 0, (const char *)from, 0, bytes, 1}, kind, stream, "cudaMemcpyAsync");
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  ENTER("cudaMemcpy2DAsync");
  check_current(stream, "cudaMemcpy2DAsync");
  if (width > to_pitch || width > from_pitch) return fails(cudaErrorInvalidValue);
  return copy(rows{(char *)to, to_pitch, (const char *)from, from_pitch, width, height}, kind, stream,
              "cudaMemcpy2DAsync");
}

cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes, size_t count,
                                 struct cudaMemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                                 cudaStream_t stream) {
  ENTER("cudaMemcpyBatchAsync");
  checked(stream, "cudaMemcpyBatchAsync");
  if (count == 0 || attribute_count == 0 || attribute_count > count || first[0] != 0)
    return fails(cudaErrorInvalidValue);
  for (size_t i = 0, a = 0; i < count; i++) {
    if (a + 1 < attribute_count && first[a + 1] == i) a++;
    const bool read_now = attributes[a].srcAccessOrder == cudaMemcpySrcAccessOrderDuringApiCall;
    const cudaError_t problem = copy(rows{(char *)to[i], 0, (const char *)from[i], 0, bytes[i], 1}, cudaMemcpyDefault,
                                     stream, "cudaMemcpyBatchAsync", read_now);
    if (problem != cudaSuccess) return problem;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t stream) {
  ENTER("cudaMemcpyPeerAsync");
  checked(stream, "cudaMemcpyPeerAsync");
  if (!is_gpu(to_gpu) || !is_gpu(from_gpu)) return fails(cudaErrorInvalidDevice);
  if (bytes > 0 && (arena_of(to) != &states[to_gpu] || arena_of(from) != &states[from_gpu]))
    standin_wrong("cudaMemcpyPeerAsync is called with addresses that are not in the memory of GPUs %d and %d", to_gpu,
                  from_gpu);
  return copy(rows{(char *)to, 0, (const char *)from, 0, bytes, 1}, cudaMemcpyDeviceToDevice, stream,
              "cudaMemcpyPeerAsync");
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  ENTER("cudaMemsetAsync");
  check_current(stream, "cudaMemsetAsync");
  if (bytes == 0) return cudaSuccess;
  if (where_is(to, bytes, "cudaMemsetAsync") != DEVICE) standin_wrong("cudaMemsetAsync is called with host memory");
  put(stream, "set", [to, value, bytes] {
    memset(to, value, bytes);
    return true;
  });
  return cudaSuccess;
}
