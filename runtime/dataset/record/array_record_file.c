/* array_record_file.c - the layout of an ArrayRecord file (array_record.c).
 *
 * The last 64 KiB are a chunk of its own, the postscript: its first record is a message of protocol buffers, {1: the
 * footer's offset, 2: a fixed number}. The footer is a chunk whose first record is {1: {1: version, 2: how many chunks,
 * 3: how many records}}, and then one record for each chunk of data: {1: its offset, 2: its size when decoded, 3: how
 * many records}. So nothing needs to be searched, and every byte that is read has a checksum in the file itself. */
#include "dataset/record/array_record_file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "codec/riegeli.h"

#define MAGIC 0x71930e704fdae05eu

enum {
  MESSAGE_FIELDS = 4, /* of a message's fields, those below this number are read */
  VERSION = 1,
};

/* The fields of a message that are numbers, or where its field 1 is bytes, these. */
struct message_fields {
  uint64_t numbers[MESSAGE_FIELDS];
  bool is_there[MESSAGE_FIELDS];
  const uint8_t *bytes, *end;
};

/* Reads one field of a message in the wire format of https://protobuf.dev/programming-guides/encoding/. */
static bool read_field(const uint8_t **at, const uint8_t *end, struct message_fields *out) {
  enum { NUMBER = 0, BYTES = 2, WIRE_BITS = 3 };
  uint64_t tag, value;
  if (!riegeli_varint(at, end, &tag) || !riegeli_varint(at, end, &value)) return false;
  const uint64_t field = tag >> WIRE_BITS, wire = tag & ((1 << WIRE_BITS) - 1);
  if (wire == NUMBER) {
    if (field >= MESSAGE_FIELDS) return true;
    out->numbers[field] = value;
    out->is_there[field] = true;
    return true;
  }
  if (wire != BYTES || value > (uint64_t)(end - *at)) return false;
  if (field == 1) {
    out->bytes = *at;
    out->end = *at + value;
  }
  *at += value;
  return true;
}

static bool read_message(const uint8_t *at, const uint8_t *end, struct message_fields *out) {
  *out = (struct message_fields){0};
  while (at < end)
    if (!read_field(&at, end, out)) return false;
  return true;
}

static bool read_record(const struct riegeli_records *list, int64_t i, struct message_fields *out) {
  if (i >= list->count) return false;
  return read_message(list->data + (i > 0 ? list->ends[i - 1] : 0), list->data + list->ends[i], out);
}

static int bad_file(const struct array_record_file *f, const char *what) {
  return error_set(SHARDRT_EFORMAT, "%s: %s", f->stored.title, what);
}

/* All records of the chunk at byte `begin`, in the arena. */
static int get_all(const struct array_record_file *f, size_t begin, struct reader *arena, struct riegeli_records *out) {
  const struct input input = stored_input(&f->stored);
  struct riegeli_chunk chunk;
  size_t bytes = 0;
  int code = riegeli_chunk_get(&input, begin, true, arena, &chunk);
  if (code != SHARDRT_OK) return code;
  code = riegeli_room(&chunk, &bytes);
  void *room = code == SHARDRT_OK ? reader_room(arena, bytes) : NULL;
  if (code == SHARDRT_OK) code = room != NULL ? riegeli_decode(&chunk, room, arena, out) : ALLOC_FAILED;
  return code == SHARDRT_OK ? code : error_prefix(code, "the chunk at byte %zu", begin);
}

static int check_signature(const struct array_record_file *f, struct reader *arena) {
  const struct input input = stored_input(&f->stored);
  struct riegeli_chunk chunk;
  if (f->stored.bytes == 0) return bad_file(f, "is empty");
  int code = riegeli_chunk_get(&input, 0, true, arena, &chunk);
  if (code != SHARDRT_OK && code != SHARDRT_EFORMAT) return code;
  if (code != SHARDRT_OK || chunk.type != RIEGELI_SIGNATURE)
    return bad_file(f, "is no ArrayRecord file, or its first 64 bytes are damaged");
  return SHARDRT_OK;
}

