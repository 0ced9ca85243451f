#include "reshard/exchange/peer_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/number_text.h"
#include "layout/mesh.h"

static const char what[] = "the links between the processes' GPUs";

/* What a process tells of itself; the GPUs of its devices follow. */
struct link_report {
  int32_t wish; /* SHARDRT_LINKS */
  int32_t code; /* of opening the links here */
  char problem[224];
};

struct gpu_identity {
  uint8_t uuid[16];
};

/* What all processes told: `stride` bytes of each. */
struct told {
  int32_t processes, devices;
  size_t stride;
  char *all;
};

static const struct link_report *report_of(const struct told *t, int32_t process) {
  return (const struct link_report *)(t->all + (size_t)process * t->stride);
}

static const struct gpu_identity *gpu_of(const struct told *t, int64_t device) {
  const char *its = t->all + (size_t)(device / t->devices) * t->stride + sizeof(struct link_report);
  return (const struct gpu_identity *)its + device % t->devices;
}

static int describe_self(char *mine, int32_t devices) {
  struct link_report *self = (struct link_report *)mine;
  enum accelerator_links_wish wish;
  int code = accelerator_links_wish(&wish);
  if (code < 0) return code;
  *self = (struct link_report){.wish = (int32_t)wish};
  struct gpu_identity *gpus = (struct gpu_identity *)(self + 1);
  for (int32_t d = 0; d < devices; d++) {
    struct accelerator_info info;
    code = accelerator_get()->describe(d, &info);
    if (code < 0) return code;
    memcpy(gpus[d].uuid, info.uuid, sizeof gpus[d].uuid);
  }
  return SHARDRT_OK;
}

/* ---- who has which GPU ------------------------------------------------------------------------------------------ */

static int compare_gpus(const void *a, const void *b, void *context) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  const int order = memcmp(gpu_of(context, x), gpu_of(context, y), sizeof(struct gpu_identity));
  return order != 0 ? order : (x > y) - (x < y);
}

/* Numbers the GPUs by their first device, into `ranks`; marks in `sharing` the processes that share one with others.
 * `order` has room for two numbers of each device. Returns how many GPUs there are. */
static int32_t rank_gpus(const struct told *t, int64_t *order, int32_t *ranks, bool *sharing) {
  const int64_t count = (int64_t)t->processes * t->devices;
  int64_t *first = order + count; /* of each device, the first one of its GPU */
  for (int64_t i = 0; i < count; i++) order[i] = i;
  qsort_r(order, (size_t)count, sizeof *order, compare_gpus, (void *)t);
  for (int64_t i = 0; i < count; i++) {
    const int64_t device = order[i], before = i == 0 ? device : first[order[i - 1]];
    const bool is_same = i > 0 && memcmp(gpu_of(t, device), gpu_of(t, before), sizeof(struct gpu_identity)) == 0;
    first[device] = is_same ? before : device;
    if (first[device] / t->devices == device / t->devices) continue;
    sharing[device / t->devices] = sharing[first[device] / t->devices] = true;
  }
  int32_t next = 0;
  for (int64_t i = 0; i < count; i++) ranks[i] = first[i] == i ? next++ : ranks[first[i]];
  return next;
}

/* ---- which way -------------------------------------------------------------------------------------------------- */

static void choose_host(struct peer_path *c, int32_t process, const char *reason) {
  c->kind = PEERS_BY_HOST;
  if (process == 0) snprintf(c->notice, sizeof c->notice, "%s: data between processes goes through the host", reason);
}

static void choose_kind(struct peer_path *c, const struct told *t, int32_t process, const bool *sharing) {
  char reason[160], names[128];
  bool any = false;
  int32_t off = 0;
  for (int32_t p = 0; p < t->processes; p++) {
    any = any || sharing[p];
    off += report_of(t, p)->wish == LINKS_OFF;
    if (p == 0) c->wish = (enum accelerator_links_wish)report_of(t, p)->wish;
    if (report_of(t, p)->wish != report_of(t, 0)->wish) c->wish = LINKS_MESSAGES;
  }
  c->kind = off > 0 ? PEERS_BY_HOST : PEERS_LINKED;
  if (off == t->processes) return; /* as was asked for: that is no news */
  if (off > 0) {
    snprintf(reason, sizeof reason, "SHARDRT_LINKS is off in %d of the %d processes", off, t->processes);
    choose_host(c, process, reason);
    return;
  }
  if (any) {
    number_text(names, sizeof names, "process", "processes", sharing, t->processes);
    snprintf(reason, sizeof reason, "GPUs are shared by %s", names);
    choose_host(c, process, reason);
  }
  for (int32_t p = 0; p < t->processes && c->kind == PEERS_LINKED; p++) {
    if (report_of(t, p)->code == SHARDRT_OK) continue;
    choose_host(c, process, report_of(t, p)->problem);
  }
}

