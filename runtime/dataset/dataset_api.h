/* dataset_api.h - random access to samples in files: a part of shardrt.h. */
#ifndef SHARDRT_DATASET_DATASET_API_H
#define SHARDRT_DATASET_DATASET_API_H

#include "comm/comm_api.h"
#include "memory/memory_api.h"
#include "storage/storage_api.h"

typedef struct shardrt_source shardrt_source;

/* As shardrt_listing_new, made once in the job: process 0 asks the server, and tells all others. Every process must
 * call it; those that ask for different prefixes list each its own. A failure is one of all. A process that does not
 * come in time is named: ETIMEOUT. However long listing takes, none runs into the job's timeout. NULL: no job. */
int shardrt_listing_share(shardrt_job *job, const char *prefix, int32_t deep, shardrt_listing **out);

/* Which commits the revisions in addresses of Hugging Face are: each is asked for once in the job, and told to all, who
 * read that one from then on. Other addresses, and those that name a commit, are passed over. Every process must call
 * it where some have a revision; those whose revisions differ ask for themselves, when they read. A failure is one of
 * all. A process that does not come in time is named: ETIMEOUT. NULL: no job. */
int shardrt_revisions_share(shardrt_job *job, int32_t n, const char *const *addresses);

/* One named field of every sample. */
typedef struct shardrt_field {
  const char *name; /* lives as long as the source */
  int32_t dtype;
  int32_t ndim;                    /* of one sample */
  int64_t shape[SHARDRT_MAX_NDIM]; /* -1: differs from sample to sample */
} shardrt_field;

/* What is compared with its checksum when it is read, of what has one in the file or in the index beside it:
 *   ONCE    a record or block when this source reads it for the first time; one that has none yet is given one
 *   ALWAYS  whenever it is read
 * DEFAULT is ALWAYS for formats of records, and ONCE for the arrays of "npy", "zarr", "hdf5", "idx" and tokens. */
enum { SHARDRT_VERIFY_DEFAULT, SHARDRT_VERIFY_NEVER, SHARDRT_VERIFY_ONCE, SHARDRT_VERIFY_ALWAYS };

/* How a source is opened. */
typedef struct shardrt_source_options {
  const char *cache;    /* the folder for what is worked out of files, and for parts of those on servers. NULL or "":
                           $SHARDRT_CACHE, or else    $XDG_CACHE_HOME/shardrt, ~/.cache/shardrt or /tmp/shardrt-<uid> */
  int64_t cache_bytes;  /* at most so much of files on servers is kept there; 0: $SHARDRT_CACHE_BYTES, or 10 GiB */
  int32_t headers_only; /* 1: for planning. Shapes are read, nothing is decompressed; there may be no data to read */
  int32_t verify;       /* SHARDRT_VERIFY_… */
  int32_t delimiter;    /* of csv: the character between cells; 0: a comma */
  int32_t skips_damage; /* 1: damage that is found as an index is made is noted there, and no failure: whoever reads
                           what is damaged fails; see shardrt_source_readable */
  int32_t no_header; /* 1: the first line of a csv file is a row like the others, and columns are "0", "1", …; a file
                        of tokens is tokens from its first byte on, whatever that looks like */
  const char *const *nulls; /* of parquet, arrow, jsonl: what takes the place of nulls in each field that is asked for,
                               in text; NULL: nothing, and a row that has one cannot be read. NULL for all */
  int32_t tells_nulls;      /* 1: of parquet, arrow, jsonl, each field is a bool, whether the row has no null there */
  int32_t leaves_nulls_out; /* 1: of parquet, rows that have a null for which there is no value are never read */
  shardrt_job *job;         /* NULL: this process opens all files itself. Else all processes of the job call with the
                               same arguments at the same time; of 64 files or more of records, each opens its share,
                               and tells the others what they hold. What fails in one of them fails in all. A file that
                               another process opened is opened here when it is first read */
  const struct shardrt_told *told; /* the library's own; NULL */
} shardrt_source_options;

/* `shardrt index`: the parts of a file, or of a Zarr array's folder, are gone through. `kind`: "plain", of a file's
 * blocks; "zarr"; or a format of shardrt_source_files: of one, opening it makes the index, so that there are parts only
 * where `compares`. Without that, checksums of parts that have none are noted; with it all are compared, and none is
 * noted. Of the options the cache's and csv's are looked at. EFORMAT: what describes the parts is damaged; EDATA: there
 * is nothing to compare a file of records with; EIO; ENOMEM. */
