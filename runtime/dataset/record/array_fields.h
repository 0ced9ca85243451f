/* array_fields.h - fields of arrays whose dtypes and shapes stand in the records, of which formats note them as they
 * make an index (shapes.h): what all records have, and whether that is what is asked for.
 *
 * An array is one of those that the format's opener notes (`see`), by its number among them. */
#ifndef SHARDRT_DATASET_RECORD_ARRAY_FIELDS_H
#define SHARDRT_DATASET_RECORD_ARRAY_FIELDS_H

#include "dataset/record/records.h"

/* What all files have noted of an array, called `name` in messages, with -1 for sizes that differ. EFORMAT: one differs
 * in more than these, unless damage is left out. */
int array_field_shapes(const struct records *self, const char *name, int32_t array, struct shapes *out);

/* Looks at a field's first record: what is wrong with it, or what it is. */
typedef int array_look(const struct records *self, int32_t field, struct shapes *out);
/* Gives a field the dtype and the shape of its array; where none could be read as the index was made, those of the
 * first record. What array_field_shapes and the look fail with. */
int array_field_set(const struct records *self, int32_t field, int32_t array, array_look *look);

/* Once the field has the shape that is asked for: the first record that has not, unless damage is left out. EFORMAT. */
int array_field_check(const struct records *self, int32_t field, int32_t array);

/* Whether an array that was read is as its field says. EFORMAT. */
int array_field_fits(const shardrt_field *field, int32_t dtype, int32_t ndim, const int64_t *shape);

#endif
