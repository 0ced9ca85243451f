/* nccl.cc - a stand-in for NCCL, which only the tests use: real messages between the stand-in's GPUs, of one process or
 * several on this machine, over sockets with names in no file system. It is as strict as NCCL may be: communicators
 * that block are refused, a group is put on its stream only some questions (ncclCommGetAsyncError) after it was ended,
 * all of a communicator stands on one stream, a send ends when its receiver has all of it, and messages of different
 * sizes that meet end the process. So do collectives whose kind, size, type, operation or root differ between ranks,
 * and a split while something is under way. Sums are added up in an order of its own, as around a ring; it depends on
 * where an element stands, and is the same for all ranks.
 *
 * From the environment, beside what cudart.cc reads (STANDIN_FAIL injects results of NCCL's calls: "ncclSend@3=2"):
 *   STANDIN_NCCL_VERSION  as ncclGetVersion gives it
 *   STANDIN_NCCL_POLLS    after how many questions what was begun goes on (3)
 *   STANDIN_NCCL_HANG     n: the n-th group of this process never ends
 *   STANDIN_NCCL_LEAVE    n: before the n-th group, connections end, as if this process had died
 *   STANDIN_NCCL_STUCK    set: ncclCommAbort and ncclCommDestroy never return
 *   STANDIN_NCCL_LOG      a file to which calls are appended, as lines: "init rank ranks", "group number rank" (when it
 *                         is ended), "send number rank peer bytes stream", "recv …", "put number rank" (on the stream),
 *                         "done number rank", "abort rank", "finalize rank", "destroy rank", "split rank color key",
 *                         "line rank ranks" (of what was split), "ncclAllReduce number rank ranks count type stream",
 *                         and so for each collective; `number` counts the groups of a process, `stream` a
 *                         communicator's
 */
#include <errno.h>
#include <nccl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "standin/standin.h"

namespace {

/* What a rank says first to each of the others. */
struct hello {
  int rank, ranks;
  char gpu[16];
};

/* To another rank: what is sent goes out over one connection, what it sends comes in over another; whoever has all of a
 * message says so by one byte back. -1: not there yet. */
struct peer {
  int out = -1, in = -1;
  hello said;
};

/* What travels before a message's data. */
struct heading {
  uint64_t bytes;
  int kind, type, op, root; /* of the collective that it is of; all 0: of none */
};

struct message {
  bool outgoing;
  int rank;
  char *data;
  size_t bytes, moved = 0;
  heading head = {}, came = {};
  size_t head_moved = 0;
  bool done = false;
};

enum kind { ALL_REDUCE = 1, REDUCE_SCATTER, ALL_GATHER, BROADCAST };
const char *const kind_names[] = {"a message", "ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast"};

/* A rank's part of a collective. */
struct work {
  kind what;
  const char *from;
  char *to;
  size_t count;
  ncclDataType_t type;
  int op, root;
  std::vector<std::vector<char>> gave; /* by each rank */
};

struct group {
  int number;
  bool hangs, leaves;
  std::vector<message> messages;
  std::vector<work> works;
};

/* A communicator that is being made of another one. */
struct splitting {
  struct wish {
    int color, key;
  };
  wish own;
  std::vector<wish> said; /* by each rank */
  std::vector<size_t> sent, heard;
  ncclComm *child = NULL;
  ncclComm **out;
};

enum doing { NOTHING, JOINING, LAUNCHING, FINISHING, SPLITTING };

} // namespace

struct ncclComm {
  int rank, ranks, gpu;
  hello own;
  std::string name; /* of the rendezvous */
  int listening = -1;
  std::vector<int> strangers; /* connections that have not said who they are */
  std::vector<peer> peers;
  doing busy = NOTHING;
  int questions = 0; /* until what it is doing goes on */
  ncclResult_t failed = ncclSuccess;
  bool aborted = false, gone = false, finished = false;
  int streams = 0;
  cudaStream_t stream = NULL;
  std::shared_ptr<group> next; /* while launching */
  int running = 0;             /* groups on the stream */
  splitting split;
  int splits = 0;
};

