#include "dataset/megatron/megatron_files.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"

enum { HEADER_BYTES = 34, VERSION_AT = 9, DTYPE_AT = 17, SEQUENCES_AT = 18, DOCUMENTS_AT = 26, LENGTH_BYTES = 4 };

/* By the number in the header. */
static const int32_t dtypes[] = {-1,
                                 SHARDRT_UINT8,
                                 SHARDRT_INT8,
                                 SHARDRT_INT16,
                                 SHARDRT_INT32,
                                 SHARDRT_INT64,
                                 SHARDRT_FLOAT64,
                                 SHARDRT_FLOAT32,
                                 SHARDRT_UINT16};

static size_t pointers_at(const struct megatron_files *self) {
  return HEADER_BYTES + (size_t)self->sequences * LENGTH_BYTES;
}

static size_t documents_at(const struct megatron_files *self) {
  return pointers_at(self) + (size_t)self->sequences * sizeof(int64_t);
}

/* ---- looking things up ------------------------------------------------------------------------------------------- */

/* `bytes` bytes of the .idx, which were there when it was opened. */
static int look_up(const struct megatron_files *self, size_t offset, size_t bytes, void *out) {
  int code = self->checks ? stored_check(&self->idx, offset, bytes) : SHARDRT_OK;
  if (code == SHARDRT_OK) memcpy(out, self->words + offset, bytes);
  return code;
}

int megatron_find_sequence(const struct megatron_files *self, int64_t i, struct megatron_sequence *out) {
  int32_t length = 0;
  int64_t pointer = 0;
  size_t bytes = self->bin.bytes;
  int code = look_up(self, HEADER_BYTES + (size_t)i * sizeof length, sizeof length, &length);
  if (code == SHARDRT_OK)
    code = look_up(self, pointers_at(self) + (size_t)i * sizeof pointer, sizeof pointer, &pointer);
  if (code < 0) return code;
  if (length < 0 || pointer < 0 || (size_t)pointer > bytes ||
      (size_t)length > (bytes - (size_t)pointer) / self->token_bytes)
    return error_set(
        SHARDRT_EFORMAT,
        "%s: sequence %lld of %lld has %d tokens from byte %lld on, and %s has %zu bytes: it is cut off, or "
        "of another index",
        self->idx.title, (long long)i, (long long)self->sequences, (int)length, (long long)pointer, self->bin.title,
        bytes);
  *out = (struct megatron_sequence){.offset = (size_t)pointer, .length = length};
  return SHARDRT_OK;
}

int megatron_find_document(const struct megatron_files *self, int64_t i, int64_t *first, int64_t *stop) {
  int64_t range[2] = {0};
  int code = look_up(self, documents_at(self) + (size_t)i * sizeof *range, sizeof range, range);
  if (code < 0) return code;
  const bool begins = i > 0 || range[0] == 0, ends = i + 1 < self->documents || range[1] == self->sequences;
  if (!begins || !ends || range[0] < 0 || range[0] > range[1] || range[1] > self->sequences)
    return error_set(
        SHARDRT_EFORMAT,
        "%s: document %lld of %lld is sequences %lld to %lld; the documents are to be all %lld sequences, in "
        "their order (view = \"gpt\" does without documents)",
        self->idx.title, (long long)i, (long long)self->documents, (long long)range[0], (long long)range[1],
        (long long)self->sequences);
  *first = range[0];
  *stop = range[1];
  return SHARDRT_OK;
}

