/* contents.h - what lies where in an Arrow file or stream: its columns, record batches and dictionaries.
 * https://github.com/apache/arrow/blob/main/format/Message.fbs, File.fbs
 *
 * A message is 0xFFFFFFFF, the length of its metadata, the metadata (a FlatBuffer), and its body, in which the buffers
 * lie. A stream is messages, the schema first, and an end; a file has a footer that tells where its messages are. */
#ifndef SHARDRT_DATASET_ARROW_CONTENTS_H
#define SHARDRT_DATASET_ARROW_CONTENTS_H

#include "dataset/arrow/schema.h"
#include "storage/stored.h"

enum arrow_codec { ARROW_NOT_PACKED = -1, ARROW_LZ4, ARROW_ZSTD };

/* Where in the file a buffer lies. */
struct arrow_buffer {
  size_t offset, bytes;
};

/* A column's part of a record batch, or the values of a dictionary. */
struct arrow_part {
  int64_t items;  /* values, in lists too */
  int64_t buffer; /* the first one of its own */
  int32_t nbuffers;
};

struct arrow_batch {
  int64_t first;  /* row of the file */
  size_t message; /* where it begins */
  int32_t codec;  /* enum arrow_codec */
};

struct arrow_dictionary {
  int64_t before; /* which record batch is the first one that it counts for */
  int64_t id;
  bool is_delta; /* its values come behind those that were there; else in their place */
  size_t message;
  int32_t codec;
  struct arrow_part part;
};

struct arrow_contents {
  const struct stored *file; /* borrowed */
  bool is_stream;
  size_t first, end; /* where the stream's batches begin; where the file's footer does */
  struct arrow_schema schema;
  int64_t nbatches;
  struct arrow_batch *batches; /* and one more, whose first row is that of the file's end */
  struct arrow_part *parts;    /* of each batch, those of all fields */
  int64_t ndictionaries;
  struct arrow_dictionary *dictionaries;
  int64_t nbuffers, room;
  struct arrow_buffer *buffers;
};

/* What kind of file it is, and its columns. EFORMAT, EINVAL: it is none, cut off, or of a kind that shardrt does not
 * read; the message names the file. ENOMEM; EIO. */
int arrow_contents_open(const struct stored *file, struct reader *arena, struct arrow_contents *out);
/* Its record batches, of which the parts of these leaves are wanted, and its dictionaries. Errors as above. */
int arrow_contents_read(struct arrow_contents *self, int32_t nfields, const int32_t *leaves, struct reader *arena);
void arrow_contents_clear(struct arrow_contents *self); /* any that is zeroed or was opened */

#endif