/* ---- joining ---------------------------------------------------------------------------------------------------- */

/* Process 0's id of the group, in every process. `code` is of what came before, in this one. */
static int spread_id(struct collective *m, int code, uint8_t id[ACCELERATOR_LINK_ID]) {
  struct said {
    int32_t code;
    uint8_t id[ACCELERATOR_LINK_ID];
  };
  struct said mine = {0}, *all = alloc_zeros((size_t)m->count, sizeof *all);
  if (code == SHARDRT_OK && all == NULL) code = ALLOC_FAILED;
  if (code == SHARDRT_OK && m->index == 0) mine.code = accelerator_get()->links->id(mine.id);
  code = collective_join(m, what, code, &mine, sizeof mine, all);
  if (code == SHARDRT_OK && m->index == 0) code = mine.code;
  if (code == SHARDRT_OK && all != NULL && all[0].code < 0)
    code = error_set(all[0].code, "process 0 could not begin %s", what);
  if (code == SHARDRT_OK && all != NULL) memcpy(id, all[0].id, ACCELERATOR_LINK_ID);
  alloc_free(all);
  return code;
}

struct joining {
  uint8_t id[ACCELERATOR_LINK_ID];
  int32_t all, own;   /* GPUs of the job, and of this process */
  int32_t *devices;   /* the first of each own one, */
  int32_t *own_ranks; /* and its rank */
  bool has_begun;
};

static int join_step(void *context, bool *done, bool *moved) {
  struct joining *j = context;
  const struct accelerator_links *links = accelerator_get()->links;
  if (j->has_begun) return links->state(done);
  j->has_begun = *moved = true;
  return links->join(j->id, j->all, j->own, j->devices, j->own_ranks);
}

static void list_own(const struct peer_path *c, const struct collective *m, struct joining *j) {
  for (int64_t i = 0; i < (int64_t)m->count * c->devices; i++)
    if (c->ranks[i] >= j->all) j->all = c->ranks[i] + 1;
  for (int32_t d = 0; d < c->devices; d++) {
    const int32_t rank = c->ranks[(int64_t)m->index * c->devices + d];
    int32_t before = 0;
    while (before < j->own && j->own_ranks[before] != rank) before++;
    if (before < j->own) continue;
    j->devices[j->own] = d;
    j->own_ranks[j->own++] = rank;
  }
}

static int join_links(struct peer_path *c, struct collective *m) {
  struct joining j = {.devices = alloc_array((size_t)c->devices, 2 * sizeof *j.devices)};
  if (j.devices != NULL) {
    j.own_ranks = j.devices + c->devices;
    list_own(c, m, &j);
  }
  int code = spread_id(m, j.devices == NULL ? ALLOC_FAILED : SHARDRT_OK, j.id);
  if (code == SHARDRT_OK) {
    code = collective_until(m, &(struct collective_work){.step = join_step, .context = &j}, what, 0);
    if (code == SHARDRT_ECOMM || code == SHARDRT_EDEVICE) code = error_prefix(code, "%s", what);
    if (code < 0) peer_path_break(c);
  }
  alloc_free(j.devices);
  return code;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

/* Whose the links of this process's devices are: one job's at a time. NULL: nobody's. The devices are the process's
 * (platform/accelerator.h), and so is what links them; a second job learns from this that they are taken. */
static const struct peer_path *linked;

static int take_links(const struct peer_path *c) {
  if (linked != NULL) return error_set(SHARDRT_EINVAL, "another job of this process has the links between its GPUs");
  int code = accelerator_get()->links->open();
  if (code == SHARDRT_OK) linked = c;
  return code;
}

static void give_links(struct peer_path *c) {
  if (c->is_open) accelerator_get()->links->close();
  if (linked == c) linked = NULL;
  c->is_open = false;
}

/* That they cannot be opened here is no failure. */
static void open_links(struct peer_path *c, struct link_report *mine) {
  const bool is_off = mine->wish == LINKS_OFF;
  mine->code = is_off ? SHARDRT_OK : take_links(c);
  c->is_open = !is_off && mine->code == SHARDRT_OK;
  if (mine->code < 0) snprintf(mine->problem, sizeof mine->problem, "%s", shardrt_error_message());
}

static int compare_selves(struct peer_path *c, struct collective *m, struct told *t) {
  const size_t count = (size_t)t->processes * (size_t)t->devices;
  struct link_report *self = t->all == NULL ? NULL : (struct link_report *)(t->all + (size_t)t->processes * t->stride);
  bool *sharing = alloc_zeros((size_t)t->processes, sizeof *sharing);
  int64_t *order = alloc_array(count, 2 * sizeof *order);
  c->ranks = alloc_array(count, sizeof *c->ranks);
  int code = self == NULL || sharing == NULL || order == NULL || c->ranks == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK) code = describe_self((char *)self, t->devices);
  if (code == SHARDRT_OK) open_links(c, self);
  code = collective_join(m, what, code, self, t->stride, t->all);
  if (code == SHARDRT_OK) c->is_apart = (size_t)rank_gpus(t, order, c->ranks, sharing) == count;
  if (code == SHARDRT_OK) choose_kind(c, t, m->index, sharing);
  alloc_free(order);
  alloc_free(sharing);
  return code;
}

