#include "dataset/chunked/hdf5_file.h"

#ifndef SHARDRT_WITHOUT_HDF5

#include <hdf5.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "dataset/chunked/hdf5_driver.h"

/* Debian's library is built to be called by many threads, others are not. */
static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static H5E_auto2_t print;   /* what the library calls where something fails, outside of our calls, */
static void *print_context; /* and what it hands over: a program may use the library, too */

/* Before the library is asked: it prints what fails, if it is let. */
static void library_enter(void) {
  pthread_mutex_lock(&library);
  H5Eget_auto2(H5E_DEFAULT, &print, &print_context);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static void library_leave(void) {
  H5Eset_auto2(H5E_DEFAULT, print, print_context);
  pthread_mutex_unlock(&library);
}

/* ---- what releases of the library do differently ---- */

/* What an object is: the call and what it fills have other names since 1.12. */
#if H5_VERSION_GE(1, 12, 0)
typedef H5O_info2_t object_info;
#define object_ask H5Oget_info3
#else
typedef H5O_info_t object_info;
#define object_ask H5Oget_info2
#endif

/* Where the library says that the only chunk of a file with a user block lies. The file is in memory: its path is one
 * that no file on the disk can have. HADDR_UNDEF: that failed. */
static haddr_t chunk_behind(hsize_t user_block) {
  const hsize_t one = 1, first = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t size = 0;
  unsigned mask = 0;
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
  const hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &one, NULL);
  const bool ready = H5Pset_fapl_core(access, 1 << 12, false) >= 0 && H5Pset_userblock(creation, user_block) >= 0 &&
                     H5Pset_chunk(list, 1, &one) >= 0 && H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0;
  const hid_t file = ready ? H5Fcreate("/dev/null/user-block", H5F_ACC_TRUNC, creation, access) : -1;
  const hid_t dataset = file >= 0 ? H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, list, H5P_DEFAULT) : -1;
  if (dataset < 0 || H5Dget_chunk_info_by_coord(dataset, &first, &mask, &address, &size) < 0) address = HADDR_UNDEF;
  if (dataset >= 0) H5Dclose(dataset);
  if (file >= 0) H5Fclose(file);
  if (space >= 0) H5Sclose(space);
  if (list >= 0) H5Pclose(list);
  if (creation >= 0) H5Pclose(creation);
  if (access >= 0) H5Pclose(access);
  return address;
}

/* What is to be added to the address of a chunk in a file with this user block. Up to 1.14.3 the library counts from
 * the block's end; since then from the file's begin. Which it is, two small files tell: a release's number would not
 * where somebody brought the change to another one. */
static bool chunk_base(hsize_t user_block, uint64_t *base) {
  static enum { UNKNOWN, FROM_END, FROM_BEGIN } counts;
  const hsize_t least = 512;
  if (counts == UNKNOWN && user_block != 0) {
    const haddr_t without = chunk_behind(0), with = chunk_behind(least);
    if (without != HADDR_UNDEF && with == without) counts = FROM_END;
    if (without != HADDR_UNDEF && with == without + least) counts = FROM_BEGIN;
  }
  *base = counts == FROM_END ? user_block : 0;
  return counts != UNKNOWN || user_block == 0;
}

/* ---- failures ---- */

enum { REASON = 256 };

static herr_t keep_reason(unsigned n, const H5E_error2_t *entry, void *reason) {
  if (n == 0 && entry->desc != NULL) {
    strncpy(reason, entry->desc, REASON - 1);
    ((char *)reason)[REASON - 1] = '\0';
  }
  return 0;
}

/* With the library's innermost reason. */
static int refuse_dataset(int code, const char *path, const char *name, const char *what) {
  char reason[REASON] = "";
  int why = SHARDRT_EIO;
  const char *remote = hdf5_driver_failure(&why);
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_reason, reason);
  H5Eclear2(H5E_DEFAULT);
  if (remote[0] != '\0') return error_set(why, "%s:%s: %s", path, name, remote);
  return error_set(code, "%s:%s: %s%s%s", path, name, what, reason[0] != '\0' ? ": " : "", reason);
}

/* ---- what a dataset is ---- */

