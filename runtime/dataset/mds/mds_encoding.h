/* mds_encoding.h - what a column's encoding ("int", "ndarray:int16:2,3", "list[jpeg]") says of the bytes of its values:
 * https://github.com/mosaicml/streaming/blob/main/streaming/base/format/mds/encodings.py
 *
 * Of some encodings the dtype or the shape stands before the elements in each sample. "ndarray": a byte for the dtype,
 * unless the encoding has it; a byte 4 × dimensions + log2 of a size's bytes; the sizes. "pil": u32 width, u32 height,
 * u32 the bytes of the mode's name, the name ("RGB"); the pixels, row by row. A list: u32 0 ("list[…]" only), u32 how
 * many items, u32 the bytes of each; the items. Numbers are little-endian. */
#ifndef SHARDRT_DATASET_MDS_MDS_ENCODING_H
#define SHARDRT_DATASET_MDS_MDS_ENCODING_H

#include "shardrt.h"

enum mds_kind {
  MDS_UNKNOWN, /* shardrt does not read it */
  MDS_RAW,     /* bytes, of which anything may be asked */
  MDS_TEXT,    /* bytes that are no elements: text, images */
  MDS_DIGITS,  /* bytes that are a number in text */
  MDS_FIXED,   /* elements of a dtype and shape */
  MDS_ARRAY,   /* an array, whose dtype or shape stands before it in each sample; */
  MDS_PIXELS,  /* of Pillow */
  MDS_LIST     /* of images' bytes */
};

struct mds_encoding {
  enum mds_kind kind;
  shardrt_field field; /* its dtype and shape; of MDS_ARRAY the dtype, or -1 where samples have it */
  int32_t list_head;   /* bytes before a list's count */
};

struct mds_encoding mds_encoding_of(const char *text);
/* What is to be done about one that shardrt does not read: the end of a sentence about it, or "". */
const char *mds_encoding_advice(const char *text);
/* Whether each sample says what shape its value has. */
bool mds_encoding_is_array(const struct mds_encoding *self);

/* Reads what stands before a value's elements into dtype, ndim and shape; *head is its bytes. Of a list the shape is
 * its count alone. EFORMAT. */
int mds_encoding_head(const struct mds_encoding *self, const uint8_t *data, size_t bytes, shardrt_field *out,
                      size_t *head);
/* An item of a list that mds_encoding_head read; it has more of them. EFORMAT. */
int mds_encoding_item(const struct mds_encoding *self, const uint8_t *data, size_t bytes, int64_t item,
                      const uint8_t **out, size_t *item_bytes);

#endif
