/* piece.h - the buffers of one column in one record batch, or of one dictionary, to be read: where they lie in the file
 * or, where they are compressed, decompressed. */
#ifndef SHARDRT_DATASET_ARROW_PIECE_H
#define SHARDRT_DATASET_ARROW_PIECE_H

#include "dataset/arrow/contents.h"
#include "dataset/column/page.h"

enum { ARROW_PIECE_BYTES = 1 << 30 }; /* of its buffers, decompressed: at most */

struct arrow_piece {
  const struct stored *file;
  const struct arrow_leaf *leaf;
  size_t message; /* where it begins, for messages */
  int32_t codec;
  int64_t items;
  int32_t nbuffers;
  const struct arrow_buffer *buffers;
  const struct column_page *unpacked; /* spans of its data are the buffers; NULL: they lie in the file */
};

/* Decompresses the buffers; the caller owns the page. What decompress fails with. */
int arrow_piece_unpack(const struct arrow_piece *self, struct reader *reader, struct column_page **out);
/* `bytes` bytes of a buffer, from byte `at` on. EFORMAT: it has fewer; the message names file and column. */
int arrow_piece_get(const struct arrow_piece *self, int32_t buffer, size_t at, size_t bytes, struct reader *reader,
                    const uint8_t **out);
size_t arrow_piece_bytes(const struct arrow_piece *self, int32_t buffer);
/* Whether what was got lies where it does as long as the file is open. */
bool arrow_piece_stays(const struct arrow_piece *self);
/* Puts in front of the message of a failure which file, column and message it is about; returns the code. */
int arrow_piece_error(const struct arrow_piece *self, int code);

#endif
