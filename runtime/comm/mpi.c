/* mpi.c - the job of many processes, over MPI. The one file that includes mpi.h.
 *
 * Gatherings, messages and notes each go over a communicator of their own. A note is sent from memory that belongs to
 * its receiver's place in `peers`, and not touched until MPI has let go of it: a receiver that has stopped holds up its
 * own notes and nobody else. */
#include "comm/comm.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <mpi.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/launcher.h"

enum { NOTES_UNDER_WAY = 4, NOTE_TAG = 1 };

typedef struct mpi_peer {
  MPI_Request requests[NOTES_UNDER_WAY];
  comm_note notes[NOTES_UNDER_WAY];
} mpi_peer;

static struct {
  MPI_Comm work, messages, notes;
  MPI_Request request; /* of the gathering under way */
  MPI_Datatype type;   /* what it receives, or MPI_DATATYPE_NULL */
  int count;
  mpi_peer *peers;
  /* By place. */
  MPI_Request under_way[COMM_PLACES];
  size_t expected[COMM_PLACES]; /* bytes of a message that is to come; 0 where one is sent */
} state = {.request = MPI_REQUEST_NULL, .type = MPI_DATATYPE_NULL};

static int mpi_error(const char *doing, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return error_set(SHARDRT_ECOMM, "%s: %s", doing, text);
}

/* A container may forbid the system call by which OpenMPI copies between processes, and OpenMPI then complains at every
 * large message; it is asked to go without where the call does not even work on ourselves. */
static void mpi_choose_copies(void) {
  char from = 1, to = 0;
  struct iovec here = {&to, 1}, there = {&from, 1};
  if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1) return;
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0); /* OpenMPI 4's word for it */
  setenv("OMPI_MCA_smsc", "^cma", 0);                            /* OpenMPI 5's */
}

/* OpenMPI 5.0 looks up routes from a host's addresses to themselves, and where there is IPv6, too, each process prints
 * that there are none. On one host nothing takes these routes; so they are guessed, as OpenMPI 4 did. */
static void mpi_choose_routes(void) {
  const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE");
  if (here != NULL && all != NULL && strcmp(here, all) == 0) setenv("OMPI_MCA_reachable", "weighted", 0);
}

/* How many processes the launcher says it started; 0 where it does not say. */
static int mpi_expected(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *text = getenv(names[i]);
    if (text != NULL) return atoi(text);
  }
  return 0;
}

static int mpi_join(int32_t *process_index, int32_t *process_count) {
  int rank, size;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int code = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &state.work);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &state.messages);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &state.notes);
  if (code != MPI_SUCCESS) return mpi_error("joining the job", code);
  MPI_Comm_set_errhandler(state.work, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(state.messages, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(state.notes, MPI_ERRORS_RETURN);
  for (int i = 0; i < COMM_PLACES; i++) state.under_way[i] = MPI_REQUEST_NULL;
  state.count = size;
  *process_index = rank;
  *process_count = size;
  return SHARDRT_OK;
}

static int mpi_open(int32_t *process_index, int32_t *process_count) {
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  mpi_choose_copies();
  mpi_choose_routes();
  int provided;
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
  if (code != MPI_SUCCESS) return mpi_error("MPI_Init", code);
  int status = mpi_join(process_index, process_count);
  if (status < 0) return status;
  if (provided < MPI_THREAD_FUNNELED)
    return error_set(SHARDRT_ECOMM, "this MPI cannot be used by a program with threads (MPI_THREAD_FUNNELED)");
  int expected = mpi_expected();
  if (state.count == 1 && expected > 1)
    return error_set(SHARDRT_ECOMM,
                     "the launcher started %d processes, but each finds itself alone: it does not speak with this "
                     "program's OpenMPI; start it with OpenMPI's mpirun, or with srun --mpi=pmix",
                     expected);
  size_t count = (size_t)state.count;
  state.peers = alloc_array(count, sizeof *state.peers);
  if (state.peers == NULL) return ALLOC_FAILED; /* no notes then */
  for (size_t p = 0; p < count; p++)
    for (int i = 0; i < NOTES_UNDER_WAY; i++) state.peers[p].requests[i] = MPI_REQUEST_NULL;
  return SHARDRT_OK;
}

/* `bytes` bytes that stand `stride` bytes apart, so that no count or place grows with the whole. */
static int mpi_piece_type(size_t bytes, size_t stride) {
  MPI_Datatype piece;
  int code = MPI_Type_contiguous((int)bytes, MPI_BYTE, &piece);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Type_create_resized(piece, 0, (MPI_Aint)stride, &state.type);
  MPI_Type_free(&piece);
  return code == MPI_SUCCESS ? MPI_Type_commit(&state.type) : code;
}

static int mpi_gather(const void *mine, size_t bytes, void *all, size_t stride) {
  int code;
  if (stride == bytes) {
    code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, state.work, &state.request);
  } else {
    code = mpi_piece_type(bytes, stride);
    if (code == MPI_SUCCESS)
      code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, 1, state.type, state.work, &state.request);
  }
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("gathering", code);
}

