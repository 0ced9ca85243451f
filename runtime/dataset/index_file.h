/* index_file.h - where the samples of one file lie in it, with a checksum of each part of them.
 *
 * A format whose files do not say where their records are goes through a file once and notes it, with the CRC-32C of
 * every record, which is checked whenever a record is read: what their own readers return as data is found. The index
 * is kept beside the file as FILE.shardrt-index, or in the cache folder where that cannot be written; one that is
 * damaged, or older than its file, is made anew.
 *
 * The file, in the machine's byte order: `rows` times `columns` entries (struct index_entry); the columns' names, each
 * with a NUL behind it; the footer (struct index_footer), which ends the file. */
#ifndef SHARDRT_DATASET_INDEX_FILE_H
#define SHARDRT_DATASET_INDEX_FILE_H

#include "storage/stored.h"

/* One part of a sample: a record, a member of an archive, a line. */
struct index_entry {
  int64_t offset; /* of its first byte in the file; -1: this sample has no such part */
  int64_t bytes;
  uint32_t crc;  /* CRC-32C of these */
  uint32_t note; /* the format's own, below INDEX_NOTES; 0 where it has nothing to say; or: */
};
/* These bytes were found to be damaged when the index was made; what begins here was, so that nothing behind it can be
 * told apart: the rest of the file. */
#define INDEX_DAMAGED UINT32_MAX
#define INDEX_LOST    (UINT32_MAX - 1)
#define INDEX_NOTES   INDEX_LOST
/* These bytes were not looked at, and have no checksum: of a server's file, to index which all of it would have to be
 * downloaded. That the file stays what it is, its ETag tells, and the cache has checksums of what came. */
#define INDEX_UNSEEN (UINT32_MAX - 2)

struct index_file {
  struct mapping map;
  int64_t rows; /* samples */
  int32_t columns;
  uint32_t crc;                      /* of all that it holds, and of what its file was */
  const char **names;                /* of the columns; borrowed from the map */
  const struct index_entry *entries; /* row-major */
  _Atomic uint64_t
      *seen; /* a bit for each entry that was found to be what it was; NULL: each is looked at every time */
};

struct index_writer; /* what a scan writes to */

/* How a format goes through a file. It names the columns first, then adds rows in their order; in the end it may name
 * them anew. EFORMAT: the file is
 * malformed; the message names file, record and offset. `arena` is for stored_get; `context` the format's own. */
typedef int index_scan(const struct stored *file, struct reader *arena, struct index_writer *writer,
                       const void *context);
int index_writer_columns(struct index_writer *writer, int32_t columns, const char *const *names);
int index_writer_add(struct index_writer *writer, const struct index_entry *row);
/* Whether damage is to be noted, rather than be a failure: then a scan adds rows of entries with such notes. */
bool index_writer_skips(const struct index_writer *writer);
/* Ends a scan that failed with `code` at `offset`, behind which nothing can be told apart. Where damage is to be noted,
 * and this is some, one row is added for the rest of the file. Else the message tells that it could be; not at the
 * file's start: it may be of another format. */
int index_writer_lose_rest(struct index_writer *writer, const struct stored *file, size_t offset, int code);
/* Adds to the message of EFORMAT which option leaves out what is damaged; other codes stay as they are. */
int index_tell_option(int code);
/* Whether so many bytes of a file are to be left unseen: no small part of one on a server. */
bool index_leaves_unseen(const struct stored *file, size_t bytes);
/* An entry for bytes that lie at `offset`, with their checksum. */
struct index_entry index_entry_of(size_t offset, const uint8_t *data, size_t bytes);

/* Opens a file's index, which is made if need be; safely when many processes do so at once. `kind` says what the
 * entries mean, and how the scan was asked for them ("tfrecord", "csv ;"); one of another kind is made anew. `folder`
 * as in shardrt_source_options; that of a file on a server lies there. `skips`: damage is noted; an index that notes
 * some is of no use to those who do not ask for it, and is made anew. What the scan fails with; EIO. */
int index_file_open(const struct stored *file, const char *kind, const char *folder, bool skips, index_scan *scan,
                    const void *context, struct index_file *out);
/* Whether there is one, without a look at the file itself. ENOMEM. */
int index_file_look(const struct stored *file, const char *folder, bool *there);
/* Opens the index that there is of a file, of whatever kind; *there = false: there is none, or it is of an older file.
 * ENOMEM. */
int index_file_find(const struct stored *file, const char *folder, struct index_file *out, bool *there);
/* From now on an entry is checked when it is read for the first time. */
int index_file_once(struct index_file *self);
/* Any that is zeroed or was opened; zeroes it. */
void index_file_close(struct index_file *self);

/* The bytes of one part, checked against its checksum unless `verify` is false. EFORMAT: they are not what they were
 * when the index was made; the message names the file, the record (its row in the file) and the offset. */
int index_file_get(const struct index_file *self, const struct stored *file, int64_t row, int32_t column, bool verify,
                   struct reader *reader, const uint8_t **out, size_t *bytes);

#endif
