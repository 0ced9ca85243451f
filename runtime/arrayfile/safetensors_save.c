/* safetensors_save.c - the processes of a job write one .safetensors file together.
 *
 * All of them work out the header by themselves, and with it where every box of every array goes; process 0 creates the
 * file. Then each writes its own boxes, in rounds: after each, all tell how it went, so that an error in one ends the
 * work of all, and nobody waits for the others' last byte as if they had stopped. Arrays whose boxes would be crumbs in
 * the file are first laid out in rows, one array at a time. An object of a bucket has the same bytes (object_save.h).
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrayfile/object_save.h"
#include "arrayfile/runs.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "codec/safetensors_header.h"
#include "comm/job.h"
#include "memory/buffer.h"
#include "storage/local/url.h"
#include "storage/write/sharedfile.h"

enum { ROUND = 64 << 20 }; /* bytes that a process writes between two meetings */

/* What each process tells before anything is written. */
struct intent {
  uint64_t entries; /* the hash of all that must be equal */
  int64_t count;
  int64_t bytes;   /* that it will write in rounds */
  uint64_t number; /* of the temporary file; process 0's counts */
};

/* What must be equal of one entry. */
struct identity {
  uint64_t name, layout, value; /* value: of a global array, its number */
};

struct save {
  const char *path;
  shardrt_job *job;
  const shardrt_job_info *info;
  int64_t count;
  const shardrt_saved *entries;
  shardrt_tensor *tensors; /* of the entries, in their order */
  shardrt_sharding **rows; /* of each entry: how it is laid out before it is written; NULL: as it is */
  char *header;
  size_t header_bytes, file_bytes;
  char what[PATH_MAX + 8]; /* "save w.safetensors" */
  struct sharedfile file;
  int64_t rounds, round; /* how many there are; how many are done */
  size_t left;           /* bytes that may still be written in this one */
  bool told;             /* all know of the error that ended the writing */
  int64_t written;       /* bytes */
  size_t base;           /* where what is being written begins in the file */
};

static bool is_first(const struct save *s) {
  return s->info->process_index == 0;
}

/* ---- what there is to write ---- */

static int list_tensors(struct save *s) {
  s->tensors = alloc_zeros((size_t)s->count, sizeof *s->tensors);
  shardrt_tensor **sorted = alloc_array((size_t)s->count, sizeof(shardrt_tensor *));
  int code = s->tensors != NULL && sorted != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int64_t i = 0; code == SHARDRT_OK && i < s->count; i++) {
    const shardrt_saved *entry = &s->entries[i];
    shardrt_tensor *tensor = sorted[i] = &s->tensors[i];
    tensor->name = entry->name;
    tensor->dtype = entry->array != NULL ? shardrt_array_dtype(entry->array) : entry->dtype;
    tensor->ndim = entry->array != NULL ? shardrt_array_ndim(entry->array) : entry->ndim;
    const int64_t *shape = entry->array != NULL ? shardrt_array_shape(entry->array) : entry->shape;
    if (tensor->ndim > 0 && tensor->ndim <= SHARDRT_MAX_NDIM)
      memcpy(tensor->shape, shape, (size_t)tensor->ndim * sizeof *shape);
  }
  if (code == SHARDRT_OK) code = safetensors_header_new(s->path, s->count, sorted, &s->header, &s->header_bytes);
  if (code == SHARDRT_OK) {
    s->file_bytes = s->header_bytes;
    for (int64_t i = 0; i < s->count; i++) s->file_bytes += s->tensors[i].bytes;
  }
  alloc_free(sorted);
  return code;
}

static int choose_rows(struct save *s) {
  s->rows = alloc_zeros((size_t)s->count, sizeof(shardrt_sharding *));
  int code = s->rows != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int64_t e = 0; code == SHARDRT_OK && e < s->count; e++) {
    const shardrt_array *array = s->entries[e].array;
    if (array != NULL)
      code = shardrt_safetensors_rows(shardrt_array_sharding(array), shardrt_array_dtype(array),
                                      shardrt_array_ndim(array), shardrt_array_shape(array), s->info->process_count,
                                      s->info->devices_per_process, &s->rows[e]);
  }
  return code;
}

/* Whether this process writes the i-th of its shards: replica 0 of each box is owned once in the job. */
static bool is_written(const shardrt_array *array, int64_t i) {
  return shardrt_array_shard(array, i)->replica_id == 0;
}

