#include "dataset/column/fields.h"

#include "storage/block_cache.h"

int column_fields_make(shardrt_source *source, const struct column_leaves *leaves, int32_t nasked,
                       const shardrt_field *asked, const shardrt_source_options *options, column_take *take,
                       char ***nulls) {
  const size_t count = column_fields_count(leaves, nasked);
  if (leaves->count == 0) return error_set(SHARDRT_EFORMAT, "it has no columns");
  source->fields = alloc_zeros(count, sizeof *source->fields);
  *nulls = alloc_zeros(count, sizeof **nulls);
  if (source->fields == NULL || *nulls == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < (int32_t)count && code == SHARDRT_OK; f++) {
    const char *null = options->nulls != NULL && nasked > 0 ? options->nulls[f] : NULL;
    int32_t leaf = f;
    if (nasked > 0) code = column_find(leaves, asked[f].name, &leaf);
    if (code != SHARDRT_OK) return code;
    source->nfields++; /* from here on it is freed with the others */
    if (null != NULL) {
      (*nulls)[f] = alloc_text("%s", null);
      if ((*nulls)[f] == NULL) return ALLOC_FAILED;
    }
    code = take(source, f, leaf, nasked > 0 ? &asked[f] : NULL, (*nulls)[f], options->tells_nulls != 0);
    source->fields[f].name = column_leaves_at(leaves, leaf)->name;
  }
  return code;
}

void column_fields_free(shardrt_source *source, char **nulls) {
  for (int32_t f = 0; nulls != NULL && f < source->nfields; f++) alloc_free(nulls[f]);
  alloc_free((void *)nulls);
  alloc_free(source->fields);
}

int column_refuse_null(const shardrt_source *source, const char *title, int32_t field, int64_t row) {
  const char *name = source->fields[field].name;
  return error_set(
      SHARDRT_EFORMAT,
      "%s: column \"%s\", row %lld: it is null, or a list with one; fields = {[\"%s\"] = {null = …}} gives nulls a "
      "value, nulls = \"skip\" leaves such rows out",
      title, name, (long long)row, name);
}

int column_row_error(const shardrt_source *source, const char *title, int32_t field, int64_t row, int code) {
  return error_prefix(code, "%s: column \"%s\", row %lld", title, source->fields[field].name, (long long)row);
}

size_t column_row_bytes(size_t bytes, int64_t rows) {
  const size_t n = (size_t)rows;
  return n > 0 ? bytes / n + (bytes % n != 0) : 0;
}

int64_t column_blocks_kept(size_t bytes, int64_t nblocks) {
  return (int64_t)(BLOCK_CACHE_BYTES / ((bytes + 1) / ((size_t)nblocks + 1) + 1));
}
