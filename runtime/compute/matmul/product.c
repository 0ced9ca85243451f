/* product.c - where shards of the result are parts of one sum (partial_sums.h), the first device that has a part
 * computes it, in the dtype in which it is added up. Then every device that is to have the sum adds the parts, which it
 * reads from the others' memory, in their order: so all have the same bits, whatever the number of GPUs. Large results
 * are added up once, each device a slice, which the others then copy: a device that gets n bytes of p parts reads 2 n,
 * not p n.
 */
#include "compute/matmul/product.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compute/matmul/partial_sums.h"
#include "compute/reduce/reduce_loops.h"
#include "compute/work.h"

enum {
  MOST_PARTS = SHARDRT_MAX_REGISTERS / 2, /* of one sum, which is one program: an operand and an addition each */
  WORTH_SLICES = 1 << 20,                 /* bytes of a sum that is not added up by every device */
  SLICE = 256,                            /* elements: slices are as many times that, and so begin at aligned ones */
  ALIGNMENT = 256
};

static const char WHAT[] = "matmul";

/* Memory of a device. */
struct device_data {
  int32_t device;
  char *data;
};

struct sum {
  const struct accelerator *platform;
  int32_t dtype, out_dtype; /* of the parts, and of the sum */
  int64_t elements;
  int64_t members; /* devices that get the sum, and where they have it */
  struct device_data *member;
  int64_t terms; /* parts: scratch memory on some of these devices */
  struct device_data *term;
  struct accelerator_operand *operands; /* as many */
  shardrt_step *steps;                  /* one less */
};

static size_t part_bytes(const struct sum *self) {
  return (size_t)self->elements * shardrt_dtype_size(self->dtype);
}

/* ---- adding up -------------------------------------------------------------------------------------------------- */

/* What any of the devices does from now on comes after all that any has been given so far. */
static int meet(const struct sum *self) {
  assert(self->members > 0);
  const int32_t hub = self->member[0].device;
  int code = SHARDRT_OK;
  for (int64_t i = 1; i < self->members && code == SHARDRT_OK; i++)
    code = self->platform->streams->after(hub, self->member[i].device);
  for (int64_t i = 1; i < self->members && code == SHARDRT_OK; i++)
    code = self->platform->streams->after(self->member[i].device, hub);
  return code;
}

/* Sets the operands to elements first … first + count - 1 of the parts, from memory that the device reads by itself;
 * other parts' are copied to `copies`, of `room` bytes each. */
static int find_operands(const struct sum *self, int32_t device, int64_t first, int64_t count, char *copies,
                         size_t room) {
  const size_t size = shardrt_dtype_size(self->dtype);
  int code = SHARDRT_OK;
  for (int64_t t = 0; t < self->terms && code == SHARDRT_OK; t++) {
    const struct device_data *term = &self->term[t];
    const char *data = term->data + (size_t)first * size;
    if (!self->platform->copies->reaches(device, term->device)) {
      code = self->platform->copies->copy(device, copies, term->device, data, (size_t)count * size);
      data = copies;
      copies += room;
    }
    self->operands[t] =
        (struct accelerator_operand){.data = data, .dtype = self->dtype, .ndim = 1, .sizes = {count}, .strides = {1}};
  }
  return code;
}

