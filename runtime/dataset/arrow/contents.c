#include "dataset/arrow/contents.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "dataset/magic.h"

enum { PREFIX = 8 /* before a message's metadata */, MAGIC = 6, HEAD = 8 /* of a file: the magic, padded */ };
enum { TAIL = 4 + MAGIC /* of a file: the footer's length, the magic */ };
enum { VERSION_4 = 3, VERSION_5 = 4, MOST_CODEC = ARROW_ZSTD };

/* The union MessageHeader, and the slots of tables of Message.fbs and File.fbs. */
enum { MESSAGE_SCHEMA = 1, MESSAGE_DICTIONARY, MESSAGE_BATCH };
enum { MESSAGE_VERSION, MESSAGE_KIND, MESSAGE_HEADER, MESSAGE_BODY };
enum { BATCH_LENGTH, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_VIEWS };
enum { DICTIONARY_ID, DICTIONARY_DATA, DICTIONARY_DELTA };
enum { FOOTER_VERSION, FOOTER_SCHEMA, FOOTER_DICTIONARIES, FOOTER_BATCHES };
enum { NODE_BYTES = 16, BUFFER_BYTES = 16, BLOCK_BYTES = 24 }; /* of their structures */

static const char magic[MAGIC] = {'A', 'R', 'R', 'O', 'W', '1'};

/* ---- messages --------------------------------------------------------------------------------------------------- */

struct arrow_message {
  struct flatbuffer in;
  int64_t kind, version;
  struct flat_table header;
  size_t at, body, body_bytes;
};

static int bad_message(const struct arrow_contents *self, size_t at, const char *what) {
  return error_set(SHARDRT_EFORMAT, "%s: the message at byte %zu %s", self->file->title, at, what);
}

static int check_version(const struct arrow_contents *self, int64_t version) {
  if (version == VERSION_4 || version == VERSION_5) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "%s: its metadata is of version %lld of Arrow's; shardrt reads versions 4 and 5, which all since "
                   "Arrow 0.8 write",
                   self->file->title, (long long)version + 1);
}

/* The one that begins at `at`; *ended: it is the mark of the stream's end. All of it lies before `end`. */
static int read_message(const struct arrow_contents *self, size_t at, size_t end, struct reader *arena,
                        struct arrow_message *out, bool *ended) {
  const uint8_t *data;
  if (at > end || end - at < PREFIX) return bad_message(self, at, "is cut off");
  int code = stored_get(self->file, at, PREFIX, arena, &data);
  if (code != SHARDRT_OK) return code;
  const size_t length = little_endian_32(data + 4);
  if (little_endian_32(data) != UINT32_MAX) return bad_message(self, at, "is none, or of Arrow before 0.15");
  *ended = length == 0;
  if (*ended) return SHARDRT_OK;
  if (length > end - at - PREFIX) return bad_message(self, at, "is cut off");
  *out = (struct arrow_message){.at = at, .body = at + PREFIX + length};
  code = stored_get(self->file, at + PREFIX, length, arena, &data);
  if (code != SHARDRT_OK) return code;
  out->in = (struct flatbuffer){.data = data, .bytes = length};
  const struct flat_table message = flat_root(&out->in);
  out->kind = flat_whole(&message, MESSAGE_KIND, 1, 0);
  out->version = flat_whole(&message, MESSAGE_VERSION, 2, 0);
  out->header = flat_child(&message, MESSAGE_HEADER);
  const int64_t body = flat_whole(&message, MESSAGE_BODY, 8, 0);
  if (out->in.failed || out->header.at == 0 || body < 0) return bad_message(self, at, "is malformed");
  if ((uint64_t)body > end - out->body) return bad_message(self, at, "is cut off");
  out->body_bytes = (size_t)body;
  return check_version(self, out->version);
}

/* ---- buffers ---------------------------------------------------------------------------------------------------- */

/* A record batch's header. */
struct batch_head {
  int64_t rows;
  int32_t codec;
  struct flat_vector nodes, buffers, views;
};

