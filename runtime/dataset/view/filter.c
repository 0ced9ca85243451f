/* filter.c - the samples of a source that count.
 *
 * Which ones they are is worked out once, when the filter is made, by all processes together: so all of them know how
 * many there are and how many steps an epoch has, and any of them finds the k-th without looking at those before it. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/search.h"
#include "comm/job.h"
#include "dataset/view/filter.h"
#include "dataset/view/pruned.h"
#include "dataset/view/survey.h"

enum {
  BLOCK_WORDS = 8, /* a cache line of bits */
  LOOK_WORDS = 16, /* looked at in one call */
};

static int64_t words_of(int64_t samples) {
  return samples / FILTER_WORD + (samples % FILTER_WORD != 0);
}

/* Which sample of the base is the k-th that counts; needs 0 <= k < count. */
static int64_t filtered_sample(const struct filter *f, int64_t k) {
  assert(k >= 0 && k < f->view.head.count);
  if (f->words == NULL) return k;
  const int64_t block = search_part(f->before, sizeof *f->before, f->nblocks, k);
  int64_t word = block * BLOCK_WORDS, left = k - f->before[block];
  assert(left >= 0 && k < f->before[block + 1]);
  for (int64_t ones; left >= (ones = __builtin_popcountll(f->words[word])); word++) left -= ones;
  uint64_t bits = f->words[word];
  for (; left > 0; left--) bits &= bits - 1;
  return word * FILTER_WORD + __builtin_ctzll(bits);
}

static int64_t filter_translate(const shardrt_source *source, const int64_t *samples, int64_t n, int32_t *base,
                                int64_t *translated) {
  *base = 0;
  for (int64_t i = 0; i < n; i++) translated[i] = filtered_sample((const struct filter *)source, samples[i]);
  return n;
}

/* How many that count stand before sample `number` of the base. */
static int64_t counting_before(const shardrt_source *source, int64_t number) {
  const struct filter *f = (const struct filter *)source;
  if (f->words == NULL) return number;
  int64_t word = number / FILTER_WORD / BLOCK_WORDS * BLOCK_WORDS;
  int64_t before = f->before[word / BLOCK_WORDS];
  for (; word < number / FILTER_WORD; word++) before += __builtin_popcountll(f->words[word]);
  const int64_t bits = number % FILTER_WORD;
  return bits == 0 ? before : before + __builtin_popcountll(f->words[word] & ((UINT64_C(1) << bits) - 1));
}

/* What is let through of the base's block. */
static struct sample_range filter_block(const shardrt_source *source, int64_t block) {
  return view_block(source, block, counting_before);
}

static int filter_prune(const shardrt_source *source, int32_t field, const struct condition *condition,
                        struct pruned *out) {
  return pruned_by_base(source, source->bases[0], field, condition, counting_before, out);
}

static uint64_t filter_fingerprint(const shardrt_source *source) {
  const uint64_t hash =
      hash_number(hash_text(0, "shardrt filter"), (int64_t)shardrt_source_fingerprint(source->bases[0]));
  return hash_number(hash, (int64_t)((const struct filter *)source)->hash);
}

static void filter_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  const struct filter *f = (const struct filter *)source;
  source_selection_hash(source->bases[0], hashes);
  hashes[f->kind] = hash_number(hashes[f->kind], (int64_t)f->hash);
}

static void filter_close(shardrt_source *source) {
  struct filter *f = (struct filter *)source;
  alloc_free(f->reasons);
  alloc_free(f->before);
  alloc_free(f->words);
  view_close(source);
}

static const struct source_format filter_format = {
    .name = "filter",
    VIEW_FUNCTIONS,
    .translate = filter_translate,
    .fingerprint = filter_fingerprint,
    .selection_hash = filter_selection_hash,
    .block_count = view_block_count,
    .block = filter_block,
    .prune = filter_prune,
    .close = filter_close,
};

const struct filter *filter_of(const shardrt_source *source) {
  return source->format == &filter_format ? (const struct filter *)source : NULL;
}

/* ---- making one ------------------------------------------------------------------------------------------------- */

/* What the survey is of. */
struct question {
  filter_look *look;
  const void *context;
  const shardrt_source *looked;
};

static int look_at_words(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct question *q = context;
  uint64_t *words = found;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) {
    const int64_t sample = (first + i) * FILTER_WORD, left = q->looked->count - sample;
    code = q->look(q->looked, q->context, reader, sample, left < FILTER_WORD ? left : FILTER_WORD, &words[i]);
  }
  return code;
}

/* Counts what the words let through. */
static int count_words(struct filter *f, int64_t nwords) {
  f->nblocks = nwords / BLOCK_WORDS + (nwords % BLOCK_WORDS != 0);
  f->before = alloc_array((size_t)f->nblocks + 1, sizeof *f->before);
  if (f->before == NULL) return ALLOC_FAILED;
  int64_t count = 0;
  for (int64_t i = 0; i < nwords; i++) {
    if (i % BLOCK_WORDS == 0) f->before[i / BLOCK_WORDS] = count;
    count += __builtin_popcountll(f->words[i]);
  }
  f->before[f->nblocks] = f->view.head.count = count;
  assert(count <= f->view.head.bases[0]->count);
  f->hash = hash_bytes(0, f->words, (size_t)nwords * sizeof *f->words);
  return SHARDRT_OK;
}

/* Under planning nothing is read, and any sample may count. */
static int let_all_through(struct filter *f) {
  f->view.head.guessed = true;
  f->view.head.count = filter_base(f)->count;
  f->hash = hash_text(0, "all");
  return SHARDRT_OK;
}

