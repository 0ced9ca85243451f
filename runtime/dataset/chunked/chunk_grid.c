#include "dataset/chunked/chunk_grid.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "dataset/box_runs.h"
#include "dataset/elements.h"

struct chunk_grid_source {
  shardrt_source base;
  struct chunk_grid *grids; /* one for each field */
  _Atomic int64_t counted;
};

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

/* Rows of a block: as many as the field's chunks have whose chunks have the most. Fields that are not in chunks have
 * runs that fit in with those. */
static int64_t block_rows(const shardrt_source *source) {
  const struct chunk_grid *grids = ((const struct chunk_grid_source *)source)->grids;
  int64_t rows = 0;
  for (int32_t f = 0; f < source->nfields; f++)
    if (grids[f].chunks != NULL && grids[f].chunk[0] > rows) rows = grids[f].chunk[0];
  return rows > 0 ? rows : source_run_samples(source->count, source_stored_bytes(source));
}

/* Chunks of one row of blocks, of fields, too, that are decoded together count once: those of the column that was read
 * first. Counts a chunk with the block whose first row it has. */
static void count_block(const struct chunk_grid *grid, int64_t number, struct reader *reader) {
  int64_t inner = 1;
  for (int32_t d = 1; d < grid->ndim; d++) inner *= grid->counts[d];
  int64_t column = grid->columns - inner + number % inner + 1, none = 0;
  if (!atomic_compare_exchange_strong(grid->counted, &none, column) && none != column) return;
  const int64_t row = number / inner * grid->chunk[0], past = row % grid->block_rows;
  if (past == 0 || past + grid->chunk[0] > grid->block_rows) reader->blocks_decoded++;
}

static int load_chunk(const void *context, int64_t number, struct reader *reader, struct chunk *out) {
  const struct chunk_grid *grid = context;
  int code = grid->load(grid->own, number, reader, out);
  if (code == SHARDRT_OK && out->data != NULL && !grid->in_place) count_block(grid, number, reader);
  return code;
}

int64_t chunk_grid_block_count(const shardrt_source *source) {
  return source_run_count(source->count, block_rows(source));
}

struct sample_range chunk_grid_block(const shardrt_source *source, int64_t block) {
  return source_run(source->count, block_rows(source), block);
}

