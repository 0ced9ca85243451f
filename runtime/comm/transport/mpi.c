/* mpi.c - the job of many processes, over MPI. The one file that includes mpi.h.
 *
 * Gatherings, messages and notes each go over a communicator of their own. A note is sent from memory that belongs to
 * its receiver's place in `peers`, and not touched until MPI has let go of it: a receiver that has stopped holds up its
 * own notes and nobody else. */
#include "platform/comm.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/transport/launcher.h"
#include "comm/transport/openmpi.h"

enum { NOTES_UNDER_WAY = 4, NOTE_TAG = 1 };

struct mpi_peer {
  MPI_Request requests[NOTES_UNDER_WAY];
  struct comm_note notes[NOTES_UNDER_WAY];
};

struct comm_endpoint {
  MPI_Comm work, messages, notes;
  MPI_Request request; /* of the gathering under way */
  MPI_Datatype type;   /* what it receives, or MPI_DATATYPE_NULL */
  int count;
  struct mpi_peer *peers;
  int32_t *sent;    /* notes, to each process */
  int32_t received; /* notes, from all */
  /* By request. */
  MPI_Request under_way[COMM_REQUESTS];
  size_t expected[COMM_REQUESTS]; /* bytes of a message that is to come; 0 where one is sent */
};

/* Of the process: MPI begins and ends once in it, whatever jobs there are meanwhile. */
static struct {
  int endpoints; /* that are open */
  bool is_lost;  /* one was abandoned: MPI's end would wait for what nobody does */
} process;

static int mpi_error(const char *doing, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return error_set(SHARDRT_ECOMM, "%s: %s", doing, text);
}

static bool mpi_is_openmpi(void) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  return MPI_Get_library_version(version, &length) == MPI_SUCCESS && strncmp(version, "Open MPI", 8) == 0;
}

static bool mpi_is_reachable(void) {
  return !mpi_is_openmpi() || openmpi_is_reachable();
}

/* How many processes of the job are on this host. */
static int mpi_count_here(int *here) {
  MPI_Comm host;
  int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Comm_size(host, here);
  MPI_Comm_free(&host);
  return code;
}

static int mpi_join(struct comm_endpoint *endpoint, struct comm_place *place) {
  int rank, size, here = 1;
  int code = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &endpoint->work);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &endpoint->messages);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &endpoint->notes);
  if (code == MPI_SUCCESS) code = mpi_count_here(&here);
  if (code != MPI_SUCCESS) return mpi_error("joining the job", code);
  MPI_Comm_set_errhandler(endpoint->work, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(endpoint->messages, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(endpoint->notes, MPI_ERRORS_RETURN);
  for (int i = 0; i < COMM_REQUESTS; i++) endpoint->under_way[i] = MPI_REQUEST_NULL;
  endpoint->count = size;
  *place = (struct comm_place){
      .index = rank, .count = size, .here = here, .is_bound_by_default = openmpi_is_bound_by_default()};
  return SHARDRT_OK;
}

static int mpi_without_notes(struct comm_endpoint *endpoint) {
  alloc_free(endpoint->peers);
  alloc_free(endpoint->sent);
  endpoint->peers = NULL;
  endpoint->sent = NULL;
  return ALLOC_FAILED;
}

/* At the end of the program, where this process began MPI. */
static void mpi_end(void) {
  if (process.endpoints == 0 && !process.is_lost) MPI_Finalize();
}

/* Begins MPI, unless that was done in this process. */
static int mpi_begin(void) {
  int has_begun = 0, has_ended = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&has_begun);
  MPI_Finalized(&has_ended);
  if (has_ended) return error_set(SHARDRT_ECOMM, "MPI has ended in this process, and cannot begin again");
  if (has_begun) {
    MPI_Query_thread(&provided);
  } else {
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    openmpi_choose_copies();
    openmpi_choose_routes();
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS) return mpi_error("MPI_Init", code);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    atexit(mpi_end); /* where there is no room for it, MPI ends with the process */
  }
  if (provided >= MPI_THREAD_FUNNELED) return SHARDRT_OK;
  return error_set(SHARDRT_ECOMM, "this MPI cannot be used by a program with threads (MPI_THREAD_FUNNELED)");
}

