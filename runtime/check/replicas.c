/* replicas.c - devices that hold the same box must hold the same data.
 *
 * Only fingerprints travel: every process gives those of its shards to all, and each comes to the same finding, with
 * the same words, by walking the whole mesh. Where no two devices hold one box, every process knows so from the
 * sharding, and nothing travels at all. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/number_text.h"
#include "comm/job.h"
#include "layout/sharding.h"
#include "memory/array_text.h"
#include "platform/accelerator.h"
#include "shardrt.h"
#include "system/trace.h"

/* What a message names; of the rest it says how many there are, so that it is as soon made for a million devices as
 * for eight. */
enum {
  GROUPS_NAMED = 4,    /* sets of devices that hold the same */
  PROCESSES_NAMED = 8, /* of one group */
  RANGES_NAMED = 4,    /* beyond the first, of those that differ */
};

struct replicas {
  const char *name;
  const shardrt_array *array;
  shardrt_job *job;
  const shardrt_job_info *info;
  const shardrt_sharding *sharding;
  const shardrt_mesh *mesh;
  struct block_grid grid;
  /* What all gave: devices_per_process for each process, of which its shard_count count, in mesh order. */
  uint64_t *given;
  uint64_t *found;      /* [mesh size] of the device at each position */
  int64_t *first;       /* [blocks] the first position that holds a block; -1: none yet */
  bool *differs;        /* [blocks] */
  bool *devices, *told; /* [devices of the job] for the report */
};

uint64_t shardrt_fingerprint(const void *data, size_t bytes) {
  return hash_bytes(0, data, bytes);
}

/* Whether arrays are compared in the job: the same in every process. */
static bool is_checking(const shardrt_job *job) {
  return job != NULL && !job_is_planned(job) && shardrt_job_info_get(job)->check != SHARDRT_CHECK_OFF;
}

static int64_t block_at(const struct replicas *r, int64_t position) {
  return sharding_block(r->sharding, &r->grid, position, NULL);
}

/* Spreads what the processes gave over the mesh's positions, and marks the blocks whose devices differ. Returns the
 * first of them, or -1. */
static int64_t find_difference(struct replicas *r, int64_t *seen) {
  int64_t positions = shardrt_mesh_size(r->mesh), devices = r->info->devices_per_process;
  for (int64_t b = 0; b < r->grid.blocks; b++) r->first[b] = -1;
  for (int64_t i = 0; i < positions; i++) {
    int64_t process = shardrt_mesh_device(r->mesh, i) / devices, block = block_at(r, i);
    assert(seen[process] < devices && block >= 0 && block < r->grid.blocks);
    r->found[i] = r->given[process * devices + seen[process]++];
    if (r->first[block] < 0)
      r->first[block] = i;
    else if (r->found[i] != r->found[r->first[block]])
      r->differs[block] = true;
  }
  for (int64_t b = 0; b < r->grid.blocks; b++)
    if (r->differs[b]) return b;
  return -1;
}

/* "devices 0, 1 (process 0) and device 4 (process 2)": the holders of a block that agree with position `like`. */
static void add_devices(struct replicas *r, struct text *text, int64_t block, int64_t like) {
  int64_t positions = shardrt_mesh_size(r->mesh), devices = r->info->devices_per_process;
  memset(r->devices, 0, (size_t)(devices * r->info->process_count) * sizeof *r->devices);
  for (int64_t i = like; i < positions; i++)
    if (block_at(r, i) == block && r->found[i] == r->found[like])
      r->devices[shardrt_mesh_device(r->mesh, i)] = r->told[shardrt_mesh_device(r->mesh, i)] = true;
  int64_t named = 0;
  for (int64_t p = 0; p < r->info->process_count; p++) {
    if (memchr(&r->devices[p * devices], true, (size_t)devices) == NULL || ++named > PROCESSES_NAMED) continue;
    char numbers[64];
    number_text_range(numbers, sizeof numbers, "device", "devices", r->devices, p * devices, (p + 1) * devices);
    text_add(text, "%s%s (process %" PRId64 ")", named == 1 ? "" : ", ", numbers, p);
  }
  if (named > PROCESSES_NAMED) text_add(text, " and those of %" PRId64 " more processes", named - PROCESSES_NAMED);
}

