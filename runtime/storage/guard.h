/* guard.h - finds what changed in files that have no checksums of their own, though nobody wrote to them: their parts
 * are compared with the checksums that they had before (see checksums.h), and those of parts that were never read are
 * noted.
 *
 * A part is a block of 4 KiB of a mapped file, which is a page: so nothing is read from a disk for a check that would
 * not be read without it; or whatever its owner counts. */
#ifndef SHARDRT_STORAGE_GUARD_H
#define SHARDRT_STORAGE_GUARD_H

#include "shardrt.h"
#include "storage/checksums.h"

enum { GUARD_BLOCK = 4096 };

struct guard;

/* For parts that the owner counts and reads; the length and time that the table is known by are those of `of->file`.
 * `verify`: SHARDRT_VERIFY_ONCE or _ALWAYS. What checksums_open fails with. */
int guard_open(const struct checksums_of *of, int32_t verify, struct guard **out);
/* For the blocks of a mapped file. */
int guard_open_blocks(const char *path, const struct mapping *file, const char *folder, int32_t verify,
                      struct guard **out);
/* For the blocks of what `path` held, unpacked in the cache and mapped: *title, owned by the caller, names that for
 * messages. None is opened where options->verify says so, or the file's name is too long to be known. */
int guard_open_unpacked(const char *path, const struct mapping *unpacked, const shardrt_source_options *options,
                        char **title, struct guard **out);
/* Saves what was noted; NULL is allowed. */
void guard_close(struct guard *self);

/* What is known of a part: SUMS_UNKNOWN, … */
uint64_t guard_known(const struct guard *self, int64_t part);
/* Whether checksums that are not known are noted: as it is by itself, those of files that were not written a moment ago
 * and have at most 16 GiB are. */
void guard_note(struct guard *self, bool notes);
/* Whether that of a part which was written at this time (nanoseconds since 1970), in a file of its own, is. */
bool guard_notes(const struct guard *self, int64_t changed);
int guard_save(struct guard *self); /* as checksums_save */

/* Whether these bytes are what part `part` was. `version`, not 0, tells the part's versions apart where entries have 8
 * bytes. SHARDRT_OK, also where nothing was known; EFORMAT: the message is the end of a sentence about the part. */
int guard_look(struct guard *self, int64_t part, uint32_t version, const uint8_t *data, size_t bytes);

/* The blocks that these bytes of the mapped file lie in; they are within it. `title` names the file in the message of
 * EFORMAT. Any thread. */
int guard_check(struct guard *self, const char *title, size_t offset, size_t bytes);

/* Whether every part was looked at, and that was to be done once: then all looks are answered. Any thread. */
bool guard_is_done(const struct guard *self);

/* How options->verify counts for a format whose checksums are its own index's, or such a table's: the defaults. */
enum { GUARD_DEFAULT_RECORDS = SHARDRT_VERIFY_ALWAYS, GUARD_DEFAULT_PLAIN = SHARDRT_VERIFY_ONCE };
int32_t guard_verify(const shardrt_source_options *options, int32_t otherwise);

#endif
