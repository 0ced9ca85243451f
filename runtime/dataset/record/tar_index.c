#include "dataset/record/tar_index.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "codec/npy_header.h"
#include "codec/tar_walk.h"
#include "dataset/record/shapes.h"
#include "storage/unpack_stream.h"

/* The samples of an archive, one after the other. */
struct grouping {
  const struct stored *file;
  struct tar_walk walk;
  int32_t columns;
  char *names[TAR_COLUMNS_MOST]; /* owned */
  struct shapes *shapes;         /* of each column, of arrays */
  int64_t samples;
  char key[TAR_NAME_MOST]; /* of the sample at hand; "": none */
  size_t started;          /* where it begins */
  uint64_t *hashes;        /* of all keys so far */
  int64_t capacity;        /* of these */
  struct index_entry *row; /* of the sample at hand: `columns` of them */
};

/* Where the field's name begins in a member's: behind the first dot after the last slash; NULL: it has none, or is
 * hidden, and so belongs to no sample. */
static char *field_of(char *name) {
  char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
  char *dot = strchr(base, '.');
  return dot == NULL || dot == base || dot[1] == '\0' ? NULL : dot + 1;
}

bool tar_is_array(const char *name) {
  const size_t length = strcspn(name, "/");
  return length >= 3 && memcmp(name + length - 3, "npy", 3) == 0 && (length == 3 || name[length - 4] == '.');
}

/* The column of a name, which is added where `may_add`; -1: it is not there. */
static int column_of(struct grouping *g, const char *name, bool may_add, int32_t *column) {
  for (*column = 0; *column < g->columns; ++*column)
    if (strcmp(g->names[*column], name) == 0) return SHARDRT_OK;
  if (!may_add || g->columns == TAR_COLUMNS_MOST)
    return error_set(SHARDRT_EFORMAT, "%s: its samples have more than %d different fields", g->walk.input->title,
                     TAR_COLUMNS_MOST);
  g->names[g->columns] = alloc_text("%s", name);
  if (g->names[g->columns] == NULL) return ALLOC_FAILED;
  g->columns++;
  return SHARDRT_OK;
}

static int note_key(struct grouping *g, const char *key) {
  uint64_t *hashes = alloc_one_more(g->hashes, g->samples, &g->capacity, 1024, sizeof *hashes);
  if (hashes == NULL) return ALLOC_FAILED;
  g->hashes = hashes;
  g->hashes[g->samples++] = hash_text(0, key);
  return SHARDRT_OK;
}

static void clear_row(const struct grouping *g) {
  for (int32_t c = 0; c < g->columns; c++) g->row[c] = (struct index_entry){.offset = -1};
}

/* Ends the sample at hand, if there is one. */
static int end_sample(struct grouping *g, struct index_writer *writer) {
  if (writer == NULL || g->key[0] == '\0') return SHARDRT_OK;
  int code = index_writer_add(writer, g->row);
  if (code == SHARDRT_OK) code = note_key(g, g->key);
  clear_row(g);
  return code;
}

/* Of a large member of an archive on a server only the header of an array is looked at. */
static int note_member(struct grouping *g, const struct tar_member *member, int32_t column) {
  const bool is_array = tar_is_array(g->names[column]), unseen = index_leaves_unseen(g->file, member->bytes);
  const size_t have = !unseen ? member->bytes : is_array ? NPY_HEADER_READ : 0;
  struct npy_header header;
  const uint8_t *data;
  int code = stored_get(g->file, member->offset, have, g->walk.arena, &data);
  if (code != SHARDRT_OK) return code;
  g->row[column] = unseen ? (struct index_entry){.offset = (int64_t)member->offset,
                                                 .bytes = (int64_t)member->bytes,
                                                 .note = INDEX_UNSEEN}
                          : index_entry_of(member->offset, data, member->bytes);
  if (is_array && npy_header_parse_head("npy", data, have, member->bytes, &header) == SHARDRT_OK)
    shapes_see(&g->shapes[column], g->samples, header.dtype, header.ndim, header.shape); /* else reading it tells */
  return SHARDRT_OK;
}

