/* regroup.c - an array laid out anew from what this process holds of it, so that nothing travels. */
#include "base/alloc.h"
#include "base/error.h"
#include "compute/work.h"
#include "layout/box.h"
#include "memory/array.h"
#include "platform/accelerator.h"
#include "reshard/exchange/device_copy.h"

/* What shard i of x has of shard j of the result. */
static int copy_host_part(const shardrt_array *x, int64_t i, shardrt_array *out, int64_t j, const shardrt_box *part) {
  const shardrt_box *from = &shardrt_array_shard(x, i)->box, *to = &shardrt_array_shard(out, j)->box;
  const shardrt_box source = box_within(part, from), target = box_within(part, to);
  int64_t old[SHARDRT_MAX_NDIM], made[SHARDRT_MAX_NDIM], extent[SHARDRT_MAX_NDIM];
  box_shape(from, old);
  box_shape(to, made);
  box_shape(part, extent);
  return shardrt_box_copy(part->ndim, shardrt_dtype_size(shardrt_array_dtype(x)), extent,
                          shardrt_buffer_data(shardrt_array_buffer(out, j)), made, target.start,
                          shardrt_buffer_data(shardrt_array_buffer(x, i)), old, source.start);
}

static int not_all(const shardrt_array *out, int64_t j) {
  return error_set(SHARDRT_EINVAL, "regroup: this process does not hold all of what device %d is to have",
                   shardrt_array_shard(out, j)->device);
}

static int fill_host_block(const shardrt_array *x, shardrt_array *out, int64_t j) {
  const shardrt_box *wanted = &shardrt_array_shard(out, j)->box;
  int64_t count = shardrt_array_shard_count(x), found = 0;
  for (int64_t i = work_block(x, 0); i < count; i = work_block(x, i + 1)) {
    shardrt_box part;
    if (!box_intersect(&shardrt_array_shard(x, i)->box, wanted, &part)) continue;
    found += box_elements(&part);
    int code = copy_host_part(x, i, out, j, &part);
    if (code < 0) return code;
  }
  return found == box_elements(wanted) ? SHARDRT_OK : not_all(out, j);
}

/* ---- on devices that have memory of their own ------------------------------------------------------------------- */

/* What shard i of x gives to shard j of the result. */
struct shard_part {
  int64_t i, j;
  int32_t from, to; /* their devices */
  shardrt_box box;
};

struct regrouping {
  const struct accelerator *a;
  const shardrt_array *x;
  shardrt_array *out;
  struct shard_part *parts; /* room for each shard of x in each of the result */
  int64_t count;
};

/* A part of shard j from shard i. Replicas have the same: it comes from the one that is nearest. */
static void add_part(struct regrouping *self, int64_t begin, int64_t i, int64_t j, const shardrt_box *box) {
  const int32_t from = array_local_device(self->x, i), to = array_local_device(self->out, j);
  const int32_t block = shardrt_array_shard(self->x, i)->block;
  int64_t k = begin;
  while (k < self->count && shardrt_array_shard(self->x, self->parts[k].i)->block != block) k++;
  if (k < self->count && self->a->link(to, from) <= self->a->link(to, self->parts[k].from)) return;
  if (k == self->count) self->count++;
  self->parts[k] = (struct shard_part){.i = i, .j = j, .from = from, .to = to, .box = *box};
}

/* The parts of shard j, beginning with what its own device holds; none, where that is the same already. */
static int find_parts(struct regrouping *self, int64_t j) {
  const shardrt_box *wanted = &shardrt_array_shard(self->out, j)->box;
  if (box_equal(&shardrt_array_shard(self->x, j)->box, wanted))
    return shardrt_array_set_buffer(self->out, j, shardrt_array_buffer(self->x, j));
  const int64_t shards = shardrt_array_shard_count(self->x), begin = self->count;
  for (int64_t k = 0; k < shards; k++) {
    const int64_t i = (j + k) % shards;
    shardrt_box box;
    if (box_intersect(&shardrt_array_shard(self->x, i)->box, wanted, &box)) add_part(self, begin, i, j, &box);
  }
  int64_t found = 0;
  for (int64_t k = begin; k < self->count; k++) found += box_elements(&self->parts[k].box);
  return found == box_elements(wanted) ? work_output(self->out, j) : not_all(self->out, j);
}

