/* megatron_files.h - the two files of a dataset of Megatron-LM's: PREFIX.bin holds tokens, PREFIX.idx says which of
 * them are a sequence, and which sequences are a document.
 *
 * The .idx, little-endian: "MMIDIDX\0\0"; u64 the version, 1; u8 the tokens' dtype; u64 the number of sequences s; u64
 * the number of numbers d at the end; s × i32 the tokens of each sequence; s × i64 where its first byte is in the .bin;
 * d × i64 at which sequence each document begins, and where the last one ends. Behind them s × i8 may stand, the modes
 * of sequences of several media, which are passed over.
 * https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/indexed_dataset.py */
#ifndef SHARDRT_DATASET_MEGATRON_MEGATRON_FILES_H
#define SHARDRT_DATASET_MEGATRON_MEGATRON_FILES_H

#include "dataset/source.h"
#include "storage/stored.h"

struct megatron_files {
  struct stored bin, idx;
  const uint8_t *words; /* the .idx, */
  uint8_t *downloaded;  /* which is this where it lies on a server; owned */
  int32_t dtype;
  size_t token_bytes;
  int64_t sequences;
  int64_t documents;
  bool checks; /* the .idx has a guard, which is asked again whenever something in it is used */
};

/* A sequence in the .bin. */
struct megatron_sequence {
  size_t offset; /* of its first byte */
  int64_t length;
};

/* Opens both, and looks at every sequence: that it lies in the .bin. They are files of `source`, which outlives them.
 * EFORMAT, naming the file, what is wrong and where; EIO. What it leaves after a failure is closed, too. */
int megatron_files_open(shardrt_source *source, const char *prefix, const shardrt_source_options *options,
                        struct megatron_files *out);
void megatron_files_close(struct megatron_files *self);

/* EFORMAT: the .idx is not what it was. */
int megatron_find_sequence(const struct megatron_files *self, int64_t i, struct megatron_sequence *out);
/* The sequences first … stop - 1 of document i. EFORMAT, also where the documents are not all sequences, in order. */
int megatron_find_document(const struct megatron_files *self, int64_t i, int64_t *first, int64_t *stop);

/* Copies tokens first … first + count - 1 of sequence i. */
int megatron_copy(const struct megatron_files *self, int64_t i, int64_t first, int64_t count, struct reader *reader,
                  uint8_t *dst);

#endif
