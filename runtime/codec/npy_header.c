#include "codec/npy_header.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"

static const char magic[] = "\x93NUMPY";

enum {
  MAGIC_BYTES = sizeof magic - 1,
  PREFIX_V1 = MAGIC_BYTES + 2 + 2, /* bytes before the dict: magic, version, length */
  PREFIX_V2 = MAGIC_BYTES + 2 + 4,
  DESCR_AT_MOST = 64,
};

/* What numpy calls the dtypes, little-endian. numpy has no bfloat16: ml_dtypes (JAX's) is written as '<V2', which no
 * other dtype is: numpy's own two opaque bytes are '|V2'. */
static const char *const descrs[SHARDRT_DTYPE_COUNT] = {
    [SHARDRT_BOOL] = "|b1",    [SHARDRT_INT8] = "|i1",    [SHARDRT_INT16] = "<i2",    [SHARDRT_INT32] = "<i4",
    [SHARDRT_INT64] = "<i8",   [SHARDRT_UINT8] = "|u1",   [SHARDRT_UINT16] = "<u2",   [SHARDRT_UINT32] = "<u4",
    [SHARDRT_UINT64] = "<u8",  [SHARDRT_FLOAT16] = "<f2", [SHARDRT_BFLOAT16] = "<V2", [SHARDRT_FLOAT32] = "<f4",
    [SHARDRT_FLOAT64] = "<f8",
};

/* ---- the dict literal ---- */

/* Where reading it stands; `path` is for messages. */
struct dict_text {
  const char *path;
  const char *at;
  const char *end;
};

