/* megatron_documents.c - the documents of a dataset of Megatron-LM's: sample i is the tokens of all sequences of
 * document i, where they lie in the file. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/megatron/megatron.h"

struct megatron_documents {
  shardrt_source head;
  shardrt_field field;
  struct megatron_files files;
  int64_t first; /* the document that is sample 0 */
};

/* What a document is of. */
struct document {
  int64_t first, stop; /* sequences */
  int64_t tokens;
  size_t offset; /* of its first byte, */
  bool whole;    /* if its sequences lie one behind the other */
};

static int find_document(const shardrt_source *source, int64_t sample, struct document *out) {
  const struct megatron_documents *self = (const struct megatron_documents *)source;
  struct megatron_sequence sequence = {0};
  *out = (struct document){.whole = true};
  int code = megatron_find_document(&self->files, self->first + sample, &out->first, &out->stop);
  for (int64_t i = out->first; i < out->stop && code == SHARDRT_OK; i++) {
    code = megatron_find_sequence(&self->files, i, &sequence);
    if (i == out->first) out->offset = sequence.offset;
    if (sequence.offset != out->offset + (size_t)out->tokens * self->files.token_bytes) out->whole = false;
    out->tokens += sequence.length;
  }
  return code;
}

/* In one piece, in memory. */
static int gather_sequences(const struct megatron_files *files, const struct document *document, struct reader *reader,
                            uint8_t *dst) {
  struct megatron_sequence sequence = {0};
  int code = SHARDRT_OK;
  for (int64_t i = document->first; i < document->stop && code == SHARDRT_OK; i++) {
    code = megatron_find_sequence(files, i, &sequence);
    if (code == SHARDRT_OK) code = megatron_copy(files, i, 0, sequence.length, reader, dst);
    if (code == SHARDRT_OK) dst += (size_t)sequence.length * files->token_bytes;
  }
  return code;
}

static int documents_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                           struct value *out, bool *handled) {
  (void)field;
  const struct megatron_files *files = &((const struct megatron_documents *)source)->files;
  struct document document;
  const uint8_t *data = NULL;
  int code = find_document(source, sample, &document);
  if (code < 0) return code;
  *handled = true;
  *out = value_whole(files->dtype, 1, &document.tokens);
  if (document.whole && (files->bin.map.remote != NULL || document.offset % files->token_bytes == 0)) {
    code = stored_get(&files->bin, document.offset, value_bytes(out), reader, &data);
    out->data = (void *)data; /* who reads a value does not write to it */
    return code;
  }
  out->data = reader_room(reader, value_bytes(out));
  return out->data != NULL ? gather_sequences(files, &document, reader, out->data) : ALLOC_FAILED;
}

static int documents_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                             const shardrt_box *inner, struct extents *out) {
  (void)field;
  (void)inner;
  const struct megatron_files *files = &((const struct megatron_documents *)source)->files;
  struct megatron_sequence sequence = {0};
  struct document document;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    if (find_document(source, samples[i], &document) < 0) continue; /* who reads it says what is wrong */
    for (int64_t s = document.first; s < document.stop && code == SHARDRT_OK; s++)
      if (megatron_find_sequence(files, s, &sequence) == SHARDRT_OK && sequence.length > 0)
        code = extents_add(out, &files->bin.map, sequence.offset, (size_t)sequence.length * files->token_bytes);
  }
  return code;
}

static uint64_t documents_fingerprint(const shardrt_source *source) {
  return hash_number(source_files_fingerprint(source), ((const struct megatron_documents *)source)->first);
}

static void documents_close(shardrt_source *source) {
  megatron_files_close(&((struct megatron_documents *)source)->files);
}

static const struct source_format documents_format = {
    .name = "megatron documents",
    .gather = source_gather_values,
    .value = documents_value,
    .extents = documents_extents,
    .fingerprint = documents_fingerprint,
    .close = documents_close,
};

static int open_documents(struct megatron_documents *self, const char *prefix,
                          const shardrt_megatron_options *options) {
  int64_t first, stop;
  int code = megatron_files_open(&self->head, prefix, &options->files, &self->files);
  for (int64_t i = 0; i < self->files.documents && code == SHARDRT_OK; i++)
    code = megatron_find_document(&self->files, i, &first, &stop);
  if (code < 0) return code;
  if (self->files.documents == 0 && self->files.sequences > 0)
    return error_set(SHARDRT_EFORMAT, "%s: has %lld sequences and no documents (view = \"gpt\" does without documents)",
                     self->files.idx.title, (long long)self->files.sequences);
  const struct megatron_range range = megatron_range_of(options, self->files.documents);
  self->field = (shardrt_field){.name = "tokens", .dtype = self->files.dtype, .ndim = 1, .shape = {-1}};
  self->first = self->head.first_number = range.first;
  self->head.fields = &self->field;
  self->head.nfields = 1;
  self->head.count = range.stop - range.first;
  return SHARDRT_OK;
}

int megatron_documents_open(const char *prefix, const shardrt_megatron_options *options, shardrt_source **out) {
  struct megatron_documents *made = source_new(&documents_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = open_documents(made, prefix, options);
  if (code < 0) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}