static int regroup_device_part(const struct regrouping *self, const struct shard_part *part) {
  void *source = shardrt_buffer_data(shardrt_array_buffer(self->x, part->i));
  void *target = shardrt_buffer_data(shardrt_array_buffer(self->out, part->j));
  const struct device_view from =
      device_view_in_box(&shardrt_array_shard(self->x, part->i)->box, &part->box, part->from, source);
  const struct device_view to =
      device_view_in_box(&shardrt_array_shard(self->out, part->j)->box, &part->box, part->to, target);
  return device_copy_box("regroup", shardrt_dtype_size(shardrt_array_dtype(self->x)), &part->box, &to, &from,
                         DEVICE_COPY_STAGING);
}

/* Every device waits for those that it takes from, takes all, and only then may those go on: so all of them move at the
 * same time. */
static int regroup_device_parts(const struct regrouping *self) {
  int code = SHARDRT_OK;
  for (int64_t k = 0; k < self->count && code == SHARDRT_OK; k++)
    code = self->a->streams->after(self->parts[k].to, self->parts[k].from);
  for (int64_t k = 0; k < self->count && code == SHARDRT_OK; k++) code = regroup_device_part(self, &self->parts[k]);
  for (int64_t k = 0; k < self->count; k++) { /* also where something failed: what was begun is under way */
    const int after = self->a->streams->after(self->parts[k].from, self->parts[k].to);
    if (code == SHARDRT_OK) code = after;
  }
  return code;
}

static int regroup_on_devices(const shardrt_array *x, shardrt_array *out) {
  const int64_t shards = shardrt_array_shard_count(out);
  struct regrouping self = {.a = accelerator_get(), .x = x, .out = out};
  self.parts = alloc_array((size_t)(shards * shards), sizeof *self.parts);
  if (self.parts == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int64_t j = 0; j < shards && code == SHARDRT_OK; j++) code = find_parts(&self, j);
  if (code == SHARDRT_OK) code = regroup_device_parts(&self);
  alloc_free(self.parts);
  return code;
}

/* ---- on either -------------------------------------------------------------------------------------------------- */

static bool is_same_shape(const shardrt_array *a, const shardrt_array *b) {
  const int32_t ndim = shardrt_array_ndim(a);
  if (ndim != shardrt_array_ndim(b)) return false;
  for (int32_t d = 0; d < ndim; d++)
    if (shardrt_array_shape(a)[d] != shardrt_array_shape(b)[d]) return false;
  return true;
}

/* Where every shard stays what it is, the memory is shared. */
static bool stays(const shardrt_array *x, const shardrt_array *out) {
  for (int64_t i = 0; i < shardrt_array_shard_count(out); i++)
    if (!box_equal(&shardrt_array_shard(x, i)->box, &shardrt_array_shard(out, i)->box)) return false;
  return true;
}

int shardrt_regroup(const shardrt_array *x, shardrt_array *out) {
  int code = work_check("regroup", 1, &x, out);
  if (code < 0) return code;
  if (shardrt_array_dtype(x) != shardrt_array_dtype(out) || !is_same_shape(x, out))
    return error_set(SHARDRT_EINVAL, "regroup: the result has another dtype or shape");
  int64_t count = shardrt_array_shard_count(out);
  if (stays(x, out)) {
    for (int64_t i = 0; code == SHARDRT_OK && i < count; i++)
      code = shardrt_array_set_buffer(out, i, shardrt_array_buffer(x, i));
    return code;
  }
  if (accelerator_get() != NULL) return regroup_on_devices(x, out);
  code = work_outputs(out);
  for (int64_t j = work_block(out, 0); code == SHARDRT_OK && j < count; j = work_block(out, j + 1))
    code = fill_host_block(x, out, j);
  return code;
}
