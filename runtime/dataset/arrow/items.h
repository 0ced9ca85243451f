/* items.h - the values of some rows: where among its column's values they are, which are null, and what they become. */
#ifndef SHARDRT_DATASET_ARROW_ITEMS_H
#define SHARDRT_DATASET_ARROW_ITEMS_H

#include "dataset/arrow/piece.h"

/* The values first … first + count of a piece. */
struct arrow_items {
  int64_t first, count;
  uint8_t *valid;  /* of each, whether it is there; in the arena; NULL: all are */
  bool is_missing; /* the list that they would be in is null */
};

/* Those of rows first … first + count of the piece's record batch; of a column with a list, of one row. `dictionary`:
 * its values, decoded; NULL: it has none. EFORMAT: the piece is malformed, and the message names file and column. */
int arrow_items_of(const struct arrow_piece *piece, const struct column_page *dictionary, int64_t first, int64_t count,
                   struct reader *reader, struct arrow_items *out);

/* Their elements, packed; `column` tells what they become, and what nulls do. Not of bytes of any number. */
int arrow_items_copy(const struct arrow_piece *piece, const struct column *column, const struct column_page *dictionary,
                     const struct arrow_items *items, struct reader *reader, void *dst);
/* Where they lie, if they are stored as they are wanted and none is null; else NULL. */
int arrow_items_find(const struct arrow_piece *piece, const struct column *column, const struct arrow_items *items,
                     struct reader *reader, const uint8_t **out);
/* The bytes of one, of bytes of any number. */
int arrow_item_bytes(const struct arrow_piece *piece, const struct column_page *dictionary, int64_t item,
                     struct reader *reader, const uint8_t **out, size_t *bytes);

/* Decodes dictionaries, one behind the other, as one page: elements, or spans and what they lie in; `valid` where some
 * are null. The caller owns it. */
int arrow_dictionary_decode(const struct arrow_piece *pieces, int32_t count, const struct column *column,
                            struct reader *reader, struct column_page **out);

#endif
