// build: -O3
#include "reshard/allreduce.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/number_text.h"
#include "base/size.h"
#include "comm/job.h"
#include "layout/mesh.h"
#include "memory/convert.h"
#include "reshard/exchange/exchange.h"
#include "reshard/move_cache.h"

enum {
  WINDOW = 16,         /* messages in each direction */
  STAGING = 1 << 20,   /* bytes, which the nearest caches hold while they are added; */
  SMALLEST = 16 << 10, /* but no smaller messages where there are many processes */
  SMALL = 240          /* bytes that are gathered, and added up by each */
};
_Static_assert(2 * WINDOW <= (int)EXCHANGE_SLOTS && 2 * WINDOW <= (int)COMM_REQUESTS, "each slot has a request");

/* The processes that add up one sum, ascending, and which of them this one is. */
struct group {
  int32_t *members;
  int32_t count; /* 0: this process is in none */
  int32_t own;
};

/* ---- who takes part ---------------------------------------------------------------------------------------------- */

static int wrong_group(const shardrt_mesh *mesh, const char *axis, int64_t first, int64_t other) {
  return error_set(SHARDRT_EINVAL,
                   "along \"%s\" of %s this process's devices %d and %d lead to different processes; as it gives one "
                   "buffer, they must lead to the same: a mesh in which all its devices have one place along the other "
                   "axes, or each process has the whole of these, would do",
                   axis, shardrt_mesh_text(mesh), shardrt_mesh_device(mesh, first), shardrt_mesh_device(mesh, other));
}

/* Marks the processes of the line along the axis that goes through a position. */
static int mark_line(const shardrt_job_info *job, const shardrt_mesh *mesh, int32_t axis, int64_t position,
                     bool *processes) {
  const int64_t stride = mesh->strides[axis], size = mesh->sizes[axis];
  const int64_t first = position - position / stride % size * stride;
  memset(processes, 0, (size_t)job->process_count * sizeof *processes);
  for (int64_t i = 0; i < size; i++) {
    const int32_t device = shardrt_mesh_device(mesh, first + i * stride);
    const int32_t process = device / job->devices_per_process;
    if (process >= job->process_count)
      return error_set(SHARDRT_EINVAL, "%s has device %d, and the job's are 0 to %d", shardrt_mesh_text(mesh), device,
                       job->process_count * job->devices_per_process - 1);
    processes[process] = true;
  }
  return SHARDRT_OK;
}

/* All lines through devices of one process have the same processes, in all of these: so the groups share none. */
static int find_lines(const shardrt_job_info *job, const shardrt_mesh *mesh, int32_t axis, int64_t *positions,
                      int64_t owned, bool *processes) {
  int code = owned == 0 ? SHARDRT_OK : mark_line(job, mesh, axis, positions[0], processes);
  bool *others = processes + job->process_count;
  for (int64_t i = 1; i < owned && code == SHARDRT_OK; i++) {
    code = mark_line(job, mesh, axis, positions[i], others);
    if (code == SHARDRT_OK && memcmp(processes, others, (size_t)job->process_count * sizeof *processes) != 0)
      code = wrong_group(mesh, mesh->names[axis], positions[0], positions[i]);
  }
  return code;
}

static int group_find(struct group *g, const shardrt_job_info *job, const shardrt_mesh *mesh, int32_t axis) {
  const int32_t per_process = job->devices_per_process;
  bool *processes = alloc_zeros((size_t)job->process_count, 2 * sizeof *processes);
  int64_t *positions = alloc_array((size_t)per_process, sizeof *positions);
  g->members = alloc_array((size_t)job->process_count, sizeof *g->members);
  int code = ALLOC_FAILED;
  if (processes != NULL && positions != NULL && g->members != NULL) {
    const int64_t owned =
        shardrt_mesh_positions(mesh, job->process_index * per_process, per_process, positions, per_process);
    code = find_lines(job, mesh, axis, positions, owned, processes);
    for (int32_t p = 0; p < job->process_count && code == SHARDRT_OK; p++) {
      if (!processes[p]) continue;
      if (p == job->process_index) g->own = g->count;
      g->members[g->count++] = p;
    }
  }
  alloc_free(positions);
  alloc_free(processes);
  return code;
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

/* n sums; `to` may be where one of the two is. */
typedef void add_run(void *to, const void *a, const void *b, size_t n);

#define ADDING(name, type)                                                                                             \
  static void name(void *to, const void *a, const void *b, size_t n) {                                                 \
    type *sums = to;                                                                                                   \
    const type *x = a, *y = b;                                                                                         \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) sums[i] = (type)(x[i] + y[i]);                                 \
  }
