/* source.h - random access to samples: what a format offers, and what a loader may ask.
 *
 * A source is `count` samples, each with the same named fields; a field has one dtype and one shape in all samples, or
 * is ragged: a dimension whose size is -1 differs from sample to sample.
 * A format is one const table of functions (source_format) in a file of its own; one that is opened by its name stands
 * in the list in formats.c. Everything here is safe from many threads at once: a source never changes after it is
 * made.
 */
#ifndef SHARDRT_DATASET_SOURCE_H
#define SHARDRT_DATASET_SOURCE_H

#include <stdatomic.h>

#include "dataset/value.h"
#include "storage/local/extents.h"
#include "storage/local/reader.h"
#include "storage/stored.h"

/* Whose turn it is at a position of a mix. */
struct source_turn {
  int64_t first, count;   /* the samples of the part, in the mix */
  int64_t before;         /* how often it was its turn before, from position 0 of the first epoch on */
  int64_t weight, period; /* of `period` positions about `weight` are its turn */
};

/* Samples that follow one another: first … first + count. */
struct sample_range {
  int64_t first, count;
};

/* A file that a source reads. */
struct source_file {
  const char *title;           /* for messages: "the file a.npy", "the array 'image'"; lives as long as the source */
  const struct stored *stored; /* the same. NULL: it is no such file, but has */
  uint64_t fingerprint;        /* this fingerprint */
  bool is_told;                /* it was another process that read the file's head, and told the fingerprint */
  size_t bytes;                /* of a file that is opened later, without `stored`: its length; */
  size_t packed_bytes;         /* about those of a compressed one that is read where it lies, else 0; */
  bool is_remote;              /* and whether it lies on a server */
};

struct condition; /* memory/condition.h */
struct pruned;    /* view/pruned.h */

struct source_format {
  const char *name; /* as in shardrt_source_open: "npy" */
  /* As shardrt_source_open; NULL in a format that is not made from paths, or has: as shardrt_source_files. */
  int (*open)(int32_t nfields, const char *const *names, const char *const *paths,
              const shardrt_source_options *options, shardrt_source **out);
  int (*open_files)(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                    const shardrt_source_options *options, shardrt_source **out);
  /* As source_gather, with arguments that were found to be right. */
  int (*gather)(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                const shardrt_box *inner, struct reader *reader, void *dst);
  /* As source_value, for whole samples. NULL where every field has one shape and nothing is gained by it. Must be there
   * where a field is ragged; is only called for fields that are, or where `gather` would copy what lies packed in
   * memory; *handled = false: use `gather`. */
  int (*value)(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
               bool *handled);
  /* Where a whole sample lies in memory, packed, in the machine's byte order, aligned to its dtype, as long as the
   * source lives; NULL: it does not, or `bytes` bytes of it from byte `first` on, which are what is wanted, are
   * damaged. NULL in a format in which no sample does. */
  const void *(*find)(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes);
  /* As source_error_context; NULL: there is no more to say. */
  int (*error_context)(const shardrt_source *source, int32_t field, int64_t sample, int code);
  /* As shardrt_source_fingerprint; NULL: of counts, fields and files. Views say how they choose samples. */
  uint64_t (*fingerprint)(const shardrt_source *source);
  /* As source_selection_hash; NULL: nothing is chosen but by the bases. */
  void (*selection_hash)(const shardrt_source *source, uint64_t *hashes);
  /* As source_transform_hash; NULL: that of the one base; 0 where there is none, or are several. */
  uint64_t (*transform_hash)(const shardrt_source *source);
  /* As source_number; NULL: first_number + sample * number_step. */
  int64_t (*number)(const shardrt_source *source, int64_t sample);
  /* As source_extents; NULL where nothing is read from files. */
  int (*extents)(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                 const shardrt_box *inner, struct extents *out);
  /* As source_bytes; NULL: what the box holds, as far as its size is known. */
  size_t (*bytes)(const shardrt_source *source, int32_t field, const shardrt_box *inner);
  /* As shardrt_source_is_computed; NULL: no field is. */
  bool (*is_computed)(const shardrt_source *source, int32_t field);
  /* Of a source that is stored in blocks, each decoded, decompressed or fetched as a whole: how many there are, and
   * which samples each holds. Blocks ascend, without gaps; one may be empty. Pure, lock-free, O(log blocks) or better.
   * NULL: each sample is a block of its own. */
  int64_t (*block_count)(const shardrt_source *source);
  struct sample_range (*block)(const shardrt_source *source, int64_t block);
  /* How many blocks a process keeps decoded, about. NULL: blocks are not decoded. Who decodes one raises
   * reader.blocks_decoded. */
  int64_t (*blocks_kept)(const shardrt_source *source);
  bool keeps_together; /* in one place for all sources of the format */
  /* As source_prune; NULL: nothing is known. */
  int (*prune)(const shardrt_source *source, int32_t field, const struct condition *condition, struct pruned *out);
  /* Of a view (view/view.h). Maps the first samples, n at most, that lie in one base. Writes their numbers there and
   * the base; returns how many, at least 1. On entry *base is the previous samples' base, or 0. */
  int64_t (*translate)(const shardrt_source *source, const int64_t *samples, int64_t n, int32_t *base,
                       int64_t *translated);
  /* As `gather`, of a field that a view has and its bases have not. */
  void (*compute)(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n, void *dst);
  /* Of a mix: as source_length and source_turn. */
  int64_t (*length)(const shardrt_source *source);
  struct source_turn (*turn)(const shardrt_source *source, int64_t position);
  /* Gives back what the format holds, also of a source that was left half made; not the head's files and bases, nor the
   * source itself. NULL: it holds nothing more. */
  void (*close)(shardrt_source *source);
};

