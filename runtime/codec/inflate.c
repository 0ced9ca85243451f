#include "codec/inflate.h"

#include "base/alloc.h"
#include "base/error.h"

enum { ANY_WRAPPER = 15 + 32 }; /* zlib's or gzip's, and the largest window */

static voidpf take_memory(voidpf unused, uInt n, uInt size) {
  (void)unused;
  return alloc_array(n, size);
}

static void give_memory(voidpf unused, voidpf memory) {
  (void)unused;
  alloc_free(memory);
}

z_stream inflate_stream(void) {
  return (z_stream){.zalloc = take_memory, .zfree = give_memory};
}

static void *inflater_new(const void *owner) {
  (void)owner;
  z_stream *stream = alloc_array(1, sizeof *stream);
  if (stream == NULL) return NULL;
  *stream = inflate_stream();
  if (inflateInit2(stream, ANY_WRAPPER) == Z_OK) return stream;
  alloc_free(stream);
  return NULL;
}

static void inflater_free(void *stream) {
  inflateEnd(stream);
  alloc_free(stream);
}

int inflate_into(const uint8_t *data, size_t data_bytes, uint8_t *dst, size_t room, struct reader *reader,
                 size_t *bytes) {
  static const char owner = 0; /* its address */
  z_stream *stream = reader_state(reader, &owner, inflater_new, inflater_free);
  if (stream == NULL) return ALLOC_FAILED;
  if (data_bytes > INT32_MAX || room > INT32_MAX)
    return error_set(SHARDRT_EFORMAT, "%zu bytes that hold up to %zu; at most %d can be decoded", data_bytes, room,
                     INT32_MAX);
  inflateReset(stream);
  stream->next_in = (Bytef *)data;
  stream->avail_in = (uInt)data_bytes;
  stream->next_out = dst;
  stream->avail_out = (uInt)room;
  int code = inflate(stream, Z_FINISH);
  uint8_t beyond; /* where it gives all that there is room for, whether that is its end */
  if (code == Z_BUF_ERROR && stream->avail_out == 0) {
    stream->next_out = &beyond;
    stream->avail_out = 1;
    code = inflate(stream, Z_FINISH);
    if (stream->avail_out == 0)
      return error_set(SHARDRT_EFORMAT, "it decodes to more than %zu bytes, which is what a chunk of this array has",
                       room);
    stream->avail_out = 0;
  }
  if (code == Z_MEM_ERROR) return ALLOC_FAILED;
  if (code != Z_STREAM_END)
    return error_set(SHARDRT_EFORMAT, "damaged: %s", stream->msg != NULL ? stream->msg : "it is cut off");
  if (stream->avail_in != 0)
    return error_set(SHARDRT_EFORMAT, "damaged: %u bytes stand behind its end", stream->avail_in);
  *bytes = room - stream->avail_out;
  return SHARDRT_OK;
}
