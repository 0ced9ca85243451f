/* unpack_stream.h - what gzip, zlib and zstd made short, unpacked piece by piece: any number of members of gzip (RFC
 * 1952) or of frames of zstd (RFC 8878, also such as are to be skipped) one behind the other, or one stream of zlib
 * (RFC 1950). */
#ifndef SHARDRT_STORAGE_UNPACK_STREAM_H
#define SHARDRT_STORAGE_UNPACK_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unpack_kind { UNPACK_NONE, UNPACK_GZIP, UNPACK_ZLIB, UNPACK_ZSTD };

struct unpack_stream;

/* EINVAL: this shardrt was built without the library; ENOMEM. */
int unpack_stream_open(enum unpack_kind kind, struct unpack_stream **out);
/* Takes of the `bytes` bytes of `data` what makes up to `room` bytes in dst: *taken of those, *made of these. Both are
 * 0 only where all that is at hand was taken. EFORMAT: malformed, a checksum that is wrong, or something else behind
 * the end; the message says what. ENOMEM. */
int unpack_stream_run(struct unpack_stream *self, const uint8_t *data, size_t bytes, size_t *taken, uint8_t *dst,
                      size_t room, size_t *made);
/* From now on a run also ends where a block of deflate's does, which zlib and gzip data can be taken up at. */
void unpack_stream_by_blocks(struct unpack_stream *self);
/* Where a stream can be taken up again, at the first byte that was not taken. Between members and frames, and in zstd,
 * nothing more is wanted for that; else the last bits of the byte before, and what came out last. */
enum { UNPACK_WINDOW = 32768 };
struct unpack_place {
  bool within; /* a member of gzip, or the stream of zlib */
  uint8_t bits;
  uint32_t window_bytes; /* at most UNPACK_WINDOW */
  uint8_t window[UNPACK_WINDOW];
};
/* Whether it can be here, after a run. */
bool unpack_stream_place(struct unpack_stream *self, struct unpack_place *out);
/* A stream that goes on within a member; `before` is the byte before those that it is given. */
int unpack_stream_resume(enum unpack_kind kind, const struct unpack_place *place, uint8_t before,
                         struct unpack_stream **out);
/* Whether what was taken ends with a member, a frame or a stream: where the file may end. */
bool unpack_stream_ends(const struct unpack_stream *self);
void unpack_stream_free(struct unpack_stream *self); /* NULL is allowed */

/* What data is that begins so, by gzip's or zstd's magic number. */
enum unpack_kind unpack_kind_of(const uint8_t *data, size_t bytes);

#endif
