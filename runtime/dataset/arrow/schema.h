/* schema.h - which columns an Arrow file has, and where in a record batch each lies.
 * https://github.com/apache/arrow/blob/main/format/Schema.fbs
 *
 * A schema is a tree; its leaves are the columns, whose names are their paths, as those of Parquet are
 * (dataset/parquet/metadata/footer.h): "image.bytes" of a structure, of a map "m.key" and "m.value"; what a list holds
 * has no name of its own. A record batch has a node (how many items, how many nulls) and some buffers for each node of
 * the tree, in depth-first order. */
#ifndef SHARDRT_DATASET_ARROW_SCHEMA_H
#define SHARDRT_DATASET_ARROW_SCHEMA_H

#include "dataset/arrow/flatbuffer.h"
#include "dataset/column/column.h"

enum { ARROW_MOST_STEPS = 8 };

/* What stands above a column's values, and how it leads to them. */
enum arrow_step_kind {
  STEP_STRUCT,    /* an item is an item there */
  STEP_LIST,      /* an item is those between two offsets; */
  STEP_LIST_VIEW, /* so many from an offset on */
  STEP_FIXED      /* `size` items */
};

struct arrow_step {
  enum arrow_step_kind kind;
  bool is_large; /* offsets are int64 */
  int64_t size;  /* of STEP_FIXED */
};

/* How values lie in their buffers. */
enum arrow_layout {
  LAYOUT_NONE,  /* no buffers: all are null */
  LAYOUT_BITS,  /* validity, bits */
  LAYOUT_FIXED, /* validity, elements of some bytes each */
  LAYOUT_BYTES, /* validity, offsets, bytes; */
  LAYOUT_LARGE, /* offsets are int64 */
  LAYOUT_VIEWS  /* validity, views of 16 bytes, any number of buffers with bytes */
};

struct arrow_leaf {
  struct column_leaf as; /* the column of Parquet that it is most like; the name is owned */
  const char *refused;   /* what it is, where shardrt does not read it */
  enum arrow_layout layout;
  size_t width; /* bytes of a stored element, of LAYOUT_FIXED */
  int32_t nsteps;
  struct arrow_step steps[ARROW_MOST_STEPS];
  int32_t node;                          /* its own; */
  int32_t nodes[ARROW_MOST_STEPS];       /* of each step; */
  int32_t buffers[ARROW_MOST_STEPS + 1]; /* the first one of each step, and of the values; */
  int32_t views[ARROW_MOST_STEPS + 1];   /* columns of views before that, each of which has more of them */
  bool is_dictionary; /* what lies there are places in a dictionary, of which the above tells; of these: */
  int64_t dictionary;
  size_t index_width;
  bool index_is_unsigned;
};

struct arrow_schema {
  int32_t nleaves;
  struct arrow_leaf *leaves;
  int32_t nnodes, nbuffers, nviews; /* of a record batch */
};

/* Of a table of Schema.fbs. `version`: as in the message or footer that it is in. EFORMAT, EINVAL (of the other byte
 * order): the message is the end of a sentence about the file. ENOMEM. */
int arrow_schema_read(const struct flat_table *table, int64_t version, struct arrow_schema *out);
void arrow_schema_clear(struct arrow_schema *self); /* any that is zeroed or was read */

/* The buffers of a step, or but for views' more, of values. */
int32_t arrow_step_buffers(const struct arrow_step *step);
int32_t arrow_layout_buffers(enum arrow_layout layout);

#endif