/* IEEE's half precision, which the library has no name for. */
static hid_t half_type(bool big) {
  const hid_t type = H5Tcopy(big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_ebias(type, 15);
  H5Tset_size(type, 2);
  return type;
}

/* How h5py writes numpy's bool: an enumeration of FALSE and TRUE. */
static bool is_bool(hid_t type) {
  static const char *const names[] = {"FALSE", "TRUE"};
  if (H5Tget_class(type) != H5T_ENUM || H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  for (unsigned i = 0; i < 2; i++) {
    int8_t value = -1;
    char *name = H5Tget_member_name(type, i);
    const bool fits = name != NULL && H5Tget_member_value(type, i, &value) >= 0 && value >= 0 && value < 2 &&
                      strcmp(name, names[value]) == 0;
    H5free_memory(name);
    if (!fits) return false;
  }
  return true;
}

/* -1: none of shardrt's. */
static int32_t find_type(hid_t type, bool *swap) {
  const struct {
    int32_t dtype;
    hid_t little, big;
  } known[] = {
      {SHARDRT_INT8, H5T_STD_I8LE, H5T_STD_I8BE},        {SHARDRT_INT16, H5T_STD_I16LE, H5T_STD_I16BE},
      {SHARDRT_INT32, H5T_STD_I32LE, H5T_STD_I32BE},     {SHARDRT_INT64, H5T_STD_I64LE, H5T_STD_I64BE},
      {SHARDRT_UINT8, H5T_STD_U8LE, H5T_STD_U8BE},       {SHARDRT_UINT16, H5T_STD_U16LE, H5T_STD_U16BE},
      {SHARDRT_UINT32, H5T_STD_U32LE, H5T_STD_U32BE},    {SHARDRT_UINT64, H5T_STD_U64LE, H5T_STD_U64BE},
      {SHARDRT_FLOAT32, H5T_IEEE_F32LE, H5T_IEEE_F32BE}, {SHARDRT_FLOAT64, H5T_IEEE_F64LE, H5T_IEEE_F64BE},
  };
  int32_t dtype = is_bool(type) ? SHARDRT_BOOL : -1;
  for (size_t i = 0; i < sizeof known / sizeof *known && dtype < 0; i++) {
    const bool little = H5Tequal(type, known[i].little) > 0;
    if (!little && H5Tequal(type, known[i].big) <= 0) continue;
    dtype = known[i].dtype;
    *swap = !little && shardrt_dtype_size(dtype) > 1;
  }
  for (int32_t big = 0; big < 2 && dtype < 0; big++) {
    const hid_t half = half_type(big != 0);
    if (H5Tequal(type, half) > 0) {
      dtype = SHARDRT_FLOAT16;
      *swap = big != 0;
    }
    H5Tclose(half);
  }
  return dtype;
}

/* The fill value as it stands in the file, turned around where that is needed. */
static bool read_fill(hid_t list, hid_t type, struct hdf5_dataset *out) {
  H5D_fill_value_t defined;
  const size_t bytes = shardrt_dtype_size(out->dtype);
  uint8_t value[8] = {0};
  if (H5Pfill_value_defined(list, &defined) < 0) return false;
  if (defined != H5D_FILL_VALUE_USER_DEFINED) return true;
  if (H5Pget_fill_value(list, type, value) < 0) return false;
  for (size_t i = 0; i < bytes; i++) out->fill[i] = value[out->swap ? bytes - 1 - i : i];
  return true;
}

static int read_type(struct hdf5_dataset *out, hid_t list, const char *path, const char *name) {
  static const char *const classes[] = {"numbers",   "numbers",    "times",        "texts",       "bit fields", "bytes",
                                        "compounds", "references", "enumerations", "ragged ones", "arrays"};
  const hid_t type = H5Dget_type(out->id);
  out->dtype = type >= 0 ? find_type(type, &out->swap) : -1;
  const int32_t class = type >= 0 ? (int32_t)H5Tget_class(type) : -1;
  const bool fill = out->dtype >= 0 && read_fill(list, type, out);
  if (type >= 0) H5Tclose(type);
  if (out->dtype < 0)
    return error_set(SHARDRT_EFORMAT,
                     "%s:%s: its elements are %s; shardrt reads integers of 8 to 64 bits and floats of 16, 32 and 64, "
                     "and h5py's bool; rewriting it as one of these would do",
                     path, name,
                     class > 1 && class < (int32_t)(sizeof classes / sizeof *classes) ? classes[class]
                                                                                      : "numbers of another kind");
  return fill ? SHARDRT_OK : refuse_dataset(SHARDRT_EFORMAT, path, name, "its fill value");
}

static int read_shape(struct hdf5_dataset *out, const char *path, const char *name) {
  hsize_t shape[H5S_MAX_RANK] = {0}, most[H5S_MAX_RANK] = {0};
  const hid_t space = H5Dget_space(out->id);
  const int ndim = space >= 0 ? H5Sget_simple_extent_dims(space, shape, most) : -1;
  if (space >= 0) H5Sclose(space);
  if (ndim < 0) return refuse_dataset(SHARDRT_EFORMAT, path, name, "it has no shape");
  if (ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EFORMAT, "%s:%s: has %d dimensions; at most %d are read", path, name, ndim,
                     SHARDRT_MAX_NDIM);
  out->ndim = ndim;
  for (int32_t d = 0; d < ndim; d++) {
    out->shape[d] = out->chunk[d] = shape[d] > INT64_MAX ? -1 : (int64_t)shape[d];
    if (most[d] != H5S_UNLIMITED && shape[d] > most[d])
      return error_set(SHARDRT_EFORMAT,
                       "%s:%s: dimension %d has size %llu, and may have %llu at most: what describes it is damaged",
                       path, name, (int)d, (unsigned long long)shape[d], (unsigned long long)most[d]);
  }
  return SHARDRT_OK;
}

/* Whether elements in one piece are as many as the shape has: the file says both. */
static int check_contiguous(const struct hdf5_dataset *self, const char *path, const char *name) {
  const hsize_t stored = H5Dget_storage_size(self->id);
  size_t bytes;
  if (size_bytes(self->ndim, self->shape, shardrt_dtype_size(self->dtype), &bytes) && bytes == stored)
    return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT,
                   "%s:%s: the file has %llu bytes for it, which is not what its shape and dtype ask for: what "
                   "describes it is damaged",
                   path, name, (unsigned long long)stored);
}

/* HDF5 lets chunks be missing, and each element of those is the fill value. But where a file of so many bytes cannot
 * have a small part of the chunks, its shape is damaged, or nobody wrote what was to be read. */
static int check_chunks(const struct hdf5_dataset *self, size_t file_bytes, const char *path, const char *name) {
  size_t chunks = 1;
  bool fits = true;
  for (int32_t d = 0; d < self->ndim && fits; d++) {
    if (self->shape[d] < 1 || self->chunk[d] < 1) return SHARDRT_OK; /* none, or refused when there is a grid */
    fits = size_multiply(chunks, (size_t)((self->shape[d] - 1) / self->chunk[d] + 1), &chunks);
  }
  if (fits && chunks <= file_bytes) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT,
                   "%s:%s: its shape has more chunks than the file has bytes, %zu: it is damaged, or hardly any of it "
                   "was written",
                   path, name, file_bytes);
}

