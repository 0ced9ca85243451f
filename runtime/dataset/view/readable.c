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

static int try_samples(const shardrt_source *looked, struct reader *reader, int64_t first, int64_t count,
                       uint64_t *word) {
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

static int explain(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
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
static int64_t list_bad(const filter *f, int64_t *samples) {
  int64_t n = 0;
  for (int64_t i = 0; i < f->base->count && n < REASONS_MOST; i++)
    if (!(f->words[i / FILTER_WORD] >> i % FILTER_WORD & 1)) samples[n++] = i;
  return n;
}

static int find_reasons(filter *f, const shardrt_source *looked) {
  int64_t *samples = alloc_array(REASONS_MOST, sizeof *samples);
  int code = shardrt_check_outcome(what, samples != NULL ? SHARDRT_OK : ALLOC_FAILED);
  if (code == SHARDRT_OK && samples != NULL) {
    const struct bad bad = {.looked = looked, .samples = samples};
    const struct survey survey = {.what = what,
                                  .items = list_bad(f, samples),
                                  .item_bytes = sizeof *f->reasons,
                                  .chunk = 1,
                                  .look = explain,
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

static int make(shardrt_source *source, const shardrt_source *looked, filter **out) {
  int code = source_refuse_mix(source);
  if (code == SHARDRT_OK && looked->count != source->count)
    code = error_set(SHARDRT_EINVAL, "%lld samples are looked at for %lld", (long long)looked->count,
                     (long long)source->count);
  code = shardrt_check_outcome(what, code);
  return code == SHARDRT_OK ? filter_make(what, SHARDRT_DATA_DAMAGED, try_samples, source, looked, out) : code;
}

int shardrt_source_readable(shardrt_source *source, const shardrt_source *looked, shardrt_source **out) {
  filter *made = NULL;
  int code = make(source, looked, &made);
  if (code < 0 || made == NULL) return code;
  made->head.places = source->places;
  if (made->head.count < source->count) code = find_reasons(made, looked);
  if (code == SHARDRT_OK && made->head.count == 0 && source->count > 0)
    code = error_set(SHARDRT_EFORMAT, "all %lld samples are damaged; the first: %s", (long long)source->count,
                     made->reasons[0].text);
  if (code < 0 || (made->words != NULL && made->head.count == source->count)) {
    shardrt_source_free(&made->head);
    if (code == SHARDRT_OK) *out = source_retain(source);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}

/* ---- what was left out ------------------------------------------------------------------------------------------ */

/* Goes down to the next source that is made of several, or leaves out damaged samples; NULL: there is none. */
static const shardrt_source *next(const shardrt_source *source) {
  while (source != NULL && source->format->parts == NULL) {
    const filter *f = filter_of(source);
    if (f != NULL && f->reasons != NULL) return source;
    source = source->format->over != NULL ? source->format->over(source) : NULL;
  }
  return source;
}

int64_t shardrt_source_bad_count(const shardrt_source *source) {
  source = next(source);
  if (source == NULL) return 0;
  if (source->format->parts == NULL) {
    const filter *f = filter_of(source);
    return f->base->count - f->head.count + shardrt_source_bad_count(f->base);
  }
  shardrt_source *const *parts;
  int64_t count = 0;
  const int32_t nparts = source->format->parts(source, &parts);
  for (int32_t p = 0; p < nparts; p++) count += shardrt_source_bad_count(parts[p]);
  return count;
}

/* The reason number *i, counted down as others are passed. */
static const char *find(const shardrt_source *source, int64_t *i, int64_t *number) {
  source = next(source);
  if (source == NULL) return NULL;
  if (source->format->parts == NULL) {
    const filter *f = filter_of(source);
    if (*i >= f->nreasons) {
      *i -= f->nreasons;
      return find(f->base, i, number);
    }
    if (number != NULL) *number = source_number(f->base, f->reasons[*i].sample);
    return f->reasons[*i].text;
  }
  shardrt_source *const *parts;
  const int32_t nparts = source->format->parts(source, &parts);
  const char *found = NULL;
  for (int32_t p = 0; p < nparts && found == NULL; p++) found = find(parts[p], i, number);
  return found;
}

const char *shardrt_source_bad(const shardrt_source *source, int64_t i, int64_t *number) {
  return i >= 0 ? find(source, &i, number) : NULL;
}
