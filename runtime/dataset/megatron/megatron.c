/* megatron.c - datasets of Megatron-LM's, one or a blend of several, as a source. */
#include "dataset/megatron/megatron.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"

/* What Megatron draws of each part beyond its share, so that rounding never asks for more than there is. */
static const double surplus = 1 + 0.005;

struct megatron_range megatron_range_of(const shardrt_megatron_options *options, int64_t count) {
  /* As Python's round() does, halves go to the even number. */
  return (struct megatron_range){.first = (int64_t)rint(options->from * (double)count),
                                 .stop = (int64_t)rint(options->to * (double)count)};
}

static int check_options(const shardrt_megatron_options *o) {
  if (o->view != SHARDRT_MEGATRON_DOCUMENTS && o->view != SHARDRT_MEGATRON_GPT)
    return error_set(SHARDRT_EINVAL, "a view of number %d of Megatron's files", (int)o->view);
  if (!(o->from >= 0 && o->from <= o->to && o->to <= 1))
    return error_set(SHARDRT_EINVAL, "samples from %g to %g of all; both are 0 to 1", o->from, o->to);
  if (o->view == SHARDRT_MEGATRON_GPT && (o->window < 2 || o->window > INT32_MAX))
    return error_set(SHARDRT_EINVAL, "windows of %lld tokens; they are of 2 or more, and 31 bits count them",
                     (long long)o->window);
  if (o->samples < 0) return error_set(SHARDRT_EINVAL, "%lld samples", (long long)o->samples);
  return SHARDRT_OK;
}

static int open_part(const char *prefix, const shardrt_megatron_options *options, shardrt_source **out) {
  return options->view == SHARDRT_MEGATRON_GPT ? megatron_windows_open(prefix, options, out)
                                               : megatron_documents_open(prefix, options, out);
}

/* `shares` (NULL: one epoch of each) come to 1. */
static int open_parts(int32_t n, const char *const *prefixes, const double *shares,
                      const shardrt_megatron_options *options, shardrt_source **parts) {
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < n && code == SHARDRT_OK; i++) {
    shardrt_megatron_options own = *options;
    own.samples = shares != NULL ? (int64_t)ceil(ceil((double)options->samples * shares[i]) * surplus) : 0;
    code = open_part(prefixes[i], &own, &parts[i]);
  }
  return code;
}

static int open_blend(int32_t n, const char *const *prefixes, const double *weights, double *shares,
                      const shardrt_megatron_options *options, shardrt_source **parts, shardrt_source **out) {
  int64_t samples = options->samples;
  if (weights != NULL) {
    megatron_normalize(n, weights, shares);
    samples = 0;
    for (int32_t i = 0; i < n; i++) samples += (int64_t)ceil((double)options->samples * shares[i]);
  }
  int code = open_parts(n, prefixes, weights != NULL ? shares : NULL, options, parts);
  if (code < 0) return code;
  if (options->view == SHARDRT_MEGATRON_DOCUMENTS) return shardrt_source_concat(n, parts, NULL, out);
  return megatron_blend(n, parts, weights != NULL ? shares : NULL, samples, out);
}

int shardrt_source_megatron(int32_t nprefixes, const char *const *prefixes, const double *weights,
                            const shardrt_megatron_options *options, shardrt_source **out) {
  int code = check_options(options);
  if (code < 0) return code;
  if (nprefixes < 1) return error_set(SHARDRT_EINVAL, "a source of Megatron's files of no prefix");
  if (weights != NULL && (options->samples == 0 || options->view != SHARDRT_MEGATRON_GPT))
    return error_set(
        SHARDRT_EINVAL,
        "weights of a blend want view = \"gpt\" and how many samples there are to be; without weights all of "
        "each is taken");
  for (int32_t i = 0; i < nprefixes && weights != NULL; i++)
    if (!(weights[i] > 0) || isinf(weights[i]))
      return error_set(SHARDRT_EINVAL, "a weight of %g in a blend; weights are above 0", weights[i]);
  if (nprefixes == 1 && weights == NULL) return open_part(prefixes[0], options, out);
  const size_t n = (size_t)nprefixes;
  double *shares = alloc_array(n, sizeof *shares);
  shardrt_source **parts = alloc_zeros(n, sizeof *parts);
  code = shares != NULL && parts != NULL ? open_blend(nprefixes, prefixes, weights, shares, options, parts, out)
                                         : ALLOC_FAILED;
  for (int32_t i = 0; i < nprefixes && parts != NULL; i++) shardrt_source_free(parts[i]);
  alloc_free((void *)parts);
  alloc_free(shares);
  return code;
}