static int check_data(const struct save *s) {
  for (int64_t e = 0; e < s->count; e++) {
    const shardrt_array *array = s->entries[e].array;
    for (int64_t i = 0; array != NULL && i < shardrt_array_shard_count(array); i++)
      if (shardrt_array_buffer(array, i) == NULL)
        return error_set(SHARDRT_EDATA, "%s: \"%s\" has no data: it was made for a plan, or deleted", s->path,
                         s->entries[e].name);
  }
  return SHARDRT_OK;
}

/* What this process writes in rounds. */
static int64_t count_bytes(const struct save *s) {
  int64_t bytes = is_first(s) ? (int64_t)s->header_bytes : 0;
  for (int64_t e = 0; e < s->count; e++) {
    const shardrt_array *array = s->entries[e].array;
    if (array == NULL && is_first(s)) bytes += (int64_t)s->tensors[e].bytes;
    if (array == NULL || s->rows[e] != NULL) continue;
    for (int64_t i = 0; i < shardrt_array_shard_count(array); i++)
      if (is_written(array, i)) bytes += (int64_t)shardrt_array_shard_bytes(array);
  }
  return bytes;
}

/* ---- all save the same ---- */

static struct identity identify_tensor(const struct save *s, int64_t i) {
  const shardrt_saved *entry = &s->entries[i];
  const shardrt_tensor *tensor = &s->tensors[i];
  struct identity made = {.name = hash_text(0, tensor->name)};
  made.layout = hash_number(hash_number(0, tensor->dtype), tensor->ndim);
  for (int32_t d = 0; d < tensor->ndim; d++) made.layout = hash_number(made.layout, tensor->shape[d]);
  if (entry->array != NULL) {
    made.layout = hash_number(made.layout, (int64_t)shardrt_sharding_fingerprint(shardrt_array_sharding(entry->array)));
    made.value = shardrt_array_number(entry->array);
  } else {
    made.value = hash_bytes(1, entry->data, tensor->bytes);
  }
  return made;
}

static int compare_identities(const struct save *s, const struct identity *all) {
  for (int32_t p = 1; p < s->info->process_count; p++) {
    for (int64_t i = 0; i < s->count; i++) {
      const struct identity *first = &all[i], *other = &all[(int64_t)p * s->count + i];
      if (first->name != other->name)
        return error_set(SHARDRT_EMISMATCH, "%s: process %" PRId32 " saves arrays of other names than process 0",
                         s->what, p);
      const char *differs = s->entries[i].array != NULL ? "array" : "host value";
      if (first->layout != other->layout) differs = "dtype, shape or sharding";
      if (first->layout != other->layout || first->value != other->value)
        return error_set(SHARDRT_EMISMATCH, "%s: process %" PRId32 " gives another %s for \"%s\" than process 0",
                         s->what, p, differs, s->entries[i].name);
    }
  }
  return error_set(SHARDRT_EMISMATCH, "%s: every process must save the same arrays", s->what);
}

/* Where the processes differ: finds out in what. */
static int explain_difference(const struct save *s, const struct identity *mine, const struct intent *all) {
  for (int32_t p = 1; p < s->info->process_count; p++)
    if (all[p].count != all[0].count)
      return error_set(SHARDRT_EMISMATCH,
                       "%s: process 0 saves %" PRId64 " arrays and process %" PRId32 " %" PRId64
                       "; every process must save the same",
                       s->what, all[0].count, p, all[p].count);
  struct identity *given = alloc_array((size_t)s->info->process_count, (size_t)s->count * sizeof *given);
  int code = given == NULL ? ALLOC_FAILED : SHARDRT_OK;
  code = job_join(s->job, s->what, code, mine, (size_t)s->count * sizeof *mine, given);
  if (code == SHARDRT_OK && given != NULL) code = compare_identities(s, given);
  alloc_free(given);
  return code;
}