typedef struct shardrt_audit shardrt_audit;
typedef struct shardrt_audit_found {
  int64_t bytes;   /* that were read */
  int64_t unknown; /* parts that had no checksum */
  int64_t damaged; /* parts that are not what they were */
} shardrt_audit_found;
int shardrt_audit_open(const char *kind, const char *path, const shardrt_source_options *options, int32_t compares,
                       shardrt_audit **out);
void shardrt_audit_free(shardrt_audit *self); /* NULL is allowed */
int64_t shardrt_audit_parts(const shardrt_audit *self);
int64_t shardrt_audit_part_bytes(const shardrt_audit *self); /* of one, about; 0: not known */
/* Goes through some parts, with all of this process's cores. What cannot be read: EIO. */
int shardrt_audit_run(shardrt_audit *self, int64_t first, int64_t count, int32_t compares, shardrt_audit_found *found);
/* Joins what was noted with what is beside the file. EIO: it cannot be written there, nor to the cache. */
int shardrt_audit_save(shardrt_audit *self);
/* What was damaged, in no order, ten thousand at most: its message, and which bytes (offset -1: the message says). */
const char *shardrt_audit_bad(const shardrt_audit *self, int64_t i, int64_t *offset, int64_t *bytes);
/* Removes the index of a file or of a Zarr array. EIO. */
int shardrt_audit_remove(const char *path, const char *folder);

/* One field from each file, all of one format; the first dimension counts the samples. Wherever a source takes a path
 * it takes an address, http:// or https://, too, but for "folder": see runtime/storage/remote/remote.h. Formats:
 *   "npy"  https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, in any order of bytes and elements
 *   "zarr" https://zarr-specs.readthedocs.io, v2 and v3: a field is the folder of one array, in C order
 *   "hdf5" https://docs.hdfgroup.org/hdf5/v1_10: a field is a dataset, named behind its file: "data.h5:/images"
 *   "idx"  http://yann.lecun.com/exdb/mnist/ (the MNIST family), also gzipped: then decompressed once into the cache,
 *          safely when many processes start together
 * EINVAL: another format; a name that is empty or stands twice; fields of different length. EFORMAT: a file is
 * malformed. EIO: it cannot be read, or the cache cannot be written. `options` may be NULL. */
int shardrt_source_open(const char *format, int32_t nfields, const char *const *names, const char *const *paths,
                        const shardrt_source_options *options, shardrt_source **out);
const char *shardrt_source_format(int32_t i); /* the name of the i-th format; static; NULL beyond the last */
/* Whether a format is one of files that hold all fields, opened by shardrt_source_files; false for an unknown one. */
bool shardrt_source_format_has_files(const char *format);

/* The samples of one or more files, which each hold all fields, one file's after the other's. `fields` are those
 * wanted: dtype -1 and ndim -1 where the file says (or, for an ndim, the first sample does); none: all that the format
 * finds. Formats, with where they are described:
 *   "tfrecord"  tf.train.Example: https://www.tensorflow.org/tutorials/load_data/tfrecord
 *   "tar"       WebDataset's archives: https://github.com/webdataset/webdataset
 *   "array_record"  Grain's and TFDS's: https://github.com/google/array_record; one field, "record", or, where `fields`
 *               asks for others, features of tf.train.Example
 *   "mds"       one folder of MosaicML Streaming's shards: https://github.com/mosaicml/streaming
 *   "folder"    one folder of classes of images, as torchvision's ImageFolder
 *   "safetensors"  the arrays of https://huggingface.co/docs/safetensors, all of one length, or those wanted
 *   "csv"       https://www.rfc-editor.org/rfc/rfc4180
 *   "jsonl"     https://jsonlines.org
 *   "npz"       https://numpy.org/doc/stable/reference/generated/numpy.savez.html, stored or deflated: the latter is
 *               unpacked once into the cache
 *   "parquet"   the columns of https://parquet.apache.org files, or those wanted: "a.b" is column b of structure a
 *   "arrow"     the columns of Arrow's IPC files and streams, or those wanted, named as those of parquet; also a folder
 *               that Hugging Face's `datasets` wrote by save_to_disk:
 * https://arrow.apache.org/docs/format/Columnar.html "cifar"     CIFAR-10 and -100, the binary versions:
 * https://www.cs.toronto.edu/~kriz/cifar.html
 *
 * What the files do not say themselves (where each record is, a checksum of it) is worked out once and kept in an index
 * beside the file, or in the cache: see runtime/dataset/index_file.h. Errors as shardrt_source_open. */
