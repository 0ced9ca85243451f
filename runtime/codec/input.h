/* input.h - bytes that are read by their offset, wherever they lie: what parsers of files take. */
#ifndef SHARDRT_CODEC_INPUT_H
#define SHARDRT_CODEC_INPUT_H

#include "storage/local/reader.h"

struct input {
  const char *title; /* for messages: "the file a.tar" */
  size_t bytes;
  /* Gives `bytes` bytes from `offset` on, in memory or the reader's arena. EFORMAT: beyond the end. */
  int (*get)(const void *of, size_t offset, size_t bytes, struct reader *arena, const uint8_t **out);
  const void *of;
};

static inline int input_get(const struct input *self, size_t offset, size_t bytes, struct reader *arena,
                            const uint8_t **out) {
  return self->get(self->of, offset, bytes, arena, out);
}

#endif
