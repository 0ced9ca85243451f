/* tfrecord.c - a TFRecord file of tf.train.Example: the input as it is, and with all checksums put right. */
#include <stdlib.h>
#include <string.h>

#include "../../fuzz.h"
#include "base/crc32c.h"

enum { HEAD = 8, CRC = 4 };

static void put_crc(uint8_t *at, const uint8_t *data, size_t bytes) {
  const uint32_t crc = crc32c(0, data, bytes), masked = (crc >> 15 | crc << 17) + 0xa282ead8u;
  memcpy(at, &masked, CRC);
}

static void repair(uint8_t *data, size_t size) {
  while (size >= HEAD + CRC) {
    uint64_t length;
    memcpy(&length, data, HEAD);
    put_crc(data + HEAD, data, HEAD);
    if (size - HEAD - CRC < CRC || length > size - HEAD - CRC - CRC) return;
    put_crc(data + HEAD + CRC + length, data + HEAD + CRC, length);
    data += HEAD + CRC + length + CRC;
    size -= HEAD + CRC + length + CRC;
  }
}

void fuzz_tfrecord(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  repair(copy, size);
  fuzz_open_files("tfrecord", fuzz_write("as-it-is.tfrecord", data, size), NULL);
  fuzz_open_files("tfrecord", fuzz_write("repaired.tfrecord", copy, size), NULL);
  free(copy);
}