static int read_filters(struct hdf5_dataset *out, hid_t list, const char *path, const char *name) {
  out->nfilters = H5Pget_nfilters(list);
  if (out->nfilters < 0 || out->nfilters > HDF5_FILTERS)
    return refuse_dataset(SHARDRT_EFORMAT, path, name, "its filters are too many");
  for (int32_t i = 0; i < out->nfilters; i++) {
    unsigned flags = 0, values[8] = {0}, config = 0;
    size_t count = 8;
    char known[64] = "";
    switch (H5Pget_filter2(list, (unsigned)i, &flags, &count, values, sizeof known, known, &config)) {
    case H5Z_FILTER_DEFLATE:
      out->filters[i] = HDF5_DEFLATE;
      break;
    case H5Z_FILTER_SHUFFLE:
      out->filters[i] = HDF5_SHUFFLE;
      break;
    case H5Z_FILTER_FLETCHER32:
      out->filters[i] = HDF5_FLETCHER32;
      break;
    default:
      known[sizeof known - 1] = '\0';
      return error_set(SHARDRT_EFORMAT,
                       "%s:%s: its chunks are encoded by \"%s\"; shardrt reads gzip, shuffle and fletcher32; rewriting "
                       "it with these (h5repack) would do",
                       path, name, known);
    }
  }
  return SHARDRT_OK;
}

static int read_chunks(struct hdf5_dataset *out, hid_t list, const char *path, const char *name) {
  hsize_t chunk[H5S_MAX_RANK] = {0};
  unsigned options = 0;
  out->chunked = out->written = true;
  if (H5Pget_chunk(list, out->ndim, chunk) != out->ndim)
    return refuse_dataset(SHARDRT_EFORMAT, path, name, "its chunks have no shape");
  if (H5Pget_chunk_opts(list, &options) < 0 || options != 0)
    return refuse_dataset(SHARDRT_EFORMAT, path, name, "its chunks at the edges are encoded otherwise than all");
  for (int32_t d = 0; d < out->ndim; d++) out->chunk[d] = (int64_t)chunk[d];
  return read_filters(out, list, path, name);
}

