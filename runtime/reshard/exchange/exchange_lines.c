#include "reshard/exchange/exchange_lines.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "layout/lines.h"
#include "layout/mesh.h"

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

bool exchange_lines_may(const struct peer_path *peers) {
  return peers->kind == PEERS_LINKED && peers->is_apart && peers->wish != LINKS_MESSAGES;
}

bool exchange_lines_may_add(const struct peer_path *peers, int32_t dtype) {
  const bool is_rounded = dtype == SHARDRT_FLOAT32 || dtype == SHARDRT_FLOAT64;
  return exchange_lines_may(peers) && accelerator_adds(dtype) && (!is_rounded || peers->wish == LINKS_COLLECTIVES);
}

/* Whether it is one line, of all GPUs of the job in their order: these have joined as that already. */
static bool is_job_line(const struct peer_path *peers, const shardrt_lines *lines, const shardrt_mesh *mesh) {
  if (lines->count != 1 || lines->size != (int64_t)peers->processes * peers->devices) return false;
  for (int64_t place = 0; place < lines->size; place++)
    if (peers->ranks[shardrt_mesh_device(mesh, lines_position(lines, mesh, 0, place))] != place) return false;
  return true;
}

bool exchange_lines_wanted(const struct peer_path *peers, const shardrt_lines *lines, const shardrt_mesh *mesh,
                           int32_t dtype) {
  if (!exchange_lines_may(peers) || lines->kind == SHARDRT_LINES_NONE) return false;
  if (!lines->is_between || !lines->is_once) return false;
  const bool adds = lines->kind == SHARDRT_LINES_SUM || lines->kind == SHARDRT_LINES_SUM_PARTS;
  if (adds && !exchange_lines_may_add(peers, dtype)) return false;
  const int64_t bytes = lines->elements * (int64_t)shardrt_dtype_size(dtype);
  if (peers->wish == LINKS_COLLECTIVES) return true;
  return bytes >= LINES_FROM && lines->saves && is_job_line(peers, lines, mesh);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

enum stage { TO_DIVIDE, DIVIDING, TO_START, STARTING, RUNNING };

struct line_exchange {
  const shardrt_lines *lines;
  const shardrt_mesh *mesh;
  int64_t count;
  const struct accelerator_line_work *works;
  const struct peer_path *peers;
  const struct accelerator *a;
  enum stage stage;
  int32_t set;               /* of the lines; ACCELERATOR_JOB_LINE */
  int32_t *numbers, *places; /* [devices] the line of each, and its place; -1: of none */
  struct accelerator_event *
      *events; /* [count] the devices have come to the end of it; NULL: they have, or do not yet */
};

/* Finds the line of each device of this process. */
static void place_devices(struct line_exchange *x, int32_t process) {
  const int32_t devices = x->peers->devices;
  for (int32_t d = 0; d < devices; d++) {
    int64_t position, line, place;
    x->numbers[d] = x->places[d] = -1;
    if (shardrt_mesh_positions(x->mesh, process * devices + d, 1, &position, 1) != 1) continue;
    lines_at(x->lines, x->mesh, position, &line, &place);
    x->numbers[d] = (int32_t)line;
    x->places[d] = (int32_t)place;
  }
}

static int record_ends(struct line_exchange *x) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < x->count && code == SHARDRT_OK; i++)
    code = x->a->streams->record(x->works[i].device, ACCELERATOR_MAIN, &x->events[i]);
  return code;
}

static int look_at_ends(struct line_exchange *x, bool *done) {
  *done = true;
  for (int64_t i = 0; i < x->count && *done; i++) {
    if (x->events[i] == NULL) continue;
    int code = x->a->streams->reached(x->events[i], done);
    if (code < 0) return code;
    if (!*done) continue;
    x->a->streams->event_free(x->events[i]);
    x->events[i] = NULL;
  }
  return SHARDRT_OK;
}

