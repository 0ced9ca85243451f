/* fuzz.h - what the targets of `make fuzz` share. A target, one in a file, lays its input out as files, opens them as a
 * program would, and hands the source to fuzz_read; whatever a reader does that it must not is found by the sanitizers,
 * or ends in fuzz_fault. */
#ifndef SHARDRT_FUZZ_H
#define SHARDRT_FUZZ_H

#include "shardrt.h"

/* Every target's name, in one place. */
#define FUZZ_TARGETS(X)                                                                                                \
  X(array_record)                                                                                                      \
  X(arrow)                                                                                                             \
  X(audio)                                                                                                             \
  X(bytes)                                                                                                             \
  X(cifar)                                                                                                             \
  X(csv)                                                                                                               \
  X(gzip)                                                                                                              \
  X(hdf5)                                                                                                              \
  X(idx)                                                                                                               \
  X(index)                                                                                                             \
  X(inflate)                                                                                                           \
  X(jpeg)                                                                                                              \
  X(json)                                                                                                              \
  X(jsonl)                                                                                                             \
  X(mds)                                                                                                               \
  X(megatron)                                                                                                          \
  X(npy)                                                                                                               \
  X(npz)                                                                                                               \
  X(parquet)                                                                                                           \
  X(png)                                                                                                               \
  X(restart)                                                                                                           \
  X(safetensors)                                                                                                       \
  X(service)                                                                                                           \
  X(tar)                                                                                                               \
  X(tfrecord)                                                                                                          \
  X(tokenize)                                                                                                          \
  X(tokenizer)                                                                                                         \
  X(tokens)                                                                                                            \
  X(webp)                                                                                                              \
  X(zarr)

#define FUZZ_TARGET(name) void fuzz_##name(const uint8_t *data, size_t size);
FUZZ_TARGETS(FUZZ_TARGET)
#undef FUZZ_TARGET

/* The folder of this process, in memory, and everything in it away; it is empty before each input. */
const char *fuzz_folder(void);
void fuzz_clear(void);
/* Writes a file into it, with the folders that its name asks for; its path lives until the next but seven. */
const char *fuzz_write(const char *name, const void *data, size_t size);

/* An input that is several files: they stand one after the other, with the line FUZZ_BETWEEN between them. Those that
 * the input does not have are empty; returns how many it has. */
#define FUZZ_BETWEEN "\n--8<--\n"
struct fuzz_part {
  const uint8_t *data;
  size_t size;
};
int32_t fuzz_split(const uint8_t *data, size_t size, struct fuzz_part *parts, int32_t most);

/* A copy of the input, with a byte more behind it, to be changed and freed. */
uint8_t *fuzz_copy(const uint8_t *data, size_t size);

/* Opens one file of a format, reads and frees it: of a format of one field in a file; or of one that holds all fields,
 * then also with other dtypes and shapes asked of those that were found, and with damage noted. Options may be NULL. */
void fuzz_open(const char *format, const char *path, const shardrt_source_options *options);
void fuzz_open_files(const char *format, const char *path, const shardrt_source_options *options);
/* The same again without a look at checksums. */
void fuzz_open_both(const char *format, const char *path);

/* What opening something returned; the source, if it is one, is read and freed. */
void fuzz_opened(int code, shardrt_source *const *source);
/* All fields of some of the samples, whole, in boxes, and again: what is read is the same each time, and a box is what
 * it is in the whole. */
void fuzz_read(const shardrt_source *source);

/* What is in memory through chains of transforms. */
enum { FUZZ_STEPS = 2, FUZZ_NUMBERS = 8 };
struct fuzz_chain {
  struct fuzz_step {
    const char *kind; /* NULL: none */
    int32_t count;
    double numbers[FUZZ_NUMBERS];
  } steps[FUZZ_STEPS];
};
void fuzz_chains(const uint8_t *data, size_t size, int32_t count, const struct fuzz_chain *chains);
/* An image of a size that it tells of: as it is, a box of it, smaller, and at random. One of very many
 * pixels, but not so many that it is refused, is left alone: under the sanitizers, memory for it takes seconds. */
void fuzz_image(const uint8_t *data, size_t size, uint64_t height, uint64_t width);

/* A text's tokens, to be freed, and how many; NULL: it is refused. They are the same each time, whatever a thread has
 * kept of texts before. */
struct tokenizer;
int32_t *fuzz_encode(const struct tokenizer *tokenizer, const uint8_t *text, size_t bytes, size_t *count);

/* A failure must have a code of the list, and a message. */
void fuzz_check(int code);
/* Says what is wrong, and ends the process as a fault that the fuzzer keeps the input of. */
_Noreturn void fuzz_fault(const char *what);

/* As libFuzzer calls it; $SHARDRT_FUZZ names the target. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
