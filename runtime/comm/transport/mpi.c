// build: MPI plug-in
/* mpi.c - the job of many processes, over MPI.
 *
 * It is compiled for each MPI whose headers are there, into a plug-in of that MPI's own: with openmpi.c for OpenMPI,
 * with mpich.c for MPICH and all that share its binary interface.
 *
 * Gatherings, messages and notes each go over a communicator of their own. A note is sent from memory that belongs to
 * its receiver's place in `peers`, and not touched until MPI has let go of it: a receiver that has stopped holds up its
 * own notes and nobody else. All get the last note from one place.
 *
 * MPI may be the program's, and the communicator, too. Then nothing of it is changed: error handlers are set on our
 * duplicates alone, MPI is not ended, and neither are other processes. A job that is abandoned leaves its duplicates
 * for good, as to free them takes all of its processes, and what is under way on them comes into no other job's way. */
#include "platform/comm.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpi.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/transport/launcher.h"
#include "comm/transport/mpi_error.h"
#include "comm/transport/mpi_joining.h"
#include "comm/transport/mpi_library.h"
#include "platform/opener.h"

enum { NOTES_UNDER_WAY = 4, NOTE_TAG = 1 };
/* What is sent of all notes but the last, as there are many and these say no more. */
enum { SHORT_NOTE = offsetof(struct comm_note, process) };
#define LAST_NOTE_SECONDS 0.2 /* for MPI to take the last notes; who has stopped is not waited for */

struct mpi_peer {
  MPI_Request requests[NOTES_UNDER_WAY];
  char notes[NOTES_UNDER_WAY][SHORT_NOTE];
  MPI_Request last_request; /* of the last note */
};

struct comm_endpoint {
  MPI_Comm work, messages, notes;
  MPI_Request request; /* of the gathering under way */
  MPI_Datatype type;   /* what it receives, or MPI_DATATYPE_NULL */
  int count;
  bool is_ours; /* all processes that MPI has, which was begun here: they are ours to end */
  struct mpi_peer *peers;
  int32_t *sent;    /* notes, to each process */
  int32_t received; /* notes, from all, */
  int32_t to_come;  /* and how many these will have been when the job is closed */
  double timeout;   /* seconds that the others have to come to that end */
  struct comm_note last_note;
  /* By request. */
  MPI_Request under_way[COMM_REQUESTS];
  size_t expected[COMM_REQUESTS]; /* bytes of a message that is to come; 0 where one is sent */
  /* Of an abandoned job. */
  void *room;
  struct comm_endpoint *next; /* in process.left */
};

/* Of the process: MPI begins and ends once in it, whatever jobs there are meanwhile. */
static struct {
  bool is_ours;  /* MPI was begun here, and is ended here, */
  pid_t process; /* in this process, which a fork is not */
  int endpoints; /* that are open */
  bool is_lost;  /* one was abandoned, and all processes met nowhere since: MPI's end would wait for what nobody does */
  struct comm_endpoint *left; /* those that were abandoned, with something under way */
} process;

/* What the names of MPI are bound to is what comes first in the process: another MPI than this was compiled for, where
 * the program has that. */
static bool mpi_is_another(void) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  const bool is_openmpi =
      MPI_Get_library_version(version, &length) == MPI_SUCCESS && strncmp(version, "Open MPI", 8) == 0;
  return is_openmpi != mpi_library.is_openmpi;
}

static bool mpi_is_reachable(void) {
  return !mpi_is_another() && mpi_library.is_reachable();
}

static int mpi_without_notes(struct comm_endpoint *endpoint) {
  alloc_free(endpoint->peers);
  alloc_free(endpoint->sent);
  endpoint->peers = NULL;
  endpoint->sent = NULL;
  return ALLOC_FAILED;
}

static bool mpi_has_ended(void) {
  int has_ended = 0;
  return MPI_Finalized(&has_ended) == MPI_SUCCESS && has_ended;
}

