/* tokens.c - flat files of token numbers, uint16 or uint32, little-endian; a sample is a window of `window` tokens, and
 * begins `stride` tokens after the one before it. Windows of which the file does not hold all are left out.
 *
 * A file is bare (nanoGPT's .bin), or begins with the 1,024 bytes of llm.c's .bin: 256 int32, of which the first are a
 * magic number that tells the tokens' size, a version, and how many tokens follow.
 * https://github.com/karpathy/llm.c/blob/master/llmc/dataloader.h */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "source/gather.h"
#include "source/source.h"
#include "storage/stored.h"

enum { HEADER_BYTES = 1024 };

static const struct token_header {
  int32_t magic;
  int32_t version;
  int32_t dtype;
} headers[] = {
    {20240520, 1, SHARDRT_UINT16}, /* GPT-2's */
    {20240801, 7, SHARDRT_UINT32}, /* Llama 3's */
};

typedef struct tokens_source {
  shardrt_source head;
  shardrt_field field;
  struct stored file;
  const uint8_t *data; /* of the first token; NULL: the file lies on a server */
  size_t first;        /* where that one is in the file */
  size_t stride_bytes;
} tokens_source;

static int tokens_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct reader *reader, void *dst) {
  (void)field;
  const tokens_source *tokens = (const tokens_source *)source;
  gather_plan plan = gather_plan_make(&tokens->field, inner, shardrt_dtype_size(tokens->field.dtype));
  plan.sample_bytes = tokens->stride_bytes;
  if (tokens->data == NULL) return gather_read(&plan, &tokens->file, tokens->first, samples, n, reader, dst);
  if (tokens->file.guard != NULL) {
    int code = gather_check(&plan, tokens->file.guard, tokens->file.title, tokens->first, samples, n);
    if (code < 0) return code;
  }
  gather_run(&plan, tokens->data, samples, n, reader->past_caches, dst);
  reader->bytes_read += (int64_t)plan.box_bytes * n;
  return SHARDRT_OK;
}

static int tokens_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                          const shardrt_box *inner, struct extents *out) {
  (void)field;
  const tokens_source *tokens = (const tokens_source *)source;
  const shardrt_box whole = source_whole(&tokens->field);
  gather_plan plan =
      gather_plan_make(&tokens->field, inner != NULL ? inner : &whole, shardrt_dtype_size(tokens->field.dtype));
  plan.sample_bytes = tokens->stride_bytes;
  return gather_extents(&plan, &tokens->file.map, tokens->first, samples, n, out);
}

/* What stored_check fails with. */
static int check_piece(const tokens_source *tokens, int64_t sample, size_t first, size_t bytes) {
  return stored_check(&tokens->file, tokens->first + (size_t)sample * tokens->stride_bytes + first, bytes);
}

static const void *tokens_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first,
                               size_t bytes) {
  (void)field;
  const tokens_source *tokens = (const tokens_source *)source;
  if (tokens->data == NULL || check_piece(tokens, sample, first, bytes) < 0) return NULL;
  return tokens->data + (size_t)sample * tokens->stride_bytes;
}

static int tokens_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                        struct value *out, bool *handled) {
  const tokens_source *tokens = (const tokens_source *)source;
  *out = value_whole(tokens->field.dtype, 1, tokens->field.shape);
  (void)field;
  *handled = tokens->data != NULL;
  if (!*handled) return SHARDRT_OK;
  out->data =
      (void *)(tokens->data + (size_t)sample * tokens->stride_bytes); /* who reads a value does not write to it */
  reader->bytes_read += (int64_t)value_bytes(out);
  return check_piece(tokens, sample, 0, value_bytes(out));
}

static int32_t tokens_file_count(const shardrt_source *source) {
  (void)source;
  return 1;
}

static const char *tokens_file_name(const shardrt_source *source, int32_t file) {
  (void)file;
  return ((const tokens_source *)source)->file.title;
}

static uint64_t tokens_file_fingerprint(const shardrt_source *source, int32_t file) {
  (void)file;
  return stored_fingerprint(&((const tokens_source *)source)->file);
}

/* The stride changes the samples, and neither their number nor their shape need tell. */
static uint64_t tokens_fingerprint(const shardrt_source *source) {
  return hash_number(source_files_fingerprint(source), (int64_t)((const tokens_source *)source)->stride_bytes);
}

static void tokens_close(shardrt_source *source) {
  tokens_source *tokens = (tokens_source *)source;
  stored_close(&tokens->file);
}

