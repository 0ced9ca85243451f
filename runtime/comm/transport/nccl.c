// build: plug-in
/* nccl.c - links between the GPUs of a job's processes: NCCL, opened when it is first needed.
 *
 * Communicators are non-blocking (device/cuda.c sees to it that nothing else decides that): what a call starts goes on
 * in threads of NCCL's, which put it on streams, and until ncclCommGetAsyncError says that this is done, nobody else
 * may put anything there. So each GPU's communicator has a stream of its own, where its groups stand in the order in
 * which they were called; it waits for MAIN of the devices that send and receive, and these wait for it as soon as the
 * group is on it.
 *
 * NCCL's User Guide, "Group Calls", "Point-to-point communication" (messages of a group between the same two meet in
 * their order) and "Fault Tolerance" (ncclCommAbort) say what is relied on. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/cuda.h"
#include "system/thread.h"

enum {
  OLDEST = NCCL_VERSION(2, 19, 0), /* the first where what one thread began can be aborted on another */
  ENDING = 10, /* seconds, or somewhat more, that ending communicators may take, before they are left as they are */
  PAUSE = 100  /* microseconds between looks at what is being ended */
};

_Static_assert((int)NCCL_UNIQUE_ID_BYTES == (int)ACCELERATOR_LINK_ID, "an id of NCCL's is an id of a group");

#define FUNCTIONS(X)                                                                                                   \
  X(ncclGetVersion)                                                                                                    \
  X(ncclGetErrorString)                                                                                                \
  X(ncclGetLastError)                                                                                                  \
  X(ncclGetUniqueId)                                                                                                   \
  X(ncclCommInitRankConfig)                                                                                            \
  X(ncclCommGetAsyncError)                                                                                             \
  X(ncclCommFinalize)                                                                                                  \
  X(ncclCommDestroy)                                                                                                   \
  X(ncclCommAbort)                                                                                                     \
  X(ncclGroupStart)                                                                                                    \
  X(ncclGroupEnd)                                                                                                      \
  X(ncclSend)                                                                                                          \
  X(ncclRecv)

static struct {
  void *library; /* NULL: not opened */
#define MEMBER(name) __typeof__(name) *name;
  FUNCTIONS(MEMBER)
#undef MEMBER
} nccl;

/* A GPU of this process. */
struct nccl_link {
  int32_t device; /* the first that is it */
  int gpu;        /* CUDA's number */
  int32_t rank;
  ncclComm_t comm; /* NULL: not begun, or gone */
  cudaStream_t stream;
  cudaEvent_t event; /* that one stream has come to where another one waits for it; recorded again and again */
};

/* Those of this process. */
struct nccl_group {
  int32_t count;
  struct nccl_link links[];
};

/* One for the process, as the GPUs and their streams are, not one for each job: of two communicators of a GPU whose
 * messages are under way at once, every process must start them in one order (NCCL's User Guide, "Using multiple NCCL
 * communicators concurrently"), and two jobs have no order in common. reshard/exchange/peer_path.c says whose it
 * is. */
static struct {
  struct nccl_group *group; /* NULL: not joined */
  int32_t ranks;            /* of the job */
  bool broken;              /* a call failed, or all was aborted: nothing can be sent anymore */
  const char *what;         /* was started last */
  int32_t *after;  /* devices whose MAIN goes on after the messages that were started; NULL: none were, or they do */
  int64_t waiting; /* how many these are */
} communicator;

/* ---- failures --------------------------------------------------------------------------------------------------- */

/* What NCCL says about a call; `link` NULL: it concerns no GPU. */
static int fail_call(ncclResult_t result, const char *call, const struct nccl_link *link) {
  const int code = result == ncclUnhandledCudaError ? SHARDRT_EDEVICE : SHARDRT_ECOMM;
  const char *last = nccl.ncclGetLastError(link == NULL ? NULL : link->comm);
  char words[1024], detail[768] = "", number[64] = "";
  if (last != NULL && last[0] != '\0') snprintf(detail, sizeof detail, " (%s)", last);
  if (link != NULL)
    snprintf(number, sizeof number, " (it is number %d of the job's %d GPUs)", link->rank, communicator.ranks);
  snprintf(words, sizeof words, "%s%s%s; NCCL_DEBUG=INFO has NCCL tell more", nccl.ncclGetErrorString(result), detail,
           number);
  communicator.broken = true;
  if (link != NULL) return cuda_failed(code, call, words, communicator.what, link->device);
  return error_set(code, "%s: %s failed: %s", communicator.what, call, words);
}

