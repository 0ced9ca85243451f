/* restart.h - a compressed file that is read where it lies, as there is no room for what it holds: a span between two
 * places at which it can be taken up (restart_table.h) is decoded as a whole, and kept for a while (block_cache.h).
 * Each is compared with the CRC-32C that it had when the table was made. */
#ifndef SHARDRT_STORAGE_RESTART_H
#define SHARDRT_STORAGE_RESTART_H

#include "storage/restart_table.h"

struct restart;

/* Takes the compressed file `packed` and its table, which was found to fit, both also where it fails: they are zeroed.
 */
int restart_open(struct stored *packed, enum unpack_kind kind, struct mapping *table, struct restart **out);
void restart_close(struct restart *self); /* NULL is allowed; nobody reads */

/* Bytes within what the file holds, to dst; any thread, with a reader of its own. EFORMAT: the file is not what it was
 * when the table was made; what stored_get of the compressed file fails with. */
int restart_read(const struct restart *self, size_t offset, size_t bytes, struct reader *reader, uint8_t *dst);
/* Adds the compressed bytes that this takes. ENOMEM. */
int restart_extents(const struct restart *self, size_t offset, size_t bytes, struct extents *out);
/* As mapping_fingerprint, of what the file holds. */
uint64_t restart_fingerprint(const struct restart *self);
/* The compressed file. */
const struct stored *restart_packed(const struct restart *self);

#endif