/* Sets the number of rounds, and the temporary file's. `code` is of what came before, in this process. */
static int agree_on_save(struct save *s, int code, uint64_t *number) {
  struct identity *mine = alloc_array((size_t)s->count, sizeof *mine);
  struct intent *all = alloc_array((size_t)s->info->process_count, sizeof *all);
  struct intent own = {.count = s->count};
  if (code == SHARDRT_OK && (mine == NULL || all == NULL)) code = ALLOC_FAILED;
  for (int64_t i = 0; code == SHARDRT_OK && i < s->count; i++) mine[i] = identify_tensor(s, i);
  if (code == SHARDRT_OK) {
    own.entries = hash_bytes(0, mine, (size_t)s->count * sizeof *mine);
    own.bytes = count_bytes(s);
    own.number = sharedfile_number();
  }
  code = job_join(s->job, s->what, code, &own, sizeof own, all);
  bool same = true;
  int64_t most = 0;
  const bool is_agreed = code == SHARDRT_OK && all != NULL;
  for (int32_t p = 0; is_agreed && p < s->info->process_count; p++) {
    same = same && all[p].entries == all[0].entries;
    most = all[p].bytes > most ? all[p].bytes : most;
  }
  if (!same) code = explain_difference(s, mine, all);
  if (code == SHARDRT_OK && is_agreed) {
    s->rounds = (most + ROUND - 1) / ROUND;
    *number = all[0].number;
  }
  alloc_free(all);
  alloc_free(mine);
  return code;
}

/* ---- writing ---- */

/* All tell how they got on. */
static int end_round(struct save *s, int code) {
  if (code == SHARDRT_OK) code = sharedfile_flush(&s->file);
  s->round++;
  s->left = ROUND;
  return shardrt_check_outcome(s->job, s->what, code);
}

/* Writes at most what is left of this round, and goes through as many more as it takes. An error of another process
 * comes back from here too: s->told is then set. */
static int put_piece(void *context, size_t offset, const void *data, size_t bytes) {
  struct save *s = context;
  const char *at = data;
  offset += s->base;
  while (bytes > 0) {
    const size_t piece = bytes < s->left ? bytes : s->left;
    int code = sharedfile_write(&s->file, offset, at, piece);
    if (code < 0) return code;
    at += piece;
    offset += piece;
    bytes -= piece;
    s->left -= piece;
    s->written += (int64_t)piece;
    if (s->left > 0) continue;
    code = end_round(s, SHARDRT_OK);
    if (code < 0) {
      s->told = true;
      return code;
    }
  }
  return SHARDRT_OK;
}

/* The first `borrowed` of those that are written: where they are on the host. What devices hold is there only while one
 * array is written. */
static int list_data(const shardrt_array *array, int64_t *borrowed, shardrt_box *boxes, const void **data) {
  const int64_t shards = shardrt_array_shard_count(array);
  int64_t count = 0;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < shards && code == SHARDRT_OK; i++) { /* all devices at once */
    if (!is_written(array, i)) continue;
    code = buffer_borrow(shardrt_array_buffer(array, i));
    if (code == SHARDRT_OK) ++*borrowed;
  }
  for (int64_t i = 0; i < shards && code == SHARDRT_OK; i++) {
    if (!is_written(array, i)) continue;
    void *bytes = NULL;
    code = buffer_borrowed(shardrt_array_buffer(array, i), &bytes);
    boxes[count] = shardrt_array_shard(array, i)->box;
    data[count++] = bytes;
  }
  return code;
}

static int write_array(struct save *s, const shardrt_array *array) {
  const int64_t shards = shardrt_array_shard_count(array);
  shardrt_box *boxes = alloc_array((size_t)shards, sizeof *boxes);
  const void **data = boxes == NULL ? NULL : alloc_array((size_t)shards, sizeof *data);
  int64_t borrowed = 0;
  int code = data == NULL ? ALLOC_FAILED : list_data(array, &borrowed, boxes, data);
  if (code == SHARDRT_OK)
    code = runs_walk(shardrt_array_dtype(array), shardrt_array_ndim(array), shardrt_array_shape(array), borrowed, boxes,
                     data, put_piece, s);
  for (int64_t i = 0; i < shards && borrowed > 0; i++) {
    if (!is_written(array, i)) continue;
    buffer_return(shardrt_array_buffer(array, i));
    borrowed--;
  }
  alloc_free(data);
  alloc_free(boxes);
  return code;
}

static int write_own(struct save *s) {
  s->base = 0;
  int code = is_first(s) ? put_piece(s, 0, s->header, s->header_bytes) : SHARDRT_OK;
  for (int64_t e = 0; code == SHARDRT_OK && e < s->count; e++) {
    if (s->rows[e] != NULL) continue;
    s->base = s->tensors[e].offset;
    if (s->entries[e].array != NULL)
      code = write_array(s, s->entries[e].array);
    else if (is_first(s))
      code = put_piece(s, 0, s->entries[e].data, s->tensors[e].bytes);
  }
  return code;
}

/* The arrays that are laid out anew, one after the other: none takes more memory than its part of one of them. What the
 * processes write of each is equal, so there are no rounds. */
