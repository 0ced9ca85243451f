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
/* Whether what was taken ends with a member, a frame or a stream: where the file may end. */
bool unpack_stream_ends(const struct unpack_stream *self);
void unpack_stream_free(struct unpack_stream *self); /* NULL is allowed */

/* What data is that begins so, by gzip's or zstd's magic number. */
enum unpack_kind unpack_kind_of(const uint8_t *data, size_t bytes);

#endif
