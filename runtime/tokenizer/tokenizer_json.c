/* tokenizer_json.c - Hugging Face's tokenizer.json (https://github.com/huggingface/tokenizers), as far as it is of
 * byte-level BPE: GPT-2's, Llama 3's, Qwen's and their like. What it says of special tokens that are added to a text,
 * of cutting texts off and of filling them up is left aside. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "codec/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

enum { NAME = 64, WORD = 32, PATTERN = 1024, DEEPEST = 4 /* sequences within sequences */ };

/* A file that is read. */
struct json_file {
  struct tokenizer *made;
  uint8_t bytes_of[0x144]; /* the byte that a character of the vocabulary stands for, */
  bool is_byte[0x144];     /* if it does */
  bool byte_level;         /* the pre-tokenizer that makes bytes came by */
  struct bpe others;       /* of the vocabulary: what stands for no bytes, by its text */
  struct added seen;       /* the added tokens so far, by their texts; */
  int32_t nnew;            /* so many of them are not in the vocabulary */
  char *text;              /* the text read last; */
  uint8_t *decoded;        /* the bytes that it stands for, */
  size_t count;            /* so many */
  size_t room;             /* of each */
};

/* The characters that stand for bytes: what prints stands for itself, and the others follow from 256 on. */
static void set_bytes(struct json_file *f) {
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; b++) {
    const bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    const uint32_t code = prints ? b : next++;
    f->bytes_of[code] = (uint8_t)b;
    f->is_byte[code] = true;
  }
}

/* ---- members of objects ----------------------------------------------------------------------------------------- */

struct member {
  const char *name;
  struct json_reader at;
  bool found;
};

/* A list of those wanted ends with one that has no name. */
static int take_member(struct json_reader *r, const char *name, void *context) {
  for (struct member *m = context; m->name != NULL; m++) {
    if (strcmp(m->name, name) != 0) continue;
    m->at = *r;
    m->found = !json_null(r);
    if (!m->found) return SHARDRT_OK;
  }
  return json_skip(r);
}

static int find_members(const struct json_reader *object, struct member *members) {
  struct json_reader r = *object;
  return json_object_read(&r, "an object", take_member, members);
}

/* What a member says; it is left as it is where there is none. */
static int read_flag(const struct member *m, bool *out) {
  if (!m->found) return SHARDRT_OK;
  struct json_reader r = m->at;
  char word[WORD];
  int code = json_word_read(&r, "true or false", word, sizeof word);
  if (code < 0) return code;
  *out = strcmp(word, "true") == 0;
  return *out || strcmp(word, "false") == 0 ? SHARDRT_OK : json_malformed(&m->at, "true or false");
}

static int read_short(const struct member *m, char *out, size_t room) {
  out[0] = '\0';
  if (!m->found) return SHARDRT_OK;
  struct json_reader r = m->at;
  struct json_text text = {.bytes = out, .room = room};
  int code = json_text_read(&r, "a text", &text);
  if (code == SHARDRT_OK && text.length >= room) out[0] = '\0';
  return code;
}

/* Room for texts of so many bytes, with a NUL; f->text keeps what it holds. */
static int make_room(struct json_file *f, size_t bytes) {
  if (bytes < f->room) return SHARDRT_OK;
  const size_t larger = 2 * bytes + NAME;
  char *text = alloc_array(larger, 1);
  uint8_t *decoded = alloc_array(larger, 1);
  if (text == NULL || decoded == NULL) {
    alloc_free(text);
    alloc_free(decoded);
    return ALLOC_FAILED;
  }
  if (f->room > 0) memcpy(text, f->text, f->room);
  alloc_free(f->text);
  alloc_free(f->decoded);
  f->text = text;
  f->decoded = decoded;
  f->room = larger;
  return SHARDRT_OK;
}

/* A text of any length, to f->text. */
static int read_text(struct json_file *f, struct json_reader *r, const char *expected) {
  const struct json_reader first = *r;
  struct json_text text = {.bytes = f->text, .room = f->room};
  int code = json_text_read(r, expected, &text);
  f->count = text.length;
  if (code < 0 || text.length < f->room) return code;
  code = make_room(f, text.length);
  if (code < 0) return code;
  *r = first;
  text = (struct json_text){.bytes = f->text, .room = f->room};
  return json_text_read(r, expected, &text);
}

