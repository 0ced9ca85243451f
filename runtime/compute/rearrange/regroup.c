/* regroup.c - an array laid out anew from what this process holds of it, so that nothing travels. */
#include "base/alloc.h"
#include "base/error.h"
#include "compute/rearrange/place.h"
#include "compute/work.h"
#include "layout/box.h"
#include "memory/array.h"
#include "platform/accelerator.h"

static void extent_of(const shardrt_box *box, int64_t *extent) {
  for (int32_t d = 0; d < box->ndim; d++) extent[d] = box->stop[d] - box->start[d];
}

/* What shard i of x has of shard j of the result. */
static int copy_part(const shardrt_array *x, int64_t i, shardrt_array *out, int64_t j, const shardrt_box *part) {
  const shardrt_box *from = &shardrt_array_shard(x, i)->box, *to = &shardrt_array_shard(out, j)->box;
  int64_t old[SHARDRT_MAX_NDIM], made[SHARDRT_MAX_NDIM], extent[SHARDRT_MAX_NDIM];
  int64_t source[SHARDRT_MAX_NDIM], target[SHARDRT_MAX_NDIM];
  extent_of(from, old);
  extent_of(to, made);
  extent_of(part, extent);
  for (int32_t d = 0; d < part->ndim; d++) {
    source[d] = part->start[d] - from->start[d];
    target[d] = part->start[d] - to->start[d];
  }
  return shardrt_box_copy(part->ndim, shardrt_dtype_size(shardrt_array_dtype(x)), extent,
                          shardrt_buffer_data(shardrt_array_buffer(out, j)), made, target,
                          shardrt_buffer_data(shardrt_array_buffer(x, i)), old, source);
}

static int not_all(const shardrt_array *out, int64_t j) {
  return error_set(SHARDRT_EINVAL, "regroup: this process does not hold all of what device %d is to have",
                   shardrt_array_shard(out, j)->device);
}

static int fill_shard(const shardrt_array *x, shardrt_array *out, int64_t j) {
  const shardrt_box *wanted = &shardrt_array_shard(out, j)->box;
  int64_t count = shardrt_array_shard_count(x), found = 0;
  for (int64_t i = work_block(x, 0); i < count; i = work_block(x, i + 1)) {
    shardrt_box part;
    if (!box_intersect(&shardrt_array_shard(x, i)->box, wanted, &part)) continue;
    found += box_elements(&part);
    int code = copy_part(x, i, out, j, &part);
    if (code < 0) return code;
  }
  return found == box_elements(wanted) ? SHARDRT_OK : not_all(out, j);
}

/* ---- on devices that have memory of their own ------------------------------------------------------------------- */

/* What shard i of x gives to shard j of the result. Where the one's device does not reach the other's memory, it is
 * packed on its way: in scratch memory of either side where it is no run there. */
struct shard_part {
  int64_t i, j;
  int32_t from, to; /* their devices */
  shardrt_box box;
  bool run_from, run_to; /* it is one run in the source, in the target */
  size_t bytes;
  void *packed, *arrived; /* NULL: none */
};

struct regrouping {
  const accelerator *a;
  const shardrt_array *x;
  shardrt_array *out;
  size_t element;
  struct shard_part *parts; /* room for each shard of x in each of the result */
  int64_t count;
};

static bool is_run_in(const shardrt_box *part, const shardrt_box *whole) {
  int64_t shape[SHARDRT_MAX_NDIM];
  shardrt_box within = *part;
  extent_of(whole, shape);
  for (int32_t d = 0; d < part->ndim; d++) {
    within.start[d] -= whole->start[d];
    within.stop[d] -= whole->start[d];
  }
  return box_is_run(&within, shape);
}

/* Elements before the part's first one in a packed block of this box, and its strides there. */
static int64_t strides_in(const shardrt_box *part, const shardrt_box *whole, int64_t *strides) {
  int64_t shape[SHARDRT_MAX_NDIM], first = 0;
  extent_of(whole, shape);
  place_strides(whole->ndim, shape, strides);
  for (int32_t d = 0; d < part->ndim; d++) first += (part->start[d] - whole->start[d]) * strides[d];
  return first;
}

