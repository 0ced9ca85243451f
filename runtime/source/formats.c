/* formats.c - the list of formats that are opened by their name. */
#include <string.h>

#include "base/error.h"
#include "source/formats.h"

static const source_format *const formats[] = {
    &npy_format,
    &idx_format,
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

const char *shardrt_source_format(int32_t i) {
  return i >= 0 && i < FORMATS ? formats[i]->name : NULL;
}

int shardrt_source_open(const char *format, int32_t nfields, const char *const *names, const char *const *paths,
                        const shardrt_source_options *options, shardrt_source **out) {
  static const shardrt_source_options defaults = {0};
  for (size_t i = 0; i < FORMATS; i++) {
    if (strcmp(format, formats[i]->name) != 0) continue;
    int code = source_check_names(format, nfields, names);
    if (code < 0) return code;
    return formats[i]->open(nfields, names, paths, options != NULL ? options : &defaults, out);
  }
  return error_set(SHARDRT_EINVAL, "a source of the format \"%s\", which shardrt does not know", format);
}
