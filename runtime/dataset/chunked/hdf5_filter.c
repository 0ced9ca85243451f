/* hdf5_filter.c - what HDF5's filters deflate, shuffle and fletcher32 did to a chunk, taken back without the library:
 * https://docs.hdfgroup.org/hdf5/v1_10 (H5Z) */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "codec/inflate.h"
#include "dataset/chunked/hdf5_file.h"

enum { CHECKSUM = 4, SUMS = 360 /* of so many words fit in 32 bits */ };

/* Of big-endian words of 16 bits, whatever the machine. */
static uint32_t fletcher32(const uint8_t *data, size_t bytes) {
  uint32_t low = 0, high = 0;
  size_t words = bytes / 2;
  while (words > 0) {
    size_t run = words < SUMS ? words : SUMS;
    for (words -= run; run > 0; run--, data += 2) {
      low += (uint32_t)data[0] << 8 | data[1];
      high += low;
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
  }
  if (bytes % 2 != 0) {
    low += (uint32_t)*data << 8;
    high += low;
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
  }
  low = (low & 0xffff) + (low >> 16);
  high = (high & 0xffff) + (high >> 16);
  return high << 16 | low;
}

static int check_sum(const uint8_t *data, size_t *bytes) {
  if (*bytes < CHECKSUM) return error_set(SHARDRT_EFORMAT, "damaged: its checksum is not there");
  *bytes -= CHECKSUM;
  const uint32_t noted = little_endian_32(data + *bytes);
  const uint32_t found = fletcher32(data, *bytes);
  const uint32_t turned = (found & 0x00ff00ff) << 8 | (found & 0xff00ff00) >> 8; /* as releases before 1.6.3 had it */
  if (found == noted || turned == noted) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "damaged: its Fletcher-32 is %08x, and should be %08x", found, noted);
}

/* All elements' first bytes come first, then all second ones, …; what is left of an element stands as it was. */
static void unshuffle(const uint8_t *src, size_t bytes, size_t element_bytes, uint8_t *dst) {
  const size_t n = bytes / element_bytes;
  for (size_t b = 0; b < element_bytes; b++)
    for (size_t i = 0; i < n; i++) dst[i * element_bytes + b] = src[b * n + i];
  memcpy(dst + n * element_bytes, src + n * element_bytes, bytes - n * element_bytes);
}

/* One step back: from *data to `room`, which becomes *data. */
static int undo_filter(enum hdf5_filter_kind kind, size_t element_bytes, const uint8_t **data, size_t *data_bytes,
                       uint8_t *room, size_t room_bytes, struct reader *reader) {
  int code = SHARDRT_OK;
  if (kind == HDF5_DEFLATE)
    code = inflate_into(*data, *data_bytes, room, room_bytes, reader, data_bytes);
  else if (*data_bytes <= room_bytes)
    unshuffle(*data, *data_bytes, element_bytes, room);
  else
    code = error_set(SHARDRT_EFORMAT, "damaged: it is longer than a chunk of this dataset");
  *data = room;
  return code;
}

/* Whether the filter before which `i` stands is the last to be taken back but for checksums. */
static bool is_last(const struct hdf5_dataset *self, uint32_t mask, int32_t i) {
  for (int32_t before = i - 1; before >= 0; before--)
    if ((mask >> before & 1) == 0 && self->filters[before] != HDF5_FLETCHER32) return false;
  return true;
}

int hdf5_decode(const struct hdf5_dataset *self, uint32_t mask, const uint8_t *data, size_t data_bytes, uint8_t *dst,
                size_t bytes, struct reader *reader, const uint8_t **out) {
  const int64_t start = reader_now();
  const size_t room_bytes = bytes + CHECKSUM * (size_t)self->nfilters;
  int code = SHARDRT_OK;
  for (int32_t i = self->nfilters - 1; i >= 0 && code == SHARDRT_OK; i--) {
    if ((mask >> i & 1) != 0) continue;
    if (self->filters[i] == HDF5_FLETCHER32) {
      code = check_sum(data, &data_bytes);
      continue;
    }
    uint8_t *room = is_last(self, mask, i) ? dst : reader_room(reader, room_bytes);
    if (room == NULL) return ALLOC_FAILED;
    code = undo_filter(self->filters[i], shardrt_dtype_size(self->dtype), &data, &data_bytes, room, room_bytes, reader);
  }
  reader_spent(reader, READER_DECODE, start);
  if (code < 0) return code;
  if (data_bytes != bytes)
    return error_set(SHARDRT_EFORMAT, "it decodes to %zu bytes; a chunk of this dataset has %zu", data_bytes, bytes);
  *out = data;
  return SHARDRT_OK;
}