/* A part of shard j from shard i. Replicas have the same: it comes from the one that is nearest. */
static void add_part(struct regrouping *self, int64_t begin, int64_t i, int64_t j, const shardrt_box *box) {
  const int32_t from = array_local_device(self->x, i), to = array_local_device(self->out, j);
  const int32_t block = shardrt_array_shard(self->x, i)->block;
  int64_t k = begin;
  while (k < self->count && shardrt_array_shard(self->x, self->parts[k].i)->block != block) k++;
  if (k < self->count && self->a->link(to, from) <= self->a->link(to, self->parts[k].from)) return;
  if (k == self->count) self->count++;
  self->parts[k] = (struct shard_part){
      .i = i,
      .j = j,
      .from = from,
      .to = to,
      .box = *box,
      .run_from = is_run_in(box, &shardrt_array_shard(self->x, i)->box),
      .run_to = is_run_in(box, &shardrt_array_shard(self->out, j)->box),
      .bytes = (size_t)box_elements(box) * self->element,
  };
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

/* Copies a box on a device; a box that is NULL is the part itself, packed. */
static int place_part(const struct regrouping *self, const struct shard_part *part, int32_t device, void *to,
                      const shardrt_box *to_box, const void *from, const shardrt_box *from_box) {
  accelerator_place place = {.ndim = part->box.ndim};
  extent_of(&part->box, place.extent);
  place.to_first = strides_in(&part->box, to_box == NULL ? &part->box : to_box, place.to_stride);
  place.from_first = strides_in(&part->box, from_box == NULL ? &part->box : from_box, place.from_stride);
  return self->a->place("regroup", device, self->element, &place, to, from);
}

static bool is_packed(const struct regrouping *self, const struct shard_part *part) {
  return !(part->run_from && part->run_to) && !self->a->reaches(part->to, part->from);
}

static int scratch(const struct regrouping *self, int32_t device, size_t bytes, void **out) {
  return self->a->allocate(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, out);
}

/* On the device that has it. */
static int pack(const struct regrouping *self, struct shard_part *part) {
  if (part->run_from || !is_packed(self, part)) return SHARDRT_OK;
  int code = scratch(self, part->from, part->bytes, &part->packed);
  if (code < 0) return code;
  return place_part(self, part, part->from, part->packed, NULL,
                    shardrt_buffer_data(shardrt_array_buffer(self->x, part->i)),
                    &shardrt_array_shard(self->x, part->i)->box);
}

/* On the device that gets it. */
static int move(const struct regrouping *self, struct shard_part *part) {
  const shardrt_box *from_box = &shardrt_array_shard(self->x, part->i)->box;
  const shardrt_box *to_box = &shardrt_array_shard(self->out, part->j)->box;
  const char *from = shardrt_buffer_data(shardrt_array_buffer(self->x, part->i));
  char *to = shardrt_buffer_data(shardrt_array_buffer(self->out, part->j));
  int64_t strides[SHARDRT_MAX_NDIM];
  if (!(part->run_from && part->run_to) && !is_packed(self, part))
    return place_part(self, part, part->to, to, to_box, from, from_box);
  const char *source = part->packed;
  if (source == NULL) source = from + (size_t)strides_in(&part->box, from_box, strides) * self->element;
  char *target = to + (size_t)strides_in(&part->box, to_box, strides) * self->element;
  if (part->run_to) return self->a->copy(part->to, target, part->from, source, part->bytes);
  int code = scratch(self, part->to, part->bytes, &part->arrived);
  if (code == SHARDRT_OK) code = self->a->copy(part->to, part->arrived, part->from, source, part->bytes);
  return code < 0 ? code : place_part(self, part, part->to, to, to_box, part->arrived, NULL);
}

/* Every device packs what others do not reach, waits for those that it takes from, takes all, and only then may those
 * go on: so all of them move at the same time. */
static int move_all(struct regrouping *self) {
  int code = SHARDRT_OK;
  for (int64_t k = 0; k < self->count && code == SHARDRT_OK; k++) code = pack(self, &self->parts[k]);
  for (int64_t k = 0; k < self->count && code == SHARDRT_OK; k++)
    code = self->a->after(self->parts[k].to, self->parts[k].from);
  for (int64_t k = 0; k < self->count && code == SHARDRT_OK; k++) code = move(self, &self->parts[k]);
  for (int64_t k = 0; k < self->count; k++) { /* also where something failed: what was begun is under way */
    struct shard_part *part = &self->parts[k];
    const int after = self->a->after(part->from, part->to);
    if (code == SHARDRT_OK) code = after;
    if (part->packed != NULL)
      self->a->free(part->from, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, part->packed, part->bytes);
    if (part->arrived != NULL)
      self->a->free(part->to, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, part->arrived, part->bytes);
  }
  return code;
}

static int regroup_on_devices(const shardrt_array *x, shardrt_array *out) {
  const int64_t shards = shardrt_array_shard_count(out);
  struct regrouping self = {.a = accelerator_get(), .x = x, .out = out};
  self.element = shardrt_dtype_size(shardrt_array_dtype(x));
  self.parts = alloc_array((size_t)(shards * shards), sizeof *self.parts);
  if (self.parts == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int64_t j = 0; j < shards && code == SHARDRT_OK; j++) code = find_parts(&self, j);
  if (code == SHARDRT_OK) code = move_all(&self);
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
    code = fill_shard(x, out, j);
  return code;
}