int peer_path_settle(struct peer_path *c, struct collective *m, int32_t devices) {
  if (c->is_broken) return error_set(SHARDRT_ECOMM, "%s were given up when something failed on them before", what);
  if (c->kind != PEERS_UNSETTLED) return SHARDRT_OK;
  struct told t = {.processes = m->count,
                   .devices = devices,
                   .stride = sizeof(struct link_report) + (size_t)devices * sizeof(struct gpu_identity)};
  t.all = alloc_array((size_t)t.processes + 1, t.stride);
  c->processes = m->count;
  c->devices = devices;
  int code = compare_selves(c, m, &t);
  alloc_free(t.all);
  if (code == SHARDRT_OK && c->kind == PEERS_LINKED) code = join_links(c, m);
  if (code == SHARDRT_OK && c->kind == PEERS_LINKED) return code;
  alloc_free(c->ranks); /* which nobody asks for */
  c->ranks = NULL;
  if (code < 0) c->kind = PEERS_UNSETTLED;
  if (c->is_broken) return code; /* peer_path_close has the rest */
  give_links(c);
  return code;
}

int32_t peer_path_lines(struct peer_path *c, shardrt_mesh *mesh, const int64_t *weights, bool *is_new) {
  const size_t bytes = (size_t)mesh->naxes * sizeof *weights;
  int32_t oldest = 0;
  c->asked++;
  for (int32_t set = 0; set < ACCELERATOR_LINE_SETS; set++) {
    struct peer_lines *own = &c->lines[set];
    *is_new = own->mesh == NULL || memcmp(own->weights, weights, bytes) != 0 || !shardrt_mesh_equal(own->mesh, mesh);
    if (!*is_new) {
      own->used = c->asked;
      return set;
    }
    if (own->used < c->lines[oldest].used) oldest = set;
  }
  struct peer_lines *made = &c->lines[oldest];
  shardrt_mesh_free(made->mesh);
  *made = (struct peer_lines){.mesh = mesh_retain(mesh), .used = c->asked};
  memcpy(made->weights, weights, bytes);
  return oldest;
}

void peer_path_break(struct peer_path *c) {
  if (c->is_broken) return;
  accelerator_get()->links->abort();
  c->is_broken = true;
}

int peer_path_pinned(struct peer_path *c, size_t bytes, char **out) {
  const struct accelerator *a = accelerator_get();
  if (c->pinned_bytes != bytes) {
    if (c->pinned != NULL) a->memory->free_pinned(c->pinned, c->pinned_bytes);
    c->pinned = NULL;
    c->pinned_bytes = 0;
    void *made;
    int code = a->memory->allocate_pinned(bytes, &made);
    if (code < 0) return code;
    c->pinned = made;
    c->pinned_bytes = bytes;
  }
  *out = c->pinned;
  return SHARDRT_OK;
}

void peer_path_lose_pinned(struct peer_path *c) {
  c->pinned = NULL;
  c->pinned_bytes = 0;
}

const char *peer_path_notice(struct peer_path *c) {
  if (c->notice[0] == '\0' || c->is_told) return NULL;
  c->is_told = true;
  return c->notice;
}

void peer_path_close(struct peer_path *c) {
  const struct accelerator *a = accelerator_get();
  if (c->pinned != NULL) a->memory->free_pinned(c->pinned, c->pinned_bytes);
  give_links(c);
  for (int32_t set = 0; set < ACCELERATOR_LINE_SETS; set++) shardrt_mesh_free(c->lines[set].mesh);
  alloc_free(c->ranks);
  *c = (struct peer_path){0};
}
