/* array_record.c - ArrayRecord files, as Grain and TFDS have them: https://github.com/google/array_record
 * (cpp/layout.proto). They are made of Riegeli's chunks (riegeli.h).
 * The file's layout: array_record_file.c.
 *
 * A record is bytes: the field "record", uint8 of any length, or raw elements where a dtype and a shape are asked for
 * under this name. Where `fields` asks for anything else, records are tf.train.Examples (example_fields.h). */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/search.h"
#include "codec/riegeli.h"
#include "dataset/chunked/chunks.h"
#include "dataset/formats.h"
#include "dataset/record/array_record_file.h"
#include "dataset/record/example_fields.h"
#include "dataset/record/records.h"
#include "dataset/view/heads.h"
#include "storage/local/url.h"

static const char record_name[] = "record";

struct array_record {
  shardrt_source base;
  int32_t nfiles;
  struct array_record_file *files;
  bool verify;
  int64_t nchunks;
  struct chunks *decoded; /* for all threads */
  bool examples;          /* records are Examples, of these kinds */
  struct example_kinds kinds;
};

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* The place of a sample. */
struct record_place {
  const struct array_record_file *file;
  int64_t chunk;
  int64_t row; /* in the chunk */
};

/* A chunk that was decoded: what its slot's memory begins with. */
struct decoded_chunk {
  struct riegeli_records records;
  size_t capacity; /* bytes of the room behind this */
};

/* The chunk that a thread holds: records of one chunk are often read one after the other, and so are the fields of a
 * record. Where each chunk has one record it is the thread's own: nobody else wants it soon. */
struct held_chunk {
  struct chunks *chunks;
  int64_t number; /* of `chunk`, which is NULL where there is none */
  struct chunk *chunk;
  struct chunk single;
};

static void *make_held(const void *owner) {
  struct held_chunk *made = alloc_zeros(1, sizeof *made);
  if (made != NULL) made->chunks = ((const struct array_record *)owner)->decoded;
  return made;
}

static void let_go(struct held_chunk *self) {
  if (self->chunk != NULL && self->chunk != &self->single) chunks_release(self->chunks, self->number, self->chunk);
  self->chunk = NULL;
}

static void drop_held(void *state) {
  let_go(state);
  alloc_free(((struct held_chunk *)state)->single.memory);
  alloc_free(state);
}

static struct record_place find_record(const struct array_record *self, int64_t sample) {
  assert(sample >= 0 && sample < self->base.count);
  const struct array_record_file *file =
      &self->files[search_part(&self->files->first, sizeof *self->files, self->nfiles, sample)];
  const int64_t record = sample - file->first;
  const int64_t chunk = search_part(&file->chunks->first, sizeof *file->chunks, file->nchunks, record);
  return (struct record_place){.file = file, .chunk = chunk, .row = record - file->chunks[chunk].first};
}

static int64_t records_of(struct record_place p) {
  return p.file->chunks[p.chunk + 1].first - p.file->chunks[p.chunk].first;
}

/* Whether each chunk has one record: then runs of them are blocks. */
static bool has_single_records(const struct array_record_file *f) {
  return f->chunks[f->nchunks].first == f->nchunks;
}

/* Prefixes the message of a failure with the file, the record and where its chunk is. */
static int blame_record(struct record_place p, int code) {
  const struct array_record_chunk *chunk = &p.file->chunks[p.chunk];
  return error_prefix(code, "%s: record %lld in the chunk at byte %zu", p.file->stored.title,
                      (long long)chunk->first + p.row, chunk->offset);
}

/* Gets a chunk's bytes, found to be what the footer tells of. */
static int get_chunk(const struct array_record *self, struct record_place p, struct reader *reader,
                     struct riegeli_chunk *out) {
  const struct input input = stored_input(&p.file->stored);
  int code = riegeli_chunk_get(&input, p.file->chunks[p.chunk].offset, self->verify, reader, out);
  if (code != SHARDRT_OK) return code;
  size_t bytes;
  code = riegeli_room(out, &bytes);
  if (code != SHARDRT_OK || out->records == records_of(p)) return code;
  return error_set(SHARDRT_EFORMAT, "it holds %lld records, and the footer tells of another number",
                   (long long)out->records);
}

/* What is to be decoded. */
struct wanted_chunk {
  const struct array_record *self;
  struct record_place place;
  const struct riegeli_chunk *chunk; /* NULL: it was not looked at yet */
};