/* At the end of the program, where this process began MPI. */
static void mpi_end(void) {
  if (process.process != getpid() || mpi_has_ended()) return; /* a fork; or the program ended it */
  if (process.endpoints == 0 && !process.is_lost && !mpi_joining_is_left()) MPI_Finalize();
}

static int mpi_init(int *provided) {
  mpi_library.prepare();
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, provided);
  if (code != MPI_SUCCESS) return mpi_error("MPI_Init", code);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  process.is_ours = true;
  process.process = getpid();
  atexit(mpi_end); /* where there is no room for it, MPI ends with the process */
  return SHARDRT_OK;
}

/* Begins MPI, unless that was done in this process; and what it says of threads must do. */
static int mpi_begin(void) {
  int has_begun = 0, has_ended = 0, provided = MPI_THREAD_SINGLE, is_main = 0;
  MPI_Initialized(&has_begun);
  MPI_Finalized(&has_ended);
  if (has_ended) return error_set(SHARDRT_ECOMM, "MPI has ended in this process, and cannot begin again");
  int code = has_begun ? MPI_Query_thread(&provided) : mpi_init(&provided);
  if (code != SHARDRT_OK) return code < 0 ? code : mpi_error("MPI_Query_thread", code);
  if (provided < MPI_THREAD_FUNNELED && process.is_ours)
    return error_set(SHARDRT_ECOMM, "this MPI cannot be used by a program with threads (MPI_THREAD_FUNNELED)");
  if (provided < MPI_THREAD_FUNNELED)
    return error_set(SHARDRT_ECOMM, "the program began MPI for a single thread (MPI_THREAD_SINGLE, as MPI_Init does), "
                                    "and a loader has threads: MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, "
                                    "&provided) allows them");
  if (provided == MPI_THREAD_FUNNELED && MPI_Is_thread_main(&is_main) == MPI_SUCCESS && !is_main)
    return error_set(SHARDRT_ECOMM,
                     "MPI was begun with MPI_THREAD_FUNNELED on another thread: the job is that thread's to "
                     "join, or any one's with MPI_THREAD_SERIALIZED");
  return SHARDRT_OK;
}

/* The communicator that the options ask for. */
static int mpi_communicator(const shardrt_options *o, MPI_Comm *out) {
  *out = MPI_COMM_WORLD;
  int has_begun = 0, is_inter = 0;
  if (mpi_is_another())
    return error_set(SHARDRT_ECOMM, "this process has two MPIs, OpenMPI and another, whose functions have the same "
                                    "names; a program can be linked with one of them");
  MPI_Initialized(&has_begun);
  if (o->mpi_comm != NULL && !has_begun)
    return error_set(SHARDRT_EINVAL, "mpi_comm is set, but the program has not begun MPI");
  int code = mpi_begin();
  if (code < 0 || o->mpi_comm == NULL) return code;
  *out = *(const MPI_Comm *)o->mpi_comm;
  if (*out == MPI_COMM_NULL)
    return error_set(SHARDRT_EINVAL,
                     "mpi_comm is MPI_COMM_NULL: this process is not in the communicator, and only those "
                     "that are join the job");
  code = MPI_Comm_test_inter(*out, &is_inter);
  if (code != MPI_SUCCESS) return mpi_error("mpi_comm", code);
  return is_inter ? error_set(SHARDRT_EINVAL, "mpi_comm is an intercommunicator; a job needs one group of processes")
                  : SHARDRT_OK;
}

/* Memory for notes, of and to each. */
static int mpi_make_peers(struct comm_endpoint *endpoint) {
  size_t count = (size_t)endpoint->count;
  endpoint->peers = alloc_array(count, sizeof *endpoint->peers);
  endpoint->sent = alloc_zeros(count, sizeof *endpoint->sent);
  if (endpoint->peers == NULL || endpoint->sent == NULL) return mpi_without_notes(endpoint);
  for (size_t p = 0; p < count; p++) {
    for (int i = 0; i < NOTES_UNDER_WAY; i++) endpoint->peers[p].requests[i] = MPI_REQUEST_NULL;
    endpoint->peers[p].last_request = MPI_REQUEST_NULL;
  }
  return SHARDRT_OK;
}

