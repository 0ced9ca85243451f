/* view.h - sources whose samples are those of other sources: what shards, filters, concatenations and mixes have in
 * common. A kind of view is a format with a function that says which samples its own are (`translate`), and the
 * functions below. */
#ifndef SHARDRT_DATASET_VIEW_VIEW_H
#define SHARDRT_DATASET_VIEW_VIEW_H

#include "dataset/source.h"

enum { VIEW_CHUNK = 256 /* samples that are translated at once, on the stack */ };

/* A view's own struct begins with this one. It is made of head.bases, the first of which has the same fields in the
 * same order, but for those that the view computes: fields `shared` and up. */
struct view {
  shardrt_source head;
  int32_t shared;
  int32_t *fields;  /* field f is field fields[b * shared + f] of base b; owned. NULL: field f of every base */
  int64_t *numbers; /* added to the numbers of each base's samples, so that no two are equal; owned. NULL: nothing is */
};

/* A zeroed view of `bytes` bytes (the kind's own struct) of these sources, each of which gets a count more: with the
 * fields of the first one, and room for `computed` more. NULL when out of memory. */
void *view_new(const struct source_format *format, size_t bytes, int32_t nbases, shardrt_source *const *bases,
               int32_t computed);
/* Adds a field that the kind computes; the name is copied. At most as many as view_new left room for. */
int view_add_field(struct view *self, const char *name, int32_t dtype);
/* The field of that name; -1: there is none. */
int32_t view_find_field(const shardrt_source *source, const char *name);

/* The functions of a kind's format, beside those that it has for itself: `translate`, `compute` where it computes
 * fields, `fingerprint`, `selection_hash`, and `block_count` and `block`. A kind that owns more has a `close` that ends
 * with view_close. */
#define VIEW_FUNCTIONS                                                                                                 \
  .gather = view_gather, .extents = view_extents, .value = view_value, .find = view_find,                              \
  .error_context = view_error_context, .number = view_number, .bytes = view_bytes, .is_computed = view_is_computed

int view_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                const shardrt_box *inner, struct reader *reader, void *dst);
int view_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                 const shardrt_box *inner, struct extents *out);
int view_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
               bool *handled);
const void *view_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes);
int view_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code);
int64_t view_number(const shardrt_source *source, int64_t sample);
size_t view_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner);
bool view_is_computed(const shardrt_source *source, int32_t field);
void view_close(shardrt_source *source);

/* Which sample of a view is the first that is not before sample `number` of its base. */
typedef int64_t view_place(const shardrt_source *view, int64_t number);
/* Blocks of a kind that has samples of one base in their order: what it has of the base's blocks. */
int64_t view_block_count(const shardrt_source *source);
struct sample_range view_block(const shardrt_source *source, int64_t block, view_place *place);

#endif
