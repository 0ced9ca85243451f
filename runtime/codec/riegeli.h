/* riegeli.h - the chunks of Riegeli's files of records, which ArrayRecord is made of:
 * https://github.com/google/riegeli/blob/master/doc/riegeli_records_file_format.md
 *
 * Every 64 KiB a header of 24 bytes interrupts what is there, a chunk's own header too: the hash of the rest, how far
 * before it the interrupted chunk begins, how far behind it ends. A chunk's header is 40 bytes: the hash of the rest,
 * the data's size, the data's hash, its type (a byte) and how many records it holds (7 bytes), their size in all.
 * Hashes are HighwayHash, 64 bits, with the key "Riegeli/records\n" twice; numbers are little-endian.
 *
 * A chunk of the type 'r' is: how it is compressed (a byte; 0, 'b' brotli, 'z' zstd, 's' snappy), a varint, the
 * records' sizes as varints, which take that many bytes, and the records. Sizes and records are each compressed as a
 * whole, a varint with the decompressed size before them. */
#ifndef SHARDRT_CODEC_RIEGELI_H
#define SHARDRT_CODEC_RIEGELI_H

#include "codec/input.h"

enum {
  RIEGELI_BLOCK = 1 << 16,
  RIEGELI_SIGNATURE = 's',
  RIEGELI_RECORDS = 'r',
  RIEGELI_TRANSPOSED = 't',
};

struct riegeli_chunk {
  int32_t type;
  int64_t records;
  size_t decoded; /* bytes of its records in all */
  const uint8_t *data;
  size_t bytes;
};

/* A chunk's records: record i is bytes ends[i - 1] … ends[i] of `data` (the first one from 0 on). */
struct riegeli_records {
  int64_t count;
  const size_t *ends;
  const uint8_t *data;
};

/* What no chunk may decompress to, in bytes. */
#define RIEGELI_DECODED_AT_MOST ((size_t)1 << 30)

/* A number of 7 bits per byte, the lowest first, from *at on, which goes past it. false: it is cut off or too large. */
bool riegeli_varint(const uint8_t **at, const uint8_t *end, uint64_t *out);

/* The chunk that begins at byte `begin` of a file: its data in the file where it lies there in one piece, else in the
 * reader's arena. Hashes of headers are always checked, that of the data where `verify`. EFORMAT: damaged or cut off;
 * the message begins with the chunk's offset, and does not name the file. */
int riegeli_chunk_get(const struct input *file, size_t begin, bool verify, struct reader *reader,
                      struct riegeli_chunk *out);

/* Whether a chunk is one record that is not compressed: it need not be copied. */
bool riegeli_lies_open(const struct riegeli_chunk *chunk);

/* What riegeli_decode needs of memory for a chunk, in bytes. EFORMAT: it is of another type, or more than
 * RIEGELI_DECODED_AT_MOST. */
int riegeli_room(const struct riegeli_chunk *chunk, size_t *bytes);

/* Takes a chunk apart into `room`, which is aligned to 8 bytes and of riegeli_room's size; one that lies open stays
 * where it is. The arena stands afterwards where it stood. EFORMAT, ENOMEM. */
int riegeli_decode(const struct riegeli_chunk *chunk, void *room, struct reader *reader, struct riegeli_records *out);

#endif