int shardrt_source_files(const char *format, int32_t npaths, const char *const *paths, int32_t nfields,
                         const shardrt_field *fields, const shardrt_source_options *options, shardrt_source **out);
/* Fields from host arrays: `shapes` of field f are ndims[f] numbers, one field's after the other's, the first of each
 * counting the samples; a count is taken of each buffer. A NULL buffer makes a source without data (planning). */
int shardrt_source_array(int32_t nfields, const char *const *names, const int32_t *dtypes, const int32_t *ndims,
                         const int64_t *shapes, shardrt_buffer *const *buffers, shardrt_source **out);
/* Fields whose samples differ in length: sample i of field f is rows offsets[f][i] to offsets[f][i + 1] of data[f].
 * Both are sources of one field of .npy files or host arrays; the offsets are int64 and one more than the samples.
 * Where offsets[f] is NULL, the samples of data[f] are the samples. EINVAL: fields of different length. EFORMAT:
 * offsets that do not ascend, or leave the data. */
int shardrt_source_ragged(int32_t nfields, const char *const *names, shardrt_source *const *data,
                          shardrt_source *const *offsets, shardrt_source **out);

typedef struct shardrt_token_options {
  int64_t window; /* tokens of a sample */
  int64_t stride; /* from one sample's first token to the next one's */
  int32_t dtype;  /* of whole numbers; < 0: what the file's header says, which has one then */
  shardrt_source_options files;
} shardrt_token_options;
/* A flat file of token numbers, bare or with the header of llm.c's .bin: one field, "tokens". EINVAL: no
 * dtype, and no header that says it. EFORMAT: its header does not fit its length; it begins as a file of another format
 * does, and files.no_header does not say that it is none. EIO. */
int shardrt_source_tokens(const char *path, const shardrt_token_options *options, shardrt_source **out);
/* What is a sample of a dataset of Megatron-LM's: a document; or what its GPTDataset makes of it. */
enum { SHARDRT_MEGATRON_DOCUMENTS, SHARDRT_MEGATRON_GPT };
typedef struct shardrt_megatron_options {
  int32_t view;    /* SHARDRT_MEGATRON_… */
  uint32_t seed;   /* of gpt: Megatron's random_seed */
  int64_t window;  /* of gpt: tokens of a sample, one more than Megatron's sequence_length */
  int64_t samples; /* of gpt: as Megatron's num_samples; 0: those of one epoch */
  double from, to; /* which of the sequences, or documents, are taken, as shares of all: 0 and 1 are all */
  shardrt_source_options files;
} shardrt_megatron_options;
/* Datasets of Megatron-LM's, each two files, PREFIX.bin and PREFIX.idx, with one field, "tokens", of the files' dtype.
 * Documents differ in length, and those of several prefixes come one after the other. Windows come in GPTDataset's
 * order, and of several prefixes in BlendedDataset's: by `weights` (NULL: by their numbers of samples; then, with no
 * `samples`, all of each). EINVAL: weights that are not above 0, or without `samples`. EFORMAT: files that do not fit
 * together. EIO. */
int shardrt_source_megatron(int32_t nprefixes, const char *const *prefixes, const double *weights,
                            const shardrt_megatron_options *options, shardrt_source **out);
/* The samples i of `source` with i % num_shards == index. */
int shardrt_source_shard(shardrt_source *source, int64_t num_shards, int64_t index, shardrt_source **out);
/* `source` with one more field, `name`: int64, a scalar, the sample's number in the file (also after a shard). */
int shardrt_source_enumerate(shardrt_source *source, const char *name, shardrt_source **out);
/* Sources with equal fields, one after the other, as one. `label` (NULL: none) names a field more: int32, a scalar,
 * which of the parts a sample is of. EINVAL: fields that differ. */
