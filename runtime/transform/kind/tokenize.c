/* tokenize.c - a text becomes the tokens of a vocabulary (tokenizer/tokenizer.h): bytes, uint8 of one dimension, become
 * int32 of one dimension.
 *
 * numbers: none. bytes: the file's path, for messages; the expression of a file of tiktoken's, else an empty text; for
 *   each of its special tokens the text and the number; an empty text (each of these with a NUL); and all of the file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "tokenizer/tokenizer.h"
#include "transform/kinds.h"
#include "transform/number.h"

struct tokenize {
  struct tokenizer *tokenizer;
  uint64_t hash;
};

/* What stands in a transform's bytes. */
struct given {
  const char *path, *pattern, *special;
  const uint8_t *file;
  size_t count; /* of the file */
};

/* The text that begins at `at`, which goes behind its NUL; NULL: it does not end. */
static const char *take_text(const char **at, const char *end) {
  const char *text = *at, *nul = memchr(text, '\0', (size_t)(end - text));
  if (nul != NULL) *at = nul + 1;
  return nul != NULL ? text : NULL;
}

static int read_given(const shardrt_transform *self, struct given *out) {
  const char *at = (const char *)self->bytes, *end = at + self->nbytes;
  const char *path = take_text(&at, end), *pattern = path != NULL ? take_text(&at, end) : NULL, *special = at;
  const char *text = pattern != NULL ? take_text(&at, end) : NULL;
  while (text != NULL && text[0] != '\0') text = take_text(&at, end) != NULL ? take_text(&at, end) : NULL;
  if (text == NULL) return error_set(SHARDRT_EINVAL, "bytes that shardrt.transform.tokenize would not give");
  *out = (struct given){path, pattern, special, (const uint8_t *)at, (size_t)(end - at)};
  return SHARDRT_OK;
}

static int add_special(struct tokenizer *tokenizer, const char *at) {
  int code = SHARDRT_OK;
  while (at[0] != '\0' && code == SHARDRT_OK) {
    const char *id = at + strlen(at) + 1;
    code = tokenizer_add_special(tokenizer, at, (int32_t)strtol(id, NULL, 10));
    at = id + strlen(id) + 1;
  }
  return code;
}

static int open_tokenizer(const struct given *given, struct tokenizer **out) {
  size_t at = 0;
  while (at < given->count && strchr(" \t\r\n", given->file[at]) != NULL && given->file[at] != '\0') at++;
  const bool json = at < given->count && given->file[at] == '{';
  if (json && given->pattern[0] != '\0')
    return error_set(SHARDRT_EINVAL, "%s: a tokenizer.json says its pattern and its special tokens itself",
                     given->path);
  if (json) return tokenizer_from_json(given->path, given->file, given->count, out);
  if (given->pattern[0] == '\0')
    return error_set(SHARDRT_EINVAL,
                     "%s: it is no tokenizer.json; a file of tiktoken's needs pattern = …, the expression that goes "
                     "with it or one of %s",
                     given->path, split_names);
  int code = tokenizer_from_ranks(given->path, given->file, given->count, given->pattern, out);
  return code == SHARDRT_OK ? add_special(*out, given->special) : code;
}

static int tokenize_set(shardrt_transform *self) {
  struct given given = {.path = "", .pattern = "", .special = ""};
  int code = number_expect(self, 0);
  if (code == SHARDRT_OK) code = read_given(self, &given);
  if (code < 0) return code;
  struct tokenize *kept = self->kept = alloc_zeros(1, sizeof *kept);
  if (kept == NULL) return ALLOC_FAILED;
  code = open_tokenizer(&given, &kept->tokenizer);
  if (code < 0) return code;
  kept->hash = hash_bytes(0, given.pattern, self->nbytes - (size_t)(given.pattern - given.path));
  alloc_free(self->bytes); /* the file is large, and read */
  self->bytes = NULL;
  self->nbytes = 0;
  return SHARDRT_OK;
}

static int tokenize_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  (void)self;
  if (in->dtype != SHARDRT_UINT8 || in->ndim != 1)
    return error_set(SHARDRT_EINVAL, "it takes a text, uint8 of one dimension, not %s of %d",
                     shardrt_dtype_name(in->dtype), (int)in->ndim);
  *out = (struct form){.dtype = SHARDRT_INT32, .ndim = 1, .shape = {-1}};
  return SHARDRT_OK;
}

static int64_t tokenize_most(const shardrt_transform *self, const int64_t *shape) {
  const struct tokenize *kept = self->kept;
  return tokenizer_most(kept->tokenizer, shape[0]);
}

static void *work_new(const void *owner) {
  (void)owner;
  return alloc_zeros(1, sizeof(struct tokenizer_work));
}

static void work_free(void *state) {
  tokenizer_work_clear(state);
  alloc_free(state);
}

static int tokenize_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                        const struct value *in, struct value *out, int64_t *failed) {
  (void)draws;
  const struct tokenize *kept = self->kept;
  struct tokenizer_work *work = reader_state(reader, self, work_new, work_free);
  *failed = 0;
  if (work == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < n; i++) {
    size_t made;
    *failed = i;
    int code = tokenizer_encode(kept->tokenizer, work, in[i].data, value_bytes(&in[i]), out[i].data, &made);
    if (code < 0) return code;
    out[i].shape[0] = out[i].full[0] = (int64_t)made;
  }
  return SHARDRT_OK;
}

static uint64_t tokenize_transform_hash(const shardrt_transform *self) {
  const struct tokenize *kept = self->kept;
  return kept->hash;
}

static void tokenize_clear(shardrt_transform *self) {
  struct tokenize *kept = self->kept;
  if (kept == NULL) return;
  tokenizer_free(kept->tokenizer);
  alloc_free(kept);
}

const struct transform_kind tokenize_kind = {
    .name = "tokenize",
    .stage = READER_TRANSFORM,
    .set = tokenize_set,
    .form = tokenize_form,
    .most = tokenize_most,
    .run = tokenize_run,
    .transform_hash = tokenize_transform_hash,
    .clear = tokenize_clear,
};
