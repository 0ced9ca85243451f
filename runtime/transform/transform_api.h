/* transform_api.h - what happens to samples on their way: a part of shardrt.h. */
#ifndef SHARDRT_TRANSFORM_TRANSFORM_API_H
#define SHARDRT_TRANSFORM_TRANSFORM_API_H

#include "dataset/dataset_api.h"

/* One transform; it never changes, and may stand in many chains. */
typedef struct shardrt_transform shardrt_transform;
/* `kind` is the name of one; what its numbers and bytes mean stands in the file of that kind in
 * runtime/transform/kind/. They are copied. EINVAL: another name, or numbers that make no sense for it. */
int shardrt_transform_new(const char *kind, int64_t count, const double *numbers, size_t nbytes, const void *bytes,
                          shardrt_transform **out);
void shardrt_transform_free(shardrt_transform *transform); /* one count less */

/* The random numbers that one sample is given, one after the other (transform/draw.h says what they come from). `used`
 * is how many were drawn; needs used < SHARDRT_RANDOM_LIMIT. */
enum { SHARDRT_RANDOM_LIMIT = 1 << 24 };
typedef struct shardrt_random {
  uint64_t seed;
  int64_t epoch;
  int64_t number; /* of the sample, in the files */
  int32_t place;  /* of the transform in its chain */
  uint32_t used;
  uint32_t bits[4]; /* drawn together; the one at used % 4 is next, unless that is 0 */
} shardrt_random;
uint32_t shardrt_random_bits(shardrt_random *random);               /* 32 of them */
double shardrt_random_uniform(shardrt_random *random);              /* in [0, 1), 24 bits of it */
double shardrt_random_below(shardrt_random *random, int64_t count); /* whole, in [0, count); needs 1 <= count <= 2^32 */
double shardrt_random_normal(shardrt_random *random);               /* mean 0, deviation 1; takes two draws */

/* What the Lua state of a worker is shown of the samples that it is to transform (transform/kind/lua.c). */
typedef struct shardrt_sample {
  const void *data;
  void *out;
  double size; /* elements of data, of out */
  double out_size;
  double index; /* the sample's number in the files */
  double epoch;
  int64_t shape[SHARDRT_MAX_NDIM]; /* of data */
  shardrt_random random;
  int64_t made; /* set by the state where the output has as many elements as it takes: so many of out_size */
} shardrt_sample;
enum { SHARDRT_SAMPLE_GUARD = 4096 }; /* bytes */
typedef struct shardrt_samples {
  shardrt_sample *samples;
  int64_t count;
  int64_t at; /* set by the state: which one it is at */
  int32_t dtype;
  int32_t out_dtype;
  int32_t ndim;
  void *room; /* where the output has as many elements as it takes: the state has out_size of them written here, with
                 SHARDRT_SAMPLE_GUARD bytes before and behind that are its own, too, and copies what was made */
} shardrt_samples;

/* A field of a mapped source: a field of another one through a chain of transforms, perhaps of none. */
typedef struct shardrt_mapped {
  const char *name;
  int32_t field; /* of the source that is mapped */
  int32_t count; /* of transforms */
  shardrt_transform *const *transforms;
} shardrt_mapped;

/* A source of the same samples with these fields. What is random in the transforms depends on the loader's seed, the
 * epoch, and the sample's number in the files, and on nothing else; shardrt_source_read reads with seed and epoch 0.
 * EINVAL: a transform that cannot be used on what comes to it; the message names the field. */
int shardrt_source_map(shardrt_source *source, int32_t nfields, const shardrt_mapped *fields, shardrt_source **out);

#endif
