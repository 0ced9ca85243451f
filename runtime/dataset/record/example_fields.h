/* example_fields.h - fields of sources whose records are tf.train.Examples (example.h).
 *
 * Fields are features by name. A feature of bytes is its only string: as uint8 of any length, or, where a dtype is
 * asked for, raw elements; a list of several strings is refused. Features of floats and ints are float32 and int64;
 * where no shape is asked for the first record's counts: one value is a scalar, more are a row of that many. A feature
 * is of one kind in all records. */
#ifndef SHARDRT_DATASET_RECORD_EXAMPLE_FIELDS_H
#define SHARDRT_DATASET_RECORD_EXAMPLE_FIELDS_H

#include "dataset/source.h"

/* What a source's features hold, field by field: EXAMPLE_… of the first record's. Zeroed at first; cleared after use.
 */
struct example_kinds {
  int32_t *kinds;
};
void example_kinds_clear(struct example_kinds *self);

/* Makes the source's fields: those that were asked for, or, where nfields is 0, all of the first record's, whose bytes
 * these are. They and their names are the format's to free, also after a failure. EINVAL: a feature that is not there
 * or of another dtype; EFORMAT: no example, or, where all are wanted, a SequenceExample. */
int example_fields(shardrt_source *source, int32_t nfields, const shardrt_field *asked, const uint8_t *data,
                   size_t bytes, struct example_kinds *kinds);

/* A source's field of the example in these bytes, as source_value: in them where it lies there aligned. EFORMAT. */
int example_value(const shardrt_source *source, const struct example_kinds *kinds, int32_t field, const uint8_t *data,
                  size_t bytes, struct reader *reader, struct value *out);

#endif
