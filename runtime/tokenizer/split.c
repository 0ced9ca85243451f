#include "tokenizer/split.h"

#include <string.h>

#include "tokenizer/unicode.h"

/* The texts below share parts. */
#define OTHER_AND_SPACE       "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHER_SLASH_AND_SPACE "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ENDINGS               "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPERS                "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS                "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE                "[^\\r\\n\\p{L}\\p{N}]?"

enum split_words {
  WORDS_GPT2,   /* a space and letters, a space and numbers, a space and what is neither */
  WORDS_CL100K, /* anything and letters; up to `numbers` numbers; a space and what is neither, with newlines */
  WORDS_O200K,  /* the same, but capitals begin a word, and endings belong to it */
};

struct split_pattern {
  const char *name; /* NULL: it has none */
  const char *text;
  enum split_words words;
  int32_t numbers; /* at most so many together */
  bool endings;    /* 's, 've and the like, small or capital */
  bool slash;      /* newlines behind what is no word may be slashes, too */
  bool marks;      /* marks are letters */
  bool last_space; /* space at the text's end is one piece, also where it has newlines */
  bool rust;       /* as Rust's regex reads it; Oniguruma takes {1,3}+ for any number */
};

static const struct split_pattern patterns[] = {
    {.name = "gpt2",
     .text = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     .words = WORDS_GPT2},
    {.name = "r50k_base",
     .text = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     .words = WORDS_GPT2,
     .rust = true},
    {.name = "p50k_base",
     .text = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     .words = WORDS_GPT2},
    {.name = "cl100k_base",
     .text = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|"
             "\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     .words = WORDS_CL100K,
     .numbers = 3,
     .endings = true,
     .last_space = true,
     .rust = true},
    {.name = "llama3",
     .text = ENDINGS "|" BEFORE "\\p{L}+|\\p{N}{1,3}" OTHER_AND_SPACE,
     .words = WORDS_CL100K,
     .numbers = 3,
     .endings = true},
    {.name = "qwen2",
     .text = ENDINGS "|" BEFORE "\\p{L}+|\\p{N}" OTHER_AND_SPACE,
     .words = WORDS_CL100K,
     .numbers = 1,
     .endings = true},
    {.text = ENDINGS "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|"
                     "\\s+",
     .words = WORDS_CL100K,
     .numbers = 1,
     .endings = true,
     .marks = true},
    {.name = "o200k_base",
     .text = BEFORE UPPERS "*" LOWERS "+" ENDINGS "?|" BEFORE UPPERS "+" LOWERS "*" ENDINGS
                           "?|\\p{N}{1,3}" OTHER_SLASH_AND_SPACE,
     .words = WORDS_O200K,
     .numbers = 3,
     .endings = true,
     .slash = true},
    {.text = BEFORE UPPERS "*" LOWERS "+|" BEFORE UPPERS "+" LOWERS "*|\\p{N}" OTHER_SLASH_AND_SPACE,
     .words = WORDS_O200K,
     .numbers = 1,
     .slash = true},
};

const char split_names[] = "gpt2, r50k_base, p50k_base, cl100k_base, o200k_base, llama3, qwen2";

const struct split_pattern *split_find(const char *text, bool rust) {
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    const struct split_pattern *p = &patterns[i];
    if (rust && p->name != NULL && strcmp(p->name, text) == 0) return p;
    if ((rust || !p->rust) && strcmp(p->text, text) == 0) return p;
  }
  return NULL;
}

const struct split_pattern *split_gpt2(void) {
  return &patterns[0];
}

/* ---- matching --------------------------------------------------------------------------------------------------- */

/* A text that is cut. */
struct split_text {
  const struct split_pattern *pattern;
  const uint8_t *classes;
  const uint8_t *end;
};

static inline uint32_t class_at(const struct split_text *t, const uint8_t *at, size_t *length) {
  return t->classes[unicode_get(at, length)];
}

/* Past all characters from `at` on that are of these classes. */
static const uint8_t *past(const struct split_text *t, const uint8_t *at, uint32_t classes) {
  for (size_t length; at < t->end && (class_at(t, at, &length) & classes) != 0; at += length) continue;
  return at;
}

/* The same of those that are of none. */
static const uint8_t *past_others(const struct split_text *t, const uint8_t *at, uint32_t classes) {
  for (size_t length; at < t->end && (class_at(t, at, &length) & classes) == 0; at += length) continue;
  return at;
}

static bool is_at(const struct split_text *t, const uint8_t *at, uint32_t classes) {
  size_t length;
  return at < t->end && (class_at(t, at, &length) & classes) != 0;
}

static uint8_t small(uint8_t c, bool any_case) {
  return any_case && c >= 'A' && c <= 'Z' ? (uint8_t)(c + 'a' - 'A') : c;
}

/* Past one of 's 't 'm 'd 're 've 'll; `at` where none stands there. Of any case, s may be ſ, too. */
static const uint8_t *past_ending(const struct split_text *t, const uint8_t *at, bool any_case) {
  const ptrdiff_t left = t->end - at;
  if (left < 2 || at[0] != '\'') return at;
  const uint8_t a = small(at[1], any_case), b = left > 2 ? small(at[2], any_case) : 0;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
  if (any_case && a == 0xc5 && left > 2 && at[2] == 0xbf) return at + 3;
  return at;
}