/* On a member: elements first … first + count - 1 of the sum. */
static int add_slice(const struct sum *self, const struct device_data *member, int64_t first, int64_t count) {
  const struct accelerator *platform = self->platform;
  const int32_t device = member->device;
  const size_t room = ((size_t)count * shardrt_dtype_size(self->dtype) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  size_t away = 0; /* parts that the device does not reach */
  for (int64_t t = 0; t < self->terms; t++) away += platform->copies->reaches(device, self->term[t].device) ? 0 : 1;
  void *copies = NULL;
  int code = SHARDRT_OK;
  if (away > 0) code = platform->memory->allocate(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, away * room, &copies);
  if (code < 0) return code;
  code = find_operands(self, device, first, count, copies, room);
  const struct accelerator_program program = {.steps = self->steps,
                                              .nsteps = (int32_t)self->terms - 1,
                                              .nin = (int32_t)self->terms,
                                              .dtype = reduce_lane(self->dtype)};
  char *to = member->data + (size_t)first * shardrt_dtype_size(self->out_dtype);
  if (code == SHARDRT_OK)
    code = platform->kernels->elementwise(WHAT, device, &program, self->operands, self->out_dtype, to, count);
  if (away > 0) platform->memory->free(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, copies, away * room);
  return code;
}

/* Member i's slice, of `slice` elements or what is left. */
static int64_t slice_count(const struct sum *self, int64_t slice, int64_t i) {
  const int64_t left = self->elements - i * slice;
  return left < 0 ? 0 : left < slice ? left : slice;
}

/* Each member copies the others' slices, beginning with its neighbour's: no two copy from one at the same time. */
static int exchange_slices(const struct sum *self, int64_t slice) {
  const size_t size = shardrt_dtype_size(self->out_dtype);
  int code = SHARDRT_OK;
  for (int64_t step = 1; step < self->members; step++)
    for (int64_t i = 0; i < self->members && code == SHARDRT_OK; i++) {
      const int64_t j = (i + step) % self->members, count = slice_count(self, slice, j);
      const size_t at = (size_t)(j * slice) * size;
      if (count > 0)
        code = self->platform->copies->copy(self->member[i].device, self->member[i].data + at, self->member[j].device,
                                            self->member[j].data + at, (size_t)count * size);
    }
  return code;
}

static int add_up(const struct sum *self) {
  int code = meet(self);
  if (part_bytes(self) < WORTH_SLICES) {
    for (int64_t i = 0; i < self->members && code == SHARDRT_OK; i++)
      code = add_slice(self, &self->member[i], 0, self->elements);
    return code;
  }
  const int64_t each = (self->elements - 1) / self->members + 1, slice = (each + SLICE - 1) / SLICE * SLICE;
  for (int64_t i = 0; i < self->members && code == SHARDRT_OK; i++) {
    const int64_t count = slice_count(self, slice, i);
    if (count > 0) code = add_slice(self, &self->member[i], i * slice, count);
  }
  if (code == SHARDRT_OK) code = meet(self);
  return code == SHARDRT_OK ? exchange_slices(self, slice) : code;
}

/* ---- one sum ---------------------------------------------------------------------------------------------------- */

static struct device_data device_data_of(const shardrt_array *array, const struct unique_blocks *blocks,
                                         int64_t block) {
  return (struct device_data){unique_blocks_device(blocks, array, block), unique_blocks_data(blocks, array, block)};
}

/* (Each device has a block of its own: a block's number is the shard's.) */
static int sum_begin(struct sum *self, const struct accelerator *platform, int64_t elements,
                     const struct partial_sums *terms, int64_t box, const struct unique_blocks *blocks,
                     const shardrt_array *out) {
  const int64_t begin = terms->begin[box], count = terms->begin[box + 1] - begin;
  *self = (struct sum){.platform = platform, .elements = elements, .out_dtype = shardrt_array_dtype(out)};
  const bool small = self->out_dtype == SHARDRT_FLOAT16 || self->out_dtype == SHARDRT_BFLOAT16;
  self->dtype = small ? SHARDRT_FLOAT32 : self->out_dtype;
  self->member = alloc_array((size_t)blocks->count, sizeof *self->member);
  self->term = alloc_array((size_t)count, sizeof *self->term);
  self->operands = alloc_array((size_t)count, sizeof *self->operands);
  self->steps = alloc_array((size_t)count, sizeof *self->steps);
  if (self->member == NULL || self->term == NULL || self->operands == NULL || self->steps == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < blocks->count; i++)
    if (shardrt_array_shard(out, i)->block == box) self->member[self->members++] = device_data_of(out, blocks, i);
  for (int64_t i = 0; i + 1 < count; i++)
    self->steps[i] =
        (shardrt_step){.op = SHARDRT_OP_ADD, .a = i == 0 ? 0 : (int32_t)(count + i - 1), .b = (int32_t)i + 1};
  for (int64_t i = 0; i < count; i++) {
    const int32_t device = unique_blocks_device(blocks, out, terms->shard[begin + i]);
    void *data;
    int code = platform->memory->allocate(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, part_bytes(self), &data);
    if (code < 0) return code;
    self->term[self->terms++] = (struct device_data){device, data};
  }
  assert(self->terms == count && count > 1 && count <= MOST_PARTS);
  return SHARDRT_OK;
}

static void sum_end(struct sum *self) {
  for (int64_t t = 0; t < self->terms; t++)
    self->platform->memory->free(self->term[t].device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, self->term[t].data,
                                 part_bytes(self));
  alloc_free(self->steps);
  alloc_free(self->operands);
  alloc_free(self->term);
  alloc_free(self->member);
}

static int sum_box(const struct accelerator *platform, const struct accelerator_product *product,
                   const struct partial_sums *terms, int64_t box, const struct unique_blocks *blocks,
                   const shardrt_array *a, const shardrt_array *b, shardrt_array *out) {
  const int64_t begin = terms->begin[box], count = terms->begin[box + 1] - begin;
  if (count > MOST_PARTS)
    return error_set(SHARDRT_EINVAL, "%s: a sum of %lld parts in one process; there may be %d", WHAT, (long long)count,
                     MOST_PARTS);
  struct sum self;
  int code = sum_begin(&self, platform, product->batches * product->m * product->n, terms, box, blocks, out);
  struct accelerator_product part = *product;
  part.out_dtype = self.dtype;
  for (int64_t t = 0; t < self.terms && code == SHARDRT_OK; t++) {
    const int64_t shard = terms->shard[begin + t];
    code = platform->kernels->product(WHAT, self.term[t].device, &part, unique_blocks_data(blocks, a, shard),
                                      unique_blocks_data(blocks, b, shard), self.term[t].data);
  }
  if (code == SHARDRT_OK) {
    code = add_up(&self);
    const int met = meet(&self); /* also after an error: others may still read what goes now */
    if (code == SHARDRT_OK) code = met;
  }
  sum_end(&self);
  return code;
}

int product_on_devices(const struct accelerator *platform, const struct accelerator_product *product,
                       const struct unique_blocks *blocks, const shardrt_array *a, const shardrt_array *b,
                       shardrt_array *out) {
  struct partial_sums terms;
  int code = partial_sums_begin(&terms, a, b, out);
  for (int64_t i = 0; i < blocks->count && code == SHARDRT_OK; i++) {
    const int32_t box = shardrt_array_shard(out, i)->block;
    if (terms.begin[box + 1] - terms.begin[box] > 1) continue;
    code = platform->kernels->product(WHAT, unique_blocks_device(blocks, out, i), product,
                                      unique_blocks_data(blocks, a, i), unique_blocks_data(blocks, b, i),
                                      unique_blocks_data(blocks, out, i));
  }
  for (int64_t box = 0; box < terms.boxes && code == SHARDRT_OK; box++)
    if (terms.begin[box + 1] - terms.begin[box] > 1) code = sum_box(platform, product, &terms, box, blocks, a, b, out);
  partial_sums_end(&terms);
  return code;
}