ADDING(add_8, uint8_t) /* signed ones have the same bits */
ADDING(add_16, uint16_t)
ADDING(add_32, uint32_t)
ADDING(add_64, uint64_t)
ADDING(add_float32, float)
ADDING(add_float64, double)

static add_run *const adders[SHARDRT_DTYPE_COUNT] = {
    [SHARDRT_INT8] = add_8,          [SHARDRT_INT16] = add_16,  [SHARDRT_INT32] = add_32,
    [SHARDRT_INT64] = add_64,        [SHARDRT_UINT8] = add_8,   [SHARDRT_UINT16] = add_16,
    [SHARDRT_UINT32] = add_32,       [SHARDRT_UINT64] = add_64, [SHARDRT_FLOAT32] = add_float32,
    [SHARDRT_FLOAT64] = add_float64,
};

/* A block of what `count` >= 2 processes gave. */
static void add_block(int32_t dtype, const char *const *from, size_t at, int32_t count, char *to, size_t n) {
  double sums[CONVERT_BLOCK]; /* of the widest */
  const void *before = from[0] + at;
  for (int32_t i = 1; i < count; i++) {
    void *next = i == count - 1 ? (void *)to : sums;
    adders[dtype](next, before, from[i] + at, n);
    before = next;
  }
}

/* The same of float16 and bfloat16. */
static void add_widened(int32_t dtype, const char *const *from, size_t at, int32_t count, char *to, size_t n) {
  float sums[CONVERT_BLOCK], more[CONVERT_BLOCK];
  convert_elements(dtype, SHARDRT_FLOAT32, from[0] + at, sums, n);
  for (int32_t i = 1; i < count; i++) {
    convert_elements(dtype, SHARDRT_FLOAT32, from[i] + at, more, n);
    add_float32(sums, sums, more, n);
  }
  convert_elements(SHARDRT_FLOAT32, dtype, sums, to, n);
}

/* What they gave, one after the other, added up at `to`, which may be where one of them lies. */
static void add_all(int32_t dtype, const char *const *from, int32_t count, char *to, size_t n) {
  const bool is_narrow = dtype == SHARDRT_FLOAT16 || dtype == SHARDRT_BFLOAT16;
  const size_t element = shardrt_dtype_size(dtype);
  for (size_t begin = 0; begin < n; begin += CONVERT_BLOCK) {
    const size_t block = n - begin < CONVERT_BLOCK ? n - begin : CONVERT_BLOCK, at = begin * element;
    (is_narrow ? add_widened : add_block)(dtype, from, at, count, to + at, block);
  }
}

/* ---- a buffer that goes in messages ------------------------------------------------------------------------------ */

/* In rounds of so many elements of each process's part, of which each has two ends: the parts go to who adds them up,
 * and the sums to all. In step i a member sends to the i-th after it, and receives from the i-th before it: the
 * messages of one step meet, so that the first step that has not ended always goes on. */
struct ring_allreduce {
  const struct comm_transport *transport;
  struct comm_endpoint *endpoint;
  const struct group *group;
  char *data;
  char *staging; /* `stride` bytes of each member */
  size_t stride;
  size_t element, n;
  size_t begin, round;       /* of a part: where the round begins, and of how many elements it is at most */
  bool is_gathering;         /* the second end */
  int32_t next[2];           /* the next step: of what is received, and sent */
  int32_t peers[2 * WINDOW]; /* by slot, as places in the struct group */
};

/* What of a member's part, an even one of the buffer, is in this round. */
static char *ring_part(const struct ring_allreduce *r, int32_t member, size_t *bytes) {
  const size_t count = (size_t)r->group->count, rest = r->n % count, m = (size_t)member;
  const size_t first = m * (r->n / count) + (m < rest ? m : rest), size = r->n / count + (m < rest);
  const size_t left = size > r->begin ? size - r->begin : 0;
  *bytes = (left < r->round ? left : r->round) * r->element;
  return r->data + (first + r->begin) * r->element;
}

/* Where a slot's message is, and its size. */
static char *ring_message(const struct ring_allreduce *r, int32_t slot, size_t *bytes) {
  const bool outgoing = slot >= WINDOW;
  const int32_t peer = r->peers[slot], own = r->group->own;
  char *part = ring_part(r, outgoing == r->is_gathering ? own : peer, bytes);
  return outgoing || r->is_gathering ? part : r->staging + (size_t)peer * r->stride;
}