/* The head of every source; a format's own struct begins with it. */
struct shardrt_source {
  const struct source_format *format;
  _Atomic int32_t holders;
  int64_t count; /* samples */
  int32_t nfields;
  shardrt_field *fields; /* owned by the format, as are their names */
  /* Sample i is sample first_number + i * number_step of the files (a shard skips some). */
  int64_t first_number;
  int64_t number_step;
  int32_t nfiles; /* that it reads itself */
  struct source_file *files;
  int32_t nbases; /* sources that it is made of, whose files are its own, too */
  shardrt_source **bases;
  /* Where these are the samples of a mix, one by one: that mix, which says in which order they come and how many an
   * epoch has. NULL: the samples of an epoch are 0 … count - 1. It lives as long as the source. */
  const shardrt_source *mix;
  int32_t places; /* for random draws that the transforms below have taken; those of a map of it come behind them */
  bool guessed;   /* planning: a view whose samples only the data tells counts as many as there can be */
};

/* ---- what a loader may ask ---- */

/* Writes n packed boxes: of each of `samples`, in this order (repeats are allowed), what lies in `inner`, a box within
 * one sample's shape (its ndim is the field's), in the machine's byte order. `dst` has room for n boxes. Takes no lock
 * and allocates nothing per sample but in the reader's arena, which stands afterwards where it stood. EINVAL: a field,
 * sample or box outside the source, a ragged field; EDATA: a source without data; a format's own failures name file,
 * record and offset. After a failure dst holds rubbish. */
int source_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct reader *reader, void *dst);

/* One sample of any field, or what lies in `inner` of it (NULL: all; always NULL for a ragged field), where it lies in
 * memory if it lies there packed, else in the reader's arena. Errors as source_gather. */
int source_value(const shardrt_source *source, int32_t field, int64_t sample, const shardrt_box *inner,
                 struct reader *reader, struct value *out);

/* Where what lies in `inner`, a box within the shape of a field that is not ragged, of each of n samples lies in
 * memory, packed, if it does: then *found. */
int source_find(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                const shardrt_box *inner, struct reader *reader, const void **at, bool *found);

/* Whether some dimension of the field differs from sample to sample. */
bool source_is_ragged(const shardrt_field *field);
/* EINVAL where it is, saying what would help. */
int source_refuse_ragged(const shardrt_field *field);

/* What a sample is known by in all epochs and on all topologies, whatever views lie between: its number in the files.
 * Random transforms draw by it. */
int64_t source_number(const shardrt_source *source, int64_t sample);

/* Adds to `out` which bytes of files source_gather (with inner = NULL, source_value) would take for these samples,
 * perhaps with what is between them: what is to be read ahead. The samples and the box are right. ENOMEM. */
int source_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                   const shardrt_box *inner, struct extents *out);

/* How many positions an epoch has: the samples, but of a mix. */
int64_t source_length(const shardrt_source *source);
/* Of a source that is a mix or a view of one; needs 0 <= position, which counts through all epochs. */
struct source_turn source_turn(const shardrt_source *source, int64_t position);

/* The blocks of a source; see source_format. */
int64_t source_block_count(const shardrt_source *source);
struct sample_range source_block(const shardrt_source *source, int64_t block); /* needs 0 <= block < their number */
/* The first block that begins at `sample` or behind it; their number where none does. */
int64_t source_block_from(const shardrt_source *source, int64_t sample);
/* Whether each sample is a block of its own. */
bool source_stands_alone(const shardrt_source *source);
/* How many decoded blocks are kept; negative: blocks are not decoded. */
int64_t source_blocks_kept(const shardrt_source *source);
/* Whether one of the files that it reads lies on a server. */
bool source_is_remote(const shardrt_source *source);
/* The bytes of the files, or the arrays, that a source is made of, as they are stored. */
size_t source_stored_bytes(const shardrt_source *source);

/* How many bytes of one sample source_gather takes from the storage to give `inner`, as far as that is known without
 * the sample: what plans count. 0 for a field that is computed. */
