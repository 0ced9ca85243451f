/* pack.c - sequences of different length in rows of one length.
 *
 * Which sequences stand in which row is worked out once, from their lengths alone, so that rows are samples like any
 * others: they can be shuffled, cut among devices and found again. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "comm/job.h"
#include "dataset/source.h"
#include "dataset/view/fit.h"
#include "dataset/view/packing.h"
#include "dataset/view/row_cache.h"
#include "dataset/view/survey.h"

enum { LOOK_SAMPLES = 1024 };
static const char SEGMENTS[] = "segment_ids", POSITIONS[] = "positions";

struct pack {
  shardrt_source head; /* fields: those packed, those kept, segment_ids, positions */
  int32_t npacked, nkept;
  int32_t *from;  /* which field of the base each of those is */
  int32_t length; /* of a row */
  int32_t longer;
  int32_t zigzag;         /* 0: none */
  struct packing packing; /* without pieces: planning */
  uint64_t hash;          /* of all that decides which element stands where */
  struct row_cache *rows; /* for readers of parts of them */
};

static const shardrt_source *base_of(const struct pack *p) {
  return p->head.bases[0];
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* The part of a piece, which begins `at` elements into the row, that lies in `inner`; false: none does. */
static bool overlap(const struct pack_piece *piece, int64_t at, const shardrt_box *inner, int64_t *start,
                    int64_t *stop) {
  const int64_t end = at + piece->elements;
  *start = inner->start[0] > at ? inner->start[0] : at;
  *stop = inner->stop[0] < end ? inner->stop[0] : end;
  return *start < *stop;
}

/* Copies elements start … stop of the row, which are of a piece that begins at `at`. */
static int copy_piece(const struct pack *p, int32_t field, const struct pack_piece *piece, int64_t at, int64_t start,
                      int64_t stop, const shardrt_box *inner, struct reader *reader, void *dst) {
  struct value value;
  int code = source_value(base_of(p), p->from[field], piece->sample, NULL, reader, &value);
  if (code < 0) return code;
  const int64_t first = (int64_t)piece->piece * p->length;
  if (value.shape[0] < first + piece->elements)
    return error_set(SHARDRT_EDATA, "sample %lld is %lld elements long now; it was longer when the rows were packed",
                     (long long)source_number(base_of(p), piece->sample), (long long)value.shape[0]);
  int64_t extent[SHARDRT_MAX_NDIM], shape[SHARDRT_MAX_NDIM], to[SHARDRT_MAX_NDIM] = {0}, from[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < inner->ndim; d++) {
    from[d] = inner->start[d];
    extent[d] = shape[d] = inner->stop[d] - inner->start[d];
  }
  extent[0] = stop - start;
  to[0] = start - inner->start[0];
  from[0] = first + start - at;
  return shardrt_box_copy(inner->ndim, shardrt_dtype_size(value.dtype), extent, dst, shape, to, value.data, value.shape,
                          from);
}

/* The same of a field that is kept: each of the elements is what the piece's sample has. */
static int repeat_sample(const struct pack *p, int32_t field, const struct pack_piece *piece, int64_t start,
                         int64_t stop, const shardrt_box *inner, size_t bytes, struct reader *reader, uint8_t *dst) {
  shardrt_box box = {.ndim = inner->ndim - 1};
  for (int32_t d = 0; d < box.ndim; d++) {
    box.start[d] = inner->start[d + 1];
    box.stop[d] = inner->stop[d + 1];
  }
  uint8_t *first = dst + (size_t)(start - inner->start[0]) * bytes;
  int code = source_gather(base_of(p), p->from[field], &piece->sample, 1, &box, reader, first);
  for (int64_t i = 1; i < stop - start && code == SHARDRT_OK; i++) memcpy(first + (size_t)i * bytes, first, bytes);
  return code;
}

/* A field of the base, packed or kept. */
static int gather_elements(const struct pack *p, int32_t field, int64_t row, const shardrt_box *inner,
                           struct reader *reader, uint8_t *dst) {
  const int64_t extent = inner->stop[0] - inner->start[0];
  if (extent == 0) return SHARDRT_OK;
  const size_t bytes = source_box_bytes(&p->head.fields[field], inner) / (size_t)extent; /* of one element of the row */
  int64_t at = 0, start, stop;
  int code = SHARDRT_OK;
  const struct reader_mark mark = reader_mark(reader);
  for (int64_t i = p->packing.firsts[row]; i < p->packing.firsts[row + 1] && at < inner->stop[0] && code == SHARDRT_OK;
       i++) {
    const struct pack_piece *piece = &p->packing.pieces[i];
    if (overlap(piece, at, inner, &start, &stop))
      code = field < p->npacked ? copy_piece(p, field, piece, at, start, stop, inner, reader, dst)
                                : repeat_sample(p, field, piece, start, stop, inner, bytes, reader, dst);
    reader_release(reader, mark);
    at += piece->elements;
  }
  const int64_t rest = inner->stop[0] - at, zeros = rest < extent ? rest : extent;
  if (zeros > 0) memset(dst + (size_t)(extent - zeros) * bytes, 0, (size_t)zeros * bytes);
  return code;
}

/* What the elements of one range of a row are of: their segment, or their position in it. */
static void gather_ids(const struct pack *p, bool segments, int64_t row, int64_t start, int64_t stop, int32_t *dst) {
  int64_t begin = 0, at = start;
  for (int64_t i = p->packing.firsts[row]; i < p->packing.firsts[row + 1] && at < stop; i++) {
    const int64_t end = begin + p->packing.pieces[i].elements;
    const int32_t segment = (int32_t)(i - p->packing.firsts[row]) + 1;
    for (; at < end && at < stop; at++) *dst++ = segments ? segment : (int32_t)(at - begin);
    begin = end;
  }
  for (; at < stop; at++) *dst++ = 0;
}

static int gather_row(const struct pack *p, int32_t field, int64_t row, const shardrt_box *inner, struct reader *reader,
                      uint8_t *dst) {
  const int32_t computed = field - p->npacked - p->nkept;
  if (computed < 0) return gather_elements(p, field, row, inner, reader, dst);
  gather_ids(p, computed == 0, row, inner->start[0], inner->stop[0], (int32_t *)(void *)dst);
  return SHARDRT_OK;
}

/* A whole row, for those that cut parts out of it. */
static int fill_row(const void *context, int64_t row, int32_t field, struct reader *reader, void *dst) {
  const struct pack *p = context;
  const shardrt_box whole = source_whole(&p->head.fields[field]);
  return gather_row(p, field, row, &whole, reader, dst);
}

/* What lies in `inner` of a row: where that is a part of it, by way of the whole row, which is made once. */
static int gather_part(const struct pack *p, int32_t field, int64_t row, const shardrt_box *inner,
                       struct reader *reader, uint8_t *dst) {
  if (inner->stop[0] - inner->start[0] == p->length || field >= p->npacked + p->nkept)
    return gather_row(p, field, row, inner, reader, dst);
  const struct row_key key = {.row = row, .field = field, .epoch = reader->epoch, .seed = reader->seed};
  const void *whole = row_cache_take(p->rows, &key, reader);
  if (whole == NULL) return gather_row(p, field, row, inner, reader, dst); /* which fails again, or is read twice */
  static const int64_t zero[SHARDRT_MAX_NDIM] = {0};
  int64_t extent[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < inner->ndim; d++) extent[d] = inner->stop[d] - inner->start[d];
  const shardrt_field *own = &p->head.fields[field];
  int code = shardrt_box_copy(inner->ndim, shardrt_dtype_size(own->dtype), extent, dst, extent, zero, whole, own->shape,
                              inner->start);
  row_cache_give(p->rows, whole);
  return code;
}

/* Of rows in zigzag, piece by piece of those that the row's parts are made of. */
static int gather_zigzag(const struct pack *p, int32_t field, int64_t row, const shardrt_box *inner,
                         struct reader *reader, uint8_t *dst) {
  const int64_t pieces = 2 * (int64_t)p->zigzag, size = p->length / pieces;
  const int64_t extent = inner->stop[0] - inner->start[0];
  const size_t bytes = extent > 0 ? source_box_bytes(&p->head.fields[field], inner) / (size_t)extent : 0;
  int code = SHARDRT_OK;
  for (int64_t at = inner->start[0], next; at < inner->stop[0] && code == SHARDRT_OK; at = next) {
    const int64_t piece = at / size, from = piece % 2 == 0 ? piece / 2 : pieces - 1 - piece / 2;
    next = (piece + 1) * size < inner->stop[0] ? (piece + 1) * size : inner->stop[0];
    shardrt_box box = *inner;
    box.start[0] = from * size + at % size;
    box.stop[0] = box.start[0] + next - at;
    code = gather_part(p, field, row, &box, reader, dst + (size_t)(at - inner->start[0]) * bytes);
  }
  return code;
}

static int pack_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct pack *p = (const struct pack *)source;
  if (p->packing.pieces == NULL)
    return error_set(SHARDRT_EDATA, "source:pack: its rows cannot be read here: they were not packed (planning)");
  const size_t bytes = source_box_bytes(&source->fields[field], inner);
  const int64_t epoch = reader->epoch, *epochs = reader->epochs;
  reader->epochs = NULL; /* one for all sequences of a row */
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    uint8_t *to = (uint8_t *)dst + (size_t)i * bytes;
    if (epochs != NULL) reader->epoch = epochs[i];
    code = p->zigzag > 0 ? gather_zigzag(p, field, samples[i], inner, reader, to)
                         : gather_part(p, field, samples[i], inner, reader, to);
  }
  reader->epoch = epoch;
  reader->epochs = epochs;
  return code;
}

