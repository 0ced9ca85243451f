/* json.h - reading JSON (https://www.rfc-editor.org/rfc/rfc8259) from memory, piece by piece: for formats that say what
 * they expect at every place, so that nothing ever nests deeper than they do. */
#ifndef SHARDRT_CODEC_JSON_H
#define SHARDRT_CODEC_JSON_H

#include "shardrt.h"

/* A place in a text. The first three are for messages. */
struct json_reader {
  const char *path;  /* of the file */
  size_t offset;     /* of `begin` in it */
  const char *entry; /* which of the file's entries this is within; NULL: in none */
  const char *what;  /* this is: "line"; NULL: the file's header */
  const uint8_t *begin, *at, *end;
};

/* A text that was read: what fits into `room`, a NUL included. One of at least `room` bytes is measured only. */
struct json_text {
  char *bytes;
  size_t room, length;
};

/* Each of these fails with EFORMAT and a message that names the file and the entry; `expected` says what should stand
 * here ("expected a list of sizes"). */
int json_bad(const struct json_reader *r, const char *problem, ...) __attribute__((format(printf, 2, 3)));
int json_malformed(const struct json_reader *r, const char *expected);

/* A text in double quotes, as UTF-8; in a header without zero bytes. */
int json_text_read(struct json_reader *r, const char *expected, struct json_text *out);
/* A whole number from 0 on. */
int json_number_read(struct json_reader *r, const char *expected, int64_t *out);
/* A number of any kind, true, false or null, as it stands there; one that is longer than `room` allows is none. */
int json_word_read(struct json_reader *r, const char *expected, char *word, size_t room);
/* Goes past a value of any kind. */
int json_skip(struct json_reader *r);
/* Gives `take` each entry's name (cut off where it is long) of an object, to read the value. */
typedef int json_member(struct json_reader *r, const char *name, void *context);
int json_object_read(struct json_reader *r, const char *expected, json_member *take, void *context);
/* For `take`: that a name stands once. Those that may not stand twice are `names`, up to 32 of them and then NULL;
 * those that stood so far are noted in `seen`. */
int json_once(const struct json_reader *r, const char *name, const char *const *names, uint32_t *seen);
/* Gives `take` the number of each of a list's values, to read it. */
typedef int json_value(struct json_reader *r, int32_t i, void *context);
int json_list_read(struct json_reader *r, const char *expected, json_value *take, void *context);
/* Goes past one character, and the space before it, where it is the next; tells whether it was. */
bool json_accept(struct json_reader *r, char c);
/* What stands between the entries of an object or list, and ends it: *more says whether there is another entry. */
int json_next(struct json_reader *r, char close, const char *expected, bool first, bool *more);
/* Whether null stands here; goes past it then. */
bool json_null(struct json_reader *r);
/* Nothing but space is left. */
int json_end(struct json_reader *r, const char *expected);

#endif