/* The bytes that `count` bytes of f->text, from `first` on, stand for; false: they stand for none. */
static bool decode_text(struct json_file *f, size_t first, size_t count, size_t *decoded) {
  *decoded = 0;
  for (size_t at = first, length; at < first + count; at += length) {
    const uint32_t c = unicode_get((const uint8_t *)f->text + at, &length);
    if (c >= sizeof f->is_byte || !f->is_byte[c]) return false;
    f->decoded[(*decoded)++] = f->bytes_of[c];
  }
  return *decoded > 0;
}

static int unsupported(const struct json_reader *r, const char *what, const char *name) {
  return error_set(SHARDRT_EINVAL,
                   "%s: %s \"%s\" is not supported; byte-level BPE is, as GPT-2, Llama 3 and Qwen have it: the model "
                   "BPE, the pre-tokenizers ByteLevel, Split by their expressions, Digits and Sequence, the normalizer "
                   "NFC",
                   r->path, what, name);
}

/* ---- normalizers, pre-tokenizers -------------------------------------------------------------------------------- */

/* What stands in each of a sequence. */
struct sequence {
  struct json_file *file;
  int32_t depth;
  int (*take)(struct json_file *f, const struct json_reader *object, int32_t depth);
};

static int take_sequence_part(struct json_reader *r, int32_t i, void *context) {
  (void)i;
  const struct sequence *s = context;
  const struct json_reader object = *r;
  int code = s->take(s->file, &object, s->depth + 1);
  return code == SHARDRT_OK ? json_skip(r) : code;
}

static int take_sequence(struct json_file *f, const struct member *list, int32_t depth,
                         int (*take)(struct json_file *f, const struct json_reader *object, int32_t depth)) {
  struct sequence s = {.file = f, .depth = depth, .take = take};
  struct json_reader r = list->at;
  if (!list->found || depth == DEEPEST) return json_malformed(&list->at, "the parts of a sequence");
  return json_list_read(&r, "the parts of a sequence", take_sequence_part, &s);
}

static int take_normalizer(struct json_file *f, const struct json_reader *object, int32_t depth) {
  char type[NAME] = "";
  struct member members[] = {{.name = "type"}, {.name = "normalizers"}, {.name = NULL}};
  int code = find_members(object, members);
  if (code == SHARDRT_OK) code = read_short(&members[0], type, sizeof type);
  if (code < 0) return code;
  if (strcmp(type, "Sequence") == 0) return take_sequence(f, &members[1], depth, take_normalizer);
  if (strcmp(type, "NFC") != 0) return unsupported(object, "the normalizer", type);
  f->made->nfc = true;
  return SHARDRT_OK;
}

static int add_step(struct json_file *f, const struct json_reader *object, struct tokenizer_step step) {
  if (f->byte_level || f->made->nsteps == TOKENIZER_STEPS)
    return error_set(SHARDRT_EINVAL, "%s: %s", object->path,
                     f->byte_level ? "a pre-tokenizer stands behind ByteLevel, which comes last"
                                   : "too many pre-tokenizers");
  f->made->steps[f->made->nsteps++] = step;
  return SHARDRT_OK;
}

static int take_byte_level(struct json_file *f, const struct json_reader *object, const struct member *prefix,
                           const struct member *regex) {
  bool adds_space = true, splits = true;
  int code = read_flag(prefix, &adds_space);
  if (code == SHARDRT_OK) code = read_flag(regex, &splits);
  if (code == SHARDRT_OK && adds_space) code = add_step(f, object, (struct tokenizer_step){.kind = STEP_PREFIX_SPACE});
  if (code == SHARDRT_OK && splits)
    code = add_step(f, object, (struct tokenizer_step){.kind = STEP_SPLIT, .pattern = split_gpt2()});
  f->byte_level = true;
  return code;
}

/* What an expression matches is a piece, and what lies between matches is; those that are known match all of a text. */
static int take_split(struct json_file *f, const struct json_reader *object, const struct member *pattern,
                      const struct member *behavior, const struct member *invert) {
  char text[PATTERN] = "", how[NAME] = "";
  bool inverts = false;
  struct member members[] = {{.name = "Regex"}, {.name = NULL}};
  int code = pattern->found ? find_members(&pattern->at, members) : json_malformed(object, "a pattern");
  if (code == SHARDRT_OK) code = read_short(&members[0], text, sizeof text);
  if (code == SHARDRT_OK) code = read_short(behavior, how, sizeof how);
  if (code == SHARDRT_OK) code = read_flag(invert, &inverts);
  if (code < 0) return code;
  const struct split_pattern *found = split_find(text, false);
  if (found == NULL) return unsupported(object, members[0].found ? "the expression" : "a Split by a text,", text);
  if (strcmp(how, "Isolated") != 0 && !(strcmp(how, "Removed") == 0 && inverts))
    return unsupported(object, "a Split with the behavior", how);
  return add_step(f, object, (struct tokenizer_step){.kind = STEP_SPLIT, .pattern = found});
}

