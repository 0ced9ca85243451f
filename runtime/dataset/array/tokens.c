/* tokens.c - flat files of token numbers, whole numbers of any size, little-endian; a sample is a window of `window`
 * tokens, and begins `stride` tokens after the one before it. Windows of which the file does not hold all are left out.
 *
 * A file is bare (nanoGPT's .bin), or begins with the 1,024 bytes of llm.c's .bin: 256 int32, of which the first are a
 * magic number that tells the tokens' size, a version, and how many tokens follow. Of a bare one nothing tells the
 * tokens' size: the recipe does. A file that begins as one of another format (magic.h) is refused, unless the recipe
 * says that it has no header.
 * https://github.com/karpathy/llm.c/blob/master/llmc/dataloader.h */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "base/text.h"
#include "dataset/box_runs.h"
#include "dataset/magic.h"
#include "dataset/source.h"
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

struct tokens_source {
  shardrt_source head;
  shardrt_field field;
  struct stored file;
  const uint8_t *data; /* of the first token; NULL: the file is none of those that lie in memory */
  size_t first;        /* where that one is in the file */
  size_t stride_bytes;
};

static int tokens_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct reader *reader, void *dst) {
  (void)field;
  const struct tokens_source *tokens = (const struct tokens_source *)source;
  struct box_runs runs = box_runs_of(&tokens->field, inner, shardrt_dtype_size(tokens->field.dtype));
  runs.sample_bytes = tokens->stride_bytes;
  if (tokens->data == NULL) return box_runs_read(&runs, &tokens->file, tokens->first, samples, n, reader, dst);
  if (tokens->file.guard != NULL) {
    int code = box_runs_check(&runs, tokens->file.guard, tokens->file.title, tokens->first, samples, n);
    if (code < 0) return code;
  }
  box_runs_copy(&runs, tokens->data, samples, n, reader->past_caches, dst);
  reader->bytes_read += (int64_t)runs.box_bytes * n;
  return SHARDRT_OK;
}

static int tokens_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                          const shardrt_box *inner, struct extents *out) {
  (void)field;
  const struct tokens_source *tokens = (const struct tokens_source *)source;
  const shardrt_box whole = source_whole(&tokens->field);
  struct box_runs runs =
      box_runs_of(&tokens->field, inner != NULL ? inner : &whole, shardrt_dtype_size(tokens->field.dtype));
  runs.sample_bytes = tokens->stride_bytes;
  if (tokens->file.restart == NULL) return box_runs_extents(&runs, &tokens->file.map, tokens->first, samples, n, out);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++)
    code = stored_extents(&tokens->file, tokens->first + (size_t)samples[i] * tokens->stride_bytes,
                          source_box_bytes(&tokens->field, &whole), out);
  return code;
}

/* What stored_check fails with. */
static int check_tokens(const struct tokens_source *tokens, int64_t sample, size_t first, size_t bytes) {
  return stored_check(&tokens->file, tokens->first + (size_t)sample * tokens->stride_bytes + first, bytes);
}

static const void *tokens_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first,
                               size_t bytes) {
  (void)field;
  const struct tokens_source *tokens = (const struct tokens_source *)source;
  if (tokens->data == NULL || check_tokens(tokens, sample, first, bytes) < 0) return NULL;
  return tokens->data + (size_t)sample * tokens->stride_bytes;
}

static int tokens_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                        struct value *out, bool *handled) {
  const struct tokens_source *tokens = (const struct tokens_source *)source;
  *out = value_whole(tokens->field.dtype, 1, tokens->field.shape);
  (void)field;
  *handled = tokens->data != NULL;
  if (!*handled) return SHARDRT_OK;
  out->data =
      (void *)(tokens->data + (size_t)sample * tokens->stride_bytes); /* who reads a value does not write to it */
  reader->bytes_read += (int64_t)value_bytes(out);
  return check_tokens(tokens, sample, 0, value_bytes(out));
}

/* The stride changes the samples, and neither their number nor their shape need tell. */
static uint64_t tokens_fingerprint(const shardrt_source *source) {
  return hash_number(source_files_fingerprint(source), (int64_t)((const struct tokens_source *)source)->stride_bytes);
}

static void tokens_close(shardrt_source *source) {
  struct tokens_source *tokens = (struct tokens_source *)source;
  stored_close(&tokens->file);
}

static const struct source_format tokens_format = {
    .name = "tokens",
    .gather = tokens_gather,
    .extents = tokens_extents,
    .value = tokens_value,
    .find = tokens_find,
    .fingerprint = tokens_fingerprint,
    SOURCE_RUNS,
    .close = tokens_close,
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* What tokens may be. */
static const int32_t dtypes[] = {SHARDRT_UINT16, SHARDRT_UINT32, SHARDRT_INT32,  SHARDRT_INT64,
                                 SHARDRT_UINT8,  SHARDRT_INT16,  SHARDRT_UINT64, SHARDRT_INT8};

static bool is_token_dtype(int32_t dtype) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (dtypes[i] == dtype) return true;
  return false;
}