static int report(struct replicas *r, int64_t block) {
  char bytes[3072], whole[768];
  struct text text = {.bytes = bytes, .capacity = sizeof bytes};
  struct text array = {.bytes = whole, .capacity = sizeof whole};
  array_add_text(r->array, &array);
  text_add(&text, "%s: the devices that hold ", r->name);
  shardrt_box box = block_grid_box(&r->grid, block);
  box_add_text(&box, &text);
  text_add(&text, " must hold the same data, but differ: ");
  int64_t groups = 0, others = 0, more = 0;
  for (int64_t i = r->first[block]; i < shardrt_mesh_size(r->mesh); i++) {
    if (block_at(r, i) != block || r->told[shardrt_mesh_device(r->mesh, i)]) continue;
    if (groups == GROUPS_NAMED) {
      others++;
    } else {
      if (groups++ > 0) text_add(&text, " against ");
      add_devices(r, &text, block, i);
    }
  }
  if (others > 0) text_add(&text, " and %" PRId64 " more device%s", others, others == 1 ? "" : "s");
  for (int64_t b = block + 1; b < r->grid.blocks; b++) {
    if (!r->differs[b] || ++more > RANGES_NAMED) continue;
    text_add(&text, more == 1 ? "; so do those that hold " : ", ");
    box = block_grid_box(&r->grid, b);
    box_add_text(&box, &text);
  }
  if (more > RANGES_NAMED) text_add(&text, " and %" PRId64 " more", more - RANGES_NAMED);
  return error_set(SHARDRT_EMISMATCH, "%s (%s)", bytes, whole);
}

/* `code` is of what came before, in this process. */
static int compare_fingerprints(struct replicas *r, const uint64_t *mine, int code) {
  char what[512];
  struct text text = {.bytes = what, .capacity = sizeof what};
  text_add(&text, "%s, comparing replicas (layout %08" PRIx32 ") of ", r->name,
           (uint32_t)shardrt_sharding_fingerprint(r->sharding));
  array_add_text(r->array, &text);
  size_t devices = (size_t)r->info->devices_per_process, processes = (size_t)r->info->process_count;
  uint64_t *own = alloc_zeros(devices, sizeof *own);
  int64_t *seen = alloc_zeros(processes, sizeof *seen);
  r->given = alloc_array(processes, devices * sizeof *r->given);
  r->found = alloc_array((size_t)shardrt_mesh_size(r->mesh), sizeof *r->found);
  r->first = alloc_array((size_t)r->grid.blocks, sizeof *r->first);
  r->differs = alloc_zeros((size_t)r->grid.blocks, sizeof *r->differs);
  r->devices = alloc_zeros(processes * devices, sizeof *r->devices);
  r->told = alloc_zeros(processes * devices, sizeof *r->told);
  if (own == NULL || seen == NULL || r->given == NULL || r->found == NULL || r->first == NULL || r->differs == NULL ||
      r->devices == NULL || r->told == NULL)
    code = ALLOC_FAILED;
  for (int64_t i = 0; code == SHARDRT_OK && i < shardrt_array_shard_count(r->array); i++) own[i] = mine[i];
  code = job_join(r->job, what, code, own, devices * sizeof *own, r->given);
  int64_t block = code == SHARDRT_OK ? find_difference(r, seen) : -1;
  if (block >= 0) code = report(r, block);
  alloc_free(r->told);
  alloc_free(r->devices);
  alloc_free(r->differs);
  alloc_free(r->first);
  alloc_free(r->found);
  alloc_free(r->given);
  alloc_free(seen);
  alloc_free(own);
  return code;
}

/* Whether any two devices of the mesh hold the same box: the same answer in every process. */
static int has_replicas(const shardrt_array *array, struct block_grid *grid, bool *answer) {
  const shardrt_sharding *sharding = shardrt_array_sharding(array);
  int code = sharding_grid(sharding, shardrt_array_ndim(array), shardrt_array_shape(array), grid);
  if (code == SHARDRT_OK) *answer = grid->blocks < shardrt_mesh_size(shardrt_sharding_mesh(sharding));
  return code;
}

/* Where there is nothing to compare, `code` goes back as it is. */
static int meet_replicas(shardrt_job *job, const char *name, const shardrt_array *array, const uint64_t *fingerprints,
                         int code) {
  if (!is_checking(job)) return code;
  struct replicas r = {.name = name, .array = array, .job = job, .info = shardrt_job_info_get(job)};
  bool any = false;
  const int found = has_replicas(array, &r.grid, &any);
  if (found < 0 || !any) return code < 0 ? code : found;
  r.sharding = shardrt_array_sharding(array);
  r.mesh = shardrt_sharding_mesh(r.sharding);
  return compare_fingerprints(&r, fingerprints, code);
}

int shardrt_check_replicas(shardrt_job *job, const char *name, const shardrt_array *array,
                           const uint64_t *fingerprints) {
  return meet_replicas(job, name, array, fingerprints, SHARDRT_OK);
}

