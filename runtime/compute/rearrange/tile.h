/* tile.h - rows that become columns. */
#ifndef SHARDRT_COMPUTE_REARRANGE_TILE_H
#define SHARDRT_COMPUTE_REARRANGE_TILE_H

#include <stddef.h>

/* to[i * to_pitch + k] = from[k * from_pitch + i] for i < rows and k < columns, elements of 1, 2, 4 or 8 bytes. */
void tile_transpose(size_t element_bytes, const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows,
                    size_t columns);

#endif
