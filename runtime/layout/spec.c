#include "layout/spec.h"

#include <assert.h>
#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"

static void add_given(struct text *text, int32_t nentries, const int32_t *axis_counts, const char *const *axis_names) {
  text_add(text, "P(");
  for (int32_t d = 0, next = 0; d < nentries; d++) {
    if (d != 0) text_add(text, ", ");
    if (axis_counts[d] == 0) text_add(text, "nil");
    if (axis_counts[d] > 1) text_add(text, "{");
    for (int32_t i = 0; i < axis_counts[d]; i++) {
      if (i != 0) text_add(text, ", ");
      text_add_quoted(text, axis_names[next++]);
    }
    if (axis_counts[d] > 1) text_add(text, "}");
  }
  text_add(text, ")");
}

static int spec_set_text(struct spec *spec, const int32_t *axis_counts, const char *const *axis_names) {
  struct text text = {0};
  add_given(&text, spec->nentries, axis_counts, axis_names);
  size_t capacity = text.length + 1;
  spec->text = alloc_array(capacity, 1);
  if (spec->text == NULL) return ALLOC_FAILED;
  text = (struct text){spec->text, capacity, 0};
  add_given(&text, spec->nentries, axis_counts, axis_names);
  return SHARDRT_OK;
}

static int error_unknown_axis(const struct spec *spec, const shardrt_mesh *mesh, const char *name) {
  char axes[1024] = "";
  struct text text = {axes, sizeof axes, 0};
  for (int32_t a = 0; a < mesh->naxes; a++) {
    if (a != 0) text_add(&text, ", ");
    text_add_quoted(&text, mesh->names[a]);
  }
  return error_set(SHARDRT_EINVAL, "\"%s\" in %s is no axis of the mesh; its axes are %s", name, spec->text, axes);
}

static int spec_set_axes(struct spec *spec, const shardrt_mesh *mesh, const char *const *axis_names) {
  int32_t naxes = spec->offsets[spec->nentries];
  spec->axes = alloc_array((size_t)naxes, sizeof *spec->axes);
  if (spec->axes == NULL) return ALLOC_FAILED;
  for (int32_t i = 0; i < naxes; i++) {
    spec->axes[i] = mesh_axis(mesh, axis_names[i]);
    if (spec->axes[i] < 0) return error_unknown_axis(spec, mesh, axis_names[i]);
  }
  for (int32_t i = 0; i < naxes; i++)
    for (int32_t j = 0; j < i; j++)
      if (spec->axes[j] == spec->axes[i])
        return error_set(SHARDRT_EINVAL, "axis \"%s\" stands twice in %s; an axis can cut one dimension only, and once",
                         axis_names[i], spec->text);
  return SHARDRT_OK;
}

int spec_set(struct spec *spec, const shardrt_mesh *mesh, int32_t nentries, const int32_t *axis_counts,
             const char *const *axis_names) {
  if (nentries < 0 || nentries > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "a spec of %" PRId32 " entries; an array has at most %d dimensions", nentries,
                     SHARDRT_MAX_NDIM);
  *spec = (struct spec){.nentries = nentries};
  for (int32_t d = 0; d < nentries; d++) spec->offsets[d + 1] = spec->offsets[d] + axis_counts[d];
  int code = spec_set_text(spec, axis_counts, axis_names);
  if (code == SHARDRT_OK) code = spec_set_axes(spec, mesh, axis_names);
  if (code != SHARDRT_OK) spec_clear(spec);
  return code;
}

void spec_clear(struct spec *spec) {
  alloc_free(spec->axes);
  alloc_free(spec->text);
  *spec = (struct spec){0};
}

void spec_add_axes(const struct spec *spec, const shardrt_mesh *mesh, int32_t dim, struct text *text) {
  assert(dim >= 0 && dim < spec->nentries);
  int32_t begin = spec->offsets[dim], end = spec->offsets[dim + 1];
  text_add(text, end - begin == 1 ? "axis " : "axes ");
  for (int32_t i = begin; i < end; i++) {
    if (i != begin) text_add(text, i == end - 1 ? " and " : ", ");
    text_add_quoted(text, mesh->names[spec->axes[i]]);
    text_add(text, " (%" PRId64 ")", mesh->sizes[spec->axes[i]]);
  }
}

int32_t spec_next_axis(const struct spec *spec, const shardrt_mesh *mesh, int32_t dim, int32_t *i) {
  while (dim < spec->nentries && spec->offsets[dim] + *i < spec->offsets[dim + 1]) {
    int32_t axis = spec->axes[spec->offsets[dim] + (*i)++];
    assert(axis >= 0 && axis < mesh->naxes);
    if (mesh->sizes[axis] > 1) return axis;
  }
  return -1;
}
