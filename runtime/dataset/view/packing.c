#include "dataset/view/packing.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/view/fit.h"

enum { BASE_BLOCKS = 4 };

/* ---- which pieces there are ------------------------------------------------------------------------------------- */

static int64_t pieces_of(const shardrt_pack_options *o, int64_t elements) {
  if (elements == 0) return 0;
  return o->longer == SHARDRT_LONGER_SPLIT ? (elements - 1) / o->length + 1 : 1;
}

/* All pieces, in the order in which they are taken; *elements is how many elements they have. */
static int list_pieces(struct packing *p, int64_t count, const shardrt_pack_options *o, const int64_t *lengths,
                       struct pack_piece **out, double *elements) {
  for (int64_t i = 0; i < count; i++) p->npieces += pieces_of(o, lengths[i]);
  struct pack_piece *pieces = alloc_array((size_t)p->npieces, sizeof *pieces);
  if (pieces == NULL) return ALLOC_FAILED;
  int64_t made = 0;
  *elements = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t sample = o->shuffle ? shardrt_order_index(o->seed, 0, count, i) : i;
    const int64_t n = pieces_of(o, lengths[sample]);
    if (n == 1 && lengths[sample] > o->length) p->dropped += lengths[sample] - o->length;
    for (int64_t k = 0; k < n; k++) {
      const int64_t left = lengths[sample] - k * o->length;
      const int32_t own = (int32_t)(left < o->length ? left : o->length);
      pieces[made++] = (struct pack_piece){.sample = sample, .piece = (int32_t)k, .elements = own};
      *elements += own;
    }
  }
  *out = pieces;
  return SHARDRT_OK;
}

/* ---- which rows they go to -------------------------------------------------------------------------------------- */

/* Room for one window of pieces. */
struct window {
  struct fit fit;
  int32_t *lengths;
  int32_t *rows;   /* of each piece */
  int32_t *places; /* of each row: its next piece's place in the window */
};

static int window_set(struct window *self, int32_t capacity, int32_t most) {
  int code = fit_set(&self->fit, capacity, most);
  if (code < 0) return code;
  self->lengths = alloc_array((size_t)most, sizeof *self->lengths);
  if (self->lengths == NULL) return ALLOC_FAILED;
  self->rows = alloc_array((size_t)most, sizeof *self->rows);
  if (self->rows == NULL) return ALLOC_FAILED;
  self->places = alloc_array((size_t)most + 1, sizeof *self->places);
  return self->places != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static void window_clear(struct window *self) {
  alloc_free(self->places);
  alloc_free(self->rows);
  alloc_free(self->lengths);
  fit_clear(&self->fit);
}

/* Puts n pieces, from `first` on, in rows, the first of which is *nrows; in a row they keep their order. */
static void pack_window(struct packing *p, struct window *window, const struct pack_piece *pieces, int64_t first,
                        int32_t n, int64_t *nrows) {
  for (int32_t i = 0; i < n; i++) window->lengths[i] = pieces[first + i].elements;
  const int32_t used = fit_rows(&window->fit, window->lengths, n, window->rows);
  memset(window->places, 0, ((size_t)used + 1) * sizeof *window->places);
  for (int32_t i = 0; i < n; i++) window->places[window->rows[i] + 1]++;
  for (int32_t row = 0; row < used; row++) {
    window->places[row + 1] += window->places[row];
    p->firsts[*nrows + row] = first + window->places[row];
  }
  for (int32_t i = 0; i < n; i++) p->pieces[first + window->places[window->rows[i]]++] = pieces[first + i];
  *nrows += used;
}

static int pack_rows(struct packing *p, const shardrt_pack_options *o, const struct pack_piece *pieces) {
  const int64_t n = p->npieces, most = o->window < n ? o->window : n;
  p->pieces = alloc_array((size_t)n, sizeof *p->pieces);
  if (p->pieces == NULL) return ALLOC_FAILED;
  p->firsts = alloc_array((size_t)n + 1, sizeof *p->firsts);
  if (p->firsts == NULL) return ALLOC_FAILED;
  struct window window = {0};
  int code = window_set(&window, (int32_t)o->length, (int32_t)most);
  for (int64_t first = 0; first < n && code == SHARDRT_OK; first += most)
    pack_window(p, &window, pieces, first, (int32_t)(n - first < most ? n - first : most), &p->rows);
  window_clear(&window);
  if (code < 0) return code;
  p->firsts[p->rows] = n;
  return SHARDRT_OK;
}

/* Rows of one window are made of sequences that follow one another in the base, so that windows can be blocks: as many
 * together as begin in BASE_BLOCKS of the base's blocks. The last of these is read for the next ones, too. Where
 * sequences were shuffled there are none. */
static int set_blocks(struct packing *p, const shardrt_source *base, const shardrt_pack_options *o) {
  if (o->shuffle || source_stands_alone(base)) return SHARDRT_OK;
  p->block_rows = alloc_array((size_t)(p->npieces / o->window) + 2, sizeof *p->block_rows);
  if (p->block_rows == NULL) return ALLOC_FAILED;
  int64_t at = 0, next = 0; /* a block of the base, and the one that the next block begins in, or behind */
  const int64_t blocks = source_block_count(base);
  for (int64_t row = 0; row < p->rows; row++) {
    if (p->firsts[row] % o->window != 0) continue;
    const int64_t sample = p->pieces[p->firsts[row]].sample;
    while (at + 1 < blocks && source_block(base, at + 1).first <= sample) at++;
    if (row > 0 && at < next) continue;
    p->block_rows[p->nblocks++] = row;
    next = at + BASE_BLOCKS;
  }
  p->block_rows[p->nblocks] = p->rows;
  return SHARDRT_OK;
}

int packing_make(const shardrt_source *base, const int64_t *lengths, const shardrt_pack_options *o,
                 struct packing *out) {
  struct pack_piece *pieces = NULL;
  double elements;
  int code = list_pieces(out, base->count, o, lengths, &pieces, &elements);
  if (code == SHARDRT_OK) code = pack_rows(out, o, pieces);
  if (code == SHARDRT_OK) code = set_blocks(out, base, o);
  alloc_free(pieces);
  if (code < 0) return code;
  out->filled = out->rows > 0 ? elements / ((double)out->rows * (double)o->length) : 1;
  return SHARDRT_OK;
}

void packing_clear(struct packing *self) {
  alloc_free(self->block_rows);
  alloc_free(self->firsts);
  alloc_free(self->pieces);
}
