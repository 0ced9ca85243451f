/* readable.c - the samples of a source that are not damaged.
 *
 * Which ones they are is found as a filter's are: once, before the first batch, by all processes. So every process
 * leaves out the same ones, and what is damaged later is an error. Why a sample was left out is found by reading it
 * again. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/view/filter.h"
#include "dataset/view/survey.h"

enum { REASONS_MOST = 1000 };

static const char what[] = "looking for damaged samples";

/* Whether a failure is one with the data; others would happen to any sample. */
static bool is_damage(int code) {
  return code == SHARDRT_EFORMAT || code == SHARDRT_EOVERFLOW;
}

/* Reads all fields of a sample. */
static int read_sample(const shardrt_source *source, struct reader *reader, int64_t sample) {
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < source->nfields && code == SHARDRT_OK; f++) {
    const struct reader_mark mark = reader_mark(reader);
    struct value value;
    code = source_value(source, f, sample, NULL, reader, &value);
    reader_release(reader, mark);
  }
  return code;
}

static int try_samples(const shardrt_source *looked, const void *context, struct reader *reader, int64_t first,
                       int64_t count, uint64_t *word) {
  (void)context;
  reader->thorough = true;
  *word = 0;
  for (int64_t i = 0; i < count; i++) {
    int code = read_sample(looked, reader, first + i);
    if (code < 0 && !is_damage(code)) return code;
    if (code == SHARDRT_OK) *word |= UINT64_C(1) << i;
  }
  return SHARDRT_OK;
}

/* ---- why -------------------------------------------------------------------------------------------------------- */

struct bad {
  const shardrt_source *looked;
  const int64_t *samples; /* that were left out */
};

static int explain_bad(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct bad *bad = context;
  struct filter_reason *reasons = found;
  reader->thorough = true;
  for (int64_t i = 0; i < count; i++) {
    reasons[i].sample = bad->samples[first + i];
    int code = read_sample(bad->looked, reader, reasons[i].sample);
    if (code < 0 && !is_damage(code)) return code;
    if (code == SHARDRT_OK)
      error_set(SHARDRT_EFORMAT, "sample %lld was damaged when it was read first",
                (long long)source_number(bad->looked, reasons[i].sample));
    snprintf(reasons[i].text, sizeof reasons[i].text, "%s", shardrt_error_message());
  }
  return SHARDRT_OK;
}

/* The first samples that a filter leaves out: as many as there are, REASONS_MOST at most. */
static int64_t list_bad(const struct filter *f, int64_t *samples) {
  int64_t n = 0;
  for (int64_t i = 0; i < filter_base(f)->count && n < REASONS_MOST; i++)
    if (!(f->words[i / FILTER_WORD] >> i % FILTER_WORD & 1)) samples[n++] = i;
  return n;
}

static int find_reasons(shardrt_job *job, struct filter *f, const shardrt_source *looked) {
  int64_t *samples = alloc_array(REASONS_MOST, sizeof *samples);
  int code = shardrt_check_outcome(job, what, samples != NULL ? SHARDRT_OK : ALLOC_FAILED);
  if (code == SHARDRT_OK && samples != NULL) {
    const struct bad bad = {.looked = looked, .samples = samples};
    const struct survey survey = {.job = job,
                                  .what = what,
                                  .items = list_bad(f, samples),
                                  .item_bytes = sizeof *f->reasons,
                                  .chunk = 1,
                                  .look = explain_bad,
                                  .context = &bad};
    void *reasons = NULL;
    code = survey_run(&survey, &reasons);
    f->reasons = reasons;
    f->nreasons = code == SHARDRT_OK ? survey.items : 0;
  }
  alloc_free(samples);
  return code;
}

/* ---- the view --------------------------------------------------------------------------------------------------- */

static int make_readable(shardrt_job *job, shardrt_source *source, const shardrt_source *looked, struct filter **out) {
  int code = source_refuse_mix(source);
  if (code == SHARDRT_OK && looked->count != source->count)
    code = error_set(SHARDRT_EINVAL, "%lld samples are looked at for %lld", (long long)looked->count,
                     (long long)source->count);
  code = shardrt_check_outcome(job, what, code);
  return code == SHARDRT_OK ? filter_make(job, what, SHARDRT_DATA_DAMAGED, try_samples, NULL, source, looked, out)
                            : code;
}

int shardrt_source_readable(shardrt_job *job, shardrt_source *source, const shardrt_source *looked,
                            shardrt_source **out) {
  struct filter *made = NULL;
  int code = make_readable(job, source, looked, &made);
  if (code < 0 || made == NULL) return code;
  made->view.head.places = source->places;
  if (made->view.head.count < source->count) code = find_reasons(job, made, looked);
  if (code == SHARDRT_OK && made->view.head.count == 0 && source->count > 0)
    code = error_set(SHARDRT_EFORMAT, "all %lld samples are damaged; the first: %s", (long long)source->count,
                     made->reasons[0].text);
  if (code < 0 || (made->words != NULL && made->view.head.count == source->count)) {
    shardrt_source_free(&made->view.head);
    if (code == SHARDRT_OK) *out = source_retain(source);
    return code;
  }
  *out = &made->view.head;
  return SHARDRT_OK;
}

/* ---- what was left out ------------------------------------------------------------------------------------------ */

/* Of a source that leaves out damaged samples; NULL: it does not. */
static const struct filter *leaves_out(const shardrt_source *source) {
  const struct filter *f = filter_of(source);
  return f != NULL && f->reasons != NULL ? f : NULL;
}

int64_t shardrt_source_bad_count(const shardrt_source *source) {
  int64_t count = leaves_out(source) != NULL ? source->bases[0]->count - source->count : 0;
  for (int32_t b = 0; b < source->nbases; b++) count += shardrt_source_bad_count(source->bases[b]);
  return count;
}

/* The reason number *i, counted down as others are passed. */
static const char *find_reason(const shardrt_source *source, int64_t *i, int64_t *number) {
  const struct filter *f = leaves_out(source);
  if (f != NULL && *i < f->nreasons) {
    if (number != NULL) *number = source_number(source->bases[0], f->reasons[*i].sample);
    return f->reasons[*i].text;
  }
  if (f != NULL) *i -= f->nreasons;
  const char *found = NULL;
  for (int32_t b = 0; b < source->nbases && found == NULL; b++) found = find_reason(source->bases[b], i, number);
  return found;
}

const char *shardrt_source_bad(const shardrt_source *source, int64_t i, int64_t *number) {
  return i >= 0 ? find_reason(source, &i, number) : NULL;
}