static int read_layout(struct hdf5_dataset *out, hid_t list, size_t file_bytes, const char *path, const char *name) {
  haddr_t offset;
  int code;
  switch (H5Pget_layout(list)) {
  case H5D_CHUNKED:
    code = read_chunks(out, list, path, name);
    return code < 0 ? code : check_chunks(out, file_bytes, path, name);
  case H5D_COMPACT:
    out->written = out->compact = true;
    return SHARDRT_OK;
  case H5D_CONTIGUOUS:
    if (H5Pget_external_count(list) != 0)
      return error_set(SHARDRT_EFORMAT, "%s:%s: its elements lie in other files, which shardrt does not read", path,
                       name);
    offset = H5Dget_offset(out->id);
    out->written = offset != HADDR_UNDEF;
    out->offset = offset;
    return out->written ? check_contiguous(out, path, name) : SHARDRT_OK;
  default:
    return refuse_dataset(SHARDRT_EFORMAT, path, name,
                          "it is a virtual dataset, or one of an unknown layout; h5repack makes "
                          "it one that shardrt reads");
  }
}

/* A link may lead into another file. */
static bool is_in(const struct hdf5_dataset *self) {
  object_info dataset, root;
  return object_ask(self->id, &dataset, H5O_INFO_BASIC) >= 0 && object_ask(self->file_id, &root, H5O_INFO_BASIC) >= 0 &&
         dataset.fileno == root.fileno;
}

static int read_dataset(struct hdf5_dataset *out, size_t file_bytes, const char *path, const char *name) {
  if (!is_in(out))
    return refuse_dataset(SHARDRT_EFORMAT, path, name, "this is a link to another file; that file is to be named");
  const hid_t list = H5Dget_create_plist(out->id), file_list = H5Fget_create_plist(out->file_id);
  hsize_t user_block = 0;
  int code = list >= 0 && file_list >= 0 && H5Pget_userblock(file_list, &user_block) >= 0
                 ? SHARDRT_OK
                 : refuse_dataset(SHARDRT_EFORMAT, path, name, "it cannot be described");
  if (code == SHARDRT_OK && !chunk_base(user_block, &out->base))
    code = refuse_dataset(
        SHARDRT_EFORMAT, path, name,
        "the file has a user block, and it cannot be found out from which byte on this HDF5 library counts "
        "the addresses of chunks; h5unjam makes it a file without one");
  if (code == SHARDRT_OK) code = read_shape(out, path, name);
  if (code == SHARDRT_OK) code = read_type(out, list, path, name);
  if (code == SHARDRT_OK) code = read_layout(out, list, file_bytes, path, name);
  if (file_list >= 0) H5Pclose(file_list);
  if (list >= 0) H5Pclose(list);
  return code;
}

/* Without the lock on the file that the library would take: who only reads needs none, and it would keep others out. */
static hid_t open_hdf5_file(const struct stored *file) {
  const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
  if (list < 0) return list;
  H5Pset_file_locking(list, false, true);
  const bool is_ready = (file->map.remote == NULL && file->guard == NULL) || hdf5_driver_use(list, file);
  const hid_t opened = is_ready ? H5Fopen(file->path, H5F_ACC_RDONLY, list) : -1;
  H5Pclose(list);
  return opened;
}

int hdf5_open(const struct stored *file, const char *name, struct hdf5_dataset *out) {
  const char *path = file->path;
  int code;
  *out = (struct hdf5_dataset){0};
  if (alloc_must_fail(0)) return ALLOC_FAILED; /* the library allocates for itself */
  out->checked = alloc_zeros(1, sizeof *out->checked);
  if (out->checked == NULL) return ALLOC_FAILED;
  library_enter();
  out->file_id = open_hdf5_file(file);
  out->id = out->file_id > 0 ? H5Dopen2(out->file_id, name, H5P_DEFAULT) : -1;
  if (out->file_id < 0)
    code = refuse_dataset(SHARDRT_EFORMAT, path, name, "this is no HDF5 file that can be read");
  else if (out->id < 0)
    code = refuse_dataset(SHARDRT_EFORMAT, path, name, "this dataset cannot be opened");
  else
    code = read_dataset(out, file->bytes, path, name);
  library_leave();
  return code;
}

void hdf5_close(struct hdf5_dataset *self) {
  library_enter();
  if (self->id > 0) H5Dclose(self->id);
  if (self->file_id > 0) H5Fclose(self->file_id);
  library_leave();
  alloc_free(self->checked);
  self->checked = NULL;
  self->id = self->file_id = 0;
}