static int pack_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                        const shardrt_box *inner, struct extents *out) {
  (void)inner; /* sequences are read whole */
  const struct pack *p = (const struct pack *)source;
  int code = SHARDRT_OK;
  if (field >= p->npacked + p->nkept || p->packing.pieces == NULL) return code;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++)
    for (int64_t k = p->packing.firsts[samples[i]]; k < p->packing.firsts[samples[i] + 1] && code == SHARDRT_OK; k++)
      code = source_extents(base_of(p), p->from[field], &p->packing.pieces[k].sample, 1, NULL, out);
  return code;
}

static uint64_t pack_fingerprint(const shardrt_source *source) {
  const struct pack *p = (const struct pack *)source;
  return hash_number(hash_number(hash_text(0, "shardrt pack"), (int64_t)shardrt_source_fingerprint(base_of(p))),
                     (int64_t)p->hash);
}

static void pack_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  const struct pack *p = (const struct pack *)source;
  source_selection_hash(base_of(p), hashes);
  hashes[SHARDRT_DATA_ROWS] = hash_number(hashes[SHARDRT_DATA_ROWS], (int64_t)p->hash);
}

static size_t pack_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const struct pack *p = (const struct pack *)source;
  if (field < p->npacked) return source_box_bytes(&source->fields[field], inner);
  if (field >= p->npacked + p->nkept) return 0;
  const shardrt_box whole = source_whole(&base_of(p)->fields[p->from[field]]); /* of one sample at least */
  return source_bytes(base_of(p), p->from[field], &whole);
}

