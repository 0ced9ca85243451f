/* arrow.c - the columns of Arrow files and streams as fields: https://arrow.apache.org/docs/format/Columnar.html
 *
 * Values are read where they lie in the file. Of a compressed record batch, a column's buffers are decompressed
 * together and kept for a while, among the pages of Parquet (storage/block_cache.h); so are decoded
 * dictionaries. What is read is compared with the checksums of the file's blocks (guard.h). */
#include "dataset/arrow/arrow.h"

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/arrow/folder.h"
#include "dataset/formats.h"
#include "dataset/view/concat.h"
#include "storage/block_cache.h"

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* Which dictionaries a field's values may be of. */
static int set_uses(struct arrow *self, struct arrow_field *field) {
  const struct arrow_contents *contents = &self->contents;
  const struct arrow_leaf *leaf = &contents->schema.leaves[field->leaf];
  field->uses = alloc_zeros((size_t)contents->ndictionaries, sizeof *field->uses);
  if (field->uses == NULL) return ALLOC_FAILED;
  for (int64_t d = 0; d < contents->ndictionaries; d++)
    if (leaf->is_dictionary && contents->dictionaries[d].id == leaf->dictionary)
      field->uses[field->nuses++] = (struct arrow_use){.before = contents->dictionaries[d].before, .number = d};
  return SHARDRT_OK;
}

static int set_blocks(struct arrow *self) {
  const struct arrow_contents *contents = &self->contents;
  for (int32_t f = 0; f < self->base.nfields; f++) {
    struct arrow_field *field = &self->fields[f];
    for (int64_t b = 0; b < contents->nbatches; b++)
      for (int32_t i = 0; i < arrow_part_of(self, b, f)->nbuffers; i++)
        field->bytes += contents->buffers[arrow_part_of(self, b, f)->buffer + i].bytes;
    if (field->bytes > self->fields[self->widest].bytes) self->widest = f;
  }
  self->block_firsts = alloc_array((size_t)contents->nbatches + 1, sizeof *self->block_firsts);
  if (self->block_firsts == NULL) return ALLOC_FAILED;
  for (int64_t b = 0; b < contents->nbatches; b++) {
    const struct arrow_batch *batch = &contents->batches[b];
    self->is_packed = self->is_packed || batch->codec != ARROW_NOT_PACKED;
    if (batch[1].first > batch->first) self->block_firsts[self->nblocks++] = batch->first;
  }
  self->block_firsts[self->nblocks] = self->base.count;
  return SHARDRT_OK;
}

static int open_arrow_file(shardrt_source *source, const char *path, int32_t nasked, const shardrt_field *asked,
                           const shardrt_source_options *options) {
  struct arrow *self = (struct arrow *)source;
  struct reader arena = {0};
  self->owner = block_cache_owner();
  int code = stored_open(path, options, &self->file);
  if (code == SHARDRT_OK) code = source_add_file(&self->base, self->file.title, &self->file, 0);
  if (code == SHARDRT_OK && options->headers_only == 0) code = stored_guard(&self->file, options, GUARD_DEFAULT_PLAIN);
  if (code == SHARDRT_OK) code = arrow_contents_open(&self->file, &arena, &self->contents);
  if (code == SHARDRT_OK) {
    code = arrow_fields_make(self, nasked, asked, options);
    if (code < 0) error_prefix(code, "%s", self->file.title);
  }
  if (code == SHARDRT_OK) code = arrow_contents_read(&self->contents, self->base.nfields, self->leaves, &arena);
  if (code == SHARDRT_OK) self->base.count = self->contents.batches[self->contents.nbatches].first;
  for (int32_t f = 0; f < self->base.nfields && code == SHARDRT_OK; f++) code = set_uses(self, &self->fields[f]);
  if (code == SHARDRT_OK) code = set_blocks(self);
  reader_clear(&arena);
  return code;
}

static int open_arrow(int32_t npaths, const char *const *paths, int32_t nasked, const shardrt_field *asked,
                      const shardrt_source_options *options, shardrt_source **out) {
  struct arrow_paths files;
  int code = arrow_folder_expand(npaths, paths, options, &files);
  if (code == SHARDRT_OK)
    code = concat_files(&arrow_format, sizeof(struct arrow), open_arrow_file, CONCAT_TAIL, files.count,
                        (const char *const *)files.list, nasked, asked, options, out);
  arrow_paths_clear(&files);
  return code;
}

static void arrow_close(shardrt_source *source) {
  struct arrow *self = (struct arrow *)source;
  block_cache_forget(self->owner);
  for (int32_t f = 0; self->fields != NULL && f < source->nfields; f++) alloc_free(self->fields[f].uses);
  column_fields_free(source, self->nulls);
  alloc_free(self->block_firsts);
  alloc_free(self->leaves);
  alloc_free(self->fields);
  arrow_contents_clear(&self->contents);
  stored_close(&self->file);
}

/* ---- reading: rows.c, extents.c --------------------------------------------------------------------------------- */

static int arrow_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  return column_row_error(source, ((const struct arrow *)source)->file.title, field, sample, code);
}

/* Its share of its column. */
static size_t arrow_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  (void)inner;
  return column_row_bytes(((const struct arrow *)source)->fields[field].bytes, source->count);
}

static int64_t arrow_block_count(const shardrt_source *source) {
  const struct arrow *self = (const struct arrow *)source;
  return self->is_packed ? self->nblocks : source_runs_count(source);
}

static struct sample_range arrow_block(const shardrt_source *source, int64_t block) {
  const struct arrow *self = (const struct arrow *)source;
  if (!self->is_packed) return source_runs_block(source, block);
  return column_block(self->block_firsts, block);
}

/* As long as they become about three times as large. */
static int64_t arrow_blocks_kept(const shardrt_source *source) {
  const struct arrow *self = (const struct arrow *)source;
  size_t bytes = 0;
  if (!self->is_packed) return -1;
  for (int32_t f = 0; f < source->nfields; f++) bytes += 3 * self->fields[f].bytes;
  return column_blocks_kept(bytes, self->nblocks);
}

const struct source_format arrow_format = {
    .name = "arrow",
    .open_files = open_arrow,
    .gather = arrow_gather,
    .value = arrow_value,
    .error_context = arrow_error_context,
    .extents = arrow_extents,
    .bytes = arrow_bytes,
    .block_count = arrow_block_count,
    .block = arrow_block,
    .blocks_kept = arrow_blocks_kept,
    .keeps_together = true, /* with pages of Parquet */
    .close = arrow_close,
};
