/* listing_share.c - what a bucket has is asked of its server once in the job, by process 0, and told to all: a hundred
 * thousand processes would ask for each page of it a hundred thousand times. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/job.h"
#include "dataset/view/survey.h"
#include "storage/service/listing.h"

/* A listing as other processes are told of it: of each object how many bytes it has, and its address, which ends in a
 * NUL. */
struct listing_share {
  const char *prefix;
  int32_t deep;
  shardrt_listing *listing; /* NULL but in process 0; owned */
};

/* A survey_look, of one item: it is found how many numbers the packed listing takes. */
static int list_objects(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  struct listing_share *share = *(struct listing_share *const *)context;
  (void)reader, (void)first, (void)count;
  int code = shardrt_listing_new(share->prefix, share->deep, &share->listing);
  uint64_t bytes = 0;
  for (int64_t i = 0; code == SHARDRT_OK && i < shardrt_listing_count(share->listing); i++)
    bytes += sizeof(int64_t) + strlen(shardrt_listing_address(share->listing, i)) + 1;
  *(uint64_t *)found = bytes / sizeof(uint64_t) + 1;
  return code;
}

static void pack_listing(const shardrt_listing *listing, char *at) {
  for (int64_t i = 0; i < shardrt_listing_count(listing); i++) {
    const int64_t bytes = shardrt_listing_bytes(listing, i);
    const char *address = shardrt_listing_address(listing, i);
    memcpy(at, &bytes, sizeof bytes);
    memcpy(at + sizeof bytes, address, strlen(address) + 1);
    at += sizeof bytes + strlen(address) + 1;
  }
}

/* No object has -1 bytes, which end it. */
static int unpack_listing(const char *at, shardrt_listing *out) {
  int code = SHARDRT_OK;
  for (int64_t bytes = 0; code == SHARDRT_OK;) {
    memcpy(&bytes, at, sizeof bytes);
    if (bytes < 0) break;
    at += sizeof bytes;
    code = listing_append(out, at, bytes);
    at += strlen(at) + 1;
  }
  return code;
}

/* What process 0 has listed, in all others: they know nothing, which an "and" leaves out. */
static int tell_listing(shardrt_job *job, const char *what, struct listing_share *share, uint64_t count) {
  const size_t n = (size_t)count + 1; /* for the end */
  uint64_t *numbers = alloc_array(n, sizeof *numbers);
  if (numbers != NULL) memset(numbers, 0xff, n * sizeof *numbers);
  if (numbers != NULL && share->listing != NULL) pack_listing(share->listing, (char *)numbers);
  int code = job_fold(job, what, numbers != NULL ? SHARDRT_OK : ALLOC_FAILED, numbers, n);
  if (code == SHARDRT_OK && numbers != NULL && share->listing == NULL) {
    share->listing = listing_empty();
    code = share->listing != NULL ? unpack_listing((const char *)numbers, share->listing) : SHARDRT_ENOMEM;
  }
  alloc_free(numbers);
  return shardrt_check_outcome(job, what, code);
}

/* Processes that list different things do so each for itself. */
static int meet_others(shardrt_job *job, const char *what, const struct listing_share *share, bool *differs) {
  bool *others = alloc_array((size_t)shardrt_job_info_get(job)->process_count, sizeof *others);
  const uint64_t hash = hash_number(hash_text(0, share->prefix), share->deep);
  int code = job_compare(job, what, others != NULL ? SHARDRT_OK : ALLOC_FAILED, hash, others, differs);
  alloc_free(others);
  return code;
}

static int list_together(shardrt_job *job, struct listing_share *share) {
  static const char meeting[] = "listing a bucket";
  char what[200];
  bool differs = false;
  int code = meet_others(job, meeting, share, &differs);
  if (code < 0) return code;
  if (differs) return shardrt_listing_new(share->prefix, share->deep, &share->listing);
  snprintf(what, sizeof what, "%s: %s", meeting, share->prefix);
  struct listing_share *const context = share;
  const struct survey survey = {.job = job,
                                .what = what,
                                .items = 1,
                                .item_bytes = sizeof(uint64_t),
                                .chunk = 1,
                                .threads = 1,
                                .look = list_objects,
                                .context = &context};
  void *found = NULL;
  code = survey_run(&survey, &found);
  const uint64_t count = code == SHARDRT_OK ? *(uint64_t *)found : 0;
  alloc_free(found);
  return code == SHARDRT_OK ? tell_listing(job, what, share, count) : code;
}

int shardrt_listing_share(shardrt_job *job, const char *prefix, int32_t deep, shardrt_listing **out) {
  struct listing_share share = {.prefix = prefix, .deep = deep};
  *out = NULL;
  int code = job_is_alone(job) ? shardrt_listing_new(prefix, deep, &share.listing) : list_together(job, &share);
  if (code == SHARDRT_OK)
    *out = share.listing;
  else
    shardrt_listing_free(share.listing);
  return code;
}