static bool pack_is_computed(const shardrt_source *source, int32_t field) {
  const struct pack *p = (const struct pack *)source;
  return field >= p->npacked + p->nkept || shardrt_source_is_computed(base_of(p), p->from[field]);
}

static int64_t pack_block_count(const shardrt_source *source) {
  const struct pack *p = (const struct pack *)source;
  return p->packing.block_rows != NULL ? p->packing.nblocks : source->count;
}

static struct sample_range pack_block(const shardrt_source *source, int64_t block) {
  const struct pack *p = (const struct pack *)source;
  if (p->packing.block_rows == NULL) return (struct sample_range){.first = block, .count = 1};
  return (struct sample_range){.first = p->packing.block_rows[block],
                               .count = p->packing.block_rows[block + 1] - p->packing.block_rows[block]};
}

static void pack_close(shardrt_source *source) {
  struct pack *p = (struct pack *)source;
  row_cache_free(p->rows);
  packing_clear(&p->packing);
  alloc_free(p->from);
  alloc_free(source->fields);
}

static const struct source_format pack_format = {
    .name = "pack",
    .gather = pack_gather,
    .extents = pack_extents,
    .fingerprint = pack_fingerprint,
    .selection_hash = pack_selection_hash,
    .bytes = pack_bytes,
    .is_computed = pack_is_computed,
    .block_count = pack_block_count,
    .block = pack_block,
    .close = pack_close,
};

double shardrt_source_fill(const shardrt_source *source) {
  return source->format == &pack_format ? ((const struct pack *)source)->packing.filled : -1;
}

int64_t shardrt_source_dropped_elements(const shardrt_source *source) {
  return source->format == &pack_format ? ((const struct pack *)source)->packing.dropped : 0;
}

const char *shardrt_source_dropped_field(const shardrt_source *source, int32_t i) {
  const struct pack *p = (const struct pack *)source;
  if (source->format != &pack_format) return NULL;
  for (int32_t f = 0; f < base_of(p)->nfields; f++) {
    bool stays = false;
    for (int32_t k = 0; k < p->npacked + p->nkept; k++) stays = stays || p->from[k] == f;
    if (!stays && i-- == 0) return base_of(p)->fields[f].name;
  }
  return NULL;
}

/* ---- how long sequences are ------------------------------------------------------------------------------------ */