/* ---- what abandoned jobs left behind ------------------------------------------------------------------------------
 */

static bool mpi_has_sent_last_notes(struct comm_endpoint *endpoint) {
  int gone = 1;
  for (int p = 0; p < endpoint->count && gone; p++)
    if (MPI_Test(&endpoint->peers[p].last_request, &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS) gone = 0;
  return gone;
}

/* Whether MPI is done with all that was under way there. */
static bool mpi_is_quiet(struct comm_endpoint *endpoint) {
  int gone = 0;
  bool is_quiet = MPI_Test(&endpoint->request, &gone, MPI_STATUS_IGNORE) == MPI_SUCCESS && gone;
  is_quiet =
      MPI_Testall(COMM_REQUESTS, endpoint->under_way, &gone, MPI_STATUSES_IGNORE) == MPI_SUCCESS && gone && is_quiet;
  for (int p = 0; p < endpoint->count && is_quiet; p++)
    is_quiet =
        MPI_Testall(NOTES_UNDER_WAY, endpoint->peers[p].requests, &gone, MPI_STATUSES_IGNORE) == MPI_SUCCESS && gone;
  return is_quiet && mpi_has_sent_last_notes(endpoint);
}

static void mpi_free_endpoint(struct comm_endpoint *endpoint) {
  if (endpoint->type != MPI_DATATYPE_NULL) MPI_Type_free(&endpoint->type);
  alloc_free(endpoint->room);
  alloc_free(endpoint->peers);
  alloc_free(endpoint->sent);
  alloc_free(endpoint);
}

/* Gives back the memory of what has ended since. */
static void mpi_sweep(void) {
  for (struct comm_endpoint **at = &process.left; *at != NULL;) {
    struct comm_endpoint *endpoint = *at;
    if (!mpi_is_quiet(endpoint)) {
      at = &endpoint->next;
      continue;
    }
    *at = endpoint->next;
    mpi_free_endpoint(endpoint);
  }
}

static void mpi_leave_behind(struct comm_endpoint *endpoint, void *room) {
  process.endpoints--;
  process.is_lost = true;
  endpoint->room = room;
  endpoint->next = process.left;
  process.left = endpoint;
  if (mpi_has_ended()) return;            /* MPI can be asked nothing any more */
  for (int i = 0; i < COMM_REQUESTS; i++) /* sends cannot be cancelled */
    if (endpoint->under_way[i] != MPI_REQUEST_NULL && endpoint->expected[i] != 0) MPI_Cancel(&endpoint->under_way[i]);
  mpi_sweep();
}

/* ---- joining ------------------------------------------------------------------------------------------------------
 */

/* The part of this process, which has joined the others. */
static int mpi_enter(const shardrt_options *options, const MPI_Comm made[MPI_DUPLICATES], int count,
                     struct comm_endpoint **out) {
  struct comm_endpoint *endpoint = alloc_zeros(1, sizeof *endpoint);
  if (endpoint == NULL) return ALLOC_FAILED;
  *endpoint = (struct comm_endpoint){.work = made[0],
                                     .messages = made[1],
                                     .notes = made[2],
                                     .request = MPI_REQUEST_NULL,
                                     .type = MPI_DATATYPE_NULL,
                                     .count = count,
                                     .is_ours = process.is_ours && options->mpi_comm == NULL,
                                     .timeout = options->timeout};
  for (int i = 0; i < COMM_REQUESTS; i++) endpoint->under_way[i] = MPI_REQUEST_NULL;
  const int code = mpi_make_peers(endpoint);
  if (code < 0) {
    alloc_free(endpoint);
    return code;
  }
  *out = endpoint;
  return SHARDRT_OK;
}

static int mpi_open(const shardrt_options *options, struct comm_place *place, struct comm_endpoint **out,
                    bool *is_open) {
  MPI_Comm all, made[MPI_DUPLICATES];
  int rank = 0, count = 0;
  int code = mpi_communicator(options, &all);
  if (code == SHARDRT_OK) code = mpi_joining_go_on(all, is_open, made, &rank, &count);
  if (code < 0 || !*is_open) return code;
  mpi_sweep();
  code = mpi_enter(options, made, count, out);
  if (code < 0) { /* the communicators stay: to free them takes all processes */
    process.is_lost = true;
    return code;
  }
  *place = (struct comm_place){.index = rank,
                               .count = count,
                               .are_ours = (*out)->is_ours,
                               .is_bound_by_default = process.is_ours && mpi_library.is_bound_by_default()};
  process.endpoints++;
  return SHARDRT_OK;
}

static int mpi_report_absent(const shardrt_options *options) {
  MPI_Comm all;
  const int code = mpi_communicator(options, &all);
  return code < 0 ? code : mpi_joining_report(all, options->timeout);
}

/* `bytes` bytes that stand `stride` bytes apart, so that no count or place grows with the whole. */
static int mpi_piece_type(struct comm_endpoint *endpoint, size_t bytes, size_t stride) {
  MPI_Datatype piece;
  int code = MPI_Type_contiguous((int)bytes, MPI_BYTE, &piece);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Type_create_resized(piece, 0, (MPI_Aint)stride, &endpoint->type);
  MPI_Type_free(&piece);
  return code == MPI_SUCCESS ? MPI_Type_commit(&endpoint->type) : code;
}

static int mpi_gather(struct comm_endpoint *endpoint, const void *mine, size_t bytes, void *all, size_t stride) {
  assert(endpoint->request == MPI_REQUEST_NULL && bytes <= COMM_PIECE && stride >= bytes);
  if (mpi_has_ended()) return error_set(SHARDRT_ECOMM, "the program ended MPI before it left the job");
  int code;
  if (stride == bytes) {
    code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, endpoint->work, &endpoint->request);
  } else {
    code = mpi_piece_type(endpoint, bytes, stride);
    if (code == MPI_SUCCESS)
      code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, 1, endpoint->type, endpoint->work, &endpoint->request);
  }
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("gathering", code);
}