static struct decoded_chunk *decoded_room(struct chunk *out, size_t bytes) {
  struct decoded_chunk *room = (struct decoded_chunk *)(void *)out->memory;
  if (room != NULL && room->capacity >= bytes && room->capacity / 2 <= bytes) return room;
  alloc_free(out->memory);
  out->memory = alloc_aligned(sizeof(uint64_t), sizeof *room + bytes);
  room = (struct decoded_chunk *)(void *)out->memory;
  if (room != NULL) room->capacity = bytes;
  return room;
}

static int decode_chunk(const void *context, int64_t number, struct reader *reader, struct chunk *out) {
  (void)number;
  const struct wanted_chunk *w = context;
  const struct reader_mark mark = reader_mark(reader);
  struct riegeli_chunk got;
  size_t bytes = 0;
  int code = SHARDRT_OK;
  if (w->chunk != NULL)
    got = *w->chunk;
  else
    code = get_chunk(w->self, w->place, reader, &got);
  if (code == SHARDRT_OK) code = riegeli_room(&got, &bytes);
  const int64_t start = reader_now();
  struct decoded_chunk *room = code == SHARDRT_OK ? decoded_room(out, bytes) : NULL;
  if (code == SHARDRT_OK) code = room != NULL ? riegeli_decode(&got, room + 1, reader, &room->records) : ALLOC_FAILED;
  reader_release(reader, mark);
  if (code != SHARDRT_OK) return code;
  out->data = out->memory;
  if (!has_single_records(w->place.file)) reader->blocks_decoded++;
  reader_spent(reader, READER_DECODE, start);
  return SHARDRT_OK;
}

static void give_record(const struct riegeli_records *found, int64_t row, const uint8_t **data, size_t *bytes) {
  const size_t begin = row > 0 ? found->ends[row - 1] : 0;
  *data = found->data + begin;
  *bytes = found->ends[row] - begin;
}

/* The one record of a chunk that need not be decoded. */
static int get_open_record(const struct riegeli_chunk *chunk, struct reader *reader, const uint8_t **data,
                           size_t *bytes) {
  size_t room_bytes = 0;
  struct riegeli_records found;
  int code = riegeli_room(chunk, &room_bytes);
  if (code != SHARDRT_OK) return code;
  void *room = reader_room(reader, room_bytes);
  if (room == NULL) return ALLOC_FAILED;
  code = riegeli_decode(chunk, room, reader, &found);
  if (code == SHARDRT_OK) give_record(&found, 0, data, bytes);
  return code;
}

/* A record's bytes; *kept: they lie in a chunk that this thread holds, and so do not stay. */
static int get_record(const struct array_record *self, struct record_place p, struct reader *reader,
                      const uint8_t **data, size_t *bytes, bool *kept) {
  struct held_chunk *held = reader_state(reader, self, make_held, drop_held);
  if (held == NULL) return ALLOC_FAILED;
  const int64_t number = p.file->first_chunk + p.chunk;
  int code = SHARDRT_OK;
  *kept = true;
  if (held->chunk == NULL || held->number != number) {
    struct wanted_chunk w = {.self = self, .place = p};
    struct riegeli_chunk got;
    let_go(held);
    if (records_of(p) == 1) { /* it may lie open */
      code = get_chunk(self, p, reader, &got);
      *kept = code != SHARDRT_OK || !riegeli_lies_open(&got);
      if (!*kept) return get_open_record(&got, reader, data, bytes);
      w.chunk = &got;
    }
    const bool alone = has_single_records(p.file);
    if (code == SHARDRT_OK && alone) code = decode_chunk(&w, number, reader, held->chunk = &held->single);
    if (code == SHARDRT_OK && !alone) code = chunks_hold(self->decoded, number, decode_chunk, &w, reader, &held->chunk);
    if (code != SHARDRT_OK) {
      held->chunk = NULL;
      return code;
    }
    held->number = number;
  }
  give_record(&((const struct decoded_chunk *)(const void *)held->chunk->data)->records, p.row, data, bytes);
  return SHARDRT_OK;
}

