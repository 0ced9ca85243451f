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
#include "dataset/formats.h"
#include "dataset/record/array_record_file.h"
#include "dataset/record/example_fields.h"
#include "dataset/record/records.h"

enum {
  SLOTS = 4,                     /* chunks that a thread keeps decoded */
  SLOT_BYTES_AT_MOST = 16 << 20, /* larger ones are decoded for each record */
};

static const char record_name[] = "record";

struct array_record {
  shardrt_source base;
  int32_t nfiles;
  struct array_record_file *files;
  bool verify;
  bool examples; /* records are Examples, of these kinds */
  struct example_kinds kinds;
};

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* The place of a sample. */
struct record_place {
  const struct array_record_file *file;
  int64_t chunk;
  int64_t row; /* in the chunk */
};

/* A chunk that a thread has decoded. */
struct decoded_slot {
  const struct array_record_file *file; /* NULL: none */
  int64_t chunk;
  int64_t used; /* when: the larger, the later */
  void *room;
  size_t capacity;
  struct riegeli_records found; /* in the room */
};

/* What a thread keeps: records of one chunk are often read one after the other, and so are the fields of a record. */
struct decoded_slots {
  struct decoded_slot slots[SLOTS];
  int64_t clock;
};

static void *make_slots(const void *owner) {
  (void)owner;
  return alloc_zeros(1, sizeof(struct decoded_slots));
}

static void drop_slots(void *state) {
  struct decoded_slots *self = state;
  for (int32_t i = 0; i < SLOTS; i++) alloc_free(self->slots[i].room);
  alloc_free(self);
}

/* The slot that holds a chunk, if *found, or the one that was used the longest time ago. */
static struct decoded_slot *find_slot(struct decoded_slots *self, struct record_place p, bool *found) {
  struct decoded_slot *oldest = &self->slots[0];
  for (int32_t i = 0; i < SLOTS; i++) {
    struct decoded_slot *slot = &self->slots[i];
    if (slot->file == p.file && slot->chunk == p.chunk) {
      *found = true;
      slot->used = ++self->clock;
      return slot;
    }
    if (slot->used < oldest->used) oldest = slot;
  }
  *found = false;
  return oldest;
}

static int grow_slot(struct decoded_slot *slot, size_t bytes) {
  if (slot->capacity >= bytes) return SHARDRT_OK;
  alloc_free(slot->room);
  slot->room = alloc_aligned(sizeof(uint64_t), bytes);
  slot->capacity = slot->room != NULL ? bytes : 0;
  return slot->room != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static struct record_place find_record(const struct array_record *self, int64_t sample) {
  assert(sample >= 0 && sample < self->base.count);
  const struct array_record_file *file =
      &self->files[search_part(&self->files->first, sizeof *self->files, self->nfiles, sample)];
  const int64_t record = sample - file->first;
  const int64_t chunk = search_part(&file->chunks->first, sizeof *file->chunks, file->nchunks, record);
  return (struct record_place){.file = file, .chunk = chunk, .row = record - file->chunks[chunk].first};
}

/* Prefixes the message of a failure with the file, the record and where its chunk is. */
static int blame_record(struct record_place p, int code) {
  const struct array_record_chunk *chunk = &p.file->chunks[p.chunk];
  return error_prefix(code, "%s: record %lld in the chunk at byte %zu", p.file->stored.title,
                      (long long)chunk->first + p.row, chunk->offset);
}

/* Decodes a chunk into its slot, or, where it need or should not be kept, into the arena. */
static int decode_chunk(struct record_place p, const struct riegeli_chunk *chunk, struct decoded_slot *slot,
                        struct reader *reader, struct riegeli_records *out, bool *kept) {
  size_t bytes;
  int code = riegeli_room(chunk, &bytes);
  if (code != SHARDRT_OK) return code;
  if (chunk->records != p.file->chunks[p.chunk + 1].first - p.file->chunks[p.chunk].first)
    return error_set(SHARDRT_EFORMAT, "it holds %lld records, and the footer tells of another number",
                     (long long)chunk->records);
  const int64_t start = reader_now();
  *kept = !riegeli_lies_open(chunk) && bytes <= SLOT_BYTES_AT_MOST;
  if (!*kept) {
    void *room = reader_room(reader, bytes);
    return room != NULL ? riegeli_decode(chunk, room, reader, out) : ALLOC_FAILED;
  }
  slot->file = NULL;
  code = grow_slot(slot, bytes);
  if (code == SHARDRT_OK) code = riegeli_decode(chunk, slot->room, reader, &slot->found);
  if (code != SHARDRT_OK) return code;
  slot->file = p.file;
  slot->chunk = p.chunk;
  *out = slot->found;
  reader_spent(reader, READER_DECODE, start);
  return SHARDRT_OK;
}

/* A record's bytes; *kept: they lie in a slot, and so do not stay. */
static int get_record(const struct array_record *self, struct record_place p, struct reader *reader,
                      const uint8_t **data, size_t *bytes, bool *kept) {
  struct decoded_slots *slots = reader_state(reader, self, make_slots, drop_slots);
  if (slots == NULL) return ALLOC_FAILED;
  bool there;
  struct decoded_slot *slot = find_slot(slots, p, &there);
  struct riegeli_records found = slot->found;
  *kept = true;
  if (!there) {
    const struct input input = stored_input(&p.file->stored);
    struct riegeli_chunk chunk;
    int code = riegeli_chunk_get(&input, p.file->chunks[p.chunk].offset, self->verify, reader, &chunk);
    if (code == SHARDRT_OK) code = decode_chunk(p, &chunk, slot, reader, &found, kept);
    if (code != SHARDRT_OK) return code;
    slot->used = ++slots->clock;
  }
  const size_t begin = p.row > 0 ? found.ends[p.row - 1] : 0;
  *data = found.data + begin;
  *bytes = found.ends[p.row] - begin;
  return SHARDRT_OK;
}

/* A value that lies within a slot is copied: the next one that is read may take its place. */
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
  return code == SHARDRT_OK ? code : blame_record(p, code);
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

static int open_record_file(struct array_record *self, const char *path, const shardrt_source_options *options) {
  struct array_record_file *f = &self->files[self->nfiles];
  int code = array_record_file_open(path, options, f);
  if (code != SHARDRT_OK) return code;
  self->nfiles++;
  f->first = self->base.count;
  self->base.count += f->chunks[f->nchunks].first;
  return source_add_file(&self->base, f->stored.title, &f->stored, 0);
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

static int open_array_record(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                             const shardrt_source_options *options, shardrt_source **out) {
  struct array_record *made = source_new(&array_record_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->verify = guard_verify(options, GUARD_DEFAULT_RECORDS) != SHARDRT_VERIFY_NEVER;
  made->files = alloc_zeros((size_t)npaths, sizeof *made->files);
  int code = made->files != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int32_t i = 0; i < npaths && code == SHARDRT_OK; i++) code = open_record_file(made, paths[i], options);
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
    .close = array_record_close,
};