static const source_format tokens_format = {
    .name = "tokens",
    .gather = tokens_gather,
    .extents = tokens_extents,
    .value = tokens_value,
    .find = tokens_find,
    .fingerprint = tokens_fingerprint,
    .file_count = tokens_file_count,
    .file_name = tokens_file_name,
    .file_fingerprint = tokens_file_fingerprint,
    .close = tokens_close,
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* What a header says: NULL where there is none. */
static int find_header(const struct stored *file, const struct token_header **out, int32_t *version, int32_t *count) {
  int32_t words[3];
  struct reader reader = {0};
  *out = NULL;
  if (file->bytes < sizeof words) return SHARDRT_OK;
  int code = stored_read(file, 0, sizeof words, &reader, words);
  reader_clear(&reader);
  if (code < 0) return code;
  *version = words[1];
  *count = words[2];
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
    if (headers[i].magic == words[0]) *out = &headers[i];
  return SHARDRT_OK;
}

/* Finds the tokens' dtype (`asked`: what the recipe says, < 0: nothing), their place and how many they are. */
static int parse(tokens_source *self, const char *path, int32_t asked, int64_t *count) {
  int32_t version = 0, said = 0;
  const struct token_header *header;
  int code = find_header(&self->file, &header, &version, &said);
  if (code < 0) return code;
  const size_t before = header != NULL && self->file.bytes >= HEADER_BYTES ? HEADER_BYTES : 0;
  const size_t bytes = self->file.bytes - before;
  const int32_t dtype = header != NULL ? header->dtype : asked < 0 ? SHARDRT_UINT16 : asked;
  const size_t size = shardrt_dtype_size(dtype);
  if (header != NULL && version != header->version)
    return error_set(SHARDRT_EFORMAT, "%s: a token file of llm.c of version %d; shardrt reads version %d", path,
                     (int)version, (int)header->version);
  if (header != NULL && self->file.bytes < HEADER_BYTES)
    return error_set(SHARDRT_EFORMAT, "%s: is cut off within its header of %d bytes: it has %zu", path, HEADER_BYTES,
                     self->file.bytes);
  if (header != NULL && (said < 0 || (size_t)said * size != bytes))
    return error_set(SHARDRT_EFORMAT, "%s: its header counts %d tokens of %s; %zu bytes follow it", path, (int)said,
                     shardrt_dtype_name(dtype), bytes);
  if (asked >= 0 && asked != dtype)
    return error_set(SHARDRT_EINVAL, "%s: its header says that the tokens are %s, not %s", path,
                     shardrt_dtype_name(dtype), shardrt_dtype_name(asked));
  if (bytes % size != 0)
    return error_set(SHARDRT_EFORMAT, "%s: %zu bytes are no whole number of %s tokens", path, bytes,
                     shardrt_dtype_name(dtype));
  self->field.dtype = dtype;
  self->first = before;
  self->data = self->file.map.remote == NULL ? self->file.map.data + before : NULL;
  *count = (int64_t)(bytes / size);
  return SHARDRT_OK;
}

static int open_file(tokens_source *self, const char *path, const shardrt_token_options *options) {
  int64_t count = 0;
  int code = stored_open(path, &options->files, &self->file);
  if (code == SHARDRT_OK) code = stored_guard(&self->file, &options->files, GUARD_DEFAULT_PLAIN);
  if (code == SHARDRT_OK) code = parse(self, path, options->dtype, &count);
  if (code < 0) return code;
  const size_t size = shardrt_dtype_size(self->field.dtype);
  if (!size_multiply((size_t)options->stride, size, &self->stride_bytes))
    return error_set(SHARDRT_EOVERFLOW, "a stride of %lld tokens", (long long)options->stride);
  self->field.name = "tokens";
  self->field.ndim = 1;
  self->field.shape[0] = options->window;
  self->head.fields = &self->field;
  self->head.nfields = 1;
  self->head.count = count < options->window ? 0 : (count - options->window) / options->stride + 1;
  return SHARDRT_OK;
}

int shardrt_source_tokens(const char *path, const shardrt_token_options *options, shardrt_source **out) {
  if (options->window < 1 || options->stride < 1 || options->window > INT64_MAX / 8)
    return error_set(SHARDRT_EINVAL, "windows of %lld tokens, one every %lld; both are at least 1",
                     (long long)options->window, (long long)options->stride);
  if (options->dtype >= 0 && options->dtype != SHARDRT_UINT16 && options->dtype != SHARDRT_UINT32)
    return error_set(SHARDRT_EINVAL, "tokens of dtype %s; they are uint16 or uint32",
                     shardrt_dtype_size(options->dtype) ? shardrt_dtype_name(options->dtype) : "that does not exist");
  tokens_source *made = source_new(&tokens_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = open_file(made, path, options);
  if (code < 0) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}
