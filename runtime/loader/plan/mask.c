#include "loader/plan/mask.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "memory/array.h"

int mask_set(struct mask *self, const shardrt_loader_options *options, int32_t nfields) {
  shardrt_sharding *sharding = options->shardings[nfields];
  if (sharding == NULL)
    return error_set(SHARDRT_EINVAL, "remainder = \"pad\" needs a sharding for the mask after those of the fields");
  int code = shardrt_array_new(sharding, SHARDRT_BOOL, 1, &options->batch_size, options->process,
                               options->devices_per_process, &self->full);
  return code == SHARDRT_OK ? code : error_prefix(code, "the mask of the loader's batches");
}

void mask_clear(struct mask *self) {
  shardrt_array_free(self->full);
  *self = (struct mask){0};
}

/* One shard of a mask: `true` for the rows before `rows`. */
static int fill_shard(const shardrt_shard *shard, int64_t rows, shardrt_buffer **out) {
  int64_t start = shard->box.start[0], size = shard->box.stop[0] - start;
  int code = shardrt_buffer_new((size_t)size, out);
  if (code != SHARDRT_OK) return code;
  int64_t real = rows < start ? 0 : rows - start < size ? rows - start : size;
  bool *data = shardrt_buffer_data(*out);
  memset(data, true, (size_t)real);
  memset(data + real, false, (size_t)(size - real));
  return SHARDRT_OK;
}

/* Gives every shard of a mask its data, one buffer for each distinct range. */
static int fill_mask(shardrt_array *mask, int64_t rows) {
  int64_t count = shardrt_array_shard_count(mask);
  shardrt_buffer **blocks = alloc_zeros((size_t)count, sizeof(shardrt_buffer *));
  if (blocks == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) {
    const shardrt_shard *shard = shardrt_array_shard(mask, i);
    if (blocks[shard->block] == NULL) code = fill_shard(shard, rows, &blocks[shard->block]);
    if (code == SHARDRT_OK) code = shardrt_array_set_buffer(mask, i, blocks[shard->block]);
  }
  for (int64_t i = 0; i < count; i++) shardrt_buffer_free(blocks[i]);
  alloc_free((void *)blocks);
  return code;
}

int mask_make(struct mask *self, int64_t rows, shardrt_array **out) {
  const bool whole = rows == shardrt_array_shape(self->full)[0];
  int code = SHARDRT_OK;
  if (whole && !self->is_filled) {
    code = fill_mask(self->full, rows);
    self->is_filled = code == SHARDRT_OK;
  }
  shardrt_array *made;
  if (code == SHARDRT_OK) code = shardrt_array_like(self->full, &made);
  if (code != SHARDRT_OK) return code;
  if (!whole) code = fill_mask(made, rows);
  if (code != SHARDRT_OK) {
    shardrt_array_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}