/* Takes one member. Without a writer it only looks for the fields' names. */
static int add_member(struct grouping *g, struct tar_member *member, struct index_writer *writer) {
  char *field = field_of(member->name);
  if (!member->regular || field == NULL) return SHARDRT_OK;
  for (char *c = field; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
  int32_t column;
  int code = column_of(g, field, writer == NULL, &column);
  if (code != SHARDRT_OK || writer == NULL) return code;
  field[-1] = '\0'; /* what is left is the key */
  if (strcmp(g->key, member->name) != 0) {
    code = end_sample(g, writer);
    if (code != SHARDRT_OK) return code;
    memcpy(g->key, member->name, strlen(member->name) + 1);
    g->started = member->header;
  }
  if (g->row[column].offset >= 0)
    return error_set(SHARDRT_EFORMAT, "%s: the member at byte %zu: a second \"%s\" of the sample \"%s\"",
                     g->walk.input->title, member->header, field, g->key);
  return note_member(g, member, column);
}

/* Names the columns once more, those of arrays with their shapes behind. */
static int note_shapes(struct grouping *g, struct index_writer *writer) {
  char text[SHAPES_TEXT];
  for (int32_t c = 0; c < g->columns; c++) {
    shapes_text(&g->shapes[c], text);
    if (text[0] == '\0') continue;
    char *name = alloc_text("%s/%s", g->names[c], text);
    if (name == NULL) return ALLOC_FAILED;
    alloc_free(g->names[c]);
    g->names[c] = name;
  }
  return index_writer_columns(writer, g->columns, (const char *const *)g->names);
}

/* Where damage is noted, that of a header ends the archive: the sample at hand, of which members may be missing, and
 * all behind it are lost. */
static int lose_rest(struct grouping *g, struct index_writer *writer, int code) {
  if (writer == NULL) return code;
  const size_t from = g->key[0] != '\0' ? g->started : g->walk.at;
  g->key[0] = '\0';
  return index_writer_lose_rest(writer, g->file, from, code);
}

/* All members, from the archive's start. */
static int pass_members(struct grouping *g, bool skips, struct index_writer *writer) {
  struct tar_member *member = alloc_array(1, sizeof *member);
  if (member == NULL) return ALLOC_FAILED;
  g->walk = (struct tar_walk){.input = g->walk.input, .arena = g->walk.arena};
  int code = 1;
  while (code > 0) {
    const struct reader_mark mark = reader_mark(g->walk.arena);
    code = tar_walk_next(&g->walk, member);
    if (code == SHARDRT_EFORMAT && skips && (writer != NULL || g->columns > 0)) { /* else nothing is known of it */
      code = lose_rest(g, writer, writer != NULL ? code : SHARDRT_OK);
      break;
    }
    if (g->walk.at > 0 && !skips) code = index_tell_option(code); /* at the start it may be no archive at all */
    const int added = code == 1 ? add_member(g, member, writer) : SHARDRT_OK;
    if (added != SHARDRT_OK) code = added;
    reader_release(g->walk.arena, mark);
  }
  if (code == SHARDRT_OK) code = end_sample(g, writer);
  alloc_free(member);
  return code;
}

static int compare_hashes(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* A sample whose members do not stand together came out as two. */
static int check_keys(struct grouping *g) {
  qsort(g->hashes, (size_t)g->samples, sizeof *g->hashes, compare_hashes);
  for (int64_t i = 1; i < g->samples; i++)
    if (g->hashes[i] == g->hashes[i - 1])
      return error_set(SHARDRT_EFORMAT,
                       "%s: the members of a sample do not stand together, or two samples have one name: `tar "
                       "--sort=name` makes archives in which they do",
                       g->walk.input->title);
  return SHARDRT_OK;
}

int tar_index_scan(const struct stored *file, struct reader *arena, struct index_writer *writer, const void *context) {
  (void)context;
  const uint8_t *head = NULL;
  const size_t have = file->bytes < 3 ? file->bytes : 3;
  int code = stored_get(file, 0, have, arena, &head);
  if (code != SHARDRT_OK) return code;
  if (unpack_kind_of(head, have) == UNPACK_GZIP)
    return error_set(SHARDRT_EFORMAT, "%s: holds gzipped data in its turn: `gunzip` it", file->title);
  struct grouping *g = alloc_zeros(1, sizeof *g);
  if (g == NULL) return ALLOC_FAILED;
  const struct input input = stored_input(file);
  g->file = file;
  g->walk = (struct tar_walk){.input = &input, .arena = arena};
  code = pass_members(g, index_writer_skips(writer), NULL);
  if (code == SHARDRT_OK && g->columns == 0)
    code = error_set(SHARDRT_EFORMAT, "%s: holds no sample: none of its members is called name.field", file->title);
  if (code == SHARDRT_OK) {
    g->row = alloc_array((size_t)g->columns, sizeof *g->row);
    g->shapes = alloc_zeros((size_t)g->columns, sizeof *g->shapes);
    code = g->row != NULL && g->shapes != NULL ? index_writer_columns(writer, g->columns, (const char *const *)g->names)
                                               : ALLOC_FAILED;
  }
  if (code == SHARDRT_OK) {
    clear_row(g);
    code = pass_members(g, index_writer_skips(writer), writer);
  }
  if (code == SHARDRT_OK) code = check_keys(g);
  if (code == SHARDRT_OK) code = note_shapes(g, writer);
  for (int32_t c = 0; c < g->columns; c++) alloc_free(g->names[c]);
  alloc_free(g->row);
  alloc_free(g->shapes);
  alloc_free(g->hashes);
  alloc_free(g);
  return code;
}
