#include "transform/transform.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "transform/kinds.h"

static const struct transform_kind *const kinds[] = {
#define KIND_ENTRY(name) &name##_kind,
    TRANSFORM_KINDS(KIND_ENTRY)
#undef KIND_ENTRY
};

static const struct transform_kind *find_kind(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
  return NULL;
}

static int set_transform(shardrt_transform *self, const double *numbers, const void *bytes) {
  self->numbers = alloc_array((size_t)self->count, sizeof *self->numbers);
  if (self->numbers == NULL) return ALLOC_FAILED;
  if (self->count > 0) memcpy(self->numbers, numbers, (size_t)self->count * sizeof *numbers);
  self->bytes = alloc_array(self->nbytes, 1);
  if (self->bytes == NULL) return ALLOC_FAILED;
  if (self->nbytes > 0) memcpy(self->bytes, bytes, self->nbytes);
  int code = self->kind->set != NULL ? self->kind->set(self) : SHARDRT_OK;
  return code == SHARDRT_OK ? code : error_prefix(code, "transform.%s", self->kind->name);
}

int shardrt_transform_new(const char *kind, int64_t count, const double *numbers, size_t nbytes, const void *bytes,
                          shardrt_transform **out) {
  const struct transform_kind *found = find_kind(kind);
  if (found == NULL) return error_set(SHARDRT_EINVAL, "the transform \"%s\", which shardrt does not know", kind);
  shardrt_transform *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->kind = found;
  atomic_init(&made->holders, 1);
  made->count = count;
  made->nbytes = nbytes;
  int code = set_transform(made, numbers, bytes);
  if (code != SHARDRT_OK) {
    shardrt_transform_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

shardrt_transform *transform_retain(shardrt_transform *self) {
  atomic_fetch_add_explicit(&self->holders, 1, memory_order_relaxed);
  return self;
}

void shardrt_transform_free(shardrt_transform *self) {
  if (self == NULL || atomic_fetch_sub_explicit(&self->holders, 1, memory_order_acq_rel) != 1) return;
  if (self->kind->clear != NULL) self->kind->clear(self);
  alloc_free(self->bytes);
  alloc_free(self->numbers);
  alloc_free(self);
}
