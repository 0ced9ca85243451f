#include "loader/upload.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "memory/array.h"
#include "memory/buffer.h"

/* ---- what is handed out ----------------------------------------------------------------------------------------- */

/* Counted by the plan and by each buffer that is handed out. */
struct upload_account {
  _Atomic int64_t count;
  _Atomic size_t bytes;
};

static void account_free(struct upload_account *self) {
  if (self != NULL && atomic_fetch_sub(&self->count, 1) == 1) alloc_free(self);
}

static void account_back(void *context, void *data, size_t bytes) {
  (void)data;
  struct upload_account *self = context;
  assert(atomic_load(&self->bytes) >= bytes);
  atomic_fetch_sub(&self->bytes, bytes);
  account_free(self);
}

void upload_count(const struct upload_plan *self, shardrt_array *array) {
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
    shardrt_buffer *buffer = shardrt_array_buffer(array, i);
    if (shardrt_buffer_device(buffer) == BUFFER_HOST || !buffer_watch(buffer, account_back, self->account)) continue;
    atomic_fetch_add(&self->account->count, 1);
    atomic_fetch_add(&self->account->bytes, shardrt_buffer_bytes(buffer));
  }
}

size_t upload_counted(const struct upload_plan *self) {
  return atomic_load(&self->account->bytes);
}

/* ---- the plan --------------------------------------------------------------------------------------------------- */

static void add_field(struct upload_plan *self, int32_t f) {
  const struct plan_field *field = &self->plan->fields[f];
  const size_t bytes = shardrt_array_shard_bytes(field->like);
  self->first_shard[f] = self->nshards;
  self->compares = self->compares || field->has_replicas;
  for (int64_t i = 0; i < shardrt_array_shard_count(field->like); i++) {
    self->shards[self->nshards++] = (struct upload_shard){.field = f,
                                                          .device = array_local_device(field->like, i),
                                                          .block = field->first_block + field->shard_blocks[i],
                                                          .bytes = bytes};
    self->batch_bytes += bytes; /* no overflow: the budget has seen them */
    if (field->has_replicas) self->compared_bytes += bytes;
  }
}

static void list_by_device(struct upload_plan *self) {
  int64_t n = 0;
  for (int32_t d = 0; d < self->ndevices; d++) {
    self->first_of[d] = n;
    for (int64_t s = 0; s < self->nshards; s++)
      if (self->shards[s].device == d) self->by_device[n++] = s;
  }
  assert(n == self->nshards); /* each is on a device of this process */
  self->first_of[self->ndevices] = n;
}

static int set_upload_plan(struct upload_plan *self) {
  size_t shards = 0;
  for (int32_t f = 0; f < self->plan->nfields; f++)
    shards += (size_t)shardrt_array_shard_count(self->plan->fields[f].like);
  self->account = alloc_zeros(1, sizeof *self->account);
  if (self->account == NULL) return ALLOC_FAILED;
  self->account->count = 1;
  self->shards = alloc_array(shards, sizeof *self->shards);
  self->by_device = self->shards == NULL ? NULL : alloc_array(shards, sizeof *self->by_device);
  self->first_shard =
      self->by_device == NULL ? NULL : alloc_array((size_t)self->plan->nfields, sizeof *self->first_shard);
  self->first_of = self->first_shard == NULL ? NULL : alloc_array((size_t)self->ndevices + 1, sizeof *self->first_of);
  if (self->first_of == NULL) return ALLOC_FAILED;
  for (int32_t f = 0; f < self->plan->nfields; f++) add_field(self, f);
  list_by_device(self);
  return SHARDRT_OK;
}

