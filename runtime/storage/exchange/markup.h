/* markup.h - texts out of what servers answer: of XML's elements, and of JSON's members. */
#ifndef SHARDRT_STORAGE_EXCHANGE_MARKUP_H
#define SHARDRT_STORAGE_EXCHANGE_MARKUP_H

#include <stdbool.h>
#include <stddef.h>

/* A part of an XML text: `at` to `end`. */
struct markup {
  const char *at, *end;
};

/* What stands in the first element of a name, <Name>…</Name> or <Name …>…</Name>, of nothing in <Name/>. False: there
 * is none that ends. The elements that are looked for never stand within others of their name. */
bool markup_find(const struct markup *in, const char *name, struct markup *out);
/* The next one behind `out`, which is the last that was found. */
bool markup_next(const struct markup *in, const char *name, struct markup *out);
/* The text of it, with what &amp;, &#39; and their like stand for; owned. NULL: there is none, or memory is exhausted.
 */
char *markup_text(const struct markup *in, const char *name);
/* Whether there is one whose text is this. */
bool markup_is(const struct markup *in, const char *name, const char *text);

/* The text or the number of a member of a JSON object, {"name": …}, or of the object that is its member "error"; owned.
 * NULL: there is none, it is another kind of value, or memory is exhausted. What is cut off behind it does not matter.
 */
char *markup_member(const char *json, size_t bytes, const char *name);

/* A JSON text that stands here; owned by the caller, also where it fails halfway. EFORMAT; ENOMEM. */
struct json_reader;
int markup_text_of(struct json_reader *r, char **out);

#endif
