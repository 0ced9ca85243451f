#include "layout/mesh.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compare.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/search.h"

enum { TEXT_RUNS = 16 }; /* of consecutive ids, in a mesh's text */

static int compare_keys(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* ---- making one ------------------------------------------------------------------------------------------------- */

static int mesh_check_axes(int32_t naxes, const int64_t *sizes, const char *const *names) {
  if (naxes < 1) return error_set(SHARDRT_EINVAL, "a mesh of no axes; it needs at least one, with its name");
  for (int32_t a = 0; a < naxes; a++) {
    if (names[a] == NULL || names[a][0] == '\0')
      return error_set(SHARDRT_EINVAL, "axis %d of the mesh has no name; every axis needs one of its own", a);
    if (sizes[a] < 1)
      return error_set(SHARDRT_EINVAL, "mesh axis \"%s\" has size %" PRId64 "; an axis has at least one device",
                       names[a], sizes[a]);
    for (int32_t b = 0; b < a; b++)
      if (strcmp(names[a], names[b]) == 0)
        return error_set(SHARDRT_EINVAL, "axes %d and %d of the mesh are both named \"%s\"; names must differ", b, a,
                         names[a]);
  }
  return SHARDRT_OK;
}

/* The mesh's size, compared with what ids there are. */
static int mesh_check_size(int32_t naxes, const int64_t *sizes, int64_t nids, const int32_t *ids, int64_t device_count,
                           int64_t *size) {
  int64_t product = 1;
  for (int32_t a = 0; a < naxes; a++)
    if (__builtin_mul_overflow(product, sizes[a], &product))
      return error_set(SHARDRT_EOVERFLOW, "the sizes of the mesh's %d axes have a product beyond 64 bits", naxes);
  char bytes[256] = "";
  struct text shape = {bytes, sizeof bytes, 0};
  text_add_shape(&shape, naxes, sizes);
  if (ids != NULL && nids != product)
    return error_set(SHARDRT_EINVAL,
                     "a mesh of shape %s has %" PRId64 " places, but %" PRId64 " devices are given; it needs one for "
                     "each place",
                     bytes, product, nids);
  if (ids == NULL && product > device_count)
    return error_set(SHARDRT_EINVAL,
                     "a mesh of shape %s needs %" PRId64 " devices, but the job has %" PRId64
                     "; start more processes, or give each more %s",
                     bytes, product, device_count, error_words("--devices", "devices"));
  if (product > INT32_MAX)
    return error_set(SHARDRT_EOVERFLOW, "a mesh of %" PRId64 " devices: their ids do not fit in 32 bits", product);
  *size = product;
  return SHARDRT_OK;
}

static int mesh_check_ids(int64_t nids, const int32_t *ids, int64_t device_count) {
  for (int64_t i = 0; i < nids; i++)
    if (ids[i] < 0 || ids[i] >= device_count)
      return error_set(SHARDRT_EINVAL,
                       "device %" PRId32 " in the mesh (at position %" PRId64 "): the job has %" PRId64
                       " devices, 0 to %" PRId64,
                       ids[i], i, device_count, device_count - 1);
  return SHARDRT_OK;
}

static int mesh_set_axes(shardrt_mesh *mesh, const int64_t *sizes, const char *const *names) {
  size_t naxes = (size_t)mesh->naxes;
  mesh->sizes = alloc_array(naxes, sizeof *mesh->sizes);
  mesh->strides = alloc_array(naxes, sizeof *mesh->strides);
  mesh->names = alloc_zeros(naxes, sizeof *mesh->names);
  if (mesh->sizes == NULL || mesh->strides == NULL || mesh->names == NULL) return ALLOC_FAILED;
  int64_t stride = 1;
  for (int32_t a = mesh->naxes - 1; a >= 0; a--) {
    mesh->sizes[a] = sizes[a];
    mesh->strides[a] = stride;
    stride *= sizes[a];
    mesh->names[a] = alloc_text("%s", names[a]);
    if (mesh->names[a] == NULL) return ALLOC_FAILED;
  }
  return SHARDRT_OK;
}

static bool is_consecutive(int64_t nids, const int32_t *ids) {
  for (int64_t i = 1; i < nids; i++)
    if (ids[i] != ids[0] + i) return false;
  return true;
}

static int mesh_set_ids(shardrt_mesh *mesh, const int32_t *ids) {
  mesh->first = ids[0];
  if (is_consecutive(mesh->size, ids)) return SHARDRT_OK;
  size_t size = (size_t)mesh->size;
  mesh->ids = alloc_array(size, sizeof *mesh->ids);
  mesh->by_id = alloc_array(size, sizeof *mesh->by_id);
  if (mesh->ids == NULL || mesh->by_id == NULL) return ALLOC_FAILED;
  memcpy(mesh->ids, ids, size * sizeof *ids);
  for (size_t i = 0; i < size; i++) mesh->by_id[i] = (uint64_t)ids[i] << 32 | i;
  qsort(mesh->by_id, size, sizeof *mesh->by_id, compare_keys);
  for (size_t i = 1; i < size; i++)
    if (mesh->by_id[i] >> 32 == mesh->by_id[i - 1] >> 32)
      return error_set(SHARDRT_EINVAL,
                       "device %" PRIu64 " stands twice in the mesh (at positions %" PRIu64 " and %" PRIu64 ")",
                       mesh->by_id[i] >> 32, mesh->by_id[i - 1] & UINT32_MAX, mesh->by_id[i] & UINT32_MAX);
  return SHARDRT_OK;
}

static void mesh_set_fingerprint(shardrt_mesh *mesh) {
  uint64_t hash = hash_number(0, mesh->naxes);
  for (int32_t a = 0; a < mesh->naxes; a++) hash = hash_text(hash_number(hash, mesh->sizes[a]), mesh->names[a]);
  hash = hash_number(hash, mesh->first);
  if (mesh->ids != NULL) hash = hash_bytes(hash, mesh->ids, (size_t)mesh->size * sizeof *mesh->ids);
  mesh->fingerprint = hash;
}

/* "0-3, 6-7, 4-5": runs of consecutive ids in mesh order. */
static void mesh_add_devices(const shardrt_mesh *mesh, struct text *text) {
  int64_t position = 0;
  for (int run = 0; position < mesh->size; run++) {
    if (run == TEXT_RUNS) {
      text_add(text, ", ... of %" PRId64, mesh->size);
      return;
    }
    int64_t begin = position++;
    while (position < mesh->size && shardrt_mesh_device(mesh, position) == shardrt_mesh_device(mesh, position - 1) + 1)
      position++;
    text_add(text, "%s%" PRId32, run != 0 ? ", " : "", shardrt_mesh_device(mesh, begin));
    if (position - begin > 1) text_add(text, "-%" PRId32, shardrt_mesh_device(mesh, position - 1));
  }
}

/* Mesh("data": 4, "model": 2), and which devices where they are not the first ones in order. */
static void mesh_add_text(const shardrt_mesh *mesh, struct text *text) {
  text_add(text, "Mesh(");
  for (int32_t a = 0; a < mesh->naxes; a++) {
    if (a != 0) text_add(text, ", ");
    text_add_quoted(text, mesh->names[a]);
    text_add(text, ": %" PRId64, mesh->sizes[a]);
  }
  if (mesh->ids != NULL || mesh->first != 0) {
    text_add(text, "; devices ");
    mesh_add_devices(mesh, text);
  }
  text_add(text, ")");
}

static int mesh_set_text(shardrt_mesh *mesh) {
  struct text text = {0};
  mesh_add_text(mesh, &text);
  size_t capacity = text.length + 1;
  mesh->text = alloc_array(capacity, 1);
  if (mesh->text == NULL) return ALLOC_FAILED;
  text = (struct text){mesh->text, capacity, 0};
  mesh_add_text(mesh, &text);
  return SHARDRT_OK;
}

int shardrt_mesh_new(int32_t naxes, const int64_t *sizes, const char *const *names, int64_t nids, const int32_t *ids,
                     int64_t device_count, shardrt_mesh **out) {
  int64_t size = 0;
  int code = mesh_check_axes(naxes, sizes, names);
  if (code == SHARDRT_OK) code = mesh_check_size(naxes, sizes, nids, ids, device_count, &size);
  if (code == SHARDRT_OK && ids != NULL) code = mesh_check_ids(nids, ids, device_count);
  if (code != SHARDRT_OK) return code;
  shardrt_mesh *mesh = alloc_zeros(1, sizeof *mesh);
  if (mesh == NULL) return ALLOC_FAILED;
  mesh->count = 1;
  mesh->naxes = naxes;
  mesh->size = size;
  code = mesh_set_axes(mesh, sizes, names);
  if (code == SHARDRT_OK && ids != NULL) code = mesh_set_ids(mesh, ids);
  if (code == SHARDRT_OK) code = mesh_set_text(mesh);
  if (code != SHARDRT_OK) {
    shardrt_mesh_free(mesh);
    return code;
  }
  mesh_set_fingerprint(mesh);
  *out = mesh;
  return SHARDRT_OK;
}

int mesh_single(int32_t device, shardrt_mesh **out) {
  shardrt_mesh *mesh = alloc_zeros(1, sizeof *mesh);
  if (mesh == NULL) return ALLOC_FAILED;
  mesh->count = 1;
  mesh->size = 1;
  mesh->first = device;
  mesh->text = alloc_text("device %" PRId32, device);
  if (mesh->text == NULL) {
    shardrt_mesh_free(mesh);
    return ALLOC_FAILED;
  }
  mesh_set_fingerprint(mesh);
  *out = mesh;
  return SHARDRT_OK;
}

shardrt_mesh *mesh_retain(shardrt_mesh *mesh) {
  assert(mesh->count > 0); /* who retains it holds it */
  mesh->count++;
  return mesh;
}

void shardrt_mesh_free(shardrt_mesh *mesh) {
  assert(mesh == NULL || mesh->count > 0);
  if (mesh == NULL || --mesh->count != 0) return;
  for (int32_t a = 0; mesh->names != NULL && a < mesh->naxes; a++) alloc_free(mesh->names[a]);
  alloc_free((void *)mesh->names);
  alloc_free(mesh->sizes);
  alloc_free(mesh->strides);
  alloc_free(mesh->ids);
  alloc_free(mesh->by_id);
  alloc_free(mesh->text);
  alloc_free(mesh);
}

/* ---- what it tells ---------------------------------------------------------------------------------------------- */

int64_t shardrt_mesh_size(const shardrt_mesh *mesh) {
  return mesh->size;
}

int32_t shardrt_mesh_axis_count(const shardrt_mesh *mesh) {
  return mesh->naxes;
}

int64_t shardrt_mesh_axis_size(const shardrt_mesh *mesh, int32_t axis) {
  assert(axis >= 0 && axis < mesh->naxes);
  return mesh->sizes[axis];
}

const char *shardrt_mesh_axis_name(const shardrt_mesh *mesh, int32_t axis) {
  assert(axis >= 0 && axis < mesh->naxes);
  return mesh->names[axis];
}

const char *shardrt_mesh_text(const shardrt_mesh *mesh) {
  return mesh->text;
}

int32_t shardrt_mesh_device(const shardrt_mesh *mesh, int64_t position) {
  assert(position >= 0 && position < mesh->size);
  return mesh->ids != NULL ? mesh->ids[position] : (int32_t)(mesh->first + position);
}

int32_t mesh_axis(const shardrt_mesh *mesh, const char *name) {
  for (int32_t a = 0; a < mesh->naxes; a++)
    if (strcmp(mesh->names[a], name) == 0) return a;
  return -1;
}

bool shardrt_mesh_equal(const shardrt_mesh *a, const shardrt_mesh *b) {
  if (a == b) return true;
  if (a->fingerprint != b->fingerprint || a->naxes != b->naxes || a->first != b->first || a->size != b->size ||
      (a->ids == NULL) != (b->ids == NULL))
    return false;
  for (int32_t i = 0; i < a->naxes; i++)
    if (a->sizes[i] != b->sizes[i] || strcmp(a->names[i], b->names[i]) != 0) return false;
  return a->ids == NULL || memcmp(a->ids, b->ids, (size_t)a->size * sizeof *a->ids) == 0;
}

bool shardrt_mesh_same_devices(const shardrt_mesh *a, const shardrt_mesh *b) {
  if (a == b) return true;
  if (a->size != b->size || (a->ids == NULL) != (b->ids == NULL)) return false;
  if (a->ids == NULL) return a->first == b->first;
  return memcmp(a->ids, b->ids, (size_t)a->size * sizeof *a->ids) == 0;
}

/* ---- devices by their ids --------------------------------------------------------------------------------------- */

int64_t mesh_rank(const shardrt_mesh *mesh, int64_t id) {
  if (mesh->ids == NULL) {
    int64_t rank = id - mesh->first;
    return rank < 0 ? 0 : rank > mesh->size ? mesh->size : rank;
  }
  if (id <= 0 || id > INT32_MAX) return id <= 0 ? 0 : mesh->size; /* ids are from 0 to INT32_MAX */
  return search_from((const int64_t *)mesh->by_id, sizeof *mesh->by_id, mesh->size, id << 32);
}

int64_t mesh_rank_position(const shardrt_mesh *mesh, int64_t rank) {
  assert(rank >= 0 && rank < mesh->size);
  return mesh->ids != NULL ? (int64_t)(mesh->by_id[rank] & UINT32_MAX) : rank;
}

int64_t mesh_rank_device(const shardrt_mesh *mesh, int64_t rank) {
  assert(rank >= 0 && rank < mesh->size);
  return mesh->ids != NULL ? (int64_t)(mesh->by_id[rank] >> 32) : mesh->first + rank;
}

int mesh_owned(const shardrt_mesh *mesh, int32_t process, int32_t devices_per_process, int64_t *begin, int64_t *end) {
  if (process < 0 || devices_per_process < 1)
    return error_set(SHARDRT_EINVAL,
                     "process %" PRId32 " with %" PRId32
                     " devices in each process: processes count from 0 and have at least one device",
                     process, devices_per_process);
  int64_t first_id = (int64_t)process * devices_per_process;
  *begin = mesh_rank(mesh, first_id);
  *end = mesh_rank(mesh, first_id + devices_per_process);
  return SHARDRT_OK;
}

void mesh_rank_positions(const shardrt_mesh *mesh, int64_t begin, int64_t end, int64_t *positions) {
  assert(begin >= 0 && begin <= end && end <= mesh->size);
  for (int64_t rank = begin; rank < end; rank++) positions[rank - begin] = mesh_rank_position(mesh, rank);
  if (mesh->ids != NULL) qsort(positions, (size_t)(end - begin), sizeof *positions, compare_int64);
}

int64_t shardrt_mesh_positions(const shardrt_mesh *mesh, int32_t first_id, int32_t count, int64_t *positions,
                               int64_t capacity) {
  if (count <= 0) return 0;
  int64_t begin = mesh_rank(mesh, first_id), end = mesh_rank(mesh, (int64_t)first_id + count);
  if (end - begin <= capacity) {
    mesh_rank_positions(mesh, begin, end, positions);
    return end - begin;
  }
  /* Not all of them are wanted, but the lowest: positions are met in their order. */
  int64_t written = 0;
  for (int64_t position = 0; written < capacity; position++) {
    int64_t id = shardrt_mesh_device(mesh, position);
    if (id >= first_id && id < (int64_t)first_id + count) positions[written++] = position;
  }
  return end - begin;
}