static int take_pre_tokenizer(struct json_file *f, const struct json_reader *object, int32_t depth) {
  enum { TYPE, PARTS, PREFIX, REGEX, PATTERN_OF, BEHAVIOR, INVERT, EACH };
  char type[NAME] = "";
  struct member m[] = {{.name = "type"},      {.name = "pretokenizers"},     {.name = "add_prefix_space"},
                       {.name = "use_regex"}, {.name = "pattern"},           {.name = "behavior"},
                       {.name = "invert"},    {.name = "individual_digits"}, {.name = NULL}};
  int code = find_members(object, m);
  if (code == SHARDRT_OK) code = read_short(&m[TYPE], type, sizeof type);
  if (code < 0) return code;
  if (strcmp(type, "Sequence") == 0) return take_sequence(f, &m[PARTS], depth, take_pre_tokenizer);
  if (strcmp(type, "ByteLevel") == 0) return take_byte_level(f, object, &m[PREFIX], &m[REGEX]);
  if (strcmp(type, "Split") == 0) return take_split(f, object, &m[PATTERN_OF], &m[BEHAVIOR], &m[INVERT]);
  if (strcmp(type, "Digits") != 0) return unsupported(object, "the pre-tokenizer", type);
  bool each = false;
  code = read_flag(&m[EACH], &each);
  if (code < 0) return code;
  return add_step(f, object, (struct tokenizer_step){.kind = each ? STEP_EACH_DIGIT : STEP_DIGITS});
}

/* ---- the model -------------------------------------------------------------------------------------------------- */

static int read_id(struct json_reader *r, int32_t *out) {
  int64_t id;
  int code = json_number_read(r, "a token's number", &id);
  if (code < 0) return code;
  if (id > INT32_MAX) return json_bad(r, "a token's number is %lld; it fits in 32 bits", (long long)id);
  *out = (int32_t)id;
  return SHARDRT_OK;
}

/* Tokens of bytes; others can only be added tokens, whose numbers they say. */
static int read_vocabulary(struct json_file *f, struct json_reader r) {
  if (!json_accept(&r, '{')) return json_malformed(&r, "a vocabulary");
  bool more = true;
  for (bool first = true;; first = false) {
    int32_t id = 0;
    int code = json_next(&r, '}', "a vocabulary", first, &more);
    if (code < 0 || !more) return code;
    code = read_text(f, &r, "a token");
    if (code == SHARDRT_OK && !json_accept(&r, ':')) code = json_malformed(&r, "\":\" behind a token");
    if (code == SHARDRT_OK) code = read_id(&r, &id);
    size_t bytes;
    if (code < 0) return code;
    code = decode_text(f, 0, f->count, &bytes) ? bpe_add(&f->made->bpe, f->decoded, bytes, id)
                                               : bpe_add(&f->others, (const uint8_t *)f->text, f->count, id);
    if (code < 0) return code;
  }
}

/* Two tokens, "a b" or ["a", "b"]: the first ends at `split` of f->text, the second goes on behind it. */
static int read_two(struct json_file *f, struct json_reader *r, size_t *split, size_t *gap) {
  const struct json_reader first = *r;
  if (!json_accept(r, '[')) {
    int code = read_text(f, r, "two tokens");
    if (code < 0) return code;
    const char *space = memchr(f->text, ' ', f->count);
    if (space == NULL) return json_malformed(&first, "two tokens");
    *split = (size_t)(space - f->text);
    *gap = 1;
    return SHARDRT_OK;
  }
  int code = read_text(f, r, "a token");
  char *left = code == SHARDRT_OK ? alloc_array(f->count + 1, 1) : NULL;
  if (code == SHARDRT_OK && left == NULL) code = ALLOC_FAILED;
  *split = f->count;
  *gap = 0;
  if (code == SHARDRT_OK) memcpy(left, f->text, f->count);
  if (code == SHARDRT_OK && !json_accept(r, ',')) code = json_malformed(r, "two tokens");
  if (code == SHARDRT_OK) code = read_text(f, r, "a token");
  if (code == SHARDRT_OK && !json_accept(r, ']')) code = json_malformed(r, "two tokens");
  if (code == SHARDRT_OK) code = make_room(f, f->count + *split);
  if (code == SHARDRT_OK) {
    memmove(f->text + *split, f->text, f->count);
    memcpy(f->text, left, *split);
    f->count += *split;
  }
  alloc_free(left);
  return code;
}

