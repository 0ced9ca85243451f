/* index.c - the index beside a file (dataset/index_file.h), as somebody else could have put it there: the input is the
 * index, whose footer is made to fit its file. The kind that it tells of says which format the file is opened as. */
#include "dataset/index_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../fuzz.h"
#include "base/crc32c.h"

/* The footer, as index_file.c has it. */
struct footer {
  char kind[48];
  int64_t file_bytes;
  int64_t file_changed;
  int64_t rows;
  int32_t columns;
  uint32_t names_bytes;
  uint32_t crc;
  uint32_t zero;
  char magic[8];
};

static void repair(uint8_t *data, size_t size, const char *path) {
  struct footer footer;
  struct stat status;
  if (size < sizeof footer || stat(path, &status) != 0) return;
  memcpy(&footer, data + size - sizeof footer, sizeof footer);
  memcpy(footer.magic, "shrdidx2", sizeof footer.magic);
  footer.file_bytes = status.st_size;
  footer.file_changed = (int64_t)status.st_mtim.tv_sec * 1000000000 + (int64_t)status.st_mtim.tv_nsec;
  const size_t row = footer.columns > 0 ? (size_t)footer.columns * sizeof(struct index_entry) : 0;
  const size_t before = size - sizeof footer;
  if (row > 0 && footer.names_bytes <= before) footer.rows = (int64_t)((before - footer.names_bytes) / row);
  footer.crc = 0;
  footer.crc = crc32c(crc32c(0, data, before), &footer, sizeof footer);
  memcpy(data + before, &footer, sizeof footer);
}

void fuzz_index(const uint8_t *data, size_t size) {
  static const char *const formats[] = {"tfrecord", "tar", "csv", "mds", "safetensors"};
  static const char text[] = "a,b\n1,2.5\n3,4\n\"x\",7\n";
  const size_t length = sizeof text - 1;
  const char *format = formats[0];
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (size >= sizeof(struct footer) && memcmp(data + size - sizeof(struct footer), formats[i], 3) == 0)
      format = formats[i];
  uint8_t *copy = fuzz_copy(data, size);
  const char *path = fuzz_write("x", text, length);
  repair(copy, size, path);
  fuzz_write("x.shardrt-index", copy, size);
  fuzz_open_both(format, path);
  free(copy);
}