static int check_nccl(ncclResult_t result, const char *call, const struct nccl_link *link) {
  return result == ncclSuccess || result == ncclInProgress ? SHARDRT_OK : fail_call(result, call, link);
}

static int check_cuda(cudaError_t problem, const char *call, const struct nccl_link *link) {
  const int code = cuda_check(problem, call, communicator.what, link->device);
  if (code < 0) communicator.broken = true;
  return code;
}

static int refuse_broken(void) {
  return error_set(SHARDRT_ECOMM, "the links between GPUs failed before; nothing can be sent over them anymore");
}

/* ---- the library ------------------------------------------------------------------------------------------------ */

static int check_version(void) {
  int version = 0;
  communicator.what = "asking for its version";
  const int code = check_nccl(nccl.ncclGetVersion(&version), "ncclGetVersion", NULL);
  if (code < 0) return code;
  if (version >= OLDEST) return SHARDRT_OK;
  /* Before 2.9 the number was made in another way; those are too old either way. */
  return error_set(SHARDRT_EINVAL,
                   "NCCL %d.%d is too old: what hangs could not be ended; 2.19 and newer can do that, and `pip install "
                   "nvidia-nccl-cu13` brings one",
                   version / (version < 10000 ? 1000 : 10000), version / 100 % (version < 10000 ? 10 : 100));
}