/* Refuses what the first bytes say is no bare file. Bytes that are text may be tokens of one byte. */
static int refuse_other(const char *path, const uint8_t *head, size_t bytes, size_t whole, int32_t asked) {
  static const char bare[] = "if it is tokens from its first byte on, say `header = false` and their `dtype`";
  const struct magic *magic = magic_find(head, bytes, whole);
  if (magic != NULL)
    return error_set(SHARDRT_EFORMAT,
                     "%s: is no file of tokens: it begins as %s, of which source.tokens cannot read "
                     "anything: %s; %s",
                     path, magic->what, magic->advice, bare);
  if (!magic_is_text(head, bytes) || shardrt_dtype_size(asked) == 1) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "%s: is no file of tokens: it is text, which a tokenizer makes tokens of; %s", path,
                   bare);
}

/* Of a bare file whose tokens nothing tells: what they could be, and how many. */
static int want_dtype(const char *path, size_t bytes) {
  char text[256] = "";
  struct text words = {.bytes = text, .capacity = sizeof text};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    const size_t size = shardrt_dtype_size(dtypes[i]);
    if (bytes % size == 0)
      text_add(&words, "%s%zu of %s", words.length > 0 ? ", " : "", bytes / size, shardrt_dtype_name(dtypes[i]));
  }
  return error_set(SHARDRT_EINVAL,
                   "%s: has no header of llm.c's that says what its tokens are; `dtype` can: its %zu bytes are %s",
                   path, bytes, text);
}

/* What a header says: NULL where there is none. Refuses a file of another format. */
static int find_header(const struct stored *file, const shardrt_token_options *options, const struct token_header **out,
                       int32_t words[3]) {
  uint8_t head[MAGIC_BYTES];
  const size_t bytes = file->bytes < sizeof head ? file->bytes : sizeof head;
  struct reader reader = {0};
  *out = NULL;
  if (options->files.no_header != 0) return SHARDRT_OK;
  int code = stored_read(file, 0, bytes, &reader, head);
  reader_clear(&reader);
  if (code < 0) return code;
  if (bytes >= 3 * sizeof *words) memcpy(words, head, 3 * sizeof *words);
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
    if (headers[i].magic == words[0]) *out = &headers[i];
  return *out != NULL ? SHARDRT_OK : refuse_other(file->title, head, bytes, file->bytes, options->dtype);
}

/* A header that does not fit its file. */
static int check_header(const char *path, const struct token_header *header, const int32_t words[3], size_t whole) {
  if (words[1] != header->version)
    return error_set(SHARDRT_EFORMAT, "%s: a token file of llm.c of version %d; shardrt reads version %d", path,
                     (int)words[1], (int)header->version);
  if (whole < HEADER_BYTES)
    return error_set(SHARDRT_EFORMAT, "%s: is cut off within its header of %d bytes: it has %zu", path, HEADER_BYTES,
                     whole);
  if (words[2] < 0 || (size_t)words[2] * shardrt_dtype_size(header->dtype) != whole - HEADER_BYTES)
    return error_set(SHARDRT_EFORMAT, "%s: its header counts %d tokens of %s; %zu bytes follow it", path, (int)words[2],
                     shardrt_dtype_name(header->dtype), whole - HEADER_BYTES);
  return SHARDRT_OK;
}

/* Finds the tokens' dtype, their place and how many they are. */
static int find_tokens(struct tokens_source *self, const char *path, const shardrt_token_options *options,
                       int64_t *count) {
  const int32_t asked = options->dtype;
  const struct token_header *header;
  int32_t words[3] = {0};
  int code = find_header(&self->file, options, &header, words);
  if (code == SHARDRT_OK && header != NULL) code = check_header(path, header, words, self->file.bytes);
  if (code < 0) return code;
  const size_t before = header != NULL ? HEADER_BYTES : 0, bytes = self->file.bytes - before;
  const int32_t dtype = header != NULL ? header->dtype : asked;
  if (dtype < 0) return want_dtype(path, bytes);
  const size_t size = shardrt_dtype_size(dtype);
  if (asked >= 0 && asked != dtype)
    return error_set(SHARDRT_EINVAL, "%s: its header says that the tokens are %s, not %s", path,
                     shardrt_dtype_name(dtype), shardrt_dtype_name(asked));
  if (bytes % size != 0)
    return error_set(SHARDRT_EFORMAT, "%s: %zu bytes are no whole number of %s tokens", path, bytes,
                     shardrt_dtype_name(dtype));
  self->field.dtype = dtype;
  self->first = before;
  self->data = self->file.map.data != NULL ? self->file.map.data + before : NULL;
  *count = (int64_t)(bytes / size);
  return SHARDRT_OK;
}

static int open_token_file(struct tokens_source *self, const char *path, const shardrt_token_options *options) {
  int64_t count = 0;
  int code = stored_open(path, &options->files, &self->file);
  if (code == SHARDRT_OK && options->files.no_header == 0) code = magic_unpack(&self->file, &options->files);
  if (code == SHARDRT_OK) code = source_add_file(&self->head, self->file.title, &self->file, 0);
  if (code == SHARDRT_OK) code = stored_guard(&self->file, &options->files, GUARD_DEFAULT_PLAIN);
  if (code == SHARDRT_OK) code = find_tokens(self, self->file.title, options, &count);
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
  if (options->dtype >= 0 && !is_token_dtype(options->dtype))
    return error_set(SHARDRT_EINVAL, "tokens of dtype %s; they are whole numbers: uint16, uint32, int32, int64, …",
                     shardrt_dtype_size(options->dtype) ? shardrt_dtype_name(options->dtype) : "that does not exist");
  struct tokens_source *made = source_new(&tokens_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = open_token_file(made, path, options);
  if (code < 0) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}
