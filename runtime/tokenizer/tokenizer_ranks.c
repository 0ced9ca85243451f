/* tokenizer_ranks.c - files of https://github.com/openai/tiktoken: a line for each token, its bytes in base64 and its
 * rank, which is its number, too. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tokenizer/tokenizer.h"

enum { TOKEN_BYTES = 1024 /* at most */ };

static int32_t digit_of(uint8_t c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 up to a space; -1: it is none. */
static ptrdiff_t read_token(const uint8_t **at, const uint8_t *end, uint8_t *token) {
  uint32_t bits = 0;
  int32_t nbits = 0;
  ptrdiff_t count = 0;
  for (; *at < end && digit_of(**at) >= 0; (*at)++) {
    bits = bits << 6 | (uint32_t)digit_of(**at);
    nbits += 6;
    if (nbits < 8) continue;
    nbits -= 8;
    if (count == TOKEN_BYTES) return -1;
    token[count++] = (uint8_t)(bits >> nbits);
  }
  while (*at < end && **at == '=') (*at)++;
  return *at < end && **at == ' ' ? count : -1;
}

/* A line's rank, and the newline behind it. */
static bool read_rank(const uint8_t **at, const uint8_t *end, int32_t *rank) {
  int64_t value = 0;
  const uint8_t *first = *at;
  for (; *at < end && **at >= '0' && **at <= '9' && value <= INT32_MAX; (*at)++) value = value * 10 + **at - '0';
  *rank = (int32_t)value;
  if (*at == first || value > INT32_MAX) return false;
  if (*at < end && **at == '\r') (*at)++;
  if (*at == end) return true;
  return *(*at)++ == '\n';
}

static int read_lines(struct bpe *bpe, const char *path, const uint8_t *at, const uint8_t *end) {
  uint8_t token[TOKEN_BYTES];
  for (int64_t line = 1; at < end; line++) {
    if (*at == '\n') {
      at++;
      continue;
    }
    int32_t rank;
    const ptrdiff_t count = read_token(&at, end, token);
    if (count >= 0) at++;
    if (count <= 0 || !read_rank(&at, end, &rank))
      return error_set(SHARDRT_EFORMAT,
                       "%s: line %lld is no token in base64 with its rank; it takes a tokenizer.json or a file of "
                       "tiktoken's",
                       path, (long long)line);
    int code = bpe_add(bpe, token, (size_t)count, rank);
    if (code < 0) return code;
  }
  return SHARDRT_OK;
}

static int read_ranks(struct tokenizer *self, const char *path, const uint8_t *bytes, size_t count) {
  int code = read_lines(&self->bpe, path, bytes, bytes + count);
  if (code == SHARDRT_OK) code = bpe_index(&self->bpe);
  for (int32_t b = 0; b < 256 && code == SHARDRT_OK; b++)
    if (self->bpe.bytes[b] < 0) return error_set(SHARDRT_EFORMAT, "%s: it lacks the byte %02x", path, (unsigned)b);
  return code == SHARDRT_OK ? bpe_join_all(&self->bpe) : code;
}

int tokenizer_from_ranks(const char *path, const uint8_t *bytes, size_t count, const char *pattern,
                         struct tokenizer **out) {
  const struct split_pattern *found = split_find(pattern, true);
  if (found == NULL)
    return error_set(SHARDRT_EINVAL, "%s: the pattern \"%s\" is not known; there are %s, also as expressions", path,
                     pattern, split_names);
  struct tokenizer *made = tokenizer_new();
  if (made == NULL) return ALLOC_FAILED;
  made->steps[made->nsteps++] = (struct tokenizer_step){.kind = STEP_SPLIT, .pattern = found};
  made->bpe.whole = true;
  int code = read_ranks(made, path, bytes, count);
  if (code < 0) {
    tokenizer_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}