static int nccl_open(void) {
  if (nccl.library != NULL) return SHARDRT_OK;
  static const char *const names[] = {"libnccl.so.2", "../../nccl/lib/libnccl.so.2", NULL}; /* pip's lies beside */
  const char *what = "moving data between GPUs of different processes";
  void *library = cuda_library(what, names, "pip install nvidia-nccl-cu13");
  if (library == NULL) return SHARDRT_EINVAL;
#define FIND(name)                                                                                                     \
  *(void **)&nccl.name = cuda_function("NCCL", library, #name); /* as POSIX says for functions */                      \
  if (nccl.name == NULL) return SHARDRT_EINVAL;
  FUNCTIONS(FIND)
#undef FIND
  const int code = check_version();
  if (code == SHARDRT_OK) nccl.library = library;
  return code;
}

static int nccl_id(uint8_t id[ACCELERATOR_LINK_ID]) {
  int code = nccl_open();
  if (code < 0) return code;
  ncclUniqueId made;
  communicator.what = "making the id of the job's GPUs";
  code = check_nccl(nccl.ncclGetUniqueId(&made), "ncclGetUniqueId", NULL);
  if (code == SHARDRT_OK) memcpy(id, made.internal, ACCELERATOR_LINK_ID);
  return code;
}

/* ---- joining ---------------------------------------------------------------------------------------------------- */

static int link_begin(struct nccl_link *link, const ncclUniqueId *id) {
  int code = cuda_use(communicator.what, link->device);
  if (code == SHARDRT_OK) code = check_cuda(cudaGetDevice(&link->gpu), "cudaGetDevice", link);
  if (code == SHARDRT_OK)
    code =
        check_cuda(cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", link);
  if (code == SHARDRT_OK)
    code = check_cuda(cudaEventCreateWithFlags(&link->event, cudaEventDisableTiming), "cudaEventCreateWithFlags", link);
  if (code < 0) return code;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return check_nccl(nccl.ncclCommInitRankConfig(&link->comm, communicator.ranks, *id, link->rank, &config),
                    "ncclCommInitRankConfig", link);
}

static int nccl_join(const uint8_t id[ACCELERATOR_LINK_ID], int32_t ranks, int32_t own, const int32_t *devices,
                     const int32_t *own_ranks) {
  int code = nccl_open();
  if (code < 0) return code;
  if (communicator.broken) return refuse_broken();
  struct nccl_group *group = alloc_zeros(1, sizeof *group + (size_t)own * sizeof *group->links);
  if (group == NULL) return ALLOC_FAILED;
  group->count = own;
  for (int32_t i = 0; i < own; i++) group->links[i] = (struct nccl_link){.device = devices[i], .rank = own_ranks[i]};
  communicator.group = group;
  communicator.ranks = ranks;
  communicator.what = "joining the job's GPUs";
  ncclUniqueId joined;
  memcpy(joined.internal, id, ACCELERATOR_LINK_ID);
  code = check_nccl(nccl.ncclGroupStart(), "ncclGroupStart", NULL);
  if (code < 0) return code;
  for (int32_t i = 0; i < own && code == SHARDRT_OK; i++) code = link_begin(&group->links[i], &joined);
  const ncclResult_t ended = nccl.ncclGroupEnd(); /* also after a failure, whose message it must not replace */
  return code < 0 ? code : check_nccl(ended, "ncclGroupEnd", NULL);
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* The link of a device's GPU; NULL with the message set for EDEVICE. */
static struct nccl_link *find_link(int32_t device) {
  int gpu = -1;
  if (cuda_use(communicator.what, device) < 0 ||
      cuda_check(cudaGetDevice(&gpu), "cudaGetDevice", communicator.what, device) < 0)
    return NULL;
  for (int32_t i = 0; communicator.group != NULL && i < communicator.group->count; i++)
    if (communicator.group->links[i].gpu == gpu) return &communicator.group->links[i];
  error_set(SHARDRT_EDEVICE, "the GPU of device %d has not joined those of the job", cuda_id(device));
  return NULL;
}

static bool is_listed(int32_t device) {
  for (int64_t i = communicator.waiting; i-- > 0;)
    if (communicator.after[i] == device) return true;
  return false;
}

/* The link goes on after what the device's MAIN has now. */
static int link_follow(const struct nccl_link *link, int32_t device) {
  int code = check_cuda(cudaEventRecord(link->event, cuda_stream(device, ACCELERATOR_MAIN)), "cudaEventRecord", link);
  if (code == SHARDRT_OK)
    code = check_cuda(cudaStreamWaitEvent(link->stream, link->event, 0), "cudaStreamWaitEvent", link);
  return code;
}

/* The other way around. */
static int link_lead(const struct nccl_link *link, int32_t device) {
  int code = check_cuda(cudaEventRecord(link->event, link->stream), "cudaEventRecord", link);
  if (code == SHARDRT_OK)
    code = check_cuda(cudaStreamWaitEvent(cuda_stream(device, ACCELERATOR_MAIN), link->event, 0), "cudaStreamWaitEvent",
                      link);
  return code;
}

/* Lists the devices that have messages, each once, and has their links follow them. */
static int gather_devices(int64_t count, const struct accelerator_message *messages) {
  communicator.after = alloc_array((size_t)count, sizeof *communicator.after);
  if (communicator.after == NULL) return ALLOC_FAILED;
  communicator.waiting = 0;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) {
    if (messages[i].bytes == 0 || is_listed(messages[i].device)) continue;
    const struct nccl_link *link = find_link(messages[i].device);
    code = link == NULL ? SHARDRT_EDEVICE : link_follow(link, messages[i].device);
    communicator.after[communicator.waiting++] = messages[i].device;
  }
  return code;
}

static int put_message(const struct accelerator_message *m) {
  const struct nccl_link *link = find_link(m->device);
  if (link == NULL) return SHARDRT_EDEVICE;
  if (m->outgoing)
    return check_nccl(nccl.ncclSend(m->data, m->bytes, ncclUint8, m->rank, link->comm, link->stream), "ncclSend", link);
  return check_nccl(nccl.ncclRecv(m->data, m->bytes, ncclUint8, m->rank, link->comm, link->stream), "ncclRecv", link);
}

static void forget_devices(void) {
  alloc_free(communicator.after);
  communicator.after = NULL;
  communicator.waiting = 0;
}

/* Messages of no bytes are left out, by both sides. */
static int nccl_exchange(int64_t count, const struct accelerator_message *messages) {
  if (communicator.broken) return refuse_broken();
  if (communicator.after != NULL)
    return error_set(SHARDRT_EINVAL, "messages are being put on the way still: `state` says when that is done");
  communicator.what = "an exchange between GPUs";
  int code = count == 0 ? SHARDRT_OK : gather_devices(count, messages);
  if (code == SHARDRT_OK && communicator.waiting > 0) {
    code = check_nccl(nccl.ncclGroupStart(), "ncclGroupStart", NULL);
    if (code < 0) return code;
    for (int64_t i = 0; i < count && code == SHARDRT_OK; i++)
      if (messages[i].bytes > 0) code = put_message(&messages[i]);
    const ncclResult_t ended = nccl.ncclGroupEnd();
    if (code == SHARDRT_OK) code = check_nccl(ended, "ncclGroupEnd", NULL);
  }
  if (code < 0) communicator.broken = true; /* the other side waits for what is not sent */
  return code;
}

/* The group is on the links: MAIN of the devices goes on after it. */
static int let_devices_go_on(void) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < communicator.waiting && code == SHARDRT_OK; i++) {
    const struct nccl_link *link = find_link(communicator.after[i]);
    code = link == NULL ? SHARDRT_EDEVICE : link_lead(link, communicator.after[i]);
  }
  forget_devices();
  return code;
}