static int write_rows(struct save *s) {
  int code = SHARDRT_OK;
  s->left = SIZE_MAX;
  for (int64_t e = 0; code == SHARDRT_OK && e < s->count; e++) {
    if (s->rows[e] == NULL) continue;
    shardrt_array *laid_out = NULL;
    /* Nothing of the array changes: it is not given up. */
    code = shardrt_reshard(s->job, (shardrt_array *)s->entries[e].array, s->rows[e], NULL, &laid_out);
    s->base = s->tensors[e].offset;
    if (code == SHARDRT_OK) code = write_array(s, laid_out);
    shardrt_array_free(laid_out);
    code = shardrt_check_outcome(s->job, s->what, code == SHARDRT_OK ? sharedfile_flush(&s->file) : code);
  }
  return code;
}

/* Every process goes through all rounds, or through as many as there are before the first error. */
static int write_together(struct save *s) {
  s->left = ROUND;
  int code = write_own(s);
  if (s->told) return code;
  while (s->round < s->rounds) {
    code = end_round(s, code);
    if (code < 0) return code;
  }
  return shardrt_check_outcome(s->job, s->what, code == SHARDRT_OK ? sharedfile_sync(&s->file) : code);
}

/* The file: created by process 0, joined by the others, written by all, and named. */
static int run_save(struct save *s, uint64_t number) {
  int code = is_first(s) ? sharedfile_create(s->path, number, s->file_bytes, &s->file) : SHARDRT_OK;
  code = shardrt_check_outcome(s->job, s->what, code);
  if (code < 0) return code;
  if (!is_first(s)) code = sharedfile_join(s->path, number, &s->file);
  code = shardrt_check_outcome(s->job, s->what, code);
  if (code == SHARDRT_OK) code = write_rows(s);
  if (code == SHARDRT_OK) code = write_together(s);
  if (code < 0) return code;
  return shardrt_check_outcome(s->job, s->what, is_first(s) ? sharedfile_commit(&s->file) : SHARDRT_OK);
}

static int by_offset(const void *a, const void *b) {
  const struct object_piece *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The same bytes as an object: header and arrays, in the order in which they stand there. */
static int run_object(struct save *s, shardrt_buffer **sums) {
  struct object_piece *pieces = alloc_zeros((size_t)s->count + 1, sizeof *pieces);
  int code = shardrt_check_outcome(s->job, s->what, pieces != NULL ? SHARDRT_OK : ALLOC_FAILED);
  if (code == SHARDRT_OK && pieces != NULL) {
    pieces[0] = (struct object_piece){.bytes = s->header_bytes, .data = s->header};
    for (int64_t e = 0; e < s->count; e++)
      pieces[e + 1] = (struct object_piece){.offset = s->tensors[e].offset,
                                            .bytes = s->tensors[e].bytes,
                                            .data = s->entries[e].array == NULL ? s->entries[e].data : NULL,
                                            .array = s->entries[e].array,
                                            .rows = s->rows[e]};
    qsort(pieces, (size_t)s->count + 1, sizeof *pieces, by_offset);
    code = object_save(s->job, s->what, s->path, s->file_bytes, s->count + 1, pieces, sums, &s->written);
  }
  alloc_free(pieces);
  return code;
}

int shardrt_safetensors_save(shardrt_job *job, const char *path, int64_t count, const shardrt_saved *entries,
                             int64_t *bytes_written, shardrt_buffer **sums) {
  if (job == NULL) return error_set(SHARDRT_EINVAL, "save %s: there is no job", path);
  struct save s = {.path = path, .job = job, .info = shardrt_job_info_get(job), .count = count, .entries = entries};
  s.file.fd = -1;
  if (s.info->planning) return error_set(SHARDRT_EDATA, "save %s: there is no data under `shardrt plan`", path);
  uint64_t number = 0;
  snprintf(s.what, sizeof s.what, "save %s", path);
  int code = list_tensors(&s);
  if (code == SHARDRT_OK) code = choose_rows(&s);
  if (code == SHARDRT_OK) code = check_data(&s);
  code = agree_on_save(&s, code, &number);
  if (code == SHARDRT_OK) code = url_is(path) ? run_object(&s, sums) : run_save(&s, number);
  sharedfile_drop(&s.file);
  for (int64_t e = 0; s.rows != NULL && e < count; e++) shardrt_sharding_free(s.rows[e]);
  alloc_free(s.rows);
  alloc_free(s.header);
  alloc_free(s.tensors);
  if (code == SHARDRT_OK && bytes_written != NULL) *bytes_written = s.written;
  return code;
}
