/* extents.c - which bytes of an Arrow file rows are made of, for who reads them ahead. */
#include <string.h>

#include "dataset/arrow/arrow.h"

/* Some bytes of a buffer; what lies outside is left out, and told by who reads it. */
static int add_extent(const struct arrow *self, const struct arrow_buffer *buffer, size_t at, size_t bytes,
                      struct extents *out) {
  if (at >= buffer->bytes || bytes == 0) return SHARDRT_OK;
  if (bytes > buffer->bytes - at) bytes = buffer->bytes - at;
  return extents_add(out, &self->file.map, buffer->offset + at, bytes);
}

/* Where the bytes between two offsets are: they are read for that where the file is mapped; else all that a small
 * buffer holds is taken. */
static int add_between(const struct arrow *self, const struct arrow_buffer *offsets, const struct arrow_buffer *values,
                       int64_t item, bool is_large, size_t width, struct extents *out) {
  const size_t each = is_large ? 8 : 4, at = (size_t)item * each;
  int code = add_extent(self, offsets, at, 2 * each, out);
  if (code != SHARDRT_OK || offsets->bytes < 2 * each || at > offsets->bytes - 2 * each) return code;
  if (self->file.map.remote != NULL)
    return values->bytes <= SOURCE_RUN_BYTES ? add_extent(self, values, 0, values->bytes, out) : SHARDRT_OK;
  int64_t range[2] = {0, 0};
  for (int32_t i = 0; i < 2; i++) {
    int32_t narrow;
    const uint8_t *from = self->file.map.data + offsets->offset + at + (size_t)i * each;
    memcpy(is_large ? (void *)&range[i] : (void *)&narrow, from, each);
    if (!is_large) range[i] = narrow;
  }
  if (range[0] < 0 || range[1] <= range[0] || (size_t)range[1] > values->bytes) return SHARDRT_OK;
  return add_extent(self, values, (size_t)range[0] * width, (size_t)(range[1] - range[0]) * width, out);
}

/* All buffers of a column's part of a batch. */
static int add_whole(const struct arrow *self, const struct arrow_part *part, struct extents *out) {
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < part->nbuffers && code == SHARDRT_OK; i++) {
    const struct arrow_buffer *buffer = &self->contents.buffers[part->buffer + i];
    code = add_extent(self, buffer, 0, buffer->bytes, out);
  }
  return code;
}

/* What a row's value takes of a batch that is not compressed. Bitmaps are left out, which are small beside it. */
static int add_row(const struct arrow *self, int32_t field, const struct arrow_part *part, int64_t row,
                   struct extents *out) {
  const struct arrow_leaf *leaf = &self->contents.schema.leaves[self->fields[field].leaf];
  const struct arrow_buffer *buffers = &self->contents.buffers[part->buffer];
  const size_t width = leaf->is_dictionary ? leaf->index_width : leaf->layout == LAYOUT_FIXED ? leaf->width : 1;
  int64_t item = row, count = 1;
  int32_t at = 0;
  for (int32_t s = 0; s < leaf->nsteps; s++) {
    const struct arrow_step *step = &leaf->steps[s];
    const struct arrow_buffer *own = &buffers[at];
    at += arrow_step_buffers(step);
    if (step->kind == STEP_FIXED) {
      if (__builtin_mul_overflow(item, step->size, &item) || __builtin_mul_overflow(count, step->size, &count))
        return SHARDRT_OK;
    } else if (step->kind == STEP_LIST && leaf->layout != LAYOUT_NONE && part->nbuffers - at >= 2) {
      return add_between(self, &own[1], &buffers[part->nbuffers - 1], item, step->is_large, width, out);
    } else if (step->kind != STEP_STRUCT) {
      return SHARDRT_OK;
    }
  }
  if (!leaf->is_dictionary && (leaf->layout == LAYOUT_NONE || item > INT64_MAX >> 25 || count > INT64_MAX >> 25))
    return SHARDRT_OK;
  if (!leaf->is_dictionary && (leaf->layout == LAYOUT_BYTES || leaf->layout == LAYOUT_LARGE))
    return add_between(self, &buffers[at + 1], &buffers[at + 2], item, leaf->layout == LAYOUT_LARGE, 1, out);
  if (!leaf->is_dictionary && leaf->layout == LAYOUT_VIEWS)
    return add_extent(self, &buffers[at + 1], (size_t)item * 16, 16, out);
  if (!leaf->is_dictionary && leaf->layout == LAYOUT_BITS)
    return add_extent(self, &buffers[at + 1], (size_t)item / 8, (size_t)count / 8 + 2, out);
  return add_extent(self, &buffers[at + 1], (size_t)item * width, (size_t)count * width, out);
}

int arrow_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct extents *out) {
  const struct arrow *self = (const struct arrow *)source;
  int64_t last = -1;
  int code = SHARDRT_OK;
  (void)inner; /* of whatever part, the row */
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    const int64_t batch = arrow_batch_of(self, samples[i]);
    const struct arrow_batch *of = &self->contents.batches[batch];
    if (of->codec == ARROW_NOT_PACKED)
      code = add_row(self, field, arrow_part_of(self, batch, field), samples[i] - of->first, out);
    else if (batch != last)
      code = add_whole(self, arrow_part_of(self, batch, field), out);
    last = batch;
  }
  return code;
}