static int nccl_state(bool *done) {
  *done = false;
  if (communicator.broken) return refuse_broken();
  bool all = true;
  for (int32_t i = 0; communicator.group != NULL && i < communicator.group->count; i++) {
    const struct nccl_link *link = &communicator.group->links[i];
    ncclResult_t said = ncclSuccess;
    int code = check_nccl(nccl.ncclCommGetAsyncError(link->comm, &said), "ncclCommGetAsyncError", link);
    if (code == SHARDRT_OK) code = check_nccl(said, "ncclCommGetAsyncError", link);
    if (code < 0) return code;
    all &= said == ncclSuccess;
  }
  *done = all;
  return all ? let_devices_go_on() : SHARDRT_OK;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

/* NCCL goes back to the GPU that the thread has chosen, which would become the first one, be that another process's. */
static void choose_gpu(const struct nccl_group *group) {
  (void)cuda_use("links between GPUs are ended", group->links[0].device);
}

static void *abort_all(void *context) {
  const struct nccl_group *group = context;
  choose_gpu(group);
  for (int32_t i = 0; i < group->count; i++)
    if (group->links[i].comm != NULL) nccl.ncclCommAbort(group->links[i].comm);
  return NULL;
}

static ncclResult_t finish_link(const struct nccl_link *link) {
  ncclResult_t said = ncclInProgress;
  while (said == ncclInProgress) {
    const ncclResult_t result = nccl.ncclCommGetAsyncError(link->comm, &said);
    if (result != ncclSuccess) return result;
    if (said == ncclInProgress) usleep(PAUSE);
  }
  return said;
}

/* All are finished before the first is destroyed, which would wait for the others. */
static void *finish_all(void *context) {
  const struct nccl_group *group = context;
  choose_gpu(group);
  bool failed = false;
  for (int32_t i = 0; i < group->count; i++) {
    const ncclResult_t result = nccl.ncclCommFinalize(group->links[i].comm);
    failed |= result != ncclSuccess && result != ncclInProgress;
  }
  for (int32_t i = 0; i < group->count; i++) failed |= finish_link(&group->links[i]) != ncclSuccess;
  if (failed) return abort_all(context);
  for (int32_t i = 0; i < group->count; i++) nccl.ncclCommDestroy(group->links[i].comm);
  return NULL;
}

static void group_free(struct nccl_group *group) {
  for (int32_t i = 0; i < group->count; i++) {
    if (group->links[i].event != NULL) cudaEventDestroy(group->links[i].event);
    if (group->links[i].stream != NULL) cudaStreamDestroy(group->links[i].stream);
  }
  alloc_free(group);
}

/* Ends the group in one of these ways, on a thread: other processes may have to do the same, and may be gone or hang,
 * and then so do NCCL's calls (NVIDIA/nccl#549, #1013). What has not ended in time is left to the end of this process.
 */
static void end_group(void *(*way)(void *)) {
  struct nccl_group *group = communicator.group;
  communicator.group = NULL;
  forget_devices();
  if (group == NULL) return;
  pthread_t thread;
  if (thread_start(&thread, way, group) != 0) {
    way(group);
  } else {
    int64_t looks = ENDING * INT64_C(1000000) / PAUSE;
    while (pthread_tryjoin_np(thread, NULL) != 0) {
      if (looks-- == 0) {
        pthread_detach(thread);
        return;
      }
      usleep(PAUSE);
    }
  }
  group_free(group);
}

static void nccl_abort(void) {
  communicator.broken = true;
  end_group(abort_all);
}

static void nccl_close(void) {
  bool done = false;
  const bool well = nccl_state(&done) == SHARDRT_OK && done;
  end_group(well ? finish_all : abort_all);
  communicator.broken = false;
}

const struct accelerator_links nccl_links = {
    .open = nccl_open,
    .id = nccl_id,
    .join = nccl_join,
    .exchange = nccl_exchange,
    .state = nccl_state,
    .abort = nccl_abort,
    .close = nccl_close,
};
