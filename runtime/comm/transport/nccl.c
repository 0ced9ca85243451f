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
  X(ncclCommSplit)                                                                                                     \
  X(ncclCommGetAsyncError)                                                                                             \
  X(ncclCommFinalize)                                                                                                  \
  X(ncclCommDestroy)                                                                                                   \
  X(ncclCommAbort)                                                                                                     \
  X(ncclGroupStart)                                                                                                    \
  X(ncclGroupEnd)                                                                                                      \
  X(ncclSend)                                                                                                          \
  X(ncclRecv)                                                                                                          \
  X(ncclAllReduce)                                                                                                     \
  X(ncclReduceScatter)                                                                                                 \
  X(ncclAllGather)                                                                                                     \
  X(ncclBroadcast)

static struct {
  void *library; /* NULL: not opened */
#define MEMBER(name) __typeof__(name) *name;
  FUNCTIONS(MEMBER)
#undef MEMBER
} nccl;

/* A GPU of this process. */
struct nccl_link {
  int32_t device;      /* the first that is it */
  int gpu;             /* CUDA's number */
  int32_t rank;        /* among the job's GPUs */
  int32_t line;        /* of a set of lines: which one it is of; -1: of none */
  ncclComm_t comm;     /* NULL: not begun, or gone; of a set, not made yet, or in no line */
  cudaStream_t stream; /* one for all communicators of the GPU: what goes over them has one order everywhere */
  cudaEvent_t event;   /* that one stream has come to where another one waits for it; recorded again and again */
};

/* Those of this process. */
struct nccl_group {
  struct nccl_group *next; /* while they are ended: what is ended with it */
  int32_t count;
  bool is_lines; /* a set of lines, which uses the streams and events of the job's group */
  struct nccl_link links[];
};

/* One for the process, as the GPUs and their streams are, not one for each job: of two communicators of a GPU whose
 * messages are under way at once, every process must start them in one order (NCCL's User Guide, "Using multiple NCCL
 * communicators concurrently"), and two jobs have no order in common. reshard/exchange/peer_path.c says whose it
 * is. */
