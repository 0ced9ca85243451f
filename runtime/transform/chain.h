/* chain.h - the transforms that one field goes through, one after the other, and which boxes that takes.
 *
 * A box of what comes out is made by asking backwards through the chain which box of each input is needed, so that of a
 * field which is cropped, or cut among devices, only what is needed is read (and decoded). */
#ifndef SHARDRT_TRANSFORM_CHAIN_H
#define SHARDRT_TRANSFORM_CHAIN_H

#include "dataset/source.h"
#include "transform/transform.h"

/* forms[k] is what goes into transforms[k], forms[count] what comes out of the last. */
struct chain {
  const char *name; /* of what comes out; the owner's */
  int32_t field;    /* of the base */
  int32_t count;    /* a transform that writes as much as it takes is the last */
  int32_t place;    /* of the first transform's random draws; those of the others follow */
  shardrt_transform **transforms;
  struct form *forms;
  bool whole_first; /* the first transform takes whole samples, whose shapes are their own or which it decodes */
  bool alike;       /* all samples have the same shapes and need the same boxes, and every kind can tell */
};

/* What a sample is before transforms[k], or behind the last: its whole shape, and which box of it is made. */
struct leg {
  int64_t full[SHARDRT_MAX_NDIM];
  shardrt_box box;
  int32_t reduce;
};

/* Fills a zeroed chain for a field of `base`; it takes counts of the transforms. EINVAL: one that cannot be used on
 * what comes to it. What a failure leaves is cleared, too. */
int chain_set(struct chain *self, const shardrt_field *field, const shardrt_mapped *mapped);
void chain_clear(struct chain *self);

/* Fills the count + 1 legs of one sample, of which legs[0].full is set: shapes forwards from that, boxes backwards from
 * what is `wanted` (NULL: all). `first` is the sample itself, and looked at only where whole_first. */
int chain_trace(const struct chain *self, struct reader *reader, struct draw *draw, const struct value *first,
                const shardrt_box *wanted, struct leg *legs);

/* Which box of a field that is not ragged is needed for a box of what comes out; where that differs from sample to
 * sample, all of it. */
shardrt_box chain_needed(const struct chain *self, const shardrt_box *out);

/* The value before transforms[k], or behind the last, that a leg means; without data. */
struct value chain_value(const struct chain *self, int32_t k, const struct leg *legs);

/* Puts sample and transform before the message of a failure; returns its code. */
int chain_error_context(const struct chain *self, int32_t k, int64_t number, int code);

/* Makes what is `wanted` of n samples of `base`: packed boxes at `rows`. */
int chain_gather(const struct chain *self, const shardrt_source *base, const int64_t *samples, int64_t n,
                 const shardrt_box *wanted, struct reader *reader, char *rows);
/* One whole sample, in the reader's arena. */
int chain_one(const struct chain *self, const shardrt_source *base, int64_t sample, struct reader *reader,
              struct value *out);
/* As chain_gather, for chains that are alike. */
int chain_batch_gather(const struct chain *self, const shardrt_source *base, const int64_t *samples, int64_t n,
                       const shardrt_box *wanted, struct reader *reader, char *rows);

#endif