namespace {

std::mutex door; /* taken after the stand-in's own lock, if both are */
thread_local int depth;
thread_local ncclResult_t spoiled;                              /* what a call in the group that is open failed with */
thread_local std::vector<ncclComm *> joined;                    /* in the group that is open */
thread_local std::deque<std::pair<ncclComm *, message>> posted; /* the same */
thread_local std::deque<std::pair<ncclComm *, work>> works;     /* the same */
thread_local std::vector<ncclComm *> divided;                   /* the same */
int groups;
char last_words[256];

int number_of(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text == NULL || text[0] == '\0' ? otherwise : atoi(text);
}

__attribute__((format(printf, 1, 2))) void note(const char *format, ...) {
  const char *path = getenv("STANDIN_NCCL_LOG");
  if (path == NULL) return;
  FILE *file = fopen(path, "a");
  if (file == NULL) standin_wrong("%s cannot be written", path);
  char line[256];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  fprintf(file, "%s\n", line); /* one write: lines of several processes stay whole */
  fclose(file);
}

/* In a group, all of it fails. */
__attribute__((format(printf, 2, 3))) ncclResult_t fails(ncclResult_t result, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(last_words, sizeof last_words, format, list);
  va_end(list);
  if (depth > 0) spoiled = result;
  return result;
}

ncclResult_t enter(const char *call) {
  const ncclResult_t result = (ncclResult_t)standin_enter(call);
  return result == ncclSuccess ? result : fails(result, "injected into %s", call);
}

ncclComm *checked(ncclComm *comm, const char *call) {
  if (comm == NULL || comm->gone) standin_wrong("%s is called with a communicator that is gone", call);
  return comm;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

socklen_t address_of(const ncclComm *comm, int rank, sockaddr_un *out) {
  memset(out, 0, sizeof *out);
  out->sun_family = AF_UNIX;
  const int length =
      snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "shardrt-standin-%s-%d", comm->name.c_str(), rank);
  return (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + (size_t)length);
}

int new_socket() {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (made < 0) standin_wrong("no socket: %s", strerror(errno));
  return made;
}

void listen_as(ncclComm *comm) {
  sockaddr_un address;
  const socklen_t length = address_of(comm, comm->rank, &address);
  comm->listening = new_socket();
  if (bind(comm->listening, (sockaddr *)&address, length) != 0 || listen(comm->listening, 64) != 0)
    standin_wrong("rank %d of a communicator is there twice", comm->rank);
}

void connect_to(ncclComm *comm, int rank) {
  sockaddr_un address;
  const socklen_t length = address_of(comm, rank, &address);
  const int made = new_socket();
  if (connect(made, (sockaddr *)&address, length) != 0) { /* not there yet */
    close(made);
    return;
  }
  if (send(made, &comm->own, sizeof comm->own, MSG_NOSIGNAL) != (ssize_t)sizeof comm->own)
    standin_wrong("a greeting did not go out");
  comm->peers[(size_t)rank].out = made;
}

void greet(ncclComm *comm) {
  int came;
  while ((came = accept4(comm->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
    comm->strangers.push_back(came);
  for (size_t i = 0; i < comm->strangers.size(); i++) {
    hello said;
    if (recv(comm->strangers[i], &said, sizeof said, MSG_PEEK) != (ssize_t)sizeof said) continue;
    (void)recv(comm->strangers[i], &said, sizeof said, 0);
    if (said.ranks != comm->ranks)
      standin_wrong("rank %d joins %d ranks, rank %d %d", comm->rank, comm->ranks, said.rank, said.ranks);
    peer &p = comm->peers[(size_t)said.rank];
    p.in = comm->strangers[i];
    p.said = said;
    comm->strangers.erase(comm->strangers.begin() + (long)i--);
  }
}

/* Whether all are there. */
bool join(ncclComm *comm) {
  bool all = true;
  greet(comm);
  for (int r = 0; r < comm->ranks; r++) {
    if (r == comm->rank) continue;
    if (comm->peers[(size_t)r].out < 0) connect_to(comm, r);
    all = all && comm->peers[(size_t)r].out >= 0 && comm->peers[(size_t)r].in >= 0;
  }
  for (int r = 0; all && r < comm->ranks; r++)
    if (r != comm->rank && memcmp(comm->peers[(size_t)r].said.gpu, comm->own.gpu, sizeof comm->own.gpu) == 0)
      comm->failed = fails(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on one CUDA device",
                           comm->rank, r);
  return all;
}

void disconnect(ncclComm *comm) {
  if (comm->listening >= 0) close(comm->listening);
  for (int stranger : comm->strangers) close(stranger);
  for (peer &p : comm->peers) {
    if (p.out >= 0) close(p.out);
    if (p.in >= 0) close(p.in);
    p.out = p.in = -1;
  }
  comm->listening = -1;
  comm->strangers.clear();
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Moves what can be moved of `bytes` bytes, from the `moved`-th on. True: all is. */
bool go_over(ncclComm *comm, int connection, bool outgoing, char *data, size_t bytes, size_t *moved) {
  while (*moved < bytes) {
    const ssize_t n = outgoing ? send(connection, data + *moved, bytes - *moved, MSG_NOSIGNAL)
                               : recv(connection, data + *moved, bytes - *moved, 0);
    if (n > 0)
      *moved += (size_t)n;
    else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return false;
    else {
      comm->failed = fails(ncclRemoteError, "Connection closed by remote peer");
      return false;
    }
  }
  return true;
}

bool send_some(ncclComm *comm, message &m) {
  const int connection = comm->peers[(size_t)m.rank].out;
  m.head.bytes = m.bytes;
  if (!go_over(comm, connection, true, (char *)&m.head, sizeof m.head, &m.head_moved)) return false;
  if (!go_over(comm, connection, true, m.data, m.bytes, &m.moved)) return false;
  char taken;
  size_t none = 0;
  return go_over(comm, connection, false, &taken, 1, &none);
}

bool receive_some(ncclComm *comm, message &m) {
  const int connection = comm->peers[(size_t)m.rank].in;
  if (!go_over(comm, connection, false, (char *)&m.came, sizeof m.came, &m.head_moved)) return false;
  const heading &own = m.head, &its = m.came;
  if (own.kind != its.kind || own.type != its.type || own.op != its.op || own.root != its.root)
    standin_wrong("rank %d calls %s (type %d, op %d, root %d), rank %d %s (%d, %d, %d)", comm->rank,
                  kind_names[own.kind], own.type, own.op, own.root, m.rank, kind_names[its.kind], its.type, its.op,
                  its.root);
  if (its.bytes != m.bytes)
    standin_wrong("rank %d receives %zu bytes from rank %d, which sends %zu", comm->rank, m.bytes, m.rank,
                  (size_t)its.bytes);
  if (!go_over(comm, connection, false, m.data, m.bytes, &m.moved)) return false;
  char taken = 1;
  size_t none = 0;
  if (!go_over(comm, connection, true, &taken, 1, &none)) standin_wrong("one byte finds no room");
  return true;
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

size_t size_of(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  default:
    return 8;
  }
}

/* Of the elements from `first` on, as if each `chunk` of them went around a ring, and ended where it belongs. */
template <typename T> void add_up(const work &w, size_t ranks, size_t first, size_t count, size_t chunk) {
  std::vector<T> sums(count);
  for (size_t i = 0; i < count; i++) {
    const size_t end = (first + i) / chunk % ranks;
    T sum = 0;
    for (size_t k = 0; k < ranks; k++) {
      T more;
      memcpy(&more, w.gave[(end + 1 + k) % ranks].data() + (first + i) * sizeof more, sizeof more);
      sum = k == 0 ? more : (T)(sum + more);
    }
    sums[i] = sum;
  }
  memcpy(w.to, sums.data(), count * sizeof(T));
}

void add_up_any(const work &w, size_t ranks, size_t first, size_t count, size_t chunk) {
  switch (w.type) {
  case ncclInt8:
  case ncclUint8:
    return add_up<uint8_t>(w, ranks, first, count, chunk);
  case ncclInt32:
  case ncclUint32:
    return add_up<uint32_t>(w, ranks, first, count, chunk);
  case ncclInt64:
  case ncclUint64:
    return add_up<uint64_t>(w, ranks, first, count, chunk);
  case ncclFloat32:
    return add_up<float>(w, ranks, first, count, chunk);
  case ncclFloat64:
    return add_up<double>(w, ranks, first, count, chunk);
  }
}

/* How many bytes a rank takes and gets. */
size_t bytes_taken(const ncclComm *comm, const work &w) {
  return w.count * size_of(w.type) * (w.what == REDUCE_SCATTER ? (size_t)comm->ranks : 1);
}

size_t bytes_made(const ncclComm *comm, const work &w) {
  return w.count * size_of(w.type) * (w.what == ALL_GATHER ? (size_t)comm->ranks : 1);
}

/* What a rank gives to each other one. */
size_t bytes_given(const ncclComm *comm, const work &w, int rank) {
  return w.what == BROADCAST && rank != w.root ? 0 : bytes_taken(comm, w);
}

/* The messages of a rank's part: all get what each gives. Its memory stays where it is from then on. */
void list_messages(const ncclComm *comm, work &w, group &g) {
  w.gave.resize((size_t)comm->ranks);
  for (int r = 0; r < comm->ranks; r++) {
    if (r == comm->rank) continue;
    w.gave[(size_t)r].resize(bytes_given(comm, w, r));
    for (const bool outgoing : {true, false}) {
      message m;
      m.outgoing = outgoing;
      m.rank = r;
      m.data = outgoing ? (char *)w.from : w.gave[(size_t)r].data();
      m.bytes = bytes_given(comm, w, outgoing ? comm->rank : r);
      m.head.kind = w.what;
      m.head.type = w.type;
      m.head.op = w.op;
      m.head.root = w.root;
      g.messages.push_back(m);
    }
  }
}

/* All is there that the ranks gave. Runs with devices' memory open. */
void end_work(const ncclComm *comm, work &w) {
  const size_t ranks = (size_t)comm->ranks, own = (size_t)comm->rank, bytes = bytes_given(comm, w, comm->rank);
  w.gave[own].assign(w.from, w.from + bytes);
  switch (w.what) {
  case ALL_REDUCE:
    return add_up_any(w, ranks, 0, w.count, (w.count + ranks - 1) / ranks);
  case REDUCE_SCATTER:
    return add_up_any(w, ranks, own * w.count, w.count, w.count);
  case ALL_GATHER:
    for (size_t r = 0; r < ranks; r++) memcpy(w.to + r * bytes, w.gave[r].data(), bytes);
    return;
  case BROADCAST:
    memcpy(w.to, w.gave[(size_t)w.root].data(), w.gave[(size_t)w.root].size());
  }
}

/* The group's kernel: goes on as far as the others let it. Runs with devices' memory open. */
bool run(ncclComm *comm, group &g) {
  std::lock_guard<std::mutex> in(door);
  if (g.leaves) disconnect(comm);
  if (g.leaves && comm->failed == ncclSuccess) comm->failed = fails(ncclSystemError, "this rank is to have died");
  bool all = true;
  for (size_t i = 0; i < g.messages.size() && !comm->aborted && comm->failed == ncclSuccess; i++) {
    message &m = g.messages[i];
    bool first = true; /* of those with the same rank that are left, in its direction */
    for (size_t k = 0; k < i; k++)
      first = first && (g.messages[k].done || g.messages[k].rank != m.rank || g.messages[k].outgoing != m.outgoing);
    if (!m.done && first) m.done = m.outgoing ? send_some(comm, m) : receive_some(comm, m);
    all = all && m.done;
  }
  if (!comm->aborted && (!all || g.hangs || comm->failed != ncclSuccess)) return false;
  for (work &w : g.works)
    if (!comm->aborted) end_work(comm, w);
  comm->running--;
  note("done %d %d", g.number, comm->rank);
  return true;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Puts what was posted for one communicator together. */
void begin_group(ncclComm *comm) {
  comm->next = std::make_shared<group>();
  group &g = *comm->next;
  g.number = ++groups;
  g.hangs = number_of("STANDIN_NCCL_HANG", 0) == g.number;
  g.leaves = number_of("STANDIN_NCCL_LEAVE", 0) == g.number;
  note("group %d %d", g.number, comm->rank);
  for (auto &post : posted) {
    const message &m = post.second;
    if (post.first != comm) continue;
    note("%s %d %d %d %zu %d", m.outgoing ? "send" : "recv", g.number, comm->rank, m.rank, m.bytes, comm->streams);
    g.messages.push_back(m);
  }
  for (auto &post : works)
    if (post.first == comm) g.works.push_back(post.second);
  if (!g.works.empty() && !g.messages.empty()) standin_wrong("a group has messages and collectives");
  for (work &w : g.works) {
    note("%s %d %d %d %zu %d %d", kind_names[w.what], g.number, comm->rank, comm->ranks, w.count, w.type,
         comm->streams);
    list_messages(comm, w, g);
  }
  comm->busy = LAUNCHING;
  comm->questions = number_of("STANDIN_NCCL_POLLS", 3);
  comm->running++;
}

/* What messages and collectives have in common, with the door closed behind it; `gpu` is the stream's, which takes the
 * stand-in's own lock to ask for. */
ncclResult_t may_post(const char *call, ncclComm *comm, cudaStream_t stream, int gpu) {
  if (comm->failed != ncclSuccess) return comm->failed;
  if (comm->busy != NOTHING || comm->finished)
    return fails(ncclInvalidArgument, "Attempt to use communicator before the previous operation returned ncclSuccess");
  if (gpu != comm->gpu) standin_wrong("%s is called with a stream of another GPU", call);
  if (comm->stream != stream) comm->streams++;
  comm->stream = stream;
  return ncclSuccess;
}

ncclResult_t post(const char *call, bool outgoing, char *data, size_t bytes, ncclDataType_t type, int rank,
                  ncclComm *comm, cudaStream_t stream) {
  const ncclResult_t entered = enter(call);
  if (entered != ncclSuccess) return entered;
  checked(comm, call);
  if (depth == 0) standin_wrong("%s is called outside of a group", call);
  if (type != ncclUint8 && type != ncclInt8) standin_wrong("%s is called with type %d", call, type);
  if (bytes == 0) standin_wrong("%s is called with no bytes", call);
  if (!standin_reaches(stream, data, bytes)) standin_wrong("%s is called with memory that its GPU has not", call);
  const int gpu = standin_gpu(stream);
  std::lock_guard<std::mutex> in(door);
  if (comm->failed == ncclSuccess && (rank < 0 || rank >= comm->ranks || rank == comm->rank))
    return fails(ncclInvalidArgument, "%s : peer %d is none of %d", call, rank, comm->ranks);
  const ncclResult_t may = may_post(call, comm, stream, gpu);
  if (may != ncclSuccess) return may;
  message m;
  m.outgoing = outgoing;
  m.rank = rank;
  m.data = data;
  m.bytes = bytes;
  posted.emplace_back(comm, m);
  return ncclSuccess;
}

/* Where both lie in one place, it is what NCCL calls in place. */
void check_places(const ncclComm *comm, const work &w, const char *call) {
  const size_t taken = bytes_taken(comm, w), made = bytes_made(comm, w);
  const size_t own = (size_t)comm->rank * w.count * size_of(w.type);
  const char *in_place = w.what == ALL_GATHER ? w.to + own : w.to;
  if (w.what == REDUCE_SCATTER ? w.to == w.from + own : w.from == in_place) return;
  if (w.from < w.to + made && w.to < w.from + taken) standin_wrong("%s is called with memory that overlaps", call);
}

ncclResult_t collect(kind what, const void *from, void *to, size_t count, ncclDataType_t type, int op, int root,
                     ncclComm *comm, cudaStream_t stream) {
  const char *call = kind_names[what];
  const ncclResult_t entered = enter(call);
  if (entered != ncclSuccess) return entered;
  checked(comm, call);
  if (depth == 0) standin_wrong("%s is called outside of a group", call);
  if (count == 0) standin_wrong("%s is called with no elements", call);
  if (op != ncclSum) standin_wrong("%s is called with op %d", call, op);
  work w = {what, (const char *)from, (char *)to, count, type, op, root, {}};
  const bool gives = what != BROADCAST || comm->rank == root;
  if ((gives && !standin_reaches(stream, (char *)from, bytes_taken(comm, w))) ||
      !standin_reaches(stream, to, bytes_made(comm, w)))
    standin_wrong("%s is called with memory that its GPU has not", call);
  if (gives) check_places(comm, w, call);
  const int gpu = standin_gpu(stream);
  std::lock_guard<std::mutex> in(door);
  if (root < 0 || root >= comm->ranks)
    return fails(ncclInvalidArgument, "%s : root %d is none of %d", call, root, comm->ranks);
  const ncclResult_t may = may_post(call, comm, stream, gpu);
  if (may == ncclSuccess) works.emplace_back(comm, w);
  return may;
}

/* ---- splitting --------------------------------------------------------------------------------------------------- */

/* Whether all ranks have told what they wish. */
bool hear_wishes(ncclComm *comm) {
  splitting &s = comm->split;
  bool all = true;
  for (int r = 0; r < comm->ranks; r++) {
    if (r == comm->rank) continue;
    const size_t at = (size_t)r;
    const peer &p = comm->peers[at];
    const bool told = go_over(comm, p.out, true, (char *)&s.own, sizeof s.own, &s.sent[at]);
    const bool heard = go_over(comm, p.in, false, (char *)&s.said[at], sizeof s.said[at], &s.heard[at]);
    all = all && told && heard;
  }
  return all;
}

void begin_child(ncclComm *comm) {
  splitting &s = comm->split;
  ncclComm *made = s.child = new ncclComm;
  made->rank = made->ranks = 0;
  for (int r = 0; r < comm->ranks; r++) {
    const splitting::wish &its = s.said[(size_t)r];
    if (its.color != s.own.color) continue;
    made->ranks++;
    made->rank += its.key < s.own.key || (its.key == s.own.key && r < comm->rank);
  }
  made->gpu = comm->gpu;
  made->own = comm->own;
  made->own.rank = made->rank;
  made->own.ranks = made->ranks;
  made->name = comm->name + "-" + std::to_string(comm->splits) + "-" + std::to_string(s.own.color);
  made->peers.resize((size_t)made->ranks);
  note("line %d %d", made->rank, made->ranks);
  listen_as(made);
}

/* Whether the new communicator, if there is to be one, is there. */
bool divide(ncclComm *comm) {
  splitting &s = comm->split;
  if (s.child == NULL && !hear_wishes(comm)) return false;
  if (s.own.color == NCCL_SPLIT_NOCOLOR) return true;
  if (s.child == NULL) begin_child(comm);
  if (!join(s.child)) return false;
  if (s.child->failed != ncclSuccess) comm->failed = s.child->failed;
  *s.out = s.child; /* not before all of them are there */
  s.child = NULL;
  return true;
}

/* What was begun goes on, as far as that needs no stream. The group to be put on one now, or NULL. */
std::shared_ptr<group> proceed(ncclComm *comm, ncclResult_t *error) {
  std::shared_ptr<group> launched;
  if (comm->failed == ncclSuccess && comm->busy != NOTHING && comm->questions-- <= 0) {
    switch (comm->busy) {
    case JOINING:
      if (join(comm)) comm->busy = NOTHING;
      break;
    case LAUNCHING:
      launched = std::move(comm->next);
      comm->busy = NOTHING;
      break;
    case FINISHING:
      if (comm->running == 0) comm->busy = NOTHING;
      break;
    case SPLITTING:
      if (divide(comm)) comm->busy = NOTHING;
      break;
    default:
      break;
    }
  }
  *error = comm->failed != ncclSuccess ? comm->failed : comm->busy != NOTHING ? ncclInProgress : ncclSuccess;
  return launched;
}

void be_stuck() {
  while (getenv("STANDIN_NCCL_STUCK") != NULL) sleep(1);
}

/* Waits until its groups have run: GPUs go on by themselves. */
void leave(ncclComm *comm) {
  be_stuck();
  for (;; usleep(1000)) {
    std::lock_guard<std::mutex> in(door);
    if (comm->next != NULL) { /* was never put there */
      comm->next = NULL;
      comm->running--;
    }
    if (comm->running > 0) continue;
    disconnect(comm);
    if (comm->split.child != NULL) disconnect(comm->split.child);
    comm->gone = true; /* the rest stays, so that whoever uses it still is found out */
    return;
  }
}

} // namespace

/* ---- NCCL -------------------------------------------------------------------------------------------------------- */

ncclResult_t ncclGetVersion(int *version) {
  const ncclResult_t entered = enter("ncclGetVersion");
  *version = number_of("STANDIN_NCCL_VERSION", NCCL_VERSION_CODE);
  return entered;
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
#define WORDS(name, value, words)                                                                                      \
  case name:                                                                                                           \
    return words;
    STANDIN_NCCL_RESULTS(WORDS)
#undef WORDS
  }
  return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return last_words;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  const ncclResult_t entered = enter("ncclGetUniqueId");
  if (entered != ncclSuccess) return entered;
  if (getrandom(id->internal, sizeof id->internal, 0) != (ssize_t)sizeof id->internal) return ncclSystemError;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  const ncclResult_t entered = enter("ncclCommInitRankConfig");
  if (entered != ncclSuccess) return entered;
  if (config->magic != 0xcafebeef || config->size != sizeof *config) standin_wrong("a config was not initialized");
  if (number_of("NCCL_COMM_BLOCKING", config->blocking) != 0) standin_wrong("a communicator is to block");
  if (depth == 0) standin_wrong("ncclCommInitRankConfig is called outside of a group");
  if (rank < 0 || rank >= ranks) return fails(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, ranks);
  cudaDeviceProp properties;
  const int gpu = standin_current_gpu();
  if (cudaGetDeviceProperties(&properties, gpu) != cudaSuccess) return ncclUnhandledCudaError;
  standin_go_on();
  std::lock_guard<std::mutex> in(door);
  ncclComm *made = new ncclComm;
  made->rank = rank;
  made->ranks = ranks;
  made->gpu = gpu;
  made->own.rank = rank;
  made->own.ranks = ranks;
  memcpy(made->own.gpu, properties.uuid.bytes, sizeof made->own.gpu);
  for (int i = 0; i < 16; i++) {
    char hex[3];
    snprintf(hex, sizeof hex, "%02x", (unsigned char)id.internal[i]);
    made->name += hex;
  }
  made->peers.resize((size_t)ranks);
  note("init %d %d", rank, ranks);
  joined.push_back(made);
  *comm = made;
  return ncclInProgress; /* which is no failure */
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  const ncclResult_t entered = enter("ncclCommSplit");
  if (entered != ncclSuccess) return entered;
  checked(comm, "ncclCommSplit");
  if (config == NULL || config->magic != 0xcafebeef || config->size != sizeof *config)
    standin_wrong("a config was not initialized");
  if (number_of("NCCL_COMM_BLOCKING", config->blocking) != 0) standin_wrong("a communicator is to block");
  if (depth == 0) standin_wrong("ncclCommSplit is called outside of a group");
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) return fails(ncclInvalidArgument, "color %d is none", color);
  std::lock_guard<std::mutex> in(door);
  if (comm->failed != ncclSuccess) return comm->failed;
  if (comm->busy != NOTHING || comm->running > 0 || comm->finished)
    standin_wrong("a communicator is split while something is under way");
  note("split %d %d %d", comm->rank, color, key);
  const size_t ranks = (size_t)comm->ranks;
  comm->split = splitting();
  comm->split.own.color = color;
  comm->split.own.key = key;
  comm->split.said.resize(ranks);
  comm->split.said[(size_t)comm->rank] = comm->split.own;
  comm->split.sent.resize(ranks);
  comm->split.heard.resize(ranks);
  comm->split.out = newcomm;
  comm->splits++;
  *newcomm = NULL;
  divided.push_back(comm);
  return ncclInProgress;
}

ncclResult_t ncclGroupStart() {
  const ncclResult_t entered = enter("ncclGroupStart");
  if (entered == ncclSuccess && depth++ == 0) spoiled = ncclSuccess;
  return entered;
}

ncclResult_t ncclGroupEnd() {
  (void)enter("ncclGroupEnd");
  if (depth == 0) standin_wrong("ncclGroupEnd is called outside of a group");
  if (--depth > 0) return spoiled;
  std::lock_guard<std::mutex> in(door);
  const bool puts = !posted.empty() || !works.empty();
  if (!joined.empty() + !divided.empty() + puts > 1) standin_wrong("a group does things of two sorts");
  const bool empty = joined.empty() && divided.empty() && !puts;
  for (ncclComm *comm : joined) {
    comm->failed = spoiled;
    comm->busy = JOINING;
    comm->questions = number_of("STANDIN_NCCL_POLLS", 3);
    if (spoiled == ncclSuccess) listen_as(comm);
  }
  for (ncclComm *comm : divided) {
    comm->failed = spoiled;
    comm->busy = SPLITTING;
    comm->questions = number_of("STANDIN_NCCL_POLLS", 3);
  }
  std::vector<ncclComm *> used;
  for (auto &post : posted) used.push_back(post.first);
  for (auto &post : works) used.push_back(post.first);
  for (ncclComm *comm : used)
    if (spoiled != ncclSuccess)
      comm->failed = spoiled;
    else if (comm->next == NULL)
      begin_group(comm);
  joined.clear();
  divided.clear();
  posted.clear();
  works.clear();
  return spoiled != ncclSuccess || empty ? spoiled : ncclInProgress;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return post("ncclSend", true, (char *)data, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return post("ncclRecv", false, (char *)data, count, type, peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return collect(ALL_REDUCE, from, to, count, type, op, 0, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return collect(REDUCE_SCATTER, from, to, count, type, op, 0, comm, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return collect(ALL_GATHER, from, to, count, type, 0, 0, comm, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return collect(BROADCAST, from, to, count, type, 0, root, comm, stream);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  const ncclResult_t entered = enter("ncclCommGetAsyncError");
  if (entered != ncclSuccess) return entered;
  checked(comm, "ncclCommGetAsyncError");
  std::shared_ptr<group> launched;
  cudaStream_t stream;
  {
    std::lock_guard<std::mutex> in(door);
    launched = proceed(comm, error);
    stream = comm->stream;
    if (launched != NULL) note("put %d %d", launched->number, comm->rank);
  }
  if (launched != NULL) standin_put(stream, "ncclGroup", [comm, launched] { return run(comm, *launched); });
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const ncclResult_t entered = enter("ncclCommFinalize");
  if (entered != ncclSuccess) return entered;
  checked(comm, "ncclCommFinalize");
  std::lock_guard<std::mutex> in(door);
  if (comm->finished || comm->busy != NOTHING) return fails(ncclInvalidArgument, "ncclCommFinalize comes too early");
  note("finalize %d", comm->rank);
  comm->finished = true;
  comm->busy = FINISHING;
  comm->questions = number_of("STANDIN_NCCL_POLLS", 3);
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const ncclResult_t entered = enter("ncclCommDestroy");
  if (entered != ncclSuccess) return entered;
  checked(comm, "ncclCommDestroy");
  if (!comm->finished || comm->busy != NOTHING) standin_wrong("a communicator is destroyed that was not finished");
  note("destroy %d", comm->rank);
  leave(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  (void)enter("ncclCommAbort");
  checked(comm, "ncclCommAbort");
  note("abort %d", comm->rank);
  {
    std::lock_guard<std::mutex> in(door);
    comm->aborted = true;
  }
  leave(comm);
  return ncclSuccess;
}