static void skip_space(struct dict_text *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool accept_char(struct dict_text *r, char c) {
  skip_space(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool accept_word(struct dict_text *r, const char *word) {
  skip_space(r);
  const size_t length = strlen(word);
  if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
  r->at += length;
  return true;
}

static int malformed_header(const struct dict_text *r, const char *expected) {
  return error_set(SHARDRT_EFORMAT, "%s: malformed .npy header: expected %s", r->path, expected);
}

/* A text in quotes, without escapes. */
static int read_text(struct dict_text *r, const char *what, char *text, size_t room) {
  skip_space(r);
  const char quote = r->at < r->end ? *r->at : '\0';
  if (quote != '\'' && quote != '"') return malformed_header(r, what);
  const char *first = ++r->at;
  while (r->at < r->end && *r->at != quote && *r->at >= ' ' && *r->at <= '~' && *r->at != '\\') r->at++;
  const size_t length = (size_t)(r->at - first);
  if (r->at == r->end || *r->at != quote || length >= room) return malformed_header(r, what);
  memcpy(text, first, length);
  text[length] = '\0';
  r->at++;
  return SHARDRT_OK;
}

static int read_size(struct dict_text *r, int64_t *out) {
  skip_space(r);
  if (r->at == r->end || *r->at < '0' || *r->at > '9')
    return malformed_header(r, r->at < r->end && *r->at == '-' ? "sizes that are not negative in 'shape'"
                                                               : "a tuple of sizes for 'shape'");
  int64_t value = 0;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *r->at - '0', &value))
      return error_set(SHARDRT_EOVERFLOW, "%s: its header has a size that does not fit in 64 bits", r->path);
  if (r->at < r->end && *r->at == 'L') r->at++; /* Python 2 wrote 3L */
  *out = value;
  return SHARDRT_OK;
}

static int read_shape(struct dict_text *r, struct npy_header *out) {
  if (!accept_char(r, '(')) return malformed_header(r, "a tuple of sizes for 'shape'");
  out->ndim = 0;
  bool comma = true; /* (3) is a number in Python, (3,) a tuple */
  while (!accept_char(r, ')')) {
    if (!comma) return malformed_header(r, "a comma or ) in 'shape'");
    if (out->ndim == SHARDRT_MAX_NDIM)
      return error_set(SHARDRT_EFORMAT, "%s: has more than %d dimensions", r->path, SHARDRT_MAX_NDIM);
    int code = read_size(r, &out->shape[out->ndim]);
    if (code < 0) return code;
    out->ndim++;
    comma = accept_char(r, ',');
  }
  if (out->ndim == 1 && !comma) return malformed_header(r, "a tuple of sizes for 'shape'");
  return SHARDRT_OK;
}

/* The dtype of a descr such as "<f4", or ">f4", but not of ml_dtypes' "<V2". */
static int find_dtype(const char *path, const char *descr, struct npy_header *out) {
  for (int32_t d = 0; d < SHARDRT_DTYPE_COUNT; d++) {
    const bool no_order = descrs[d][0] == '|' && (descr[0] == '<' || descr[0] == '='); /* one byte has no order */
    const bool is_big = descr[0] == '>' && d != SHARDRT_BFLOAT16;
    if (strcmp(descr, descrs[d]) == 0 || ((no_order || is_big) && strcmp(descr + 1, descrs[d] + 1) == 0)) {
      out->dtype = d;
      out->big_endian = is_big && shardrt_dtype_size(d) > 1;
      return SHARDRT_OK;
    }
  }
  const char *why = "shardrt reads bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32 and float64";
  if (strchr(descr, 'O') != NULL)
    why = "Python objects, which only Python can read";
  else if (strchr(descr, 'S') != NULL || strchr(descr, 'U') != NULL)
    why = "text; shardrt reads numbers";
  else if (strchr(descr, 'c') != NULL)
    why = "complex numbers; save real and imaginary parts as two arrays";
  else if (strchr(descr, 'M') != NULL || strchr(descr, 'm') != NULL)
    why = "times; save them as int64";
  else if (strchr(descr, 'V') != NULL)
    why = "bytes without a meaning, as which numpy writes ml_dtypes' float8 and int4; save it as "
          "array.astype('float32'), or its bits as array.view('uint8')";
  return error_set(SHARDRT_EFORMAT, "%s: its dtype is '%s': %s", path, descr, why);
}

static int read_descr(struct dict_text *r, struct npy_header *out) {
  skip_space(r);
  if (r->at < r->end && (*r->at == '[' || *r->at == '('))
    return error_set(SHARDRT_EFORMAT,
                     "%s: its dtype is structured (several fields in one array); save one file for "
                     "each field",
                     r->path);
  char descr[DESCR_AT_MOST] = "";
  int code = read_text(r, "a dtype such as '<f4' for 'descr'", descr, sizeof descr);
  return code < 0 ? code : find_dtype(r->path, descr, out);
}

static int read_order(struct dict_text *r, struct npy_header *out) {
  out->fortran = accept_word(r, "True");
  return out->fortran || accept_word(r, "False") ? SHARDRT_OK
                                                 : malformed_header(r, "True or False for 'fortran_order'");
}

static int read_dict(struct dict_text *r, struct npy_header *out) {
  enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
  static const char keys[] = "a dict with 'descr', 'fortran_order' and 'shape', each once";
  int seen = 0;
  if (!accept_char(r, '{')) return malformed_header(r, keys);
  bool comma = true;
  while (!accept_char(r, '}')) {
    char key[DESCR_AT_MOST] = "";
    int code = comma ? read_text(r, keys, key, sizeof key) : malformed_header(r, "a comma or } between the entries");
    if (code < 0) return code;
    const int which = strcmp(key, "descr") == 0           ? DESCR
                      : strcmp(key, "fortran_order") == 0 ? ORDER
                      : strcmp(key, "shape") == 0         ? SHAPE
                                                          : 0;
    if (which == 0 || (seen & which) != 0 || !accept_char(r, ':')) return malformed_header(r, keys);
    seen |= which;
    code = which == DESCR ? read_descr(r, out) : which == ORDER ? read_order(r, out) : read_shape(r, out);
    if (code < 0) return code;
    comma = accept_char(r, ',');
  }
  skip_space(r);
  if (seen != (DESCR | ORDER | SHAPE)) return malformed_header(r, keys);
  return r->at == r->end ? SHARDRT_OK : malformed_header(r, "nothing but spaces behind the dict");
}

/* ---- the file ---- */

/* The dict's, as `bytes` bytes of the file tell it: at least PREFIX_V1. */
static size_t dict_length(const uint8_t *data, size_t bytes) {
  const size_t length = (size_t)data[MAGIC_BYTES + 2] | (size_t)data[MAGIC_BYTES + 3] << 8;
  if (data[MAGIC_BYTES] == 1 || bytes < PREFIX_V2) return length;
  return length | (size_t)data[MAGIC_BYTES + 4] << 16 | (size_t)data[MAGIC_BYTES + 5] << 24;
}

size_t npy_header_length(const uint8_t *first) {
  return (first[MAGIC_BYTES] == 1 ? PREFIX_V1 : PREFIX_V2) + dict_length(first, NPY_HEADER_FIRST);
}

/* Where the dict stands: its first byte and its length. */
static int find_dict(const char *path, const uint8_t *data, size_t bytes, size_t *offset, size_t *length) {
  if (bytes == 0) return error_set(SHARDRT_EFORMAT, "%s: is empty; a .npy file begins with a header", path);
  const size_t compared = bytes < MAGIC_BYTES ? bytes : MAGIC_BYTES;
  if (memcmp(data, magic, compared) != 0)
    return error_set(
        SHARDRT_EFORMAT, "%s: is no .npy file: it does not begin with \\x93NUMPY%s", path,
        memcmp(data, "PK", bytes < 2 ? bytes : 2) == 0 ? ", but as an archive does: source.npz reads .npz files" : "");
  if (bytes < PREFIX_V1)
    return error_set(SHARDRT_EFORMAT, "%s: is cut off within its header: it has %zu bytes", path, bytes);
  const uint8_t major = data[MAGIC_BYTES];
  const uint8_t minor = data[MAGIC_BYTES + 1];
  if (major < 1 || major > 3 || minor != 0)
    return error_set(SHARDRT_EFORMAT, "%s: .npy version %d.%d; 1.0, 2.0 and 3.0 can be read", path, major, minor);
  *offset = major == 1 ? PREFIX_V1 : PREFIX_V2;
  *length = dict_length(data, bytes);
  if (bytes < *offset || bytes - *offset < *length)
    return error_set(SHARDRT_EFORMAT, "%s: is cut off within its header, which is %zu bytes: the file has %zu", path,
                     *offset + *length, bytes);
  return SHARDRT_OK;
}

int npy_header_parse_head(const char *path, const uint8_t *data, size_t have, size_t bytes, struct npy_header *out) {
  size_t offset = 0;
  size_t length = 0;
  int code = find_dict(path, data, have, &offset, &length);
  if (code < 0) return code;
  struct npy_header header = {0};
  struct dict_text r = {.path = path, .at = (const char *)data + offset, .end = (const char *)data + offset + length};
  code = read_dict(&r, &header);
  if (code < 0) return code;
  header.data_offset = offset + length;
  size_t file_bytes;
  if (!size_bytes(header.ndim, header.shape, shardrt_dtype_size(header.dtype), &header.data_bytes) ||
      !size_add(header.data_bytes, header.data_offset, &file_bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: the sizes in its header multiply to more than 64 bits hold", path);
  if (bytes != file_bytes)
    return error_set(SHARDRT_EFORMAT, "%s: has %zu bytes, but its header tells of %zu: %s", path, bytes, file_bytes,
                     bytes < file_bytes ? "it is cut off" : "something stands behind the data");
  int32_t wide = 0; /* dimensions of more than one, of which several make the orders differ */
  for (int32_t d = 0; d < header.ndim; d++) wide += header.shape[d] > 1;
  header.fortran = header.fortran && wide > 1 && header.data_bytes > 0;
  *out = header;
  return SHARDRT_OK;
}

int npy_header_parse(const char *path, const uint8_t *data, size_t bytes, struct npy_header *out) {
  return npy_header_parse_head(path, data, bytes, bytes, out);
}

size_t npy_header_write(int32_t dtype, int32_t ndim, const int64_t *shape, char text[NPY_HEADER_AT_MOST]) {
  /* The dict is at most 60 bytes and 21 for each dimension: it fits, padded, for SHARDRT_MAX_NDIM of them. */
  char *dict = text + PREFIX_V1;
  const size_t room = NPY_HEADER_AT_MOST - PREFIX_V1;
  size_t used = (size_t)snprintf(dict, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", descrs[dtype]);
  for (int32_t d = 0; d < ndim; d++)
    used += (size_t)snprintf(dict + used, room - used,
                             d + 1 < ndim ? "%lld, "
                             : ndim == 1  ? "%lld,"
                                          : "%lld",
                             (long long)shape[d]);
  used += (size_t)snprintf(dict + used, room - used, "), }");
  const size_t total = (PREFIX_V1 + used + 1 + 63) / 64 * 64;
  const size_t length = total - PREFIX_V1;
  memset(dict + used, ' ', length - used - 1);
  dict[length - 1] = '\n';
  memcpy(text, magic, MAGIC_BYTES);
  text[MAGIC_BYTES] = 1;
  text[MAGIC_BYTES + 1] = 0;
  text[MAGIC_BYTES + 2] = (char)(length & 0xff);
  text[MAGIC_BYTES + 3] = (char)(length >> 8);
  return total;
}
