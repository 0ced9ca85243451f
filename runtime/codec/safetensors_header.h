/* safetensors_header.h - the header of a .safetensors file: https://huggingface.co/docs/safetensors (Format)
 *
 *   8 bytes: the length N of what follows, unsigned, little-endian
 *   N bytes: a JSON object in UTF-8, from "{" on, spaces behind it; name -> {"dtype": "F32", "shape": [2, 3],
 *            "data_offsets": [begin, end]}, the offsets from the end of the header on; "__metadata__", if it is there,
 *            is an object of texts
 *   the rest: the arrays' elements, C-contiguous, little-endian, without gaps */
#ifndef SHARDRT_CODEC_SAFETENSORS_HEADER_H
#define SHARDRT_CODEC_SAFETENSORS_HEADER_H

#include "codec/input.h"
#include "shardrt.h"

struct safetensors_header {
  shardrt_tensor *tensors; /* by name, ascending; owned, as are the names, which all stand in one piece of memory */
  int64_t count;
  char *names;
  size_t data_offset; /* of the first element in the file */
};

/* Reads the header of a file of `bytes` bytes at `data`: what it tells of was then found to be there, each byte of the
 * data to belong to exactly one array, and the names to differ. EFORMAT naming `path`, and the array it is about. */
int safetensors_header_parse(const char *path, const uint8_t *data, size_t bytes, struct safetensors_header *out);

/* The same of a file that lies anywhere: no more than its header is asked for. */
int safetensors_header_read(const char *path, const struct input *file, struct reader *reader,
                            struct safetensors_header *out);

/* EFORMAT: an array that a header names has a dtype of the format that shardrt does not read, and so none (-1 or less).
 * It is to be asked of each that is used. */
int safetensors_header_check(const char *path, const shardrt_tensor *tensor);

/* Any header that is zeroed or was parsed. */
void safetensors_header_clear(struct safetensors_header *header);

/* The same in the other direction: sorts the pointers into the order in which the arrays stand in the file, sets each
 * one's bytes and offset, and gives the text with which the file begins, `*text_bytes` of it, to be freed. Both are
 * those of the reference implementation: larger elements first, so that every array is aligned to its elements; then
 * by name. EINVAL, EOVERFLOW: a name, dtype or shape that a file cannot hold. */
int safetensors_header_new(const char *path, int64_t count, shardrt_tensor **tensors, char **text, size_t *text_bytes);

#endif