static int mpi_fold(struct comm_endpoint *endpoint, const uint64_t *mine, int32_t count, uint64_t *all) {
  assert(endpoint->request == MPI_REQUEST_NULL && count > 0 && count <= COMM_FOLD);
  if (mpi_has_ended()) return error_set(SHARDRT_ECOMM, "the program ended MPI before it left the job");
  const int code = MPI_Iallreduce(mine, all, count, MPI_UINT64_T, MPI_BAND, endpoint->work, &endpoint->request);
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("gathering", code);
}

static int mpi_test(struct comm_endpoint *endpoint, bool *done) {
  int flag = 0;
  int code = MPI_Test(&endpoint->request, &flag, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) return mpi_error("gathering", code);
  if (flag && endpoint->type != MPI_DATATYPE_NULL) MPI_Type_free(&endpoint->type);
  *done = flag != 0;
  return SHARDRT_OK;
}

/* A synchronous send: one that MPI could keep for the receiver would let a quick sender fill the receiver's memory. */
static int mpi_isend(struct comm_endpoint *endpoint, int32_t request, int32_t to, int32_t tag, const void *data,
                     size_t bytes) {
  assert(request >= 0 && request < COMM_REQUESTS && bytes > 0 && bytes <= COMM_PIECE);
  assert(endpoint->under_way[request] == MPI_REQUEST_NULL);
  endpoint->expected[request] = 0;
  int code = MPI_Issend(data, (int)bytes, MPI_BYTE, to, tag, endpoint->messages, &endpoint->under_way[request]);
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("sending", code);
}