int hdf5_read_compact(const struct hdf5_dataset *self, void *dst) {
  library_enter();
  const hid_t type = H5Dget_type(self->id);
  const bool read = type >= 0 && H5Dread(self->id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, dst) >= 0;
  if (type >= 0) H5Tclose(type);
  H5Eclear2(H5E_DEFAULT);
  int code = SHARDRT_EFORMAT;
  const char *why = hdf5_driver_failure(&code);
  code = read ? SHARDRT_OK : error_set(code, "%s", why[0] != '\0' ? why : "its elements cannot be read");
  library_leave();
  return code;
}

/* The number of a dataset's chunks, missing or not, if it is small enough to look for each of them; else 0. */
static int64_t count_chunks(const struct hdf5_dataset *self) {
  enum { MOST = 1 << 16 };
  int64_t count = 1;
  for (int32_t d = 0; d < self->ndim; d++) {
    const int64_t chunks = (self->shape[d] - 1) / self->chunk[d] + 1;
    if (chunks > MOST / count) return 0;
    count *= chunks;
  }
  return count;
}

/* Whether each chunk that the index holds is found where it belongs. Of one whose coordinates are damaged, the library
 * says that it is missing, and each of its elements would be the fill value. */
static bool is_index_whole(const struct hdf5_dataset *self) {
  hsize_t held = 0, there = 0, size;
  const int64_t count = count_chunks(self);
  const hid_t space = count > 0 ? H5Dget_space(self->id) : -1;
  const bool counted = space >= 0 && H5Dget_num_chunks(self->id, space, &held) >= 0;
  if (space >= 0) H5Sclose(space);
  if (!counted) return count == 0;
  for (int64_t number = 0; number < count; number++) {
    hsize_t element[H5S_MAX_RANK] = {0};
    haddr_t address = HADDR_UNDEF;
    unsigned left_out;
    int64_t rest = number;
    for (int32_t d = self->ndim - 1; d >= 0; d--) {
      const int64_t chunks = (self->shape[d] - 1) / self->chunk[d] + 1;
      element[d] = (hsize_t)(rest % chunks) * (hsize_t)self->chunk[d];
      rest /= chunks;
    }
    if (H5Dget_chunk_info_by_coord(self->id, element, &left_out, &address, &size) < 0) return false;
    there += address != HADDR_UNDEF;
  }
  return there == held;
}

int hdf5_find(const struct hdf5_dataset *self, const int64_t *at, uint64_t *offset, uint64_t *bytes, uint32_t *mask) {
  hsize_t element[H5S_MAX_RANK] = {0}, size = 0;
  haddr_t address = HADDR_UNDEF;
  unsigned left_out = 0;
  for (int32_t d = 0; d < self->ndim; d++) element[d] = (hsize_t)at[d] * (hsize_t)self->chunk[d];
  library_enter();
  herr_t found = H5Dget_chunk_info_by_coord(self->id, element, &left_out, &address, &size);
  if (found >= 0 && address == HADDR_UNDEF && !*self->checked) {
    *self->checked = is_index_whole(self);
    if (!*self->checked) found = -1;
  }
  H5Eclear2(H5E_DEFAULT);
  int code = SHARDRT_OK;
  int why = SHARDRT_EIO;
  const char *remote = hdf5_driver_failure(&why);
  if (found < 0 && remote[0] != '\0')
    code = error_set(why, "%s", remote);
  else if (found < 0)
    code = error_set(SHARDRT_EFORMAT, "where a chunk lies cannot be found: the file is damaged");
  library_leave();
  if (code < 0) return code;
  *bytes = address == HADDR_UNDEF ? 0 : size;
  *offset = address + self->base;
  *mask = left_out;
  return SHARDRT_OK;
}

#else

#include "base/libraries.h"

int hdf5_open(const struct stored *file, const char *name, struct hdf5_dataset *out) {
  (void)file, (void)name, (void)out;
  return libraries_missing("HDF5 (libhdf5)");
}

/* There is none to call these with. */
void hdf5_close(struct hdf5_dataset *self) {
  (void)self;
}

int hdf5_read_compact(const struct hdf5_dataset *self, void *dst) {
  (void)self, (void)dst;
  return libraries_missing("HDF5 (libhdf5)");
}

int hdf5_find(const struct hdf5_dataset *self, const int64_t *at, uint64_t *offset, uint64_t *bytes, uint32_t *mask) {
  (void)self, (void)at, (void)offset, (void)bytes, (void)mask;
  return libraries_missing("HDF5 (libhdf5)");
}

#endif