/* Space: up to the last newline where those count (`lines`), else without the last character where something follows,
 * which goes with it. */
static const uint8_t *past_space(const struct split_text *t, const uint8_t *at, bool lines) {
  const uint8_t *last = at, *newline = at, *next = at;
  for (size_t length; next < t->end; next += length) {
    const uint32_t c = class_at(t, next, &length);
    if ((c & UNICODE_SPACE) == 0) break;
    last = next;
    if ((c & UNICODE_NEWLINE) != 0) newline = next + length;
  }
  if (t->pattern->last_space && next == t->end) return next;
  if (lines && newline > at) return newline;
  return next == t->end || last == at ? next : last;
}

static const uint8_t *next_gpt2(const struct split_text *t, const uint8_t *at) {
  const uint8_t *ending = past_ending(t, at, false);
  if (ending > at) return ending;
  const uint8_t *word = *at == ' ' && at + 1 < t->end ? at + 1 : at;
  size_t length;
  const uint32_t c = class_at(t, word, &length);
  if ((c & UNICODE_SPACE) != 0) return past_space(t, at, false);
  if ((c & UNICODE_LETTER) != 0) return past(t, word, UNICODE_LETTER);
  if ((c & UNICODE_NUMBER) != 0) return past(t, word, UNICODE_NUMBER);
  return past_others(t, word, UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER);
}

/* Numbers, what is no word, and space: `letters` are what words are made of. */
static const uint8_t *next_other(const struct split_text *t, const uint8_t *at, uint32_t letters) {
  const uint32_t word = UNICODE_SPACE | UNICODE_NUMBER | letters;
  if (is_at(t, at, UNICODE_NUMBER)) {
    size_t length;
    for (int32_t n = 0; n < t->pattern->numbers && is_at(t, at, UNICODE_NUMBER); n++, at += length)
      (void)class_at(t, at, &length);
    return at;
  }
  const uint8_t *other = *at == ' ' ? at + 1 : at;
  if (other == t->end || is_at(t, other, word)) return past_space(t, at, true);
  other = past_others(t, other, word);
  while (other < t->end && (*other == '\r' || *other == '\n' || (t->pattern->slash && *other == '/'))) other++;
  return other;
}

static const uint8_t *next_cl100k(const struct split_text *t, const uint8_t *at) {
  const uint32_t letters = t->pattern->marks ? UNICODE_UPPER | UNICODE_LOWER : UNICODE_LETTER;
  const uint8_t *ending = past_ending(t, at, true);
  if (ending > at) return ending;
  size_t length;
  const uint32_t c = class_at(t, at, &length);
  if ((c & (UNICODE_NEWLINE | UNICODE_LETTER | UNICODE_NUMBER)) == 0 && is_at(t, at + length, letters))
    return past(t, at + length, letters);
  if ((c & letters) != 0) return past(t, at, letters);
  return next_other(t, at, letters);
}

/* UPPERS* LOWERS+ from `at` on: where that ends, `at` if it is not there. All capitals are taken first; where no small
 * letter follows them, as many are given back as it takes for the last to be one, which letters without case are. */
static const uint8_t *past_small_word(const struct split_text *t, const uint8_t *at) {
  const uint8_t *both = at, *next = at;
  for (size_t length; next < t->end; next += length) {
    const uint32_t c = class_at(t, next, &length);
    if ((c & UNICODE_UPPER) == 0) break;
    if ((c & UNICODE_LOWER) != 0) both = next + length;
  }
  return is_at(t, next, UNICODE_LOWER) ? past(t, next, UNICODE_LOWER) : both;
}

/* A word behind what may stand before it, or else with that; `at` where there is none. */
static const uint8_t *past_word(const struct split_text *t, const uint8_t *at) {
  size_t length;
  const uint32_t c = class_at(t, at, &length);
  const bool before = (c & (UNICODE_NEWLINE | UNICODE_LETTER | UNICODE_NUMBER)) == 0;
  const uint8_t *starts[] = {before ? at + length : at, at};
  const int32_t n = before ? 2 : 1;
  for (int32_t i = 0; i < n; i++) {
    const uint8_t *end = past_small_word(t, starts[i]);
    if (end > starts[i]) return end;
  }
  for (int32_t i = 0; i < n; i++) {
    const uint8_t *end = past(t, starts[i], UNICODE_UPPER);
    if (end > starts[i]) return end;
  }
  return at;
}

static const uint8_t *next_o200k(const struct split_text *t, const uint8_t *at) {
  const uint8_t *end = past_word(t, at);
  if (end == at) return next_other(t, at, UNICODE_LETTER);
  return t->pattern->endings ? past_ending(t, end, true) : end;
}

const uint8_t *split_next(const struct split_pattern *self, const uint8_t *classes, const uint8_t *at,
                          const uint8_t *end) {
  const struct split_text text = {.pattern = self, .classes = classes, .end = end};
  switch (self->words) {
  case WORDS_GPT2:
    return next_gpt2(&text, at);
  case WORDS_CL100K:
    return next_cl100k(&text, at);
  default:
    return next_o200k(&text, at);
  }
}