static int find_words(struct filter *f, shardrt_job *job, const char *what, const struct question *question) {
  if (job_is_planned(job)) return let_all_through(f);
  const struct survey survey = {.job = job,
                                .what = what,
                                .items = words_of(filter_base(f)->count),
                                .item_bytes = sizeof *f->words,
                                .chunk = LOOK_WORDS,
                                .look = look_at_words,
                                .context = question};
  void *words = NULL;
  int code = survey_run(&survey, &words);
  if (code < 0) return code;
  f->words = words;
  return shardrt_check_outcome(job, what, count_words(f, survey.items));
}

int filter_make(shardrt_job *job, const char *what, int32_t kind, filter_look *look_at, const void *context,
                shardrt_source *source, const shardrt_source *looked, struct filter **out) {
  const struct question question = {.look = look_at, .context = context, .looked = looked};
  struct filter *made = view_new(&filter_format, sizeof *made, 1, &source, 0);
  int code = shardrt_check_outcome(job, what, made != NULL ? SHARDRT_OK : ALLOC_FAILED);
  if (code == SHARDRT_OK) code = shardrt_check_source(job, looked);
  if (code == SHARDRT_OK && made != NULL) {
    made->kind = kind;
    code = find_words(made, job, what, &question);
  }
  if (code < 0) {
    if (made != NULL) shardrt_source_free(&made->view.head);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

/* ---- by predicates ---------------------------------------------------------------------------------------------- */

/* What is known of a verdict before a look at it. */
struct foreknowledge {
  struct pruned pruned; /* by any of its fields */
  bool *are_conditions; /* of each field */
};

/* Asks a field of the verdict about the samples whose bits are set in `asked`, and clears those in *word for which it
 * says no. */
static int ask_field(const shardrt_source *verdict, int32_t f, struct reader *reader, int64_t first, uint64_t asked,
                     uint64_t *word) {
  int64_t samples[FILTER_WORD], n = 0;
  uint8_t said[FILTER_WORD];
  for (uint64_t bits = asked; bits != 0; bits &= bits - 1) samples[n++] = first + __builtin_ctzll(bits);
  if (n == 0) return SHARDRT_OK;
  const shardrt_box whole = source_whole(&verdict->fields[f]);
  int code = source_gather(verdict, f, samples, n, &whole, reader, said);
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++)
    if (!said[i]) *word &= ~(UINT64_C(1) << (samples[i] - first));
  return code;
}

/* Conditions are asked one after the other, each about what those before it let through; what they all let through,
 * the other fields. */
static int ask_verdict(const shardrt_source *verdict, const void *context, struct reader *reader, int64_t first,
                       int64_t n, uint64_t *word) {
  const struct foreknowledge *known = context;
  *word = pruned_left(&known->pruned, first, n);
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < verdict->nfields && code == SHARDRT_OK; f++)
    if (known->are_conditions[f]) code = ask_field(verdict, f, reader, first, *word, word);
  const uint64_t left = *word;
  for (int32_t f = 0; f < verdict->nfields && code == SHARDRT_OK; f++)
    if (!known->are_conditions[f]) code = ask_field(verdict, f, reader, first, left, word);
  return code;
}

static int foreknow(const shardrt_source *verdict, struct foreknowledge *out) {
  out->are_conditions = alloc_zeros((size_t)verdict->nfields, sizeof *out->are_conditions);
  if (out->are_conditions == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < verdict->nfields && code == SHARDRT_OK; f++) {
    struct pruned by_field = {0};
    code = source_prune(verdict, f, NULL, &by_field);
    out->are_conditions[f] = by_field.is_condition;
    if (code == SHARDRT_OK) code = pruned_join(&out->pruned, &by_field);
    pruned_clear(&by_field);
  }
  return code;
}

static int check_verdict(const shardrt_source *source, const shardrt_source *verdict) {
  if (verdict->count != source->count)
    return error_set(SHARDRT_EINVAL, "%lld verdicts on %lld samples", (long long)verdict->count,
                     (long long)source->count);
  for (int32_t f = 0; f < verdict->nfields; f++) {
    const shardrt_field *field = &verdict->fields[f];
    if (field->dtype == SHARDRT_BOOL && field->ndim == 0) continue;
    return error_set(SHARDRT_EINVAL,
                     "what the field \"%s\" goes through gives %s of %d dimensions; it must come to one "
                     "bool, whether the sample counts",
                     field->name, shardrt_dtype_name(field->dtype), (int)field->ndim);
  }
  return SHARDRT_OK;
}

int shardrt_source_filter(shardrt_job *job, shardrt_source *source, const shardrt_source *verdict,
                          shardrt_source **out) {
  static const char what[] = "filtering a source";
  struct foreknowledge known = {0};
  int code = source_refuse_mix(source);
  if (code == SHARDRT_OK) code = check_verdict(source, verdict);
  if (code == SHARDRT_OK) code = foreknow(verdict, &known);
  code = shardrt_check_outcome(job, what, code);
  struct filter *made = NULL;
  if (code == SHARDRT_OK)
    code = filter_make(job, what, SHARDRT_DATA_FILTER, ask_verdict, &known, source, verdict, &made);
  if (code == SHARDRT_OK && made != NULL) made->pruned = pruned_samples(&known.pruned);
  pruned_clear(&known.pruned);
  alloc_free(known.are_conditions);
  if (code < 0 || made == NULL) return code;
  made->view.head.places = verdict->places; /* which may have drawn, too */
  *out = &made->view.head;
  return SHARDRT_OK;
}

int64_t shardrt_source_pruned(const shardrt_source *source) {
  const struct filter *f = filter_of(source);
  int64_t count = f != NULL ? f->pruned : 0;
  for (int32_t b = 0; b < source->nbases; b++) count += shardrt_source_pruned(source->bases[b]);
  return count;
}