int megatron_copy(const struct megatron_files *self, int64_t i, int64_t first, int64_t count, struct reader *reader,
                  uint8_t *dst) {
  struct megatron_sequence sequence = {0};
  int code = megatron_find_sequence(self, i, &sequence);
  if (code < 0) return code;
  if (first > sequence.length || count > sequence.length - first)
    return error_set(SHARDRT_EFORMAT, "%s: sequence %lld has %lld tokens, and had more when it was opened",
                     self->idx.title, (long long)i, (long long)sequence.length);
  return stored_read(&self->bin, sequence.offset + (size_t)first * self->token_bytes, (size_t)count * self->token_bytes,
                     reader, dst);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int open_file(shardrt_source *source, const char *prefix, const char *ending,
                     const shardrt_source_options *options, struct stored *out) {
  char *path = alloc_text("%s%s", prefix, ending);
  if (path == NULL) return ALLOC_FAILED;
  int code = stored_open(path, options, out);
  alloc_free(path);
  if (code == SHARDRT_OK) code = source_add_file(source, out->title, out, 0);
  return code == SHARDRT_OK ? stored_guard(out, options, GUARD_DEFAULT_PLAIN) : code;
}

/* All of the .idx is used, and stays: in the file, or in memory where it is on a server. */
static int get_words(struct megatron_files *self) {
  struct reader reader = {0};
  const size_t bytes = self->idx.bytes;
  int code;
  if (self->idx.map.remote != NULL) {
    self->downloaded = alloc_array(bytes, 1);
    self->words = self->downloaded;
    code = self->downloaded != NULL ? stored_read(&self->idx, 0, bytes, &reader, self->downloaded) : ALLOC_FAILED;
  } else {
    code = stored_get(&self->idx, 0, bytes, &reader, &self->words);
  }
  reader_clear(&reader);
  self->checks = self->idx.guard != NULL;
  return code;
}

/* Whether the file has as many bytes as its header asks for. */
static bool size_fits(const struct megatron_files *self, uint64_t sequences, uint64_t ends) {
  const size_t left = self->idx.bytes - HEADER_BYTES;
  if (sequences > left / (LENGTH_BYTES + sizeof(int64_t)) || ends > left / sizeof(int64_t)) return false;
  const size_t bytes = (size_t)sequences * (LENGTH_BYTES + sizeof(int64_t)) + (size_t)ends * sizeof(int64_t);
  return bytes == left || bytes + (size_t)sequences == left;
}

static int parse_header(struct megatron_files *self) {
  static const char magic[VERSION_AT] = "MMIDIDX\0";
  const char *title = self->idx.title;
  const uint8_t *words = self->words;
  if (self->idx.bytes < VERSION_AT || memcmp(words, magic, VERSION_AT) != 0)
    return error_set(SHARDRT_EFORMAT, "%s: is no index of Megatron's: it does not begin with \"MMIDIDX\"", title);
  if (self->idx.bytes < HEADER_BYTES)
    return error_set(SHARDRT_EFORMAT, "%s: is cut off within its header of %d bytes: it has %zu", title, HEADER_BYTES,
                     self->idx.bytes);
  const uint64_t version = little_endian_64(words + VERSION_AT), sequences = little_endian_64(words + SEQUENCES_AT);
  const uint64_t ends = little_endian_64(words + DOCUMENTS_AT);
  const uint8_t dtype = words[DTYPE_AT];
  if (version != 1)
    return error_set(SHARDRT_EFORMAT, "%s: is of version %llu; shardrt reads version 1", title,
                     (unsigned long long)version);
  if (dtype < 1 || dtype >= sizeof dtypes / sizeof *dtypes)
    return error_set(SHARDRT_EFORMAT, "%s: its tokens are of dtype number %d, which Megatron's have not", title, dtype);
  if (!size_fits(self, sequences, ends))
    return error_set(
        SHARDRT_EFORMAT,
        "%s: its header tells of %llu sequences and %llu ends of documents, for which its %zu bytes are too "
        "few or too many: it is cut off, or damaged",
        title, (unsigned long long)sequences, (unsigned long long)ends, self->idx.bytes);
  if (sequences > INT32_MAX)
    return error_set(SHARDRT_EFORMAT, "%s: has %llu sequences; Megatron counts them in 31 bits", title,
                     (unsigned long long)sequences);
  self->dtype = dtypes[dtype];
  self->token_bytes = shardrt_dtype_size(self->dtype);
  self->sequences = (int64_t)sequences;
  self->documents = ends > 0 ? (int64_t)ends - 1 : 0;
  return SHARDRT_OK;
}

int megatron_files_open(shardrt_source *source, const char *prefix, const shardrt_source_options *options,
                        struct megatron_files *out) {
  struct megatron_sequence sequence = {0};
  int code = open_file(source, prefix, ".idx", options, &out->idx);
  if (code == SHARDRT_OK) code = open_file(source, prefix, ".bin", options, &out->bin);
  if (code == SHARDRT_OK) code = get_words(out);
  if (code == SHARDRT_OK) code = parse_header(out);
  for (int64_t i = 0; code == SHARDRT_OK && i < out->sequences; i++) code = megatron_find_sequence(out, i, &sequence);
  return code;
}

void megatron_files_close(struct megatron_files *self) {
  alloc_free(self->downloaded);
  stored_close(&self->bin);
  stored_close(&self->idx);
}