static int read_batch_head(const struct arrow_contents *self, const struct arrow_message *message,
                           const struct flat_table *table, struct batch_head *out) {
  const struct flat_table packed = flat_child(table, BATCH_COMPRESSION);
  *out = (struct batch_head){.rows = flat_whole(table, BATCH_LENGTH, 8, 0),
                             .codec = ARROW_NOT_PACKED,
                             .nodes = flat_list(table, BATCH_NODES, NODE_BYTES),
                             .buffers = flat_list(table, BATCH_BUFFERS, BUFFER_BYTES),
                             .views = flat_list(table, BATCH_VIEWS, 8)};
  if (table->in->failed || table->at == 0 || out->rows < 0) return bad_message(self, message->at, "is malformed");
  if (packed.at == 0) return SHARDRT_OK;
  const int64_t codec = flat_whole(&packed, 0, 1, 0);
  if (codec < 0 || codec > MOST_CODEC || flat_whole(&packed, 1, 1, 0) != 0)
    return error_set(SHARDRT_EINVAL,
                     "%s: the message at byte %zu is compressed by codec %lld, which shardrt does not "
                     "know; lz4 and zstd are",
                     self->file->title, message->at, (long long)codec);
  out->codec = (int32_t)codec;
  return SHARDRT_OK;
}

/* One buffer more, number i of the batch. */
static int add_buffer(struct arrow_contents *self, const struct arrow_message *message, const struct batch_head *head,
                      int64_t i, bool is_absent) {
  struct arrow_buffer *buffers = alloc_one_more(self->buffers, self->nbuffers, &self->room, 64, sizeof *buffers);
  if (buffers == NULL) return ALLOC_FAILED;
  self->buffers = buffers;
  if (i >= head->buffers.count) return bad_message(self, message->at, "lacks buffers that the schema tells of");
  const int64_t offset = flat_list_whole(&head->buffers, i, BUFFER_BYTES, 0, 8);
  const int64_t bytes = flat_list_whole(&head->buffers, i, BUFFER_BYTES, 8, 8);
  if (offset < 0 || bytes < 0 || (size_t)offset > message->body_bytes ||
      (size_t)bytes > message->body_bytes - (size_t)offset)
    return bad_message(self, message->at, "tells of a buffer that lies behind its end");
  self->buffers[self->nbuffers++] =
      (struct arrow_buffer){.offset = message->body + (size_t)offset, .bytes = is_absent ? 0 : (size_t)bytes};
  return SHARDRT_OK;
}

/* How many buffers the columns of views before some column have beside the two that each has. */
static int count_views(const struct arrow_contents *self, const struct arrow_message *message,
                       const struct batch_head *head, int32_t columns, int64_t *out) {
  *out = 0;
  for (int32_t v = 0; v < columns; v++) {
    const int64_t count = v < head->views.count ? flat_list_whole(&head->views, v, 8, 0, 8) : -1;
    if (count < 0 || count > head->buffers.count) return bad_message(self, message->at, "is malformed: of its views");
    *out += count;
  }
  return SHARDRT_OK;
}

/* Items of a node; *absent: its bitmap says nothing, as there are no nulls. */
static int read_node(const struct arrow_contents *self, const struct arrow_message *message,
                     const struct batch_head *head, int32_t node, int64_t *items, bool *absent) {
  if (node >= head->nodes.count) return bad_message(self, message->at, "lacks columns that the schema tells of");
  const int64_t nulls = flat_list_whole(&head->nodes, node, NODE_BYTES, 8, 8);
  *items = flat_list_whole(&head->nodes, node, NODE_BYTES, 0, 8);
  *absent = nulls == 0;
  return *items >= 0 ? SHARDRT_OK : bad_message(self, message->at, "is malformed: a column of fewer values than none");
}

/* `count` buffers of a node, number `first` and so on of the batch. */
static int add_buffers(struct arrow_contents *self, const struct arrow_message *message, const struct batch_head *head,
                       int32_t node, int64_t first, int64_t count, int64_t *items) {
  bool absent = false;
  int code = read_node(self, message, head, node, items, &absent);
  for (int64_t b = 0; b < count && code == SHARDRT_OK; b++)
    code = add_buffer(self, message, head, first + b, absent && b == 0);
  if (code == SHARDRT_OK && count > 0 && *items > 0 && !absent && self->buffers[self->nbuffers - count].bytes == 0)
    return bad_message(self, message->at, "tells of nulls in a column, and not which they are");
  return code;
}