static int mpi_fill(struct comm_endpoint *endpoint, struct comm_place *place) {
  int code = mpi_join(endpoint, place);
  if (code < 0) return code;
  size_t count = (size_t)endpoint->count;
  endpoint->peers = alloc_array(count, sizeof *endpoint->peers);
  endpoint->sent = alloc_zeros(count, sizeof *endpoint->sent);
  if (endpoint->peers == NULL || endpoint->sent == NULL) return mpi_without_notes(endpoint);
  for (size_t p = 0; p < count; p++)
    for (int i = 0; i < NOTES_UNDER_WAY; i++) endpoint->peers[p].requests[i] = MPI_REQUEST_NULL;
  return SHARDRT_OK;
}

static int mpi_open(struct comm_place *place, struct comm_endpoint **out) {
  int code = mpi_begin();
  if (code < 0) return code;
  struct comm_endpoint *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *made = (struct comm_endpoint){.request = MPI_REQUEST_NULL, .type = MPI_DATATYPE_NULL};
  code = mpi_fill(made, place);
  if (code < 0) { /* its communicators stay: to free them takes all processes */
    process.is_lost = true;
    alloc_free(made);
    return code;
  }
  process.endpoints++;
  *out = made;
  return SHARDRT_OK;
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
    peer->notes[i] = *note;
    if (MPI_Isend(&peer->notes[i], (int)sizeof *note, MPI_BYTE, to, NOTE_TAG, endpoint->notes, &peer->requests[i]) ==
        MPI_SUCCESS)
      endpoint->sent[to]++;
    return;
  }
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

static __attribute__((noreturn)) void mpi_kill(struct comm_endpoint *endpoint, int status) {
  (void)endpoint;
  launcher_end();
  openmpi_end_quietly(status);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

/* Takes the notes that are still on their way here, and waits for those that left: MPI must not end with any. Every
 * process is about to close, and sends none any more. */
static int mpi_receive_last_notes(struct comm_endpoint *endpoint) {
  int32_t expected = 0, from;
  struct comm_note note;
  int code = MPI_Reduce_scatter_block(endpoint->sent, &expected, 1, MPI_INT32_T, MPI_SUM, endpoint->work);
  while (code == MPI_SUCCESS && endpoint->received < expected)
    if (!mpi_receive_note(endpoint, &from, &note)) sched_yield();
  for (int p = 0; p < endpoint->count; p++)
    for (int gone = 0; code == MPI_SUCCESS && !gone;)
      code = MPI_Testall(NOTES_UNDER_WAY, endpoint->peers[p].requests, &gone, MPI_STATUSES_IGNORE);
  return code;
}

static int mpi_close(struct comm_endpoint *endpoint) {
  MPI_Comm *all[] = {&endpoint->work, &endpoint->messages, &endpoint->notes};
  int code = endpoint->count > 1 ? mpi_receive_last_notes(endpoint) : MPI_SUCCESS;
  for (size_t i = 0; code == MPI_SUCCESS && i < sizeof all / sizeof *all; i++) code = MPI_Comm_free(all[i]);
  process.endpoints--;
  if (code != MPI_SUCCESS) {
    process.is_lost = true; /* the notes, too: MPI may still use them */
    return mpi_error("leaving the job", code);
  }
  alloc_free(endpoint->peers);
  alloc_free(endpoint->sent);
  alloc_free(endpoint);
  return SHARDRT_OK;
}

static void mpi_abandon(struct comm_endpoint *endpoint) {
  (void)endpoint; /* MPI may still use what it has */
  process.endpoints--;
  process.is_lost = true;
}

const struct comm_transport comm_mpi = {
    .name = "mpi",
    .is_reachable = mpi_is_reachable,
    .open = mpi_open,
    .gather = mpi_gather,
    .test = mpi_test,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .testsome = mpi_testsome,
    .send_note = mpi_send_note,
    .receive_note = mpi_receive_note,
    .kill = mpi_kill,
    .close = mpi_close,
    .abandon = mpi_abandon,
};
