/* spec.h - which mesh axes cut which dimensions of an array. */
#ifndef SHARDRT_LAYOUT_SPEC_H
#define SHARDRT_LAYOUT_SPEC_H

#include "base/text.h"
#include "layout/mesh.h"
#include "shardrt.h"

/* Dimension d is cut by the axes[offsets[d]] … axes[offsets[d + 1] - 1] of the mesh, the first varying slowest; no axis
 * occurs twice. */
struct spec {
  int32_t nentries;
  int32_t offsets[SHARDRT_MAX_NDIM + 1];
  int32_t *axes;
  char *text; /* P("data", {"a", "b"}, nil), as it was given */
};

/* From the names of axes, as in shardrt_sharding_new, with its errors. spec_clear frees what it took. */
int spec_set(struct spec *spec, const shardrt_mesh *mesh, int32_t nentries, const int32_t *axis_counts,
             const char *const *axis_names);
void spec_clear(struct spec *spec);
/* The axes of one dimension with their sizes, in words: axis "data" (4); axes "a" (4) and "b" (2). */
void spec_add_axes(const struct spec *spec, const shardrt_mesh *mesh, int32_t dim, struct text *text);
/* The axes that really cut dimension `dim`, those of size 1 left out: the next one from *i on (which begins at 0), or
 * -1 after the last. Dimensions beyond the spec have none. */
int32_t spec_next_axis(const struct spec *spec, const shardrt_mesh *mesh, int32_t dim, int32_t *i);

#endif