/* The buffers of a column's steps and values. In a dictionary, it is the only column, and `leaf` has no steps. */
static int add_part(struct arrow_contents *self, const struct arrow_message *message, const struct batch_head *head,
                    const struct arrow_leaf *leaf, struct arrow_part *out) {
  const int64_t before = self->nbuffers;
  int code = SHARDRT_OK;
  *out = (struct arrow_part){.buffer = before};
  for (int32_t s = 0; s <= leaf->nsteps && code == SHARDRT_OK; s++) {
    int64_t more, own = 0;
    const bool values = s == leaf->nsteps;
    code = count_views(self, message, head, leaf->views[s], &more);
    if (code == SHARDRT_OK && values && leaf->layout == LAYOUT_VIEWS && !leaf->is_dictionary) {
      code = count_views(self, message, head, leaf->views[s] + 1, &own);
      own -= more;
    }
    const int32_t fixed = !values               ? arrow_step_buffers(&leaf->steps[s])
                          : leaf->is_dictionary ? arrow_layout_buffers(LAYOUT_FIXED)
                                                : arrow_layout_buffers(leaf->layout);
    if (code == SHARDRT_OK)
      code = add_buffers(self, message, head, values ? leaf->node : leaf->nodes[s], leaf->buffers[s] + more,
                         fixed + own, &out->items);
  }
  if (self->nbuffers - before > INT32_MAX) return bad_message(self, message->at, "has too many buffers");
  out->nbuffers = (int32_t)(self->nbuffers - before);
  return code;
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

/* What is wanted of batches. */
struct arrow_wanted {
  int32_t nfields;
  const int32_t *leaves;
  int64_t rows, batches, dictionaries; /* that there is room for, but rows */
};

/* Room for one more of what an array holds. */
static int grow(void **array, int64_t count, int64_t *room, size_t each) {
  void *more = alloc_one_more(*array, count, room, 16, each);
  if (more == NULL) return ALLOC_FAILED;
  *array = more;
  return SHARDRT_OK;
}

static int add_batch(struct arrow_contents *self, const struct arrow_message *message, struct arrow_wanted *wanted) {
  struct batch_head head;
  int code = read_batch_head(self, message, &message->header, &head);
  int64_t room = wanted->batches;
  const size_t each = (size_t)(wanted->nfields > 0 ? wanted->nfields : 1) * sizeof *self->parts;
  if (code == SHARDRT_OK) code = grow((void **)&self->parts, self->nbatches, &room, each);
  if (code == SHARDRT_OK) code = grow((void **)&self->batches, self->nbatches, &wanted->batches, sizeof *self->batches);
  if (code != SHARDRT_OK) return code;
  self->batches[self->nbatches] =
      (struct arrow_batch){.first = wanted->rows, .message = message->at, .codec = head.codec};
  if (__builtin_add_overflow(wanted->rows, head.rows, &wanted->rows))
    return bad_message(self, message->at, "has more rows than can be counted");
  for (int32_t f = 0; f < wanted->nfields && code == SHARDRT_OK; f++)
    code = add_part(self, message, &head, &self->schema.leaves[wanted->leaves[f]],
                    &self->parts[self->nbatches * wanted->nfields + f]);
  if (code == SHARDRT_OK && message->in.failed) code = bad_message(self, message->at, "is malformed");
  self->nbatches++;
  return code;
}

static int add_dictionary(struct arrow_contents *self, const struct arrow_message *message,
                          struct arrow_wanted *wanted) {
  const struct arrow_leaf *used = NULL;
  const int64_t id = flat_whole(&message->header, DICTIONARY_ID, 8, 0);
  for (int32_t f = 0; f < wanted->nfields && used == NULL; f++) {
    const struct arrow_leaf *leaf = &self->schema.leaves[wanted->leaves[f]];
    if (leaf->is_dictionary && leaf->dictionary == id) used = leaf;
  }
  if (used == NULL) return SHARDRT_OK; /* no field needs it */
  struct batch_head head;
  struct arrow_leaf values = {.layout = used->layout};
  const struct flat_table data = flat_child(&message->header, DICTIONARY_DATA);
  int code = read_batch_head(self, message, &data, &head);
  if (code == SHARDRT_OK)
    code = grow((void **)&self->dictionaries, self->ndictionaries, &wanted->dictionaries, sizeof *self->dictionaries);
  if (code != SHARDRT_OK) return code;
  struct arrow_dictionary *made = &self->dictionaries[self->ndictionaries];
  *made = (struct arrow_dictionary){.id = id,
                                    .before = self->is_stream ? self->nbatches : 0,
                                    .is_delta = flat_whole(&message->header, DICTIONARY_DELTA, 1, 0) != 0,
                                    .message = message->at,
                                    .codec = head.codec};
  code = add_part(self, message, &head, &values, &made->part);
  if (code == SHARDRT_OK && message->in.failed) code = bad_message(self, message->at, "is malformed");
  self->ndictionaries++;
  return code;
}

static int add_message(struct arrow_contents *self, const struct arrow_message *message, struct arrow_wanted *wanted) {
  if (message->kind == MESSAGE_BATCH) return add_batch(self, message, wanted);
  if (message->kind == MESSAGE_DICTIONARY) return add_dictionary(self, message, wanted);
  return bad_message(self, message->at, "is no record batch, and no dictionary");
}

static int read_stream(struct arrow_contents *self, struct arrow_wanted *wanted, struct reader *arena) {
  size_t at = self->first;
  bool ended = false;
  int code = SHARDRT_OK;
  while (code == SHARDRT_OK && !ended) {
    const struct reader_mark mark = reader_mark(arena);
    struct arrow_message message = {0};
    if (at == self->end)
      return error_set(SHARDRT_EFORMAT,
                       "%s: it ends behind its record batch %lld, without a stream's end: it is cut "
                       "off, or its writer was not closed",
                       self->file->title, (long long)self->nbatches);
    code = read_message(self, at, self->end, arena, &message, &ended);
    if (code == SHARDRT_OK && !ended) code = add_message(self, &message, wanted);
    at = ended ? at + PREFIX : message.body + message.body_bytes;
    reader_release(arena, mark);
  }
  if (code == SHARDRT_OK && at < self->end)
    return error_set(SHARDRT_EFORMAT,
                     "%s: the stream ends at byte %zu, and %zu bytes are behind it: of several streams "
                     "in one file none but the first would be read",
                     self->file->title, at, self->end - at);
  return code;
}

/* The messages that a list of blocks in the footer names. */
static int read_blocks(struct arrow_contents *self, const struct flat_table *footer, int32_t slot,
                       struct arrow_wanted *wanted, struct reader *arena) {
  const struct flat_vector blocks = flat_list(footer, slot, BLOCK_BYTES);
  int code = SHARDRT_OK;
  for (int64_t b = 0; b < blocks.count && code == SHARDRT_OK; b++) {
    const struct reader_mark mark = reader_mark(arena);
    struct arrow_message message = {0};
    bool ended = false;
    const int64_t at = flat_list_whole(&blocks, b, BLOCK_BYTES, 0, 8);
    code = at < 0 ? bad_message(self, 0, "is where no message can be") : SHARDRT_OK;
    if (code == SHARDRT_OK) code = read_message(self, (size_t)at, self->end, arena, &message, &ended);
    if (code == SHARDRT_OK && ended) code = bad_message(self, (size_t)at, "is an end, where the footer names another");
    if (code == SHARDRT_OK) code = add_message(self, &message, wanted);
    reader_release(arena, mark);
  }
  return code;
}

/* ---- the whole file --------------------------------------------------------------------------------------------- */

static int read_footer(struct arrow_contents *self, struct reader *arena, struct flatbuffer *in,
                       struct flat_table *out) {
  const size_t bytes = self->file->bytes;
  const uint8_t *data;
  if (bytes < HEAD + TAIL) return error_set(SHARDRT_EFORMAT, "%s: it is cut off", self->file->title);
  int code = stored_get(self->file, bytes - TAIL, TAIL, arena, &data);
  if (code != SHARDRT_OK) return code;
  const size_t length = little_endian_32(data);
  if (memcmp(data + TAIL - MAGIC, magic, MAGIC) != 0 || length > bytes - HEAD - TAIL)
    return error_set(SHARDRT_EFORMAT,
                     "%s: it begins as an Arrow file and does not end as one: it is cut off, or its "
                     "writer was not closed",
                     self->file->title);
  self->end = bytes - TAIL - length;
  code = stored_get(self->file, self->end, length, arena, &data);
  if (code != SHARDRT_OK) return code;
  *in = (struct flatbuffer){.data = data, .bytes = length};
  *out = flat_root(in);
  if (!in->failed) return check_version(self, flat_whole(out, FOOTER_VERSION, 2, 0));
  return error_set(SHARDRT_EFORMAT, "%s: its footer is malformed", self->file->title);
}

/* What the first bytes say it is. */
static int find_kind(struct arrow_contents *self, struct reader *arena) {
  const struct stored *file = self->file;
  const size_t bytes = file->bytes < MAGIC_BYTES ? file->bytes : MAGIC_BYTES;
  const uint8_t *head;
  int code = stored_get(file, 0, bytes, arena, &head);
  if (code != SHARDRT_OK) return code;
  self->is_stream = bytes >= PREFIX && little_endian_32(head) == UINT32_MAX;
  if (self->is_stream || (bytes >= MAGIC && memcmp(head, magic, MAGIC) == 0)) return SHARDRT_OK;
  if (bytes < PREFIX)
    return error_set(SHARDRT_EFORMAT, "%s: it has %zu bytes: it is cut off, or no Arrow file", file->title, bytes);
  if (memcmp(head, "FEA1", 4) == 0)
    return error_set(SHARDRT_EINVAL,
                     "%s: it is a Feather file of version 1; pyarrow.feather reads it, and writes "
                     "version 2, which is an Arrow file",
                     file->title);
  const struct magic *found = magic_find(head, bytes, file->bytes);
  if (found == NULL) return error_set(SHARDRT_EFORMAT, "%s: it is no Arrow file or stream", file->title);
  return error_set(SHARDRT_EINVAL, "%s: it is %s, no Arrow file or stream; %s", file->title, found->what,
                   found->advice);
}

int arrow_contents_open(const struct stored *file, struct reader *arena, struct arrow_contents *out) {
  *out = (struct arrow_contents){.file = file, .end = file->bytes};
  struct flatbuffer in = {0};
  struct flat_table table;
  int code = find_kind(out, arena);
  if (code != SHARDRT_OK) return code;
  if (out->is_stream) {
    struct arrow_message message = {0};
    bool ended = false;
    code = read_message(out, 0, out->end, arena, &message, &ended);
    if (code != SHARDRT_OK) return code;
    if (ended || message.kind != MESSAGE_SCHEMA) return bad_message(out, 0, "is no schema, with which a stream begins");
    out->first = message.body + message.body_bytes;
    code = arrow_schema_read(&message.header, message.version, &out->schema);
  } else {
    code = read_footer(out, arena, &in, &table);
    if (code != SHARDRT_OK) return code;
    const struct flat_table schema = flat_child(&table, FOOTER_SCHEMA);
    code = arrow_schema_read(&schema, flat_whole(&table, FOOTER_VERSION, 2, 0), &out->schema);
  }
  return code < 0 ? error_prefix(code, "%s", file->title) : code;
}

int arrow_contents_read(struct arrow_contents *self, int32_t nfields, const int32_t *leaves, struct reader *arena) {
  struct arrow_wanted wanted = {.nfields = nfields, .leaves = leaves};
  struct flatbuffer in = {0};
  struct flat_table footer;
  int code = SHARDRT_OK;
  if (self->is_stream) {
    code = read_stream(self, &wanted, arena);
  } else {
    code = read_footer(self, arena, &in, &footer);
    if (code == SHARDRT_OK) code = read_blocks(self, &footer, FOOTER_DICTIONARIES, &wanted, arena);
    if (code == SHARDRT_OK) code = read_blocks(self, &footer, FOOTER_BATCHES, &wanted, arena);
    if (code == SHARDRT_OK && in.failed)
      code = error_set(SHARDRT_EFORMAT, "%s: its footer is malformed", self->file->title);
  }
  if (code == SHARDRT_OK) code = grow((void **)&self->batches, self->nbatches, &wanted.batches, sizeof *self->batches);
  if (code == SHARDRT_OK) self->batches[self->nbatches] = (struct arrow_batch){.first = wanted.rows};
  return code;
}

void arrow_contents_clear(struct arrow_contents *self) {
  arrow_schema_clear(&self->schema);
  alloc_free(self->batches);
  alloc_free(self->parts);
  alloc_free(self->dictionaries);
  alloc_free(self->buffers);
  *self = (struct arrow_contents){0};
}