static int mpi_irecv(struct comm_endpoint *endpoint, int32_t request, int32_t from, int32_t tag, void *data,
                     size_t bytes) {
  assert(request >= 0 && request < COMM_REQUESTS && bytes > 0 && bytes <= COMM_PIECE);
  assert(endpoint->under_way[request] == MPI_REQUEST_NULL);
  endpoint->expected[request] = bytes;
  int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, endpoint->messages, &endpoint->under_way[request]);
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("receiving", code);
}

static int mpi_testsome(struct comm_endpoint *endpoint, int32_t *requests, int32_t *count) {
  MPI_Status statuses[COMM_REQUESTS];
  int ended[COMM_REQUESTS], n = 0;
  int code = MPI_Testsome(COMM_REQUESTS, endpoint->under_way, &n, ended, statuses);
  *count = n == MPI_UNDEFINED ? 0 : n; /* none is under way */
  for (int i = 0; i < *count; i++) {
    if (code == MPI_ERR_IN_STATUS && statuses[i].MPI_ERROR != MPI_SUCCESS)
      return mpi_error("a message", statuses[i].MPI_ERROR);
    int bytes = 0;
    size_t expected = endpoint->expected[ended[i]];
    if (expected != 0) MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    if ((size_t)bytes != expected)
      return error_set(SHARDRT_ECOMM, "a message from process %d has %d bytes where %zu were expected",
                       statuses[i].MPI_SOURCE, bytes, expected);
    requests[i] = ended[i];
  }
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("messages", code);
}

