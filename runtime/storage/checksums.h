/* checksums.h - what the parts of a file, or of a folder of files, had as checksums when they were read before: a table
 * that is kept beside it as FILE.shardrt-index, or in the cache folder, and that fills as parts are read.
 *
 * The file, in the machine's byte order, in pages of 4 KiB: a header; then pages of entries, in their order, each ended
 * by its number and its CRC-32C, so that a large table need not be read before it is used. An entry of 4 bytes is a
 * CRC-32C; one of 8 has what tells one version of its part from another above it. */
#ifndef SHARDRT_STORAGE_CHECKSUMS_H
#define SHARDRT_STORAGE_CHECKSUMS_H

#include "storage/local/mapping.h"

/* Entries that are none: no checksum is known; two processes or jobs read different bytes. */
#define SUMS_UNKNOWN  UINT64_C(0)
#define SUMS_CONFLICT UINT64_C(1)

/* What a table is of. The path, the kind and the mapping outlive it. */
struct checksums_of {
  const char *path;           /* of the file or folder */
  const struct mapping *file; /* whose length and time say whether the table is of what is there now */
  const char *folder;         /* as in shardrt_source_options; copied */
  const char *kind;           /* how parts are counted: "blocks", "zarr" */
  int64_t count;              /* parts */
  int32_t width;              /* bytes of an entry: 4 or 8 */
  uint32_t about;             /* CRC-32C of what tells of the parts, where that is a file of its own; else 0 */
};

struct checksums;

/* Opens the table, which is empty where there is none, or one of an older file. EFORMAT: `about` is not what it was,
 * though the file has the same length and time. ENOMEM. */
int checksums_open(const struct checksums_of *of, struct checksums **out);
/* Saves what was put, where that can be, and frees it; NULL is allowed. */
void checksums_close(struct checksums *self);

/* The entry of a part, or one of those that are none. Any thread. */
uint64_t checksums_get(const struct checksums *self, int64_t part);
/* Notes an entry, which is kept by the next save. Any thread. ENOMEM. */
int checksums_put(struct checksums *self, int64_t part, uint64_t entry);
/* An entry of 4 bytes for a checksum. */
uint64_t checksums_entry(uint32_t crc);

/* Joins what was put with what other processes have saved since, and puts that in the table's place, whole or not at
 * all. Where they saved another entry for the same part, that becomes SUMS_CONFLICT. Does nothing where nothing was
 * put, or where the file is another one by now. EIO: it cannot be written; ENOMEM. */
int checksums_save(struct checksums *self);
/* Saves where so much was put since a save was last tried that the next is due: eight times or so as a table is filled.
 * Where that fails, or another thread is at it, nothing is said. */
void checksums_save_due(struct checksums *self);

/* When the table that was found was saved, in seconds since 1970; 0: there was none. */
int64_t checksums_made(const struct checksums *self);

#endif
