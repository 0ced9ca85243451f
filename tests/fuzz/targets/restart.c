/* restart.c - the table of places at which a compressed file can be taken up (storage/restart_table.h), as somebody
 * else could have put it beside the file: the input is the table, whose footer and checksums are made to fit. */
#include "storage/restart_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "../fuzz.h"
#include "base/crc32c.h"

enum { CONTENT = 1 << 14, GZIP = 15 + 16 };

/* What the file holds: tokens that compress a little. */
static void fill_content(uint8_t content[CONTENT]) {
  uint32_t x = 1;
  for (size_t i = 0; i < CONTENT; i++) {
    x = x * 1103515245u + 12345u;
    content[i] = (uint8_t)(x >> 28);
  }
}

static size_t pack_content(uint8_t *content, uint8_t *packed, size_t room) {
  z_stream stream = {.next_in = content, .avail_in = CONTENT, .next_out = packed, .avail_out = (uInt)room};
  if (deflateInit2(&stream, 1, Z_DEFLATED, GZIP, 1, Z_DEFAULT_STRATEGY) != Z_OK) fuzz_fault("out of memory");
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) fuzz_fault("what was to be compressed was not");
  deflateEnd(&stream);
  return room - stream.avail_out;
}

/* Of a size that is a multiple of 8. */
static void repair(uint8_t *data, size_t size, const char *path, const uint8_t *content) {
  struct restart_footer footer;
  struct stat status;
  const size_t before = size - sizeof footer, most = before / sizeof(struct restart_point);
  if (stat(path, &status) != 0) fuzz_fault("no file");
  memcpy(&footer, data + before, sizeof footer);
  memcpy(footer.magic, "shrdrst1", sizeof footer.magic);
  footer.points = footer.points % most + 1;
  footer.kind = UNPACK_GZIP;
  footer.file_bytes = (uint64_t)status.st_size;
  footer.file_changed = (uint64_t)status.st_mtim.tv_sec * 1000000000 + (uint64_t)status.st_mtim.tv_nsec;
  footer.bytes = footer.longest = CONTENT;
  struct restart_point *points = (struct restart_point *)(void *)(data + before) - footer.points;
  points[0].at = points[0].first = 0;
  for (uint64_t i = 0; i < footer.points; i++) {
    const uint64_t end = i + 1 < footer.points ? points[i + 1].first : CONTENT;
    if (points[i].first <= end && end <= CONTENT)
      points[i].crc = crc32c(0, content + points[i].first, (size_t)(end - points[i].first));
  }
  footer.crc = 0;
  footer.crc = crc32c(crc32c(0, points, footer.points * sizeof *points), &footer, sizeof footer);
  memcpy(data + before, &footer, sizeof footer);
}

void fuzz_restart(const uint8_t *data, size_t size) {
  static const shardrt_token_options options = {.window = 300, .stride = 250, .dtype = SHARDRT_UINT8};
  static uint8_t content[CONTENT], packed[2 * CONTENT];
  shardrt_source *source = NULL;
  size -= size % 8;
  if (size < sizeof(struct restart_footer) + sizeof(struct restart_point)) return;
  setenv("SHARDRT_UNPACKED_BYTES", "0", 1);
  fill_content(content);
  uint8_t *copy = fuzz_copy(data, size);
  const char *path = fuzz_write("x.gz", packed, pack_content(content, packed, sizeof packed));
  repair(copy, size, path, content);
  fuzz_write("x.gz.restart.shardrt-index", copy, size);
  fuzz_opened(shardrt_source_tokens(path, &options, &source), &source);
  unsetenv("SHARDRT_UNPACKED_BYTES");
  free(copy);
}