int64_t chunk_grid_blocks_kept(const shardrt_source *source) {
  const struct chunk_grid *grids = ((const struct chunk_grid_source *)source)->grids;
  const int64_t rows = block_rows(source);
  int64_t least = -1;
  for (int32_t f = 0; f < source->nfields; f++) {
    if (grids[f].chunks == NULL || grids[f].in_place) continue;
    int64_t chunks = (rows - 1) / grids[f].chunk[0] + 1; /* of one block */
    for (int32_t d = 1; d < grids[f].ndim; d++) chunks *= grids[f].counts[d] > 0 ? grids[f].counts[d] : 1;
    const int64_t kept = chunks_kept(grids[f].chunks) / chunks;
    if (least < 0 || kept < least) least = kept;
  }
  return least;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* Makes what follows from the shapes. */
static int count_chunks(struct chunk_grid *self) {
  const size_t element_bytes = shardrt_dtype_size(self->dtype);
  size_t bytes;
  int64_t chunks = 1;
  if (!size_bytes(self->ndim, self->shape, element_bytes, &bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: its shape does not fit in 64 bits", self->title);
  if (self->data != NULL || self->file != NULL) return SHARDRT_OK;
  for (int32_t d = 0; d < self->ndim; d++) {
    if (self->chunk[d] < 1)
      return error_set(SHARDRT_EFORMAT, "%s: its chunks have the size %lld in dimension %d", self->title,
                       (long long)self->chunk[d], (int)d);
    self->counts[d] = self->shape[d] == 0 ? 0 : (self->shape[d] - 1) / self->chunk[d] + 1;
    if (__builtin_mul_overflow(chunks, self->counts[d], &chunks))
      return error_set(SHARDRT_EOVERFLOW, "%s: the number of its chunks does not fit in 64 bits", self->title);
  }
  if (!size_bytes(self->ndim, self->chunk, element_bytes, &self->chunk_bytes) ||
      (!self->in_place && self->chunk_bytes > CHUNK_GRID_BYTES_AT_MOST))
    return error_set(SHARDRT_EFORMAT,
                     "%s: a chunk decodes to more than %zu bytes, which is the limit; smaller chunks would do",
                     self->title, CHUNK_GRID_BYTES_AT_MOST);
  self->chunks = chunks_new(chunks, self->chunk_bytes, self->in_place);
  return self->chunks != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

int chunk_grid_open(const struct source_format *format, int32_t nfields, const char *const *names,
                    const char *const *paths, const shardrt_source_options *options, chunk_grid_read *read,
                    shardrt_source **out) {
  struct chunk_grid_source *self = source_new(format, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  self->base.nfields = nfields;
  self->base.fields = alloc_zeros((size_t)nfields, sizeof *self->base.fields);
  self->grids = alloc_zeros((size_t)nfields, sizeof *self->grids);
  int code = self->base.fields != NULL && self->grids != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) {
    struct chunk_grid *grid = &self->grids[f];
    code = read(paths[f], options, grid);
    if (code == SHARDRT_OK) code = source_add_file(&self->base, grid->title, NULL, grid->fingerprint);
    if (code == SHARDRT_OK) code = source_set_field(&self->base, f, names[f], grid->dtype, grid->ndim, grid->shape);
    if (code == SHARDRT_OK) code = count_chunks(grid);
  }
  if (code < 0) {
    shardrt_source_free(&self->base);
    return code;
  }
  int64_t columns = 0;
  for (int32_t f = 0; f < nfields; f++) {
    struct chunk_grid *grid = &self->grids[f];
    int64_t inner = 1;
    for (int32_t d = 1; d < grid->ndim; d++) inner *= grid->counts[d];
    grid->columns = columns += inner;
    grid->block_rows = block_rows(&self->base);
    grid->counted = &self->counted;
  }
  *out = &self->base;
  return SHARDRT_OK;
}

void chunk_grid_close(shardrt_source *source) {
  struct chunk_grid_source *self = (struct chunk_grid_source *)source;
  for (int32_t f = 0; f < source->nfields; f++) {
    if (source->fields != NULL) alloc_free((char *)source->fields[f].name);
    if (self->grids == NULL) continue;
    struct chunk_grid *grid = &self->grids[f];
    chunks_free(grid->chunks);
    if (grid->drop != NULL) grid->drop(grid->own);
    alloc_free(grid->title);
  }
  alloc_free(self->grids);
  alloc_free(source->fields);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

void chunk_grid_place(const struct chunk_grid *self, int64_t number, int64_t *at) {
  for (int32_t d = self->ndim - 1; d >= 0; d--) {
    at[d] = number % self->counts[d];
    number /= self->counts[d];
  }
}

/* A box of the array on its way to dst; chunks are held one at a time, and as long as the same one is wanted. */
struct visit {
  const struct chunk_grid *grid;
  struct reader *reader;
  size_t element_bytes;
  uint8_t fill[8];                 /* in the file's byte order */
  shardrt_box box;                 /* in the array's coordinates */
  int64_t shape[SHARDRT_MAX_NDIM]; /* of the box */
  int64_t held;                    /* the number of `chunk`; -1: none */
  struct chunk *chunk;
};

static void let_go(struct visit *v) {
  if (v->held >= 0) chunks_release(v->grid->chunks, v->held, v->chunk);
  v->held = -1;
}

static int hold_chunk(struct visit *v, const int64_t *at) {
  int64_t number = 0;
  for (int32_t d = 0; d < v->grid->ndim; d++) number = number * v->grid->counts[d] + at[d];
  if (v->chunk != NULL && number == v->held) return SHARDRT_OK;
  let_go(v);
  int code = chunks_hold(v->grid->chunks, number, load_chunk, v->grid, v->reader, &v->chunk);
  if (code == SHARDRT_OK) v->held = number;
  return code;
}

/* Writes the fill value to a box of a packed array, from dimension d on. */
static void fill_box(const struct visit *v, int32_t d, const int64_t *extent, const int64_t *start, uint8_t *dst) {
  if (d == v->grid->ndim - 1) {
    const size_t bytes = (size_t)extent[d] * v->element_bytes;
    dst += (size_t)start[d] * v->element_bytes;
    memcpy(dst, v->fill, v->element_bytes);
    for (size_t done = v->element_bytes; done < bytes; done *= 2) /* what is written is copied behind itself */
      memcpy(dst + done, dst, bytes - done < done ? bytes - done : done);
    return;
  }
  size_t step = v->element_bytes;
  for (int32_t e = d + 1; e < v->grid->ndim; e++) step *= (size_t)v->shape[e];
  for (int64_t i = 0; i < extent[d]; i++) fill_box(v, d + 1, extent, start, dst + (size_t)(start[d] + i) * step);
}

/* What the box has in common with one chunk. */
static int visit_chunk(struct visit *v, const int64_t *at, uint8_t *dst) {
  const struct chunk_grid *grid = v->grid;
  int64_t extent[SHARDRT_MAX_NDIM] = {0}, from[SHARDRT_MAX_NDIM] = {0}, to[SHARDRT_MAX_NDIM] = {0};
  for (int32_t d = 0; d < grid->ndim; d++) {
    const int64_t first = at[d] * grid->chunk[d]; /* at or before an element, so it fits */
    const int64_t start = v->box.start[d] > first ? v->box.start[d] : first;
    const int64_t rest = v->box.stop[d] - start, room = grid->chunk[d] - (start - first);
    extent[d] = rest < room ? rest : room;
    from[d] = start - first;
    to[d] = start - v->box.start[d];
  }
  int code = hold_chunk(v, at);
  if (code < 0) return code;
  if (v->chunk->data == NULL) {
    fill_box(v, 0, extent, to, dst);
    return SHARDRT_OK;
  }
  return shardrt_box_copy(grid->ndim, v->element_bytes, extent, dst, v->shape, to, v->chunk->data, grid->chunk, from);
}

/* All chunks that a box, which is not empty, lies in. */
static int visit_all(struct visit *v, uint8_t *dst) {
  const struct chunk_grid *grid = v->grid;
  int64_t at[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < grid->ndim; d++) at[d] = v->box.start[d] / grid->chunk[d];
  for (;;) {
    int code = visit_chunk(v, at, dst);
    if (code < 0) return code;
    int32_t d = grid->ndim - 1;
    for (; d >= 0; d--) {
      if (++at[d] <= (v->box.stop[d] - 1) / grid->chunk[d]) break;
      at[d] = v->box.start[d] / grid->chunk[d];
    }
    if (d < 0) return SHARDRT_OK;
  }
}

static int gather_chunks(const struct chunk_grid *grid, const int64_t *samples, int64_t n, const shardrt_box *inner,
                         size_t box_bytes, struct reader *reader, uint8_t *dst) {
  struct visit v = {.grid = grid,
                    .reader = reader,
                    .element_bytes = shardrt_dtype_size(grid->dtype),
                    .held = -1,
                    .box = {.ndim = grid->ndim}};
  memcpy(v.fill, grid->fill, sizeof v.fill);
  if (grid->swap) elements_swap(v.fill, 1, v.element_bytes);
  v.shape[0] = 1;
  for (int32_t d = 1; d < grid->ndim; d++) {
    v.box.start[d] = inner->start[d - 1];
    v.box.stop[d] = inner->stop[d - 1];
    v.shape[d] = v.box.stop[d] - v.box.start[d];
  }
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    v.box.start[0] = samples[i];
    v.box.stop[0] = samples[i] + 1;
    code = visit_all(&v, dst + (size_t)i * box_bytes);
  }
  let_go(&v);
  return code;
}

int chunk_grid_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                      const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct chunk_grid *grid = &((const struct chunk_grid_source *)source)->grids[field];
  const size_t element_bytes = shardrt_dtype_size(grid->dtype);
  const size_t box_bytes = source_box_bytes(&source->fields[field], inner);
  int code = SHARDRT_OK;
  if (box_bytes == 0) return SHARDRT_OK;
  if (grid->data != NULL) {
    const struct box_runs runs = box_runs_of(&source->fields[field], inner, element_bytes);
    if (grid->file != NULL && grid->file->guard != NULL)
      code = box_runs_check(&runs, grid->file->guard, grid->title, grid->first, samples, n);
    if (code < 0) return code;
    box_runs_copy(&runs, grid->data, samples, n, reader->past_caches && !grid->swap, dst);
  } else if (grid->file != NULL) {
    const int64_t read = reader->bytes_read;
    const struct box_runs runs = box_runs_of(&source->fields[field], inner, element_bytes);
    code = box_runs_read(&runs, grid->file, grid->first, samples, n, reader, dst);
    reader->bytes_read = read; /* counted below */
  } else {
    code = gather_chunks(grid, samples, n, inner, box_bytes, reader, dst);
  }
  if (code < 0) return code;
  if (grid->in_place || grid->file != NULL)
    reader->bytes_read += (int64_t)box_bytes * n; /* decoders count what they take */
  if (grid->swap) elements_swap(dst, box_bytes / element_bytes * (size_t)n, element_bytes);
  return SHARDRT_OK;
}

int chunk_grid_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out) {
  const struct chunk_grid *grid = &((const struct chunk_grid_source *)source)->grids[field];
  if (grid->file == NULL) return SHARDRT_OK;
  const shardrt_box whole = source_whole(&source->fields[field]);
  const struct box_runs runs =
      box_runs_of(&source->fields[field], inner != NULL ? inner : &whole, shardrt_dtype_size(grid->dtype));
  return box_runs_extents(&runs, &grid->file->map, grid->first, samples, n, out);
}