static struct {
  struct nccl_group *group;                       /* NULL: not joined */
  struct nccl_group *sets[ACCELERATOR_LINE_SETS]; /* of lines; NULL: it was not made */
  int32_t ranks;                                  /* of the job */
  bool broken;                                    /* a call failed, or all was aborted: nothing can be sent anymore */
  const char *what;                               /* was started last */
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

int nccl_library(struct accelerator_library *out) {
  const int code = nccl_open();
  int version = 0;
  if (code < 0) return code;
  if (nccl.ncclGetVersion(&version) == ncclSuccess)
    snprintf(out->version, sizeof out->version, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  out->within = *(void **)&nccl.ncclGetVersion; /* as POSIX says for functions */
  return SHARDRT_OK;
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
static struct nccl_link *find_link(struct nccl_group *group, int32_t device) {
  int gpu = -1;
  if (cuda_use(communicator.what, device) < 0 ||
      cuda_check(cudaGetDevice(&gpu), "cudaGetDevice", communicator.what, device) < 0)
    return NULL;
  for (int32_t i = 0; group != NULL && i < group->count; i++)
    if (group->links[i].gpu == gpu && (!group->is_lines || group->links[i].line >= 0)) return &group->links[i];
  error_set(SHARDRT_EDEVICE, "the GPU of device %d has not joined those of the job, or is in no line of them",
            cuda_id(device));
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

static int refuse_unfinished(void) {
  return error_set(SHARDRT_EINVAL, "messages are being put on the way still: `state` says when that is done");
}

/* Makes room to list the devices that take part in so many messages. */
static int list_devices(int64_t count) {
  communicator.waiting = 0;
  communicator.after = alloc_array((size_t)count, sizeof *communicator.after);
  return communicator.after == NULL ? ALLOC_FAILED : SHARDRT_OK;
}

/* Lists a device, where it is not, and has its link follow it. */
static int list_device(int32_t device) {
  if (is_listed(device)) return SHARDRT_OK;
  const struct nccl_link *link = find_link(communicator.group, device);
  communicator.after[communicator.waiting++] = device;
  return link == NULL ? SHARDRT_EDEVICE : link_follow(link, device);
}

static int put_message(const struct accelerator_message *m) {
  const struct nccl_link *link = find_link(communicator.group, m->device);
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
  if (communicator.after != NULL) return refuse_unfinished();
  communicator.what = "an exchange between GPUs";
  int code = count == 0 ? SHARDRT_OK : list_devices(count);
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++)
    if (messages[i].bytes > 0) code = list_device(messages[i].device);
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

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void end_groups(struct nccl_group *group, void *(*way)(void *));
static void *finish_all(void *context);

static int link_divide(struct nccl_link *link, const struct nccl_link *of, int32_t place) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const int color = link->line < 0 ? NCCL_SPLIT_NOCOLOR : link->line;
  return check_nccl(nccl.ncclCommSplit(of->comm, color, place, &link->comm, &config), "ncclCommSplit", of);
}

/* Until all of a set are made, state asks the communicators that they are made of. It is one thread that makes and uses
 * all of them: where others use what was split off, the process may end (NVIDIA/nccl#1605). */
static int nccl_divide(int32_t set, const int32_t *lines, const int32_t *places) {
  if (communicator.broken) return refuse_broken();
  if (communicator.after != NULL) return refuse_unfinished();
  const struct nccl_group *all = communicator.group;
  end_groups(communicator.sets[set], finish_all);
  communicator.sets[set] = NULL;
  communicator.what = "dividing the job's GPUs into lines";
  struct nccl_group *group = alloc_zeros(1, sizeof *group + (size_t)all->count * sizeof *group->links);
  if (group == NULL) return ALLOC_FAILED;
  *group = (struct nccl_group){.count = all->count, .is_lines = true};
  for (int32_t i = 0; i < all->count; i++) {
    group->links[i] = all->links[i];
    group->links[i].comm = NULL;
    group->links[i].line = lines[all->links[i].device];
  }
  communicator.sets[set] = group;
  int code = check_nccl(nccl.ncclGroupStart(), "ncclGroupStart", NULL);
  if (code < 0) return code;
  for (int32_t i = 0; i < all->count && code == SHARDRT_OK; i++)
    code = link_divide(&group->links[i], &all->links[i], places[all->links[i].device]);
  const ncclResult_t ended = nccl.ncclGroupEnd();
  return code < 0 ? code : check_nccl(ended, "ncclGroupEnd", NULL);
}

/* What accelerator_adds names. */
static ncclDataType_t type_of(int32_t dtype) {
  switch (dtype) {
  case SHARDRT_INT8:
    return ncclInt8;
  case SHARDRT_INT32:
    return ncclInt32;
  case SHARDRT_INT64:
    return ncclInt64;
  case SHARDRT_UINT32:
    return ncclUint32;
  case SHARDRT_UINT64:
    return ncclUint64;
  case SHARDRT_FLOAT32:
    return ncclFloat32;
  case SHARDRT_FLOAT64:
    return ncclFloat64;
  default:
    return ncclUint8;
  }
}

/* What only moves goes as bytes, whatever its dtype. */
static int put_work(const struct accelerator_line_work *w, struct nccl_group *group) {
  const struct nccl_link *link = find_link(group, w->device);
  if (link == NULL) return SHARDRT_EDEVICE;
  const size_t count = (size_t)w->elements, bytes = count * shardrt_dtype_size(w->dtype);
  const ncclDataType_t type = type_of(w->dtype);
  switch (w->kind) {
  case ACCELERATOR_SUM_ALL:
    return check_nccl(nccl.ncclAllReduce(w->from, w->to, count, type, ncclSum, link->comm, link->stream),
                      "ncclAllReduce", link);
  case ACCELERATOR_SUM_PART:
    return check_nccl(nccl.ncclReduceScatter(w->from, w->to, count, type, ncclSum, link->comm, link->stream),
                      "ncclReduceScatter", link);
  case ACCELERATOR_GATHER:
    return check_nccl(nccl.ncclAllGather(w->from, w->to, bytes, ncclUint8, link->comm, link->stream), "ncclAllGather",
                      link);
  default:
    return check_nccl(nccl.ncclBroadcast(w->from, w->to, bytes, ncclUint8, w->root, link->comm, link->stream),
                      "ncclBroadcast", link);
  }
}

static int nccl_together(int32_t set, int64_t count, const struct accelerator_line_work *works) {
  if (communicator.broken) return refuse_broken();
  if (communicator.after != NULL) return refuse_unfinished();
  communicator.what = "what GPUs do together";
  if (count == 0) return SHARDRT_OK;
  struct nccl_group *group = set == ACCELERATOR_JOB_LINE ? communicator.group : communicator.sets[set];
  int code = list_devices(count);
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) code = list_device(works[i].device);
  if (code == SHARDRT_OK) {
    code = check_nccl(nccl.ncclGroupStart(), "ncclGroupStart", NULL);
    if (code < 0) return code;
    for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) code = put_work(&works[i], group);
    const ncclResult_t ended = nccl.ncclGroupEnd();
    if (code == SHARDRT_OK) code = check_nccl(ended, "ncclGroupEnd", NULL);
  }
  if (code < 0) communicator.broken = true;
  return code;
}

/* ---- how far it is ----------------------------------------------------------------------------------------------- */

/* The group is on the links: MAIN of the devices goes on after it. */
static int let_devices_go_on(void) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < communicator.waiting && code == SHARDRT_OK; i++) {
    const struct nccl_link *link = find_link(communicator.group, communicator.after[i]);
    code = link == NULL ? SHARDRT_EDEVICE : link_lead(link, communicator.after[i]);
  }
  forget_devices();
  return code;
}

