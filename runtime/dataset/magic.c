#include "dataset/magic.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/utf8.h"

enum { TEXT_LEAST = 128 };

/* ---- formats that need more than equal bytes ----------------------------------------------------------------------
 */

/* A message of an Arrow stream: 0xFFFFFFFF, the length of its metadata, and a flatbuffer, whose root lies in it.
 * https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format */
static bool is_arrow_stream(const uint8_t *data, size_t bytes, size_t whole) {
  if (bytes < 12 || little_endian_32(data) != UINT32_MAX) return false;
  const uint32_t length = little_endian_32(data + 4), root = little_endian_32(data + 8);
  return length > 8 && length % 8 == 0 && length <= whole - 8 && root >= 4 && root < length;
}

/* The length of a header, and the header: an object in JSON. */
static bool is_safetensors(const uint8_t *data, size_t bytes, size_t whole) {
  if (bytes < 10) return false;
  const uint64_t length = little_endian_64(data);
  return length >= 2 && length <= whole - 8 && data[8] == '{' && (data[9] == '"' || data[9] == '}');
}

static bool is_tar(const uint8_t *data, size_t bytes, size_t whole) {
  (void)whole;
  return bytes >= 512 && memcmp(data + 257, "ustar", 5) == 0;
}

/* The length of the first record, and its masked CRC-32C (tfrecord.c). */
static bool is_tfrecord(const uint8_t *data, size_t bytes, size_t whole) {
  if (bytes < 12 || whole < 16 || little_endian_64(data) > whole - 16) return false;
  const uint32_t rotated = little_endian_32(data + 8) - 0xa282ead8u;
  return (rotated >> 17 | rotated << 15) == crc32c(0, data, 8);
}

/* Protocol 4 or 5, which begins with a frame of a length. */
static bool is_pickle(const uint8_t *data, size_t bytes, size_t whole) {
  return bytes >= 11 && data[0] == 0x80 && (data[1] == 4 || data[1] == 5) && data[2] == 0x95 &&
         little_endian_64(data + 3) <= whole - 11;
}

/* "BZh" and the size of blocks, and the first block, which begins with pi. */
static bool is_bzip2(const uint8_t *data, size_t bytes, size_t whole) {
  (void)whole;
  return bytes >= 10 && memcmp(data, "BZh", 3) == 0 && memcmp(data + 4, "1AY&SY", 6) == 0;
}

/* ---- all of them ---------------------------------------------------------------------------------------------------
 */

#define BYTES(text) text, sizeof(text) - 1, NULL
#define COLUMNS     "write its columns as .npy files, tokens or lines of JSON"

static const struct known {
  const char *bytes;
  size_t count;
  bool (*is)(const uint8_t *data, size_t bytes, size_t whole); /* instead of `bytes` */
  struct magic magic;
} known[] = {
    {BYTES("\x93NUMPY"), {"a .npy file of numpy's", "source.npy reads its rows"}},
    {BYTES("PK\3\4"), {"a zip archive, as .npz files are", "source.npz reads the arrays of an .npz file"}},
    {BYTES("PK\5\6"), {"an empty zip archive", "it holds nothing"}},
    {BYTES("\x1f\x8b\x08"), {"gzipped", "`gunzip` it"}},
    {BYTES("\x28\xb5\x2f\xfd"), {"compressed by zstd", "`zstd -d` it"}},
    {BYTES("\xfd\x37zXZ\0"), {"compressed by xz", "`unxz` it"}},
    {BYTES("\x04\x22\x4d\x18"), {"compressed by lz4", "`unlz4` it"}},
    {BYTES("PAR1\x15"), {"a Parquet file", "source.parquet reads its columns"}},
    {BYTES("ARROW1\0\0"), {"an Arrow file", "source.arrow reads its columns"}},
    {BYTES("MMIDIDX\0\0"), {"Megatron's index of documents", "source.megatron reads it and the .bin file beside it"}},
    {BYTES("TNTIDX\0\0"), {"fairseq's index of documents", "its tokens are in the .bin file beside it"}},
    {BYTES("\x89HDF\r\n\x1a\n"), {"an HDF5 file", "source.hdf5 reads its datasets"}},
    {BYTES("SQLite format 3\0"), {"an SQLite database", COLUMNS}},
    {BYTES("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"),
     {"a file of torch.save's", "write it as .npy or safetensors"}},
    {BYTES("\x83\xaf\x70\xd1\x0d\x88\x4a\x3f\0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
     {"a Riegeli file, as ArrayRecords are", "source.array_record reads ArrayRecords"}},
    {NULL, 0, is_bzip2, {"compressed by bzip2", "`bunzip2` it"}},
    {NULL, 0, is_arrow_stream, {"an Arrow stream", "source.arrow reads its columns"}},
    {NULL, 0, is_safetensors, {"a safetensors file", "source.safetensors reads its arrays"}},
    {NULL, 0, is_tfrecord, {"a TFRecord file", "source.tfrecord reads its records"}},
    {NULL, 0, is_tar, {"a tar archive", "source.tar reads its samples"}},
    {NULL, 0, is_pickle, {"a pickle", "write it as .npy or safetensors"}},
};

const struct magic *magic_find(const uint8_t *data, size_t bytes, size_t whole) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const struct known *k = &known[i];
    const bool found =
        k->is != NULL ? k->is(data, bytes, whole) : bytes >= k->count && memcmp(data, k->bytes, k->count) == 0;
    if (found) return &k->magic;
  }
  return NULL;
}

static enum unpack_kind find_packed(const uint8_t *head, size_t bytes, size_t whole) {
  uint8_t first[12];
  if (is_tfrecord(head, bytes, whole)) return UNPACK_NONE;
  const enum unpack_kind kind = unpack_kind_of(head, bytes);
  const bool is_zlib = bytes >= 2 && (head[0] & 0x0f) == 8 && (head[0] << 8 | head[1]) % 31 == 0;
  if (kind != UNPACK_NONE || !is_zlib) return kind;
  return is_tfrecord(first, unpacked_peek(UNPACK_ZLIB, head, bytes, first, sizeof first), SIZE_MAX) ? UNPACK_ZLIB
                                                                                                    : UNPACK_NONE;
}

int magic_unpack(struct stored *file, const shardrt_source_options *options) {
  uint8_t head[MAGIC_BYTES];
  const size_t bytes = file->bytes < sizeof head ? file->bytes : sizeof head;
  struct reader reader = {0};
  int code = stored_read(file, 0, bytes, &reader, head);
  reader_clear(&reader);
  if (code < 0) return code;
  const enum unpack_kind kind = find_packed(head, bytes, file->bytes);
  return kind != UNPACK_NONE ? unpacked_replace(file, kind, options) : SHARDRT_OK;
}

bool magic_is_text(const uint8_t *data, size_t bytes) {
  size_t at = 0;
  for (size_t length; at < bytes; at += length) {
    length = utf8_length(data + at, bytes - at);
    if (length == 0) break;
    if (data[at] == 0x7f || (data[at] < ' ' && strchr("\t\n\r\f", data[at]) == NULL) || data[at] == '\0') return false;
  }
  return at >= TEXT_LEAST && bytes - at < UTF8_AT_MOST; /* a character may be cut off */
}