static int line_exchange_step(void *context, bool *done, bool *moved) {
  struct line_exchange *x = context;
  const enum stage before = x->stage;
  bool put = false;
  int code = SHARDRT_OK;
  switch (before) {
  case TO_DIVIDE:
    code = x->a->links->divide(x->set, x->numbers, x->places);
    x->stage = DIVIDING;
    break;
  case TO_START:
    code = x->a->links->together(x->set, x->count, x->works);
    x->stage = STARTING;
    break;
  default:
    code = x->a->links->state(&put); /* which also tells of what fails later */
    if (code < 0 || !put) break;
    if (before == RUNNING) return look_at_ends(x, done);
    if (before == STARTING) code = record_ends(x);
    x->stage = before == DIVIDING ? TO_START : RUNNING;
  }
  *moved = x->stage != before;
  return code;
}

static void line_exchange_awaits(const void *context, bool *processes) {
  const struct line_exchange *x = context;
  const int32_t devices = x->peers->devices;
  if (x->stage == DIVIDING) { /* which all do */
    for (int64_t i = 0; i < x->mesh->size; i++) processes[shardrt_mesh_device(x->mesh, i) / devices] = true;
    return;
  }
  for (int32_t d = 0; d < devices; d++)
    for (int64_t place = 0; x->numbers[d] >= 0 && place < x->lines->size; place++)
      processes[shardrt_mesh_device(x->mesh, lines_position(x->lines, x->mesh, x->numbers[d], place)) / devices] = true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

struct accelerator_line_work exchange_lines_work(const shardrt_lines *lines, int32_t device, int32_t dtype,
                                                 const void *from, void *to) {
  struct accelerator_line_work made = {
      .device = device, .dtype = dtype, .root = (int32_t)lines->root, .from = from, .to = to};
  made.elements = lines->elements;
  switch (lines->kind) {
  case SHARDRT_LINES_SUM:
    made.kind = ACCELERATOR_SUM_ALL;
    break;
  case SHARDRT_LINES_SUM_PARTS:
    made.kind = ACCELERATOR_SUM_PART;
    made.elements /= lines->size;
    break;
  case SHARDRT_LINES_GATHER:
    made.kind = ACCELERATOR_GATHER;
    made.elements /= lines->size;
    break;
  default:
    made.kind = ACCELERATOR_COPY;
    if (from == NULL) made.from = to;
  }
  return made;
}

static int run(struct line_exchange *x, shardrt_mesh *mesh, struct peer_path *peers, struct collective *m,
               const char *what) {
  bool is_new = false;
  x->set = ACCELERATOR_JOB_LINE;
  if (!is_job_line(peers, x->lines, mesh)) x->set = peer_path_lines(peers, mesh, x->lines->weights, &is_new);
  x->stage = is_new ? TO_DIVIDE : TO_START;
  if (!is_new && x->count == 0) return SHARDRT_OK;
  const struct collective_work work = {.step = line_exchange_step, .awaits = line_exchange_awaits, .context = x};
  const size_t bytes = (size_t)x->lines->elements * (x->count == 0 ? 0 : shardrt_dtype_size(x->works[0].dtype));
  int code = collective_until(m, &work, what, bytes);
  if (code == SHARDRT_ECOMM) code = error_prefix(code, "%s", what);
  if (code < 0) peer_path_break(peers);
  return code;
}

int exchange_lines_run(const shardrt_lines *lines, shardrt_mesh *mesh, int64_t count,
                       const struct accelerator_line_work *works, struct peer_path *peers, struct collective *m,
                       const char *what) {
  struct line_exchange x = {
      .lines = lines, .mesh = mesh, .count = count, .works = works, .peers = peers, .a = accelerator_get()};
  x.numbers = alloc_array((size_t)peers->devices, 2 * sizeof *x.numbers);
  x.events = alloc_zeros((size_t)count, sizeof(struct accelerator_event *));
  int code = x.numbers == NULL || x.events == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK) {
    x.places = x.numbers + peers->devices;
    place_devices(&x, m->index);
    code = run(&x, mesh, peers, m, what);
  }
  for (int64_t i = 0; x.events != NULL && i < count; i++)
    if (x.events[i] != NULL) x.a->streams->event_free(x.events[i]);
  alloc_free((void *)x.events);
  alloc_free(x.numbers);
  return code;
}
