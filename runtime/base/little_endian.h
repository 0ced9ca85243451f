/* little_endian.h - whole numbers as most files hold them: the lowest byte first. */
#ifndef SHARDRT_BASE_LITTLE_ENDIAN_H
#define SHARDRT_BASE_LITTLE_ENDIAN_H

#include <stdint.h>

static inline uint32_t little_endian_32(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static inline uint64_t little_endian_64(const uint8_t *bytes) {
  return (uint64_t)little_endian_32(bytes) | (uint64_t)little_endian_32(bytes + 4) << 32;
}

#endif