/* The length of one sample, which is that of all fields that are packed. */
static int look_at_length(const struct pack *p, struct reader *reader, int64_t sample, int64_t *length) {
  for (int32_t f = 0; f < p->npacked; f++) {
    struct value value;
    const struct reader_mark mark = reader_mark(reader);
    int code = source_value(base_of(p), p->from[f], sample, NULL, reader, &value);
    reader_release(reader, mark);
    if (code < 0) return code;
    if (f == 0) *length = value.shape[0];
    if (value.shape[0] != *length)
      return error_set(SHARDRT_EINVAL,
                       "sample %lld: \"%s\" has %lld elements and \"%s\" %lld; fields that are packed together are of "
                       "one length; field = … says which are packed",
                       (long long)source_number(base_of(p), sample), p->head.fields[0].name, (long long)*length,
                       p->head.fields[f].name, (long long)value.shape[0]);
  }
  return SHARDRT_OK;
}

static int look_at_lengths(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct pack *p = context;
  int64_t *lengths = found;
  for (int64_t i = 0; i < count; i++) {
    int code = look_at_length(p, reader, first + i, &lengths[i]);
    if (code < 0) return code;
    if (lengths[i] > p->length && p->longer == SHARDRT_LONGER_ERROR)
      return error_set(
          SHARDRT_EINVAL,
          "sample %lld has %lld elements, a row %d; a greater length would do, or longer = \"truncate\" or "
          "\"split\"",
          (long long)source_number(base_of(p), first + i), (long long)lengths[i], (int)p->length);
  }
  return SHARDRT_OK;
}

/* ---- making one ------------------------------------------------------------------------------------------------- */

static int work_out(struct pack *p, const shardrt_pack_options *o, const int64_t *lengths) {
  int code = packing_make(base_of(p), lengths, o, &p->packing);
  if (code < 0) return code;
  p->head.count = p->packing.rows;
  p->hash = hash_bytes(p->hash, p->packing.pieces, (size_t)p->packing.npieces * sizeof *p->packing.pieces);
  p->hash = hash_bytes(p->hash, p->packing.firsts, ((size_t)p->packing.rows + 1) * sizeof *p->packing.firsts);
  return SHARDRT_OK;
}

static int survey_lengths(shardrt_job *job, struct pack *p, const shardrt_pack_options *o) {
  const struct survey survey = {.job = job,
                                .what = "packing a source",
                                .items = base_of(p)->count,
                                .item_bytes = sizeof(int64_t),
                                .chunk = LOOK_SAMPLES,
                                .look = look_at_lengths,
                                .context = p};
  void *lengths = NULL;
  int code = survey_run(&survey, &lengths);
  if (code < 0) return code;
  code = shardrt_check_outcome(job, survey.what, work_out(p, o, lengths));
  alloc_free(lengths);
  return code;
}

static int check_options(const shardrt_pack_options *o) {
  if (o->length < 1 || o->length > FIT_CAPACITY_MOST)
    return error_set(SHARDRT_EINVAL, "rows of %lld elements; they have 1 to %d", (long long)o->length,
                     FIT_CAPACITY_MOST);
  if (o->window < 1 || o->window > INT32_MAX / 2)
    return error_set(SHARDRT_EINVAL, "a window of %lld sequences; it has 1 to %d", (long long)o->window, INT32_MAX / 2);
  if (o->zigzag < 0 || o->zigzag > o->length || (o->zigzag > 0 && o->length % (2 * o->zigzag) != 0))
    return error_set(SHARDRT_EINVAL, "rows of %lld elements in zigzag for %lld parts; they are a multiple of %lld",
                     (long long)o->length, (long long)o->zigzag, 2 * (long long)o->zigzag);
  return SHARDRT_OK;
}

/* Its first dimension differs, and no other. */
static int check_packed(const shardrt_field *field) {
  bool packs = field->ndim > 0 && field->shape[0] < 0;
  for (int32_t d = 1; d < field->ndim; d++) packs = packs && field->shape[d] >= 0;
  if (packs) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "the field \"%s\" cannot be packed: its samples must differ in their first dimension, and in no "
                   "other",
                   field->name);
}

static int check_kept(const shardrt_field *field) {
  if (source_is_ragged(field))
    return error_set(SHARDRT_EINVAL, "the field \"%s\" cannot be kept: its samples differ in shape; it can be packed",
                     field->name);
  if (field->ndim < SHARDRT_MAX_NDIM) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "the field \"%s\" cannot be kept: it has %d dimensions, and rows add one",
                   field->name, (int)field->ndim);
}