static int find_footer(const struct array_record_file *f, struct reader *arena, size_t *out) {
  struct riegeli_records list = {0};
  struct message_fields postscript;
  if (f->stored.bytes % RIEGELI_BLOCK != 0 || f->stored.bytes < 2 * RIEGELI_BLOCK)
    return error_set(SHARDRT_EFORMAT,
                     "%s: is cut off, or was never finished: it has %zu bytes, and an ArrayRecord file has a multiple "
                     "of 65,536, and twice that at least",
                     f->stored.title, f->stored.bytes);
  int code = get_all(f, f->stored.bytes - RIEGELI_BLOCK, arena, &list);
  if (code != SHARDRT_OK) return error_prefix(code, "%s: its postscript", f->stored.title);
  if (!read_record(&list, 0, &postscript) || postscript.numbers[2] != MAGIC || !postscript.is_there[1])
    return bad_file(f, "its postscript (the last 65,536 bytes) is not one of ArrayRecord");
  if (postscript.numbers[1] >= f->stored.bytes - RIEGELI_BLOCK)
    return bad_file(f, "its postscript says that the footer lies outside of it");
  *out = postscript.numbers[1];
  return SHARDRT_OK;
}

/* Where the chunks are, which the footer's records from the second on say. */
static int read_chunks(struct array_record_file *f, const struct riegeli_records *footer, size_t footer_offset) {
  int64_t count = 0;
  for (int64_t i = 0; i < f->nchunks; i++) {
    struct message_fields m;
    if (!read_record(footer, i + 1, &m) || !m.is_there[1]) return bad_file(f, "its footer is malformed");
    if (m.numbers[1] >= footer_offset || m.numbers[3] > INT64_MAX - (uint64_t)count)
      return error_set(SHARDRT_EFORMAT, "%s: its footer says that chunk %lld lies outside of it", f->stored.title,
                       (long long)i);
    f->chunks[i] = (struct array_record_chunk){.offset = m.numbers[1], .first = count};
    count += (int64_t)m.numbers[3];
    f->decoded += m.numbers[2] < RIEGELI_DECODED_AT_MOST ? m.numbers[2] : RIEGELI_DECODED_AT_MOST;
  }
  f->chunks[f->nchunks] = (struct array_record_chunk){.offset = footer_offset, .first = count};
  return SHARDRT_OK;
}

static int read_footer(struct array_record_file *f, struct reader *arena) {
  size_t offset = 0;
  struct riegeli_records footer = {0};
  struct message_fields head, counts;
  int code = check_signature(f, arena);
  if (code == SHARDRT_OK) code = find_footer(f, arena, &offset);
  if (code != SHARDRT_OK) return code;
  code = get_all(f, offset, arena, &footer);
  if (code != SHARDRT_OK) return error_prefix(code, "%s: its footer", f->stored.title);
  if (!read_record(&footer, 0, &head) || head.bytes == NULL || !read_message(head.bytes, head.end, &counts))
    return bad_file(f, "its footer is malformed");
  if (counts.numbers[1] != VERSION)
    return error_set(SHARDRT_EFORMAT, "%s: is of version %llu of ArrayRecord; shardrt reads version %d",
                     f->stored.title, (unsigned long long)counts.numbers[1], VERSION);
  if (counts.numbers[2] != (uint64_t)(footer.count - 1))
    return bad_file(f, "its footer tells of more chunks than it lists");
  f->nchunks = footer.count - 1;
  f->chunks = alloc_array((size_t)footer.count, sizeof *f->chunks);
  if (f->chunks == NULL) return ALLOC_FAILED;
  code = read_chunks(f, &footer, offset);
  if (code == SHARDRT_OK && (uint64_t)f->chunks[f->nchunks].first != counts.numbers[3])
    code = bad_file(f, "its footer tells of another number of records than its chunks have");
  return code;
}

int array_record_file_open(const char *path, const shardrt_source_options *options, struct array_record_file *out) {
  struct reader arena = {0};
  *out = (struct array_record_file){0};
  int code = stored_open(path, options, &out->stored);
  if (code == SHARDRT_OK) code = read_footer(out, &arena);
  reader_clear(&arena);
  if (code != SHARDRT_OK) array_record_file_close(out);
  return code;
}

void array_record_file_close(struct array_record_file *self) {
  alloc_free(self->chunks);
  stored_close(&self->stored);
  *self = (struct array_record_file){0};
}
