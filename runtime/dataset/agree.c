/* agree.c - every process must see the same files.
 *
 * Where all processes have the same files (mapping_identity: on one host, or on a network's file system), each reads
 * the heads of its share of them for their fingerprints, and tells the others: a job reads each head once. Else each
 * process reads them all, since a file of one host may differ from that of another. Of files that all processes opened
 * together (record/records.c) the fingerprints are known by then. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/text.h"
#include "check/same.h"
#include "comm/job.h"
#include "dataset/source.h"

enum { NAME_BYTES = 512 };

/* What all processes call file `file`, so that they all say the same of it: by process 0's path, and where another
 * process has another one, by that of the first of these, too. */
static int name_file(shardrt_job *job, const shardrt_source *source, int32_t file, const char *what, struct text *out) {
  const int32_t processes = shardrt_job_info_get(job)->process_count;
  char mine[NAME_BYTES];
  snprintf(mine, sizeof mine, "%s", source_file_name(source, file));
  char(*names)[NAME_BYTES] = alloc_array((size_t)processes, sizeof *names);
  int code = job_join(job, what, names == NULL ? ALLOC_FAILED : SHARDRT_OK, mine, sizeof mine, names);
  if (code == SHARDRT_OK && names != NULL) {
    text_add(out, "%s", names[0]);
    int32_t other = 1;
    while (other < processes && strcmp(names[other], names[0]) == 0) other++;
    if (other < processes) text_add(out, " (in process %d: %s)", (int)other, names[other]);
  }
  alloc_free(names);
  return code;
}

static int compare_file(shardrt_job *job, const shardrt_source *source, int32_t file, bool *differs) {
  char what[64], name[2 * NAME_BYTES + 64] = "";
  struct text subject = {.bytes = name, .capacity = sizeof name};
  snprintf(what, sizeof what, "naming file %d of the source", (int)file);
  int code = name_file(job, source, file, what, &subject);
  if (code < 0) return code;
  snprintf(what, sizeof what, "comparing file %d of the source", (int)file);
  return same_compare(job, what, name, source_file_fingerprint(source, file), differs);
}

/* Of all files that the source reads; *reads: of how many heads. */
static uint64_t identify_files(const shardrt_source *source, int32_t *reads) {
  const int32_t files = source_file_count(source);
  uint64_t hash = hash_number(0, files);
  *reads = 0;
  for (int32_t f = 0; f < files; f++) {
    bool is_read;
    hash = hash_number(hash, (int64_t)source_file_identity(source, f, &is_read));
    hash = hash_number(hash, is_read);
    *reads += is_read;
  }
  return hash;
}

/* Process p reads heads p, p + processes, …: fills heads[i] with fingerprint i. Or tells the source all of them. */
static void go_through_heads(const shardrt_job_info *job, const shardrt_source *source, uint64_t *heads, bool tells) {
  const int32_t files = source_file_count(source);
  int32_t head = 0;
  for (int32_t f = 0; f < files; f++) {
    bool is_read;
    (void)source_file_identity(source, f, &is_read);
    if (!is_read) continue;
    if (tells)
      source_file_tell(source, f, heads[head]);
    else
      heads[head] = head % job->process_count == job->process_index ? source_file_read(source, f) : UINT64_MAX;
    head++;
  }
}

static int share_heads(shardrt_job *job, const shardrt_source *source) {
  const shardrt_job_info *info = shardrt_job_info_get(job);
  int32_t reads;
  const uint64_t identity = identify_files(source, &reads);
  bool differs = false, *others = alloc_array((size_t)info->process_count, sizeof *others);
  uint64_t *heads = alloc_array((size_t)reads, sizeof *heads);
  int code = others == NULL || heads == NULL ? ALLOC_FAILED : SHARDRT_OK;
  code = job_compare(job, "comparing the source's files", code, identity, others, &differs);
  if (code == SHARDRT_OK && !differs && reads > 0 && heads != NULL) {
    go_through_heads(info, source, heads, false);
    code = job_fold(job, "telling the fingerprints of the source's files", code, heads, (size_t)reads);
    if (code == SHARDRT_OK) go_through_heads(info, source, heads, true);
  }
  alloc_free(heads);
  alloc_free(others);
  return code;
}

/* One number first; only where that differs, what it is made of. */
int shardrt_check_source(shardrt_job *job, const shardrt_source *source) {
  bool differs = false;
  int code = job_is_alone(job) ? SHARDRT_OK : share_heads(job, source);
  if (code < 0) return code;
  code = same_compare(job, "comparing the source", "the source", shardrt_source_fingerprint(source), &differs);
  if (!differs)
    return code < 0 ? code
                    : same_compare(job, "comparing the transforms", "the source's transforms (or filters)",
                                   source_transform_hash(source), &differs);
  int32_t files = source_file_count(source);
  differs = false;
  code =
      same_compare(job, "counting the source's files", "the number of the source's files", (uint64_t)files, &differs);
  for (int32_t f = 0; code == SHARDRT_OK && f < files; f++) code = compare_file(job, source, f, &differs);
  if (code < 0) return code;
  return same_compare(job, "comparing the source", "the source (the fields' names, dtypes and shapes)",
                      shardrt_source_fingerprint(source), &differs);
}
