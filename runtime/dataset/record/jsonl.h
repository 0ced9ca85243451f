/* jsonl.h - one line of JSON: which of its values is a field, and what that becomes. */
#ifndef SHARDRT_DATASET_RECORD_JSONL_H
#define SHARDRT_DATASET_RECORD_JSONL_H

#include "codec/json.h"
#include "dataset/value.h"
#include "storage/local/reader.h"

enum { JSONL_NAME_MOST = 256 /* bytes of a field's name, with a NUL */ };

/* Where a value stands in a line. */
struct jsonl_span {
  const uint8_t *at, *end;
};

/* Finds the value of a field, going through the whole line: "a.b" is the member "b" of the member "a", or the one that
 * is called so. Where the line has no such member, out->at is NULL. EFORMAT: the line is no object in JSON, or has two
 * such members. */
int jsonl_find(struct json_reader *line, const char *name, struct jsonl_span *out);

/* Whether it is null, or there is none, which is the same. */
bool jsonl_is_null(struct jsonl_span value);
/* Whether it is a list in which no element tells what it holds: it has none, or nulls, or such lists. */
bool jsonl_is_hollow(struct jsonl_span value);
/* Whether it is null, or a null stands in a list that is one of numbers. */
bool jsonl_has_null(const struct json_reader *line, struct jsonl_span value);

/* Gives `take` each member of the line's object, and of the objects within it, by the name of a field. */
typedef int jsonl_member(struct json_reader *line, const char *name, struct jsonl_span value, void *context);
int jsonl_members(struct json_reader *line, jsonl_member *take, void *context);

/* What a value is without being told: a text, and a list of texts or objects, is uint8 {-1}, a whole number int64,
 * another float32, true and false bool, lists of these one dimension of size -1 more. Nulls in a list
 * tell nothing. EFORMAT: null. The name is left alone. */
int jsonl_guess(const struct json_reader *line, struct jsonl_span value, shardrt_field *out);

/* What a field of uint8 and one dimension holds: its bytes may be a text's; numbers; or those of JSON as it stands in
 * the line, of an object, or of a list in which the first thing that is no list is an object or a text. */
enum jsonl_bytes { JSONL_UNTOLD, JSONL_TEXT, JSONL_NUMBERS, JSONL_JSON };
enum jsonl_bytes jsonl_bytes_of(struct jsonl_span value);

/* What takes the place of nulls in a field. */
struct jsonl_null {
  bool is_there;      /* something does; else they are errors */
  uint8_t element[8]; /* of a number, */
  const char *text;   /* or, not NULL, of bytes; borrowed */
};

/* A field's elements. A null that something takes the place of is that, an element of a list, too; one that stands for
 * a whole list is an empty one. EFORMAT: another null; they are not of its shape and dtype, or a text where numbers
 * should be, or the other way around; the message names the byte. ENOMEM. */
int jsonl_value(const struct json_reader *line, struct jsonl_span value, const shardrt_field *field,
                enum jsonl_bytes expected, const struct jsonl_null *null, struct reader *reader, struct value *out);

#endif