size_t source_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner);

/* Adds to `out`, which is empty, ranges of samples for which a condition does not hold in a field, as statistics in the
 * files tell, which are read for it; or (condition = NULL) in which a field of bools is false. Where a null would be an
 * error, its sample is in none. Collective only in that all processes come to the same. EFORMAT: statistics that are
 * damaged; EIO; ENOMEM. */
int source_prune(const shardrt_source *source, int32_t field, const struct condition *condition, struct pruned *out);

/* One whole sample of a field, as a box. */
shardrt_box source_whole(const shardrt_field *field);

/* The bytes of one packed box of a field, as source_gather writes it. */
size_t source_box_bytes(const shardrt_field *field, const shardrt_box *inner);

/* One count more; returns source. */
shardrt_source *source_retain(shardrt_source *source);

/* Adds to the hashes (see shardrt_source_data) how this and the sources below it choose among samples. */
void source_selection_hash(const shardrt_source *source, uint64_t *hashes);

/* Begins this thread's message of a failure with where in which file a sample lies, whatever views lie between, and
 * returns `code`: for failures with what was read, whose reading succeeded. */
int source_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code);

/* A number for what is done to the samples that a fingerprint names, before they are handed out: transforms. */
uint64_t source_transform_hash(const shardrt_source *source);

/* The files behind the source (an array counts as one). The name reads well in a message ("the file a.npy", "the array
 * 'image'") and lives as long as the source. The fingerprint is of the file's length and first STORAGE_HEAD bytes. */
int32_t source_file_count(const shardrt_source *source);
const char *source_file_name(const shardrt_source *source, int32_t file);
uint64_t source_file_fingerprint(const shardrt_source *source, int32_t file);
/* What tells, without reading it, that a file is the same as in another process: *is_read, whether its head is read for
 * its fingerprint. Of what is in memory already that is the fingerprint itself. */
uint64_t source_file_identity(const shardrt_source *source, int32_t file, bool *is_read);
/* Reads the head of a file for its fingerprint; _tell: from now on it has this one, which another process read. */
uint64_t source_file_read(const shardrt_source *source, int32_t file);
void source_file_tell(const shardrt_source *source, int32_t file, uint64_t fingerprint);

/* ---- for formats ---- */

/* A zeroed source of `bytes` bytes (the format's own struct) with one holder; NULL and the message set when out of
 * memory. Where making it fails later, shardrt_source_free gives everything back. */
void *source_new(const struct source_format *format, size_t bytes);

/* Adds a file to those that the source reads; see struct source_file. */
int source_add(shardrt_source *source, const struct source_file *file);
int source_add_file(shardrt_source *source, const char *title, const struct stored *stored, uint64_t fingerprint);

/* Makes field f of an array whose first dimension counts the samples, and which is file f of the source. The name is
 * copied. EINVAL: it has no dimension, or another number of samples than field 0; EOVERFLOW: a sample does. */
int source_set_field(shardrt_source *source, int32_t f, const char *name, int32_t dtype, int32_t ndim,
                     const int64_t *shape);

/* Adds a source, which gets a count more, to those that this one is made of. */
int source_add_base(shardrt_source *source, shardrt_source *base);

/* Samples that are not stored in blocks are taken in runs, each a block of about so many bytes: a disk or a server
 * gives them at once. */
enum { SOURCE_RUN_BYTES = 1 << 20 };
/* Samples of a run, of `count` that take `bytes` together; at least 1. */
int64_t source_run_samples(int64_t count, size_t bytes);
/* How many runs of so many samples there are, and which samples one of them holds. */
int64_t source_run_count(int64_t count, int64_t samples);
struct sample_range source_run(int64_t count, int64_t samples, int64_t run);
/* The functions of a format whose samples lie one after the other, about alike in size. */
int64_t source_runs_count(const shardrt_source *source);
struct sample_range source_runs_block(const shardrt_source *source, int64_t block);
/* How many runs are kept decoded, where a file is compressed and read where it lies; negative: none is. */
int64_t source_runs_kept(const shardrt_source *source);
#define SOURCE_RUNS                                                                                                    \
  .block_count = source_runs_count, .block = source_runs_block, .blocks_kept = source_runs_kept, .keeps_together = true

/* A `gather` for formats that give values: the box is copied out of each sample's value, which must have the field's
 * shape. */
int source_gather_values(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct reader *reader, void *dst);

/* The fingerprint of a format that has no function for it: of counts, fields and files. */
uint64_t source_files_fingerprint(const shardrt_source *source);

/* EINVAL: the source is a mix, of which no samples can be chosen. */
int source_refuse_mix(const shardrt_source *source);

/* EINVAL: no field, a name that is empty or stands twice. `format` is for the message. */
int source_check_names(const char *format, int32_t nfields, const char *const *names);

#endif
