/* formats.c - the list of formats that are opened by their name. */
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "dataset/formats.h"

static const struct source_format *const formats[] = {
    &npy_format,          &zarr_format, &hdf5_format,    &safetensors_format,  &idx_format, &tfrecord_format,
    &array_record_format, &mds_format,  &tar_format,     &image_folder_format, &csv_format, &jsonl_format,
    &cifar_format,        &npz_format,  &parquet_format, &arrow_format,
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

const char *shardrt_source_format(int32_t i) {
  return i >= 0 && i < FORMATS ? formats[i]->name : NULL;
}

static const struct source_format *find_format(const char *name) {
  for (size_t i = 0; i < FORMATS; i++)
    if (strcmp(formats[i]->name, name) == 0) return formats[i];
  return NULL;
}

bool shardrt_source_format_has_files(const char *format) {
  const struct source_format *found = find_format(format);
  return found != NULL && found->open_files != NULL;
}

static int refuse_format(const char *format) {
  return error_set(SHARDRT_EINVAL, "a source of the format \"%s\", which shardrt does not know", format);
}

static const shardrt_source_options defaults = {0};

/* Lua counts by doubles, which hold whole numbers up to 2^53; a header that says more is damaged. */
static int check_countable(shardrt_source **out) {
  static const int64_t most = (int64_t)1 << 53;
  shardrt_source *source = *out;
  if (source->count <= most) return SHARDRT_OK;
  const int code = error_set(SHARDRT_EINVAL, "%s: %lld samples, more than the 2^53 that can be counted",
                             source->files[0].title, (long long)source->count);
  shardrt_source_free(source);
  *out = NULL;
  return code;
}

int shardrt_source_open(const char *format, int32_t nfields, const char *const *names, const char *const *paths,
                        const shardrt_source_options *options, shardrt_source **out) {
  const struct source_format *found = find_format(format);
  if (found == NULL || found->open == NULL) return refuse_format(format);
  int code = source_check_names(format, nfields, names);
  if (code == SHARDRT_OK) code = found->open(nfields, names, paths, options != NULL ? options : &defaults, out);
  return code == SHARDRT_OK ? check_countable(out) : code;
}

/* Those asked for have names of their own, and shapes whose elements can be counted. */
static int check_fields(const char *format, int32_t nfields, const shardrt_field *fields) {
  for (int32_t f = 0; f < nfields; f++) {
    const shardrt_field *field = &fields[f];
    if (field->name == NULL || field->name[0] == '\0')
      return error_set(SHARDRT_EINVAL, "source.%s: a field without a name", format);
    for (int32_t other = 0; other < f; other++)
      if (strcmp(field->name, fields[other].name) == 0)
        return error_set(SHARDRT_EINVAL, "source.%s: the field \"%s\" stands twice", format, field->name);
    if (field->ndim > SHARDRT_MAX_NDIM || (field->dtype >= 0 && shardrt_dtype_size(field->dtype) == 0))
      return error_set(SHARDRT_EINVAL, "source.%s, field \"%s\": no dtype, or more than %d dimensions", format,
                       field->name, SHARDRT_MAX_NDIM);
    int64_t known[SHARDRT_MAX_NDIM];
    size_t bytes;
    for (int32_t d = 0; d < field->ndim; d++) known[d] = field->shape[d] == -1 ? 1 : field->shape[d];
    if (field->ndim > 0 && !size_bytes(field->ndim, known, 8, &bytes))
      return error_set(SHARDRT_EINVAL,
                       "source.%s, field \"%s\": its sizes are not from 0 on (-1: it differs), or do "
                       "not fit in 64 bits",
                       format, field->name);
  }
  return SHARDRT_OK;
}

int shardrt_source_files(const char *format, int32_t npaths, const char *const *paths, int32_t nfields,
                         const shardrt_field *fields, const shardrt_source_options *options, shardrt_source **out) {
  const struct source_format *found = find_format(format);
  if (found == NULL || found->open_files == NULL) return refuse_format(format);
  if (npaths < 1) return error_set(SHARDRT_EINVAL, "source.%s: no file is given", format);
  int code = check_fields(format, nfields, fields);
  if (code == SHARDRT_OK)
    code = found->open_files(npaths, paths, nfields, fields, options != NULL ? options : &defaults, out);
  return code == SHARDRT_OK ? check_countable(out) : code;
}