int shardrt_source_concat(int32_t nparts, shardrt_source *const *parts, const char *label, shardrt_source **out);
/* Sources with equal fields in given proportions, which may change: stage s begins at position froms[s] of the mix,
 * counted through all epochs, and weights[s * nparts + p] is part p's weight in it; froms[0] is 0, and they ascend. A
 * part with the weight 0 rests. The weights of a stage become whole numbers that add up to a period of at most
 * 65,536 samples; where there are none so exact, to the nearest 65,536ths. Of every `period` samples that follow one
 * another, each part gives exactly its share; of the first n samples of a stage, its share to within one. Each part
 * goes on where it was when a stage begins, and through its samples again and again, in the order of each of its own
 * epochs (see shardrt_loader_options), whatever the epochs of the mix are. An epoch has `samples` of them, or with 0 as
 * many as there are before the first part would begin anew. Filtering, packing and sharding are for the parts. EINVAL:
 * no samples, a weight below 0, a part that never has one, stages that do not ascend. */
int shardrt_source_mix(int32_t nparts, shardrt_source *const *parts, int32_t nstages, const int64_t *froms,
                       const double *weights, int64_t samples, const char *label, shardrt_source **out);
/* Of a mix, in the first stage where the part does not rest, as a whole number; 0: there is none. */
int64_t shardrt_source_mix_weight(const shardrt_source *source, int32_t part);
/* The samples of `source` for which all fields of `verdict`, a source of as many samples and of bool fields without
 * dimensions, are true. Every process must call it: each works out its share, once, and all know the outcome.
 * EMISMATCH: their sources differ. What fails in one process fails in all. Under planning all samples are let through.
 * Fields that are outcomes of the transform "condition" are asked first, each about the samples for which those before
 * it are true; samples that statistics rule out are asked nothing. */
int shardrt_source_filter(shardrt_job *job, shardrt_source *source, const shardrt_source *verdict,
                          shardrt_source **out);
/* How many samples the filters below any views of a source never looked at, as statistics in the files tell that a
 * condition does not hold for them; the same in every process, and under planning. */
int64_t shardrt_source_pruned(const shardrt_source *source);
/* The samples of `source` for which those of `looked`, a source made of it by maps, can be read, and what is to be
 * decoded in them decoded, all of it. A sample is left out where that fails with the data (EFORMAT, EOVERFLOW);
 * whatever else fails is an error, as it would be later. Every process must call it, as shardrt_source_filter, and has
 * the same outcome; it is `source` itself where all can be read. EFORMAT: none can. EMISMATCH. */
int shardrt_source_readable(shardrt_job *job, shardrt_source *source, const shardrt_source *looked,
                            shardrt_source **out);
/* Of what shardrt_source_readable left out below any views of a source: how many samples; and why, of the first
 * thousand of each such call: a message that names file, record and reason, living as long as the source, and the
 * sample's number in the files (may be NULL). NULL beyond the last. */
int64_t shardrt_source_bad_count(const shardrt_source *source);
const char *shardrt_source_bad(const shardrt_source *source, int64_t i, int64_t *number);

enum { SHARDRT_LONGER_ERROR, SHARDRT_LONGER_TRUNCATE, SHARDRT_LONGER_SPLIT };
typedef struct shardrt_pack_options {
  int64_t length;  /* of a row */
  int64_t window;  /* so many sequences, in the order in which they are taken, are put in rows together */
  int32_t longer;  /* what becomes of sequences that are longer than a row: SHARDRT_LONGER_… */
  int32_t shuffle; /* 1: sequences are taken in the order of epoch 0 of `seed`; 0: in the source's */
  uint64_t seed;
  int64_t zigzag; /* 0: rows as they are; else for so many parts, each of a piece near a row's start and its
                     counterpart near the end: of 2 * zigzag pieces, numbers 0, last, 1, last but one, … */
} shardrt_pack_options;
/* Sequences of different length, samples of fields whose first dimension alone differs, in rows of fixed length: the
 * samples are the rows, with these fields: the sequences' own, which are of one length in each sample, one after the
 * other and then zeros; those that are kept, of which each element of a row has what its sample has, and 0 behind the
 * last; "segment_ids", int32: which of the row's sequences an element is of, from 1 on, 0 behind the last;
 * "positions", int32: where in the sequence it stands, from 0 on. Every sequence that is not empty stands in one row,
 * once; the pieces of one that is split are sequences. Which row depends on lengths and options alone. Every process
 * must call it: each looks at the lengths of its share of the samples, once. EINVAL: no such field, a longer sequence,
 * fields of different length. Under planning a row for each sample. */