static int take_merge(struct json_reader *r, int32_t i, void *context) {
  struct json_file *f = context;
  struct bpe *bpe = &f->made->bpe;
  size_t split = 0, gap = 0, left_bytes, right_bytes;
  int code = read_two(f, r, &split, &gap);
  if (code < 0) return code;
  if (!decode_text(f, split + gap, f->count - split - gap, &right_bytes)) return SHARDRT_OK; /* never comes up */
  const int32_t right = bpe_find(bpe, f->decoded, right_bytes);
  if (!decode_text(f, 0, split, &left_bytes)) return SHARDRT_OK;
  const int32_t left = bpe_find(bpe, f->decoded, left_bytes);
  memmove(f->text + split, f->text + split + gap, f->count - split - gap);
  size_t bytes;
  (void)decode_text(f, 0, f->count - gap, &bytes);
  const int32_t joined = bpe_find(bpe, f->decoded, bytes);
  if (left < 0 || right < 0 || joined < 0)
    return json_bad(r, "merge %d is of tokens that the vocabulary does not have", (int)i);
  return bpe_join(bpe, left, right, (uint32_t)i, joined);
}

enum {
  MODEL_TYPE,
  VOCABULARY,
  MERGES,
  IGNORE_MERGES,
  UNKNOWN,
  CONTINUING,
  WORD_END,
  DROPOUT,
  BYTE_FALLBACK,
  MODEL_MEMBERS
};

static int check_model(const struct json_reader *object, const struct member *m) {
  char type[NAME] = "", prefix[NAME] = "", suffix[NAME] = "";
  int code = read_short(&m[MODEL_TYPE], type, sizeof type);
  if (code == SHARDRT_OK) code = read_short(&m[CONTINUING], prefix, sizeof prefix);
  if (code == SHARDRT_OK) code = read_short(&m[WORD_END], suffix, sizeof suffix);
  if (code < 0) return code;
  if (m[MODEL_TYPE].found && strcmp(type, "BPE") != 0) return unsupported(object, "the model", type);
  if (!m[VOCABULARY].found || !m[MERGES].found) return json_malformed(object, "a vocabulary and merges");
  if (prefix[0] != '\0') return unsupported(object, "a continuing_subword_prefix,", prefix);
  if (suffix[0] != '\0') return unsupported(object, "an end_of_word_suffix,", suffix);
  if (!m[DROPOUT].found) return SHARDRT_OK;
  char word[WORD];
  struct json_reader r = m[DROPOUT].at;
  code = json_word_read(&r, "a number", word, sizeof word);
  return code == SHARDRT_OK && strtod(word, NULL) > 0 ? unsupported(object, "a dropout,", word) : code;
}

static int read_model(struct json_file *f, const struct json_reader *object) {
  struct member m[MODEL_MEMBERS + 1] = {[MODEL_TYPE].name = "type",
                                        [VOCABULARY].name = "vocab",
                                        [MERGES].name = "merges",
                                        [IGNORE_MERGES].name = "ignore_merges",
                                        [UNKNOWN].name = "unk_token",
                                        [CONTINUING].name = "continuing_subword_prefix",
                                        [WORD_END].name = "end_of_word_suffix",
                                        [DROPOUT].name = "dropout",
                                        [BYTE_FALLBACK].name = "byte_fallback"};
  int code = find_members(object, m);
  if (code == SHARDRT_OK) code = check_model(object, m);
  if (code == SHARDRT_OK) code = read_flag(&m[IGNORE_MERGES], &f->made->bpe.whole);
  if (code == SHARDRT_OK) code = read_vocabulary(f, m[VOCABULARY].at);
  if (code == SHARDRT_OK) code = bpe_index(&f->made->bpe);
  if (code == SHARDRT_OK) code = bpe_index(&f->others);
  if (code < 0) return code;
  bool fallback = false;
  code = read_flag(&m[BYTE_FALLBACK], &fallback);
  for (int32_t b = 0; b < 256 && code == SHARDRT_OK && (m[UNKNOWN].found || fallback); b++)
    if (f->made->bpe.bytes[b] < 0)
      return error_set(SHARDRT_EINVAL,
                       "%s: its vocabulary lacks the byte %02x, and it has %s for that, which is not "
                       "supported",
                       object->path, (unsigned)b, m[UNKNOWN].found ? "unk_token" : "byte_fallback");
  struct json_reader merges = m[MERGES].at;
  return code == SHARDRT_OK ? json_list_read(&merges, "merges", take_merge, f) : code;
}