static bool ring_take(void *context, int32_t slot) {
  struct ring_allreduce *r = context;
  const int32_t count = r->group->count, way = slot >= WINDOW;
  while (r->next[way] < count) {
    const int32_t step = r->next[way]++;
    r->peers[slot] = (r->group->own + (way == 1 ? step : count - step)) % count;
    size_t bytes;
    ring_message(r, slot, &bytes);
    if (bytes > 0) return true; /* the last parts may end before the others */
  }
  return false;
}

static int ring_ready(void *context, int32_t slot, bool *ended) {
  (void)context;
  (void)slot;
  *ended = true;
  return SHARDRT_OK;
}

static int ring_post(void *context, int32_t slot) {
  const struct ring_allreduce *r = context;
  size_t bytes;
  char *data = ring_message(r, slot, &bytes);
  const int32_t peer = r->group->members[r->peers[slot]], tag = r->is_gathering;
  return slot >= WINDOW ? r->transport->isend(r->endpoint, slot, peer, tag, data, bytes)
                        : r->transport->irecv(r->endpoint, slot, peer, tag, data, bytes);
}

static int ring_poll(void *context, int32_t *slots, int32_t *count, bool *moved) {
  (void)moved;
  const struct ring_allreduce *r = context;
  return r->transport->testsome(r->endpoint, slots, count);
}

static void ring_awaits(const void *context, int32_t slot, bool *processes) {
  const struct ring_allreduce *r = context;
  processes[r->group->members[r->peers[slot]]] = true;
}

static const struct exchange_backend ring_backend = {
    .take = ring_take,
    .load = ring_ready,
    .post = ring_post,
    .poll = ring_poll,
    .store = ring_ready,
    .awaits = ring_awaits,
};

static int ring_half(struct ring_allreduce *r, struct collective *m, const char *what, bool is_gathering) {
  r->is_gathering = is_gathering;
  r->next[0] = r->next[1] = 1;
  struct exchange x = {.backend = &ring_backend, .context = r, .groups = 2, .size = WINDOW};
  return exchange_run(&x, m, what, 2 * r->round * r->element * (size_t)r->group->count);
}

static void ring_add(const struct ring_allreduce *r, int32_t dtype, const char **from) {
  size_t bytes;
  char *own = ring_part(r, r->group->own, &bytes);
  for (int32_t i = 0; i < r->group->count; i++) from[i] = i == r->group->own ? own : r->staging + (size_t)i * r->stride;
  add_all(dtype, from, r->group->count, own, bytes / r->element);
}

