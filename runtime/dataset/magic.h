/* magic.h - formats that are told by their first bytes, for readers of what has no header to be told by: bare tokens,
 * lines of text, TFRecords. */
#ifndef SHARDRT_DATASET_MAGIC_H
#define SHARDRT_DATASET_MAGIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/unpacked.h"

enum { MAGIC_BYTES = 4096 }; /* at most so many of the first bytes are looked at */

struct magic {
  const char *what;   /* "a .npy file of numpy's" */
  const char *advice; /* what would read it, or make of it what can be read */
};

/* What a file is that begins with these bytes, and has `whole` of them in all; NULL: none of those that are known. At
 * least 24 bits tell, so that random bytes are taken for one in about 2^24 files. */
const struct magic *magic_find(const uint8_t *data, size_t bytes, size_t whole);

/* Where an opened file is compressed by gzip or zstd, or is TFRecords that zlib compressed, puts what it holds in its
 * place, as unpacked_replace does. A TFRecord file is known by its first checksum, whatever its first bytes look like.
 */
int magic_unpack(struct stored *file, const shardrt_source_options *options);

/* Whether these are 128 characters or more of text: UTF-8 without control characters, but for those of white space. */
bool magic_is_text(const uint8_t *data, size_t bytes);

#endif