int upload_plan_new(const struct plan *plan, struct upload_plan **out) {
  *out = NULL;
  const struct accelerator *a = accelerator_get();
  if (a == NULL) return SHARDRT_OK;
  struct upload_plan *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->a = a;
  made->plan = plan;
  made->ndevices = plan->devices_per_process;
  int code = set_upload_plan(made);
  if (code != SHARDRT_OK) {
    upload_plan_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

void upload_plan_free(struct upload_plan *self) {
  if (self == NULL) return;
  account_free(self->account);
  alloc_free(self->first_of);
  alloc_free(self->first_shard);
  alloc_free(self->by_device);
  alloc_free(self->shards);
  alloc_free(self);
}

/* ---- one upload ------------------------------------------------------------------------------------------------- */

int upload_set(struct upload *self, const struct upload_plan *plan) {
  if (plan == NULL) return SHARDRT_OK;
  self->buffers = alloc_zeros((size_t)plan->nshards, sizeof(shardrt_buffer *));
  if (self->buffers == NULL) return ALLOC_FAILED;
  self->devices = alloc_zeros((size_t)plan->ndevices, sizeof *self->devices);
  if (self->devices == NULL) return ALLOC_FAILED;
  self->plan = plan; /* from here on there is something to do */
  if (!plan->compares) return SHARDRT_OK;
  void *fingerprints;
  int code = plan->a->memory->allocate_pinned((size_t)plan->nshards * sizeof *self->fingerprints, &fingerprints);
  if (code == SHARDRT_OK) self->fingerprints = fingerprints;
  return code;
}

static void free_events(const struct upload_plan *plan, struct upload_device *device) {
  struct accelerator_event **const events[] = {&device->begin, &device->copied, &device->ready, &device->asked,
                                               &device->given};
  for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
    plan->a->streams->event_free(*events[i]);
    *events[i] = NULL;
  }
}

/* What failed may still write to the fingerprints: then they are given up. */
static void upload_give_back(struct upload *self, const struct upload_plan *plan) {
  if (self->fingerprints != NULL && !upload_is_under_way(self))
    plan->a->memory->free_pinned(self->fingerprints, (size_t)plan->nshards * sizeof *self->fingerprints);
  for (int32_t d = 0; d < plan->ndevices; d++) free_events(plan, &self->devices[d]);
}

void upload_clear(struct upload *self) {
  if (self->plan != NULL) upload_give_back(self, self->plan);
  alloc_free(self->devices);
  alloc_free((void *)self->buffers);
  *self = (struct upload){0};
}

static bool is_compared(const struct upload *self, const struct upload_shard *shard) {
  return self->is_fingerprinted && self->plan->plan->fields[shard->field].has_replicas;
}

static int add_context(const struct upload *self, const struct upload_shard *shard, int code) {
  const char *name = self->plan->plan->fields[shard->field].field->name;
  return code == SHARDRT_OK ? code : error_prefix(code, "field \"%s\" of the loader's next batch", name);
}

static int add_batch_context(int code) {
  return code == SHARDRT_OK ? code : error_prefix(code, "the loader's next batch");
}

/* Everything at once: what is under way when memory turns out to be missing would have to be waited for. */
static int upload_take_memory(struct upload *self) {
  const struct upload_plan *plan = self->plan;
  for (int64_t s = 0; s < plan->nshards; s++) {
    const struct upload_shard *shard = &plan->shards[s];
    int code = buffer_on_device(shard->device, ACCELERATOR_IN, ACCELERATOR_BATCHES, shard->bytes, &self->buffers[s]);
    if (code != SHARDRT_OK) return add_context(self, shard, code);
  }
  return SHARDRT_OK;
}

static int copy_shard(const struct upload *self, int64_t s, shardrt_buffer *const *blocks) {
  const struct upload_shard *shard = &self->plan->shards[s];
  int code = self->plan->a->copies->upload(shard->device, ACCELERATOR_IN, shardrt_buffer_data(self->buffers[s]),
                                           shardrt_buffer_data(blocks[shard->block]), shard->bytes);
  return add_context(self, shard, code);
}

static int fingerprint_shard(const struct upload *self, int64_t s) {
  const struct upload_shard *shard = &self->plan->shards[s];
  if (!is_compared(self, shard)) return SHARDRT_OK;
  self->fingerprints[s] = 0; /* which it stays where there are no bytes */
  int code = self->plan->a->kernels->fingerprint(shard->device, ACCELERATOR_IN, shardrt_buffer_data(self->buffers[s]),
                                                 shard->bytes, &self->fingerprints[s]);
  return add_context(self, shard, code);
}

/* The copies of one device between two marks, with nothing between them that is not copying; then the rest. */
static int start_device(struct upload *self, int32_t d, shardrt_buffer *const *blocks) {
  const struct upload_plan *plan = self->plan;
  const int64_t *shards = plan->by_device + plan->first_of[d], count = plan->first_of[d + 1] - plan->first_of[d];
  struct upload_device *device = &self->devices[d];
  if (count == 0) return SHARDRT_OK;
  int code = add_batch_context(plan->a->streams->mark(d, ACCELERATOR_IN, &device->begin));
  device->used = device->used || code == SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) code = copy_shard(self, shards[i], blocks);
  if (code == SHARDRT_OK) code = add_batch_context(plan->a->streams->mark(d, ACCELERATOR_IN, &device->copied));
  if (!self->is_fingerprinted) return code;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) code = fingerprint_shard(self, shards[i]);
  return code == SHARDRT_OK ? add_batch_context(plan->a->streams->record(d, ACCELERATOR_IN, &device->ready)) : code;
}

int upload_start(struct upload *self, shardrt_buffer *const *blocks, bool fingerprinted) {
  const struct upload_plan *plan = self->plan;
  self->is_fingerprinted = fingerprinted && self->fingerprints != NULL;
  int code = upload_take_memory(self);
  for (int32_t d = 0; d < plan->ndevices && code == SHARDRT_OK; d++) code = start_device(self, d, blocks);
  self->is_started = code == SHARDRT_OK;
  if (code == SHARDRT_OK) return code;
  for (int32_t d = 0; d < plan->ndevices; d++) free_events(plan, &self->devices[d]);
  upload_drop(self);
  return code;
}

/* When all that is on IN for this has ended; made only now, where starting it failed. */
static int end_of(const struct upload *self, int32_t d, struct accelerator_event **out) {
  struct upload_device *device = &self->devices[d];
  int code = SHARDRT_OK;
  if (device->ready == NULL && device->copied == NULL)
    code = self->plan->a->streams->record(d, ACCELERATOR_IN, &device->ready);
  *out = device->ready != NULL ? device->ready : device->copied;
  return code;
}