/* ---- added tokens ----------------------------------------------------------------------------------------------- */

/* The number of the added token in f->text, which `tokenizers` gives it whatever its "id" says: the vocabulary's, or
 * else the next behind as many as the vocabulary has. */
static int32_t added_id(struct json_file *f) {
  size_t decoded;
  const int32_t known = decode_text(f, 0, f->count, &decoded)
                            ? bpe_find(&f->made->bpe, f->decoded, decoded)
                            : bpe_find(&f->others, (const uint8_t *)f->text, f->count);
  return known >= 0 ? known : (int32_t)(f->made->bpe.ntokens + f->others.ntokens) + f->nnew++;
}

static int take_added(struct json_reader *r, int32_t i, void *context) {
  (void)i;
  enum { CONTENT, SINGLE, LEFT, RIGHT, NORMALIZED };
  struct json_file *f = context;
  struct member m[] = {{.name = "content"}, {.name = "single_word"}, {.name = "lstrip"},
                       {.name = "rstrip"},  {.name = "normalized"},  {.name = NULL}};
  const struct json_reader object = *r;
  struct added_token token = {0};
  bool normalized = false;
  int code = find_members(&object, m);
  if (code == SHARDRT_OK && !m[CONTENT].found) code = json_malformed(&object, "a content");
  if (code == SHARDRT_OK) code = read_flag(&m[SINGLE], &token.single_word);
  if (code == SHARDRT_OK) code = read_flag(&m[LEFT], &token.takes_before);
  if (code == SHARDRT_OK) code = read_flag(&m[RIGHT], &token.takes_behind);
  if (code == SHARDRT_OK) code = read_flag(&m[NORMALIZED], &normalized);
  if (code == SHARDRT_OK) code = read_text(f, &m[CONTENT].at, "a token");
  if (code == SHARDRT_OK) code = json_skip(r);
  if (code < 0 || f->count == 0) return code;
  const int32_t nseen = f->seen.ntokens;
  code = added_add(&f->seen, (const uint8_t *)f->text, f->count, &token);
  if (code < 0 || f->seen.ntokens == nseen) return code; /* of two with the same text the first counts */
  token.id = added_id(f);
  if (!normalized) return added_add(&f->made->raw, (const uint8_t *)f->text, f->count, &token);
  struct tokenizer_work work = {0};
  const uint8_t *text = (const uint8_t *)f->text;
  size_t count = f->count;
  code = tokenizer_normalize(f->made, &work, &text, &count);
  if (code == SHARDRT_OK) code = added_add(&f->made->normalized, text, count, &token);
  tokenizer_work_clear(&work);
  return code;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static int read_file(struct json_file *f, const struct json_reader *file) {
  enum { ADDED, NORMALIZER, PRE_TOKENIZER, MODEL };
  struct member m[] = {
      {.name = "added_tokens"}, {.name = "normalizer"}, {.name = "pre_tokenizer"}, {.name = "model"}, {.name = NULL}};
  int code = find_members(file, m);
  if (code < 0) return code;
  if (!m[MODEL].found) return json_malformed(file, "a tokenizer.json, with \"model\"");
  /* First what says whose tokenizer it is: what its model lacks follows from that. */
  if (m[NORMALIZER].found) code = take_normalizer(f, &m[NORMALIZER].at, 0);
  if (code == SHARDRT_OK && m[PRE_TOKENIZER].found) code = take_pre_tokenizer(f, &m[PRE_TOKENIZER].at, 0);
  if (code == SHARDRT_OK && !f->byte_level) code = unsupported(file, "a pre_tokenizer without", "ByteLevel");
  if (code == SHARDRT_OK) code = read_model(f, &m[MODEL].at);
  if (code == SHARDRT_OK && m[ADDED].found) code = json_list_read(&m[ADDED].at, "added tokens", take_added, f);
  return code;
}

int tokenizer_from_json(const char *path, const uint8_t *bytes, size_t count, struct tokenizer **out) {
  struct json_file f = {.made = tokenizer_new()};
  if (f.made == NULL) return ALLOC_FAILED;
  set_bytes(&f);
  const struct json_reader r = {.path = path, .what = "tokenizer", .begin = bytes, .at = bytes, .end = bytes + count};
  int code = read_file(&f, &r);
  added_clear(&f.seen);
  bpe_clear(&f.others);
  alloc_free(f.decoded);
  alloc_free(f.text);
  if (code < 0) {
    tokenizer_free(f.made);
    return code;
  }
  *out = f.made;
  return SHARDRT_OK;
}