/* Whether a group's communicators are at rest. */
static int look_at(const struct nccl_group *group, bool *rests) {
  for (int32_t i = 0; group != NULL && i < group->count; i++) {
    const struct nccl_link *link = &group->links[i];
    if (link->comm == NULL) {
      *rests &= group->is_lines && link->line < 0;
      continue;
    }
    ncclResult_t said = ncclSuccess;
    int code = check_nccl(nccl.ncclCommGetAsyncError(link->comm, &said), "ncclCommGetAsyncError", link);
    if (code == SHARDRT_OK) code = check_nccl(said, "ncclCommGetAsyncError", link);
    if (code < 0) return code;
    *rests &= said == ncclSuccess;
  }
  return SHARDRT_OK;
}

/* NCCL sets the communicators of a set while those that they are made of are not at rest: until then, no look at them.
 */
static int nccl_state(bool *done) {
  *done = false;
  if (communicator.broken) return refuse_broken();
  bool rests = true;
  int code = look_at(communicator.group, &rests);
  for (int32_t set = 0; set < ACCELERATOR_LINE_SETS && code == SHARDRT_OK && rests; set++)
    code = look_at(communicator.sets[set], &rests);
  if (code < 0 || !rests) return code;
  *done = true;
  return let_devices_go_on();
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

/* NCCL goes back to the GPU that the thread has chosen, which would become the first one, be that another process's. */
static void choose_gpu(const struct nccl_group *group) {
  (void)cuda_use("links between GPUs are ended", group->links[0].device);
}

static void *abort_all(void *context) {
  choose_gpu(context);
  for (const struct nccl_group *group = context; group != NULL; group = group->next)
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
  choose_gpu(context);
  bool failed = false;
  for (const struct nccl_group *group = context; group != NULL; group = group->next) {
    for (int32_t i = 0; i < group->count; i++) {
      if (group->links[i].comm == NULL) continue;
      const ncclResult_t result = nccl.ncclCommFinalize(group->links[i].comm);
      failed |= result != ncclSuccess && result != ncclInProgress;
    }
  }
  for (const struct nccl_group *group = context; group != NULL; group = group->next)
    for (int32_t i = 0; i < group->count; i++)
      failed |= group->links[i].comm != NULL && finish_link(&group->links[i]) != ncclSuccess;
  if (failed) return abort_all(context);
  for (const struct nccl_group *group = context; group != NULL; group = group->next)
    for (int32_t i = 0; i < group->count; i++)
      if (group->links[i].comm != NULL) nccl.ncclCommDestroy(group->links[i].comm);
  return NULL;
}

static void groups_free(struct nccl_group *group) {
  while (group != NULL) {
    struct nccl_group *next = group->next;
    for (int32_t i = 0; i < group->count && !group->is_lines; i++) {
      if (group->links[i].event != NULL) cudaEventDestroy(group->links[i].event);
      if (group->links[i].stream != NULL) cudaStreamDestroy(group->links[i].stream);
    }
    alloc_free(group);
    group = next;
  }
}

/* Ends the group, and its next ones, in one of these ways, on a thread: other processes may have to do the same, and
 * may be gone or hang, and then so do NCCL's calls (NVIDIA/nccl#549, #1013). What has not ended in time is left to the
 * end of this process. */
static void end_groups(struct nccl_group *group, void *(*way)(void *)) {
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
  groups_free(group);
}

/* Lines first, whose streams are those of all. */
static void end_all(void *(*way)(void *)) {
  struct nccl_group *first = communicator.group;
  for (int32_t set = 0; set < ACCELERATOR_LINE_SETS; set++) {
    if (communicator.sets[set] == NULL) continue;
    communicator.sets[set]->next = first;
    first = communicator.sets[set];
    communicator.sets[set] = NULL;
  }
  communicator.group = NULL;
  forget_devices();
  end_groups(first, way);
}

static void nccl_abort(void) {
  communicator.broken = true;
  end_all(abort_all);
}

static void nccl_close(void) {
  bool done = false;
  const bool well = nccl_state(&done) == SHARDRT_OK && done;
  end_all(well ? finish_all : abort_all);
  communicator.broken = false;
}

const struct accelerator_links nccl_links = {
    .open = nccl_open,
    .id = nccl_id,
    .join = nccl_join,
    .exchange = nccl_exchange,
    .divide = nccl_divide,
    .together = nccl_together,
    .state = nccl_state,
    .abort = nccl_abort,
    .close = nccl_close,
};