static int hand_over_device(struct upload *self, int32_t d) {
  const struct accelerator *a = self->plan->a;
  struct upload_device *device = &self->devices[d];
  struct accelerator_event *end;
  int code = end_of(self, d, &end);
  if (code == SHARDRT_OK) code = a->streams->mark(d, ACCELERATOR_MAIN, &device->asked);
  if (code == SHARDRT_OK) code = a->streams->wait(d, ACCELERATOR_MAIN, end);
  if (code != SHARDRT_OK) return code;
  for (int64_t i = self->plan->first_of[d]; i < self->plan->first_of[d + 1]; i++)
    buffer_to_main(self->buffers[self->plan->by_device[i]]);
  return a->streams->mark(d, ACCELERATOR_MAIN, &device->given);
}

int upload_hand_over(struct upload *self) {
  int code = SHARDRT_OK;
  for (int32_t d = 0; d < self->plan->ndevices && code == SHARDRT_OK; d++)
    if (self->devices[d].used) code = hand_over_device(self, d);
  return add_batch_context(code);
}

int upload_fingerprints(struct upload *self, int32_t f, uint64_t *out) {
  const struct upload_plan *plan = self->plan;
  const int64_t first = plan->first_shard[f], count = shardrt_array_shard_count(plan->plan->fields[f].like);
  for (int64_t i = 0; i < count; i++) {
    struct accelerator_event *end;
    int code = end_of(self, plan->shards[first + i].device, &end);
    if (code == SHARDRT_OK) code = plan->a->streams->finish(end);
    if (code != SHARDRT_OK) return add_context(self, &plan->shards[first + i], code);
    out[i] = self->fingerprints[first + i];
  }
  return SHARDRT_OK;
}

void upload_drop(struct upload *self) {
  for (int64_t s = 0; self->plan != NULL && s < self->plan->nshards; s++) {
    shardrt_buffer_free(self->buffers[s]);
    self->buffers[s] = NULL;
  }
}

bool upload_is_under_way(const struct upload *self) {
  for (int32_t d = 0; self->plan != NULL && d < self->plan->ndevices; d++)
    if (self->devices[d].used) return true;
  return false;
}

static int land_device(struct upload *self, int32_t d, bool wait, bool *landed) {
  const struct accelerator *a = self->plan->a;
  struct accelerator_event *end = self->devices[d].given;
  int code = end == NULL ? end_of(self, d, &end) : SHARDRT_OK;
  *landed = true;
  if (code == SHARDRT_OK) code = wait ? a->streams->finish(end) : a->streams->reached(end, landed);
  return code;
}

/* The longest of the devices' times. */
static int add_times(const struct upload *self, struct upload_stats *stats) {
  const struct accelerator *a = self->plan->a;
  double seconds = 0, waited = 0;
  for (int32_t d = 0; d < self->plan->ndevices; d++) {
    const struct upload_device *device = &self->devices[d];
    double took;
    if (device->given == NULL) continue;
    int code = a->streams->elapsed(device->begin, device->copied, &took);
    if (code != SHARDRT_OK) return code;
    if (took > seconds) seconds = took;
    code = a->streams->elapsed(device->asked, device->given, &took);
    if (code != SHARDRT_OK) return code;
    if (took > waited) waited = took;
  }
  stats->seconds += seconds;
  stats->waited += waited;
  return SHARDRT_OK;
}

/* Nothing is under way anymore. */
static void forget(struct upload *self) {
  for (int32_t d = 0; self->plan != NULL && d < self->plan->ndevices; d++) {
    free_events(self->plan, &self->devices[d]);
    self->devices[d].used = false;
  }
  self->is_started = false;
}

int upload_land(struct upload *self, bool wait, struct upload_stats *stats, bool *landed) {
  const struct upload_plan *plan = self->plan;
  *landed = true;
  if (plan == NULL) return SHARDRT_OK;
  bool was_handed_over = false;
  for (int32_t d = 0; d < plan->ndevices && *landed; d++) {
    if (!self->devices[d].used) continue;
    was_handed_over = was_handed_over || self->devices[d].given != NULL;
    int code = land_device(self, d, wait, landed);
    if (code == SHARDRT_OK) continue;
    *landed = false; /* as far as is known */
    return code;
  }
  if (!*landed) return SHARDRT_OK;
  int code = add_times(self, stats);
  if (code == SHARDRT_OK && was_handed_over) stats->bytes += (int64_t)plan->batch_bytes;
  forget(self);
  return code;
}

bool upload_end(struct upload *self) {
  int code = SHARDRT_OK;
  for (int32_t d = 0; self->plan != NULL && d < self->plan->ndevices && code == SHARDRT_OK; d++) {
    struct accelerator_event *end;
    if (!self->devices[d].used) continue;
    code = end_of(self, d, &end);
    if (code == SHARDRT_OK) code = self->plan->a->streams->finish(end);
  }
  if (code == SHARDRT_OK) forget(self);
  return code == SHARDRT_OK;
}
