/* npy_header.h - the header of a .npy file:
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 *
 *   "\x93NUMPY", major, minor, the length of what follows (2 bytes little-endian in version 1, 4 in 2 and 3), a Python
 *   dict literal with exactly the keys 'descr', 'fortran_order' and 'shape', spaces, a newline; then the data. */
#ifndef SHARDRT_CODEC_NPY_HEADER_H
#define SHARDRT_CODEC_NPY_HEADER_H

#include "shardrt.h"

struct npy_header {
  bool big_endian;
  bool fortran; /* the first index is the fastest, and the order is not C's */
  int32_t dtype;
  int32_t ndim; /* 0 for a single number */
  int64_t shape[SHARDRT_MAX_NDIM];
  size_t data_offset; /* bytes from the file's start */
  size_t data_bytes;
};

/* Reads the header of a file of `bytes` bytes at `data`; all of data_bytes was then found to be there, and nothing
 * behind it. dataset/elements.h reads the elements. EFORMAT (EOVERFLOW for sizes beyond 64 bits), naming `path`. */
int npy_header_parse(const char *path, const uint8_t *data, size_t bytes, struct npy_header *out);
/* The same where only the first `have` bytes are at hand: NPY_HEADER_READ, which no header is longer than, or all. */
enum { NPY_HEADER_READ = 1 << 17 };
int npy_header_parse_head(const char *path, const uint8_t *data, size_t have, size_t bytes, struct npy_header *out);

/* How long a header is, by its first NPY_HEADER_FIRST bytes, whatever they are. */
enum { NPY_HEADER_FIRST = 12 };
size_t npy_header_length(const uint8_t *first);

/* Writes a header of version 1 for an array, a multiple of 64 bytes, into text; returns its length. */
enum { NPY_HEADER_AT_MOST = 320 };
size_t npy_header_write(int32_t dtype, int32_t ndim, const int64_t *shape, char text[NPY_HEADER_AT_MOST]);

#endif