/* Where a chunk has no place to be kept in, it goes as soon as its record was taken. */
static void leave_record(const struct array_record *self, struct reader *reader) {
  struct held_chunk *held = reader_state(reader, self, make_held, drop_held);
  if (held == NULL || held->chunk == NULL || held->chunk == &held->single) return;
  if (!chunks_keeps(self->decoded, held->number, held->chunk)) let_go(held);
}

/* A value that lies within a chunk that is held is copied: the thread lets that go for the next one. */
static int keep_value(struct value *value, const uint8_t *data, size_t bytes, struct reader *reader) {
  const uint8_t *at = value->data;
  if (at < data || at >= data + bytes) return SHARDRT_OK;
  void *copy = reader_room(reader, value_bytes(value));
  if (copy == NULL) return ALLOC_FAILED;
  memcpy(copy, at, value_bytes(value));
  value->data = copy;
  return SHARDRT_OK;
}

static int array_record_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                              struct value *out, bool *handled) {
  const struct array_record *self = (const struct array_record *)source;
  const struct record_place p = find_record(self, sample);
  const uint8_t *data;
  size_t bytes;
  bool kept;
  *handled = true;
  int code = get_record(self, p, reader, &data, &bytes, &kept);
  if (code == SHARDRT_OK && self->examples)
    code = example_value(source, &self->kinds, field, data, bytes, reader, out);
  else if (code == SHARDRT_OK)
    code = records_elements(&source->fields[field], data, bytes, reader, out);
  if (code == SHARDRT_OK && kept) code = keep_value(out, data, bytes, reader);
  leave_record(self, reader);
  return code == SHARDRT_OK ? code : blame_record(p, code);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int64_t blocks_of(const struct array_record_file *f) {
  return has_single_records(f) ? source_run_count(f->nchunks, source_run_samples(f->nchunks, f->stored.bytes))
                               : f->nchunks;
}

static int64_t array_record_block_count(const shardrt_source *source) {
  const struct array_record *self = (const struct array_record *)source;
  const struct array_record_file *last = &self->files[self->nfiles - 1];
  return last->first_block + blocks_of(last);
}

static struct sample_range array_record_block(const shardrt_source *source, int64_t block) {
  const struct array_record *self = (const struct array_record *)source;
  const struct array_record_file *f =
      &self->files[search_part(&self->files->first_block, sizeof *self->files, self->nfiles, block)];
  block -= f->first_block;
  if (has_single_records(f)) {
    struct sample_range run = source_run(f->nchunks, source_run_samples(f->nchunks, f->stored.bytes), block);
    run.first += f->first;
    return run;
  }
  return (struct sample_range){.first = f->first + f->chunks[block].first,
                               .count = f->chunks[block + 1].first - f->chunks[block].first};
}

static int64_t array_record_blocks_kept(const shardrt_source *source) {
  const struct array_record *self = (const struct array_record *)source;
  return array_record_block_count(source) < source->count && self->nchunks < source->count ? chunks_kept(self->decoded)
                                                                                           : -1;
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

static int open_record_file(struct array_record *self, const char *path, const shardrt_source_options *options) {
  struct array_record_file *f = &self->files[self->nfiles];
  int code = array_record_file_open(path, options, f);
  if (code != SHARDRT_OK) return code;
  self->nfiles++;
  f->first = self->base.count;
  f->first_chunk = self->nchunks;
  f->first_block = f > self->files ? f[-1].first_block + blocks_of(f - 1) : 0;
  self->base.count += f->chunks[f->nchunks].first;
  self->nchunks += f->nchunks;
  return source_add_file(&self->base, f->stored.title, &f->stored, 0);
}

/* Room for what is decoded: of each record also where it ends is kept. */
static int make_room(struct array_record *self) {
  size_t bytes = 0;
  for (int32_t i = 0; i < self->nfiles; i++) bytes += self->files[i].decoded;
  bytes += (size_t)self->base.count * sizeof(size_t);
  const int64_t chunks = self->nchunks > 0 ? self->nchunks : 1;
  self->decoded = chunks_new(chunks, sizeof(struct decoded_chunk) + bytes / (size_t)chunks, false);
  return self->decoded != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* The fields of Examples, of which the first record tells. */
static int set_examples(struct array_record *self, int32_t nfields, const shardrt_field *asked) {
  if (self->base.count == 0)
    return error_set(SHARDRT_EFORMAT, "%s%s: holds no record, and so no field \"%s\"", self->files[0].stored.title,
                     self->nfiles > 1 ? ", and the files after it" : "", asked[0].name);
  struct record_place p = find_record(self, 0);
  struct reader arena = {0};
  const uint8_t *data;
  size_t bytes;
  bool kept;
  self->examples = true;
  int code = get_record(self, p, &arena, &data, &bytes, &kept);
  for (int64_t i = 1; code == SHARDRT_EFORMAT && i < self->base.count; i++) {
    p = find_record(self, i);
    code = get_record(self, p, &arena, &data, &bytes, &kept);
  }
  if (code == SHARDRT_OK) code = example_fields(&self->base, nfields, asked, data, bytes, &self->kinds);
  if (code != SHARDRT_OK) blame_record(p, code);
  reader_clear(&arena);
  return code;
}

static int set_example_fields(struct array_record *self, int32_t nfields, const shardrt_field *asked) {
  if (nfields > 1 || (nfields == 1 && strcmp(asked[0].name, record_name) != 0))
    return set_examples(self, nfields, asked);
  self->base.fields = alloc_zeros(1, sizeof *self->base.fields);
  if (self->base.fields == NULL) return ALLOC_FAILED;
  shardrt_field field = {.dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}};
  if (nfields == 1) {
    if (asked->dtype >= 0) field.dtype = asked->dtype;
    if (asked->ndim >= 0) {
      field.ndim = asked->ndim;
      memcpy(field.shape, asked->shape, sizeof field.shape);
    }
  }
  field.name = alloc_text("%s", record_name);
  if (field.name == NULL) return ALLOC_FAILED;
  self->base.fields[0] = field;
  self->base.nfields = 1;
  return SHARDRT_OK;
}

enum { TAIL = 1 << 17 }; /* the postscript has 64 KiB, and the footer before it seldom more */

static int open_record_files(struct array_record *self, int32_t npaths, const char *const *paths,
                             const shardrt_source_options *options) {
  struct heads heads = {.options = *options};
  const bool on_server = npaths > 1 && url_is(paths[0]);
  self->files = alloc_zeros((size_t)npaths, sizeof *self->files);
  int code = self->files != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (on_server) code = heads_open("array_record", npaths, paths, TAIL, options, code, &heads);
  if (code < 0) return code;
  for (int32_t i = 0; i < npaths && code == SHARDRT_OK && self->files != NULL; i++)
    code = open_record_file(self, paths[i], &heads.options);
  return on_server ? heads_close(&heads, code) : code;
}

static int open_array_record(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                             const shardrt_source_options *options, shardrt_source **out) {
  struct array_record *made = source_new(&array_record_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->verify = guard_verify(options, GUARD_DEFAULT_RECORDS) != SHARDRT_VERIFY_NEVER;
  int code = open_record_files(made, npaths, paths, options);
  if (code == SHARDRT_OK) code = make_room(made);
  if (code == SHARDRT_OK) code = set_example_fields(made, nfields, fields);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->base);
    return code;
  }
  *out = &made->base;
  return SHARDRT_OK;
}

/* Whole chunks: a chunk and the next one's offset, or the footer's, stand side by side. */
static int array_record_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                                const shardrt_box *inner, struct extents *out) {
  (void)field;
  (void)inner;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    const struct record_place p = find_record((const struct array_record *)source, samples[i]);
    const struct array_record_chunk *chunk = &p.file->chunks[p.chunk];
    if (chunk[1].offset > chunk->offset)
      code = extents_add(out, &p.file->stored.map, chunk->offset, chunk[1].offset - chunk->offset);
  }
  return code;
}

static void array_record_close(shardrt_source *source) {
  struct array_record *self = (struct array_record *)source;
  example_kinds_clear(&self->kinds);
  chunks_free(self->decoded);
  for (int32_t i = 0; i < self->nfiles; i++) array_record_file_close(&self->files[i]);
  alloc_free(self->files);
  for (int32_t f = 0; source->fields != NULL && f < source->nfields; f++) alloc_free((char *)source->fields[f].name);
  alloc_free(source->fields);
}

const struct source_format array_record_format = {
    .name = "array_record",
    .open_files = open_array_record,
    .gather = source_gather_values,
    .value = array_record_value,
    .extents = array_record_extents,
    .block_count = array_record_block_count,
    .block = array_record_block,
    .blocks_kept = array_record_blocks_kept,
    .close = array_record_close,
};