static int check_data(const char *name, const shardrt_array *array) {
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++)
    if (shardrt_array_buffer(array, i) == NULL)
      return error_set(SHARDRT_EDATA, "%s: device %d has no data to compare", name,
                       shardrt_array_shard(array, i)->device);
  return SHARDRT_OK;
}

/* Replicas in one process mostly share a buffer, and then its fingerprint. */
static void fingerprint_shards(const shardrt_array *array, uint64_t *out, int64_t *first) {
  const size_t bytes = shardrt_array_shard_bytes(array);
  int64_t taken = 0;
  const int64_t start = trace_begin();
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
    const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
    const int64_t block = shardrt_array_shard(array, i)->block;
    assert(block >= 0 && block <= i); /* numbered as they first appear */
    int64_t *like = &first[block];
    if (*like < 0) *like = i;
    const bool is_known = *like < i && shardrt_array_buffer(array, *like) == buffer;
    out[i] = is_known ? out[*like] : shardrt_fingerprint(shardrt_buffer_data(buffer), bytes);
    if (!is_known) taken++;
  }
  trace_end(start, (struct trace_event){.kind = TRACE_CHECK, .amount = taken * (int64_t)bytes});
}

/* Each device works out those of its own memory, all at the same time. */
static int fingerprint_devices(const char *name, const shardrt_array *array, uint64_t *pinned,
                               struct accelerator_event **ends) {
  const struct accelerator *a = accelerator_get();
  const size_t bytes = shardrt_array_shard_bytes(array);
  const int64_t count = shardrt_array_shard_count(array), start = trace_begin();
  int code = SHARDRT_OK;
  for (int64_t i = 0; code == SHARDRT_OK && i < count; i++) {
    const shardrt_buffer *buffer = shardrt_array_buffer(array, i);
    const int32_t device = shardrt_buffer_device(buffer);
    code = a->kernels->fingerprint(device, ACCELERATOR_MAIN, shardrt_buffer_data(buffer), bytes, &pinned[i]);
    if (code == SHARDRT_OK) code = a->streams->record(device, ACCELERATOR_MAIN, &ends[i]);
  }
  for (int64_t i = 0; i < count; i++) {
    if (code == SHARDRT_OK) code = a->streams->finish(ends[i]);
    a->streams->event_free(ends[i]);
  }
  trace_end(start, (struct trace_event){.kind = TRACE_CHECK, .amount = count * (int64_t)bytes});
  return code < 0 ? error_prefix(code, "%s: comparing replicas", name) : code;
}

static int fetch_fingerprints(const char *name, const shardrt_array *array, uint64_t *out) {
  const struct accelerator *a = accelerator_get();
  const size_t count = (size_t)shardrt_array_shard_count(array);
  if (count == 0) return SHARDRT_OK;
  void *pinned = NULL;
  struct accelerator_event **ends = alloc_zeros(count, sizeof(void *));
  int code = ends == NULL ? ALLOC_FAILED : a->memory->allocate_pinned(count * sizeof *out, &pinned);
  if (code == SHARDRT_OK) code = fingerprint_devices(name, array, pinned, ends);
  if (code == SHARDRT_OK) { /* else what failed may still write there: it is given up */
    memcpy(out, pinned, count * sizeof *out);
    a->memory->free_pinned(pinned, count * sizeof *out);
  }
  alloc_free(ends);
  return code;
}

int shardrt_check_array(shardrt_job *job, const char *name, const shardrt_array *array) {
  if (!is_checking(job)) return SHARDRT_OK;
  struct block_grid grid;
  bool any = false;
  int code = has_replicas(array, &grid, &any);
  if (code < 0 || !any) return code;
  size_t count = (size_t)shardrt_array_shard_count(array);
  uint64_t *fingerprints = alloc_array(count, sizeof *fingerprints);
  int64_t *first = fingerprints == NULL ? NULL : alloc_array(count, sizeof *first);
  code = first == NULL ? ALLOC_FAILED : SHARDRT_OK;
  for (size_t i = 0; code == SHARDRT_OK && i < count; i++) first[i] = -1;
  if (code == SHARDRT_OK) code = check_data(name, array);
  if (code == SHARDRT_OK && accelerator_get() != NULL)
    code = fetch_fingerprints(name, array, fingerprints);
  else if (code == SHARDRT_OK)
    fingerprint_shards(array, fingerprints, first);
  code = meet_replicas(job, name, array, fingerprints, code);
  alloc_free(first);
  alloc_free(fingerprints);
  return code;
}