static void mpi_send_note(struct comm_endpoint *endpoint, int32_t to, const struct comm_note *note) {
  if (endpoint->peers == NULL) return;
  struct mpi_peer *peer = &endpoint->peers[to];
  for (int i = 0; i < NOTES_UNDER_WAY; i++) {
    int sent = 0;
    if (MPI_Test(&peer->requests[i], &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS || !sent) continue;
    memcpy(peer->notes[i], note, SHORT_NOTE);
    if (MPI_Isend(peer->notes[i], SHORT_NOTE, MPI_BYTE, to, NOTE_TAG, endpoint->notes, &peer->requests[i]) ==
        MPI_SUCCESS)
      endpoint->sent[to]++;
    return;
  }
}

/* Some MPIs send what they have begun to send only while they are called. */
static void mpi_send_last_note(struct comm_endpoint *endpoint, const struct comm_note *note) {
  const double end = shardrt_clock() + LAST_NOTE_SECONDS;
  int self;
  if (endpoint->peers == NULL || mpi_has_ended() || MPI_Comm_rank(endpoint->notes, &self) != MPI_SUCCESS) return;
  endpoint->last_note = *note;
  for (int p = 0; p < endpoint->count; p++)
    if (p != self)
      MPI_Isend(&endpoint->last_note, (int)sizeof *note, MPI_BYTE, p, NOTE_TAG, endpoint->notes,
                &endpoint->peers[p].last_request);
  while (!mpi_has_sent_last_notes(endpoint) && shardrt_clock() < end) sched_yield();
}

static bool mpi_receive_note(struct comm_endpoint *endpoint, int32_t *from, struct comm_note *note) {
  int there = 0;
  MPI_Status status;
  if (endpoint->peers == NULL) return false;
  if (MPI_Iprobe(MPI_ANY_SOURCE, NOTE_TAG, endpoint->notes, &there, &status) != MPI_SUCCESS || !there) return false;
  *from = status.MPI_SOURCE;
  if (MPI_Recv(note, (int)sizeof *note, MPI_BYTE, status.MPI_SOURCE, NOTE_TAG, endpoint->notes, MPI_STATUS_IGNORE) !=
      MPI_SUCCESS)
    return false;
  endpoint->received++;
  return true;
}

/* Waits at most a second until the launcher has read what this process wrote: MPICH's kills at once, and 2 of 60 jobs
 * ended without a word of why. */
static void wait_until_read(int descriptor) {
  struct stat about;
  int unread = 0;
  if (fstat(descriptor, &about) != 0 || !S_ISFIFO(about.st_mode)) return;
  for (int i = 0; i < 1000 && ioctl(descriptor, FIONREAD, &unread) == 0 && unread > 0; i++) usleep(1000);
}

static __attribute__((noreturn)) void mpi_kill(struct comm_endpoint *endpoint, int status) {
  if (!endpoint->is_ours) _exit(status); /* the program's other processes are its own, and its launcher's */
  wait_until_read(STDOUT_FILENO);
  wait_until_read(STDERR_FILENO);
  launcher_end();
  mpi_library.end_quietly(status);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

/* Takes the notes that are still on their way here, and waits for those that left: MPI must not end with any. Every
 * process is about to close, and sends none any more, but one that had no patience to be met there, and left. */
static int mpi_receive_last_notes(struct comm_endpoint *endpoint) {
  const double end = shardrt_clock() + endpoint->timeout;
  int32_t from;
  struct comm_note note;
  int gone = 0;
  int code = MPI_Ireduce_scatter_block(endpoint->sent, &endpoint->to_come, 1, MPI_INT32_T, MPI_SUM, endpoint->work,
                                       &endpoint->request);
  while (code == MPI_SUCCESS && !gone && shardrt_clock() < end) {
    code = MPI_Test(&endpoint->request, &gone, MPI_STATUS_IGNORE);
    if (!gone && mpi_receive_note(endpoint, &from, &note) && note.kind == COMM_LEFT)
      return comm_report_left("the end of the job", &note);
    if (!gone) sched_yield();
  }
  while (code == MPI_SUCCESS && gone && endpoint->received < endpoint->to_come && shardrt_clock() < end)
    if (!mpi_receive_note(endpoint, &from, &note)) sched_yield();
  for (int p = 0; p < endpoint->count && gone; p++)
    for (gone = 0; code == MPI_SUCCESS && !gone && shardrt_clock() < end;)
      code = MPI_Testall(NOTES_UNDER_WAY, endpoint->peers[p].requests, &gone, MPI_STATUSES_IGNORE);
  if (code != MPI_SUCCESS) return mpi_error("leaving the job", code);
  if (gone && endpoint->received >= endpoint->to_come) return SHARDRT_OK;
  return error_set(SHARDRT_ETIMEOUT, "leaving the job: a process that came to its end went on with something else");
}

static int mpi_close(struct comm_endpoint *endpoint) {
  MPI_Comm *all[] = {&endpoint->work, &endpoint->messages, &endpoint->notes};
  int code = endpoint->count > 1 ? mpi_receive_last_notes(endpoint) : SHARDRT_OK;
  for (size_t i = 0; code == SHARDRT_OK && i < sizeof all / sizeof *all; i++) {
    const int freed = MPI_Comm_free(all[i]);
    if (freed != MPI_SUCCESS) code = mpi_error("leaving the job", freed);
  }
  if (code < 0) {
    mpi_leave_behind(endpoint, NULL); /* MPI may still use what it has */
    return code;
  }
  process.endpoints--;
  if (endpoint->is_ours) process.is_lost = false; /* all processes are there */
  mpi_free_endpoint(endpoint);
  mpi_sweep();
  return SHARDRT_OK;
}

static const struct comm_transport comm_mpi = {
    .version = COMM_VERSION,
    .name = "mpi",
    .has_notes = true,
    .is_reachable = mpi_is_reachable,
    .open = mpi_open,
    .report_absent = mpi_report_absent,
    .gather = mpi_gather,
    .fold = mpi_fold,
    .test = mpi_test,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .testsome = mpi_testsome,
    .send_note = mpi_send_note,
    .send_last_note = mpi_send_last_note,
    .receive_note = mpi_receive_note,
    .kill = mpi_kill,
    .close = mpi_close,
    .abandon = mpi_leave_behind,
};

const void *shardrt_mpi(const struct plugin_host *host) {
  opener_set(host);
  return &comm_mpi;
}
