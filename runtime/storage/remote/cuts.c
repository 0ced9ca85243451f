#include "storage/remote/cuts.h"

#include "base/alloc.h"
#include "base/error.h"

int cuts_new(const size_t *offsets, int64_t n, struct file_cuts **out) {
  struct file_cuts *made = alloc_array(sizeof *made / sizeof(size_t) + (size_t)n, sizeof(size_t));
  if (made == NULL) return ALLOC_FAILED;
  made->count = 0;
  for (int64_t i = 0; i < n; i++)
    if (made->count == 0 || offsets[i] >= made->offsets[made->count - 1] + CUTS_APART)
      made->offsets[made->count++] = offsets[i];
  *out = made;
  return SHARDRT_OK;
}

void cuts_confine(const struct file_cuts *self, size_t from, size_t to, size_t *first, size_t *stop) {
  if (self == NULL) return;
  int64_t low = 0, high = self->count; /* those before low are at `from` or before it */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (self->offsets[middle] <= from)
      low = middle + 1;
    else
      high = middle;
  }
  if (low > 0 && self->offsets[low - 1] > *first) *first = self->offsets[low - 1];
  while (low < self->count && self->offsets[low] < to) low++;
  if (low < self->count && self->offsets[low] < *stop) *stop = self->offsets[low];
}
