/* inflate.h - what zlib (RFC 1950) or gzip (RFC 1952) made short, in one piece, in memory. */
#ifndef SHARDRT_CODEC_INFLATE_H
#define SHARDRT_CODEC_INFLATE_H

#include <zlib.h>

#include "storage/local/reader.h"

/* A stream that is to be begun: zlib takes its memory as all of the runtime does, so that it can be made to fail. */
z_stream inflate_stream(void);

/* Writes what `data` holds to dst, at most `room` bytes, and gives how many they are. EFORMAT: it is damaged or cut
 * off, something stands behind its end, or it holds more. */
int inflate_into(const uint8_t *data, size_t data_bytes, uint8_t *dst, size_t room, struct reader *reader,
                 size_t *bytes);

#endif