static int ring_run(struct ring_allreduce *r, struct collective *m, const char *what, int32_t dtype,
                    const char **from) {
  const size_t count = (size_t)r->group->count, largest = (r->n + count - 1) / count;
  int code = SHARDRT_OK;
  for (r->begin = 0; r->begin < largest && code == SHARDRT_OK; r->begin += r->round) {
    code = ring_half(r, m, what, false);
    if (code < 0) break;
    ring_add(r, dtype, from);
    code = ring_half(r, m, what, true);
  }
  return code;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

struct allreduce {
  shardrt_job *job;
  char *data;
  size_t n, bytes;
  int32_t dtype;
  struct group group;
  const char **from;            /* room for a place of each member */
  char *everyone;               /* where all is small, what every process of the job gave */
  struct host_staging *staging; /* for messages; NULL: there are none */
};

static int check(const struct allreduce *a, const shardrt_mesh *mesh, const char *axis) {
  if (shardrt_dtype_size(a->dtype) == 0) return error_set(SHARDRT_EINVAL, "there is no dtype number %d", a->dtype);
  if (a->dtype == SHARDRT_BOOL)
    return error_set(SHARDRT_EINVAL, "bool has no sums of its own; as uint8 or int32 its elements can be counted");
  if (mesh == NULL || axis == NULL)
    return error_set(SHARDRT_EINVAL, "it takes a mesh, and the name of one of its axes");
  if (mesh_axis(mesh, axis) < 0)
    return error_set(SHARDRT_EINVAL, "\"%s\" is no axis of %s", axis, shardrt_mesh_text(mesh));
  return SHARDRT_OK;
}

/* What all gather, as soon as they have met. */
static bool is_small(const struct allreduce *a) {
  return a->bytes <= SMALL;
}

/* As much of the cache's memory as there are members, a part of each; as many bytes as a round has. */
static int take_staging(struct allreduce *a, size_t *stride) {
  const size_t count = (size_t)a->group.count, part = (a->bytes / count + 128) / 64 * 64;
  *stride = STAGING / count / 64 * 64;
  if (*stride < SMALLEST) *stride = SMALLEST;
  if (part < *stride) *stride = part;
  struct move_cache *cache;
  int code = move_cache_get(a->job, &cache);
  if (code < 0) return code;
  a->staging = &cache->staging;
  if (a->staging->bytes >= count * *stride) return SHARDRT_OK;
  host_staging_free(a->staging);
  a->staging->data = alloc_aligned(64, count * *stride);
  if (a->staging->data == NULL) return ALLOC_FAILED;
  a->staging->bytes = count * *stride;
  return SHARDRT_OK;
}

/* All that can fail in one process alone. */
static int prepare(struct allreduce *a, const shardrt_mesh *mesh, const char *axis, size_t *stride) {
  int code = check(a, mesh, axis);
  if (code < 0) return code;
  if (!size_multiply(a->n, shardrt_dtype_size(a->dtype), &a->bytes))
    return error_set(SHARDRT_EOVERFLOW, "%zu elements have more bytes than 64 bits count", a->n);
  code = group_find(&a->group, shardrt_job_info_get(a->job), mesh, mesh_axis(mesh, axis));
  if (code < 0 || job_is_alone(a->job)) return code;
  if (is_small(a)) {
    a->everyone = alloc_array((size_t)shardrt_job_info_get(a->job)->process_count, SMALL);
    if (a->everyone == NULL) return ALLOC_FAILED;
  }
  if (a->group.count < 2 || a->n == 0) return SHARDRT_OK;
  if (a->data == NULL) return error_set(SHARDRT_EINVAL, "NULL for %zu elements", a->n);
  a->from = alloc_array((size_t)a->group.count, sizeof *a->from);
  if (a->from == NULL) return ALLOC_FAILED;
  return is_small(a) ? SHARDRT_OK : take_staging(a, stride);
}

static int meet(const struct allreduce *a, const char *what, int own) {
  char mine[SMALL] = {0};
  const size_t bytes = own == SHARDRT_OK && is_small(a) ? a->bytes : 0;
  if (a->data != NULL) memcpy(mine, a->data, bytes);
  return job_join(a->job, what, own, mine, bytes, a->everyone);
}

static void add_small(const struct allreduce *a) {
  for (int32_t i = 0; i < a->group.count; i++) a->from[i] = a->everyone + (size_t)a->group.members[i] * a->bytes;
  add_all(a->dtype, a->from, a->group.count, a->data, a->n);
}

static int send_around(const struct allreduce *a, const char *what, size_t stride) {
  struct collective *m = job_collective(a->job);
  const size_t element = shardrt_dtype_size(a->dtype);
  struct ring_allreduce r = {.transport = m->transport,
                             .endpoint = m->endpoint,
                             .group = &a->group,
                             .data = a->data,
                             .staging = a->staging->data,
                             .stride = stride,
                             .element = element,
                             .n = a->n,
                             .round = stride / element};
  int code = ring_run(&r, m, what, a->dtype, a->from);
  if (code < 0) *a->staging = (struct host_staging){0}; /* the transport may still write to it */
  return code;
}

int allreduce_run(shardrt_job *job, void *data, size_t n, int32_t dtype, const shardrt_mesh *mesh, const char *axis) {
  if (job == NULL) return error_set(SHARDRT_EINVAL, "allreduce: there is no job");
  struct allreduce a = {.job = job, .data = data, .n = n, .dtype = dtype};
  size_t stride = 0;
  char what[512] = "allreduce";
  int code = prepare(&a, mesh, axis, &stride);
  if (code < 0)
    error_prefix(code, "allreduce");
  else /* the mesh's text may be cut short */
    snprintf(what, sizeof what, "allreduce of %zu %s along \"%.60s\" of %.300s\n%" PRIx64, n, shardrt_dtype_name(dtype),
             axis, shardrt_mesh_text(mesh), mesh->fingerprint);
  if (!job_is_alone(job)) code = meet(&a, what, code);
  collective_shorten(what);
  if (code == SHARDRT_OK && a.from != NULL) {
    if (a.staging == NULL)
      add_small(&a);
    else
      code = send_around(&a, what, stride);
  }
  alloc_free(a.everyone);
  alloc_free((void *)a.from);
  alloc_free(a.group.members);
  return code;
}