/* Adds a field of the base, which is packed or, behind all of those, kept. */
static int add_field(struct pack *p, int32_t from, bool kept) {
  const shardrt_field *field = shardrt_source_field(base_of(p), from);
  if (field == NULL)
    return error_set(SHARDRT_EINVAL, "field %d of a source of %d fields", (int)from, (int)base_of(p)->nfields);
  int code = kept ? check_kept(field) : check_packed(field);
  if (code < 0) return code;
  if (strcmp(field->name, SEGMENTS) == 0 || strcmp(field->name, POSITIONS) == 0)
    return error_set(SHARDRT_EINVAL, "the field \"%s\" has the name of one that packing adds; rename it", field->name);
  for (int32_t f = 0; f < p->head.nfields; f++)
    if (p->from[f] == from) return error_set(SHARDRT_EINVAL, "the field \"%s\" stands twice", field->name);
  p->from[p->head.nfields] = from;
  shardrt_field *own = &p->head.fields[p->head.nfields++];
  *own = *field; /* its name lives as long as the base */
  if (kept) memmove(own->shape + 1, field->shape, (size_t)field->ndim * sizeof *own->shape);
  if (kept) own->ndim++;
  own->shape[0] = p->length;
  size_t bytes;
  if (!size_bytes(own->ndim, own->shape, shardrt_dtype_size(own->dtype), &bytes))
    return error_set(SHARDRT_EOVERFLOW, "the bytes of one row do not fit in 64 bits");
  return SHARDRT_OK;
}

static int set_packed_fields(struct pack *p, const int32_t *fields, const int32_t *kept) {
  const size_t n = (size_t)p->npacked + (size_t)p->nkept;
  if (p->npacked < 1) return error_set(SHARDRT_EINVAL, "no field is packed");
  p->head.fields = alloc_zeros(n + 2, sizeof *p->head.fields);
  if (p->head.fields == NULL) return ALLOC_FAILED;
  p->from = alloc_zeros(n, sizeof *p->from);
  if (p->from == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < p->npacked && code == SHARDRT_OK; f++) code = add_field(p, fields[f], false);
  for (int32_t f = 0; f < p->nkept && code == SHARDRT_OK; f++) code = add_field(p, kept[f], true);
  if (code < 0) return code;
  p->head.fields[p->head.nfields++] = (shardrt_field){SEGMENTS, SHARDRT_INT32, 1, {p->length}};
  p->head.fields[p->head.nfields++] = (shardrt_field){POSITIONS, SHARDRT_INT32, 1, {p->length}};
  return row_cache_new(fill_row, p, p->head.fields, (int32_t)n, &p->rows);
}

static int fill_pack(struct pack *p, shardrt_source *base, const int32_t *fields, const int32_t *kept,
                     const shardrt_pack_options *o) {
  int code = source_refuse_mix(base);
  if (code == SHARDRT_OK) code = check_options(o);
  if (code < 0) return code;
  code = source_add_base(&p->head, base);
  if (code < 0) return code;
  p->head.places = base->places;
  p->length = (int32_t)o->length;
  p->longer = o->longer;
  p->zigzag = (int32_t)o->zigzag;
  p->packing.filled = 1;
  const int64_t words[] = {o->length, o->window, o->longer, o->shuffle, (int64_t)o->seed, o->zigzag, p->npacked};
  p->hash = hash_bytes(0, words, sizeof words);
  p->hash = hash_bytes(p->hash, fields, (size_t)p->npacked * sizeof *fields);
  p->hash = hash_bytes(p->hash, kept, (size_t)p->nkept * sizeof *kept);
  return set_packed_fields(p, fields, kept);
}

/* All that needs the other processes. */
static int fill_together(shardrt_job *job, struct pack *p, const shardrt_pack_options *o) {
  if (job_is_planned(job)) {
    p->head.count = base_of(p)->count;
    p->head.guessed = true;
    p->packing.filled = -1;
    return SHARDRT_OK;
  }
  int code = shardrt_check_source(job, base_of(p));
  if (code == SHARDRT_OK) code = shardrt_check_same(job, "how a source is packed", p->hash);
  return code == SHARDRT_OK ? survey_lengths(job, p, o) : code;
}

int shardrt_source_pack(shardrt_job *job, shardrt_source *source, int32_t nfields, const int32_t *fields, int32_t nkept,
                        const int32_t *kept, const shardrt_pack_options *options, shardrt_source **out) {
  struct pack *made = source_new(&pack_format, sizeof *made);
  int code = made != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (made != NULL) {
    made->npacked = nfields;
    made->nkept = nkept;
    code = fill_pack(made, source, fields, kept, options);
  }
  code = shardrt_check_outcome(job, "making packed rows", code);
  if (code == SHARDRT_OK && made != NULL) code = fill_together(job, made, options);
  if (code < 0) {
    if (made != NULL) shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}