int shardrt_source_pack(shardrt_job *job, shardrt_source *source, int32_t nfields, const int32_t *fields, int32_t nkept,
                        const int32_t *kept, const shardrt_pack_options *options, shardrt_source **out);
/* What packed rows leave out: the i-th such field of the source, NULL beyond the last; and how many elements were cut
 * off sequences that are longer than a row. 0 of anything else. */
const char *shardrt_source_dropped_field(const shardrt_source *source, int32_t i);
int64_t shardrt_source_dropped_elements(const shardrt_source *source);
/* Of packed rows, the share of elements that are of sequences; negative for a source of anything else. */
double shardrt_source_fill(const shardrt_source *source);
/* Under planning: how many samples there are is not known before data is read, and the most there can be are counted.
 */
bool shardrt_source_is_guessed(const shardrt_source *source);
/* In how many blocks the source is stored that are decoded, decompressed or fetched as a whole; where it is not, runs
 * of about a MiB count as blocks. As many as samples: each stands alone. */
int64_t shardrt_source_blocks(const shardrt_source *source);
/* How many of the files that it is made of are compressed and read where they lie, as the cache has no room for what
 * they hold: *packed bytes, which hold *bytes. */
int32_t shardrt_source_in_place(const shardrt_source *source, int64_t *packed, int64_t *bytes);
void shardrt_source_free(shardrt_source *source); /* one count less */
/* The i-th class of a source of the format "folder", whose label is i; lives as long as the source. NULL beyond the
 * last, and in other sources. */
const char *shardrt_source_class(const shardrt_source *source, int64_t i);
int64_t shardrt_source_count(const shardrt_source *source);                             /* samples */
int32_t shardrt_source_field_count(const shardrt_source *source);                       /* of each sample */
const shardrt_field *shardrt_source_field(const shardrt_source *source, int32_t field); /* borrowed; NULL: none */
/* How many bytes of one sample a reader of `inner`, a box within it, takes from the storage; 0 for a field that is
 * computed, and where that shows only when the sample is read. */
size_t shardrt_source_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner);
/* Whether nothing of a field is read: a sample's number, its place in a packed row. */
bool shardrt_source_is_computed(const shardrt_source *source, int32_t field);
/* Reads samples first … first + count of one field into `dst`, C-contiguous. EINVAL: outside the source. */
int shardrt_source_read(const shardrt_source *source, int32_t field, int64_t first, int64_t count, void *dst);
/* One sample of any field, also of one whose samples differ in shape: `shape` (room for SHARDRT_MAX_NDIM) is this
 * one's.
 */
int shardrt_source_value(const shardrt_source *source, int32_t field, int64_t sample, int64_t *shape,
                         shardrt_buffer **out);
/* A number that is equal in processes that see the same data: names, dtypes, shapes, lengths of the files and their
 * first blocks; of host arrays, all they held when the source was made. shardrt_check_source compares it across the
 * job, whatever the job's check is, and on a difference names file (by process 0's path) and processes. */
uint64_t shardrt_source_fingerprint(const shardrt_source *source);
int shardrt_check_source(shardrt_job *job, const shardrt_source *source);
/* What the fingerprint is of, to say what differs: of the files, and of how views choose among what is in them; 0 for
 * what is not there. `hashes` has room for SHARDRT_DATA_KINDS. */
enum {
  SHARDRT_DATA_FILES,
  SHARDRT_DATA_SHARDS,
  SHARDRT_DATA_FILTER,
  SHARDRT_DATA_DAMAGED, /* which samples are left out because they cannot be read */
  SHARDRT_DATA_ROWS,
  SHARDRT_DATA_MIX,
  SHARDRT_DATA_KINDS
};
void shardrt_source_data(const shardrt_source *source, uint64_t *hashes);

/* The keyed permutation behind shuffle: which of `count` samples stands at `position` of `epoch`. O(1), no memory; a
 * true permutation of [0, count) for every count, seed and epoch. */
int64_t shardrt_order_index(uint64_t seed, int64_t epoch, int64_t count, int64_t position);

#endif