static int mpi_test(bool *done) {
  int flag = 0;
  int code = MPI_Test(&state.request, &flag, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) return mpi_error("gathering", code);
  if (flag && state.type != MPI_DATATYPE_NULL) MPI_Type_free(&state.type);
  *done = flag != 0;
  return SHARDRT_OK;
}

/* A synchronous send: one that MPI could keep for the receiver would let a quick sender fill the receiver's memory. */
static int mpi_put(int32_t place, int32_t to, int32_t tag, const void *data, size_t bytes) {
  state.expected[place] = 0;
  int code = MPI_Issend(data, (int)bytes, MPI_BYTE, to, tag, state.messages, &state.under_way[place]);
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("sending", code);
}

static int mpi_take(int32_t place, int32_t from, int32_t tag, void *data, size_t bytes) {
  state.expected[place] = bytes;
  int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, state.messages, &state.under_way[place]);
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("receiving", code);
}

static int mpi_ended(int32_t *places, int32_t *count) {
  MPI_Status statuses[COMM_PLACES];
  int ended[COMM_PLACES], n = 0;
  int code = MPI_Testsome(COMM_PLACES, state.under_way, &n, ended, statuses);
  *count = n == MPI_UNDEFINED ? 0 : n; /* none is under way */
  for (int i = 0; i < *count; i++) {
    if (code == MPI_ERR_IN_STATUS && statuses[i].MPI_ERROR != MPI_SUCCESS)
      return mpi_error("a message", statuses[i].MPI_ERROR);
    int bytes = 0;
    size_t expected = state.expected[ended[i]];
    if (expected != 0) MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    if ((size_t)bytes != expected)
      return error_set(SHARDRT_ECOMM, "a message from process %d has %d bytes where %zu were expected",
                       statuses[i].MPI_SOURCE, bytes, expected);
    places[i] = ended[i];
  }
  return code == MPI_SUCCESS ? SHARDRT_OK : mpi_error("messages", code);
}

static void mpi_send(int32_t to, const comm_note *note) {
  if (state.peers == NULL) return;
  mpi_peer *peer = &state.peers[to];
  for (int i = 0; i < NOTES_UNDER_WAY; i++) {
    int sent = 0;
    if (MPI_Test(&peer->requests[i], &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS || !sent) continue;
    peer->notes[i] = *note;
    MPI_Isend(&peer->notes[i], (int)sizeof *note, MPI_BYTE, to, NOTE_TAG, state.notes, &peer->requests[i]);
    return;
  }
}

static bool mpi_receive(int32_t *from, comm_note *note) {
  int there = 0;
  MPI_Status status;
  if (state.peers == NULL) return false;
  if (MPI_Iprobe(MPI_ANY_SOURCE, NOTE_TAG, state.notes, &there, &status) != MPI_SUCCESS || !there) return false;
  *from = status.MPI_SOURCE;
  return MPI_Recv(note, (int)sizeof *note, MPI_BYTE, status.MPI_SOURCE, NOTE_TAG, state.notes, MPI_STATUS_IGNORE) ==
         MPI_SUCCESS;
}

/* OpenMPI explains MPI_Abort at length on stderr, below what we had to say. OpenMPI 4's own switch for that can be set
 * by the environment only, and would then hide also what is said when MPI_Init fails; so it is turned here, where it is
 * found. OpenMPI 5 has none; there the call by which MPI_Abort tells the launcher is made directly. */
static void mpi_end_quietly(int status) {
  bool *quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet");
  int (*end)(int, const char *, void *, size_t) = NULL;
  if (quiet != NULL)
    *quiet = true;
  else
    *(void **)&end = dlsym(RTLD_DEFAULT, "PMIx_Abort");
  if (end != NULL && end(status, NULL, NULL, 0) == 0) _exit(status);
}

static __attribute__((noreturn)) void mpi_kill(int status) {
  launcher_end();
  mpi_end_quietly(status);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

static int mpi_close(void) {
  int code = MPI_Finalize();
  alloc_free(state.peers);
  return code == MPI_SUCCESS ? SHARDRT_OK : error_set(SHARDRT_ECOMM, "MPI_Finalize failed");
}

const comm_transport comm_mpi = {
    .name = "mpi",
    .open = mpi_open,
    .gather = mpi_gather,
    .test = mpi_test,
    .put = mpi_put,
    .take = mpi_take,
    .ended = mpi_ended,
    .send = mpi_send,
    .receive = mpi_receive,
    .kill = mpi_kill,
    .close = mpi_close,
};
