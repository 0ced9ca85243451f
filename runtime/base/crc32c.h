/* crc32c.h - CRC-32C (Castagnoli; RFC 3720, appendix B.4), by libisal, at the speed of memory. */
#ifndef SHARDRT_BASE_CRC32C_H
#define SHARDRT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of `bytes` bytes that follow others, whose checksum is `before`; 0: none. crc32c(0, "123456789", 9) is 0xe3069283. */
uint32_t crc32c(uint32_t before, const void *data, size_t bytes);

#endif
