#include "dataset/chunked/hdf5_driver.h"

#ifndef SHARDRT_WITHOUT_HDF5

#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* What a list of access properties is given. */
struct properties {
  const struct stored *file;
};

/* One that the library has open. */
struct hdf5_driver_file {
  H5FD_t base; /* first: the library's part */
  const struct stored *file;
  haddr_t end; /* of what the library has given out, which is its business */
  struct reader reader;
};

/* Guarded by who holds the library. */
static char failure[1024], told[sizeof failure];
static int failure_code;

static void keep_failure(int code) {
  failure_code = code;
  snprintf(failure, sizeof failure, "%s", shardrt_error_message());
}

static H5FD_t *remote_driver_open(const char *name, unsigned flags, hid_t list, haddr_t most) {
  const struct properties *p = H5Pget_driver_info(list);
  (void)most;
  if (p == NULL || (flags & H5F_ACC_RDWR) != 0) return NULL;
  if (strcmp(name, p->file->path) != 0) {
    keep_failure(error_set(SHARDRT_EFORMAT, "it leads into another file, %s; that file is to be named", name));
    return NULL;
  }
  struct hdf5_driver_file *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) {
    keep_failure(ALLOC_FAILED);
    return NULL;
  }
  made->file = p->file;
  return &made->base;
}

static herr_t close_file(H5FD_t *file) {
  struct hdf5_driver_file *self = (struct hdf5_driver_file *)file;
  reader_clear(&self->reader);
  alloc_free(self);
  return 0;
}

static haddr_t get_eoa(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  return ((const struct hdf5_driver_file *)file)->end;
}

static herr_t set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t end) {
  (void)type;
  ((struct hdf5_driver_file *)file)->end = end;
  return 0;
}

static haddr_t get_eof(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  return ((const struct hdf5_driver_file *)file)->file->bytes;
}

static herr_t remote_driver_read(H5FD_t *file, H5FD_mem_t type, hid_t list, haddr_t offset, size_t bytes, void *dst) {
  (void)type;
  (void)list;
  struct hdf5_driver_file *self = (struct hdf5_driver_file *)file;
  const size_t all = self->file->bytes, left = offset < all ? all - (size_t)offset : 0;
  const size_t n = bytes < left ? bytes : left;
  int code = n > 0 ? stored_read(self->file, (size_t)offset, n, &self->reader, dst) : SHARDRT_OK;
  if (code != SHARDRT_OK) {
    keep_failure(code);
    return -1;
  }
  memset((uint8_t *)dst + n, 0, bytes - n); /* the library reads beyond the end, as of a file of its own */
  return 0;
}

static herr_t refuse_write(H5FD_t *file, H5FD_mem_t type, hid_t list, haddr_t offset, size_t bytes, const void *src) {
  (void)file;
  (void)type;
  (void)list;
  (void)offset;
  (void)bytes;
  (void)src;
  return -1;
}

static const H5FD_class_t class = {
#ifdef H5FD_CLASS_VERSION /* since 1.14 */
    .version = H5FD_CLASS_VERSION,
    .value = H5_VFD_RESERVED, /* the first of those that are free to use */
#endif
    .name = "shardrt",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(struct properties),
    .open = remote_driver_open,
    .close = close_file,
    .get_eoa = get_eoa,
    .set_eoa = set_eoa,
    .get_eof = get_eof,
    .read = remote_driver_read,
    .write = refuse_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

bool hdf5_driver_use(int64_t list, const struct stored *file) {
  static hid_t driver;
  const struct properties properties = {.file = file};
  if (driver <= 0) driver = H5FDregister(&class);
  return driver > 0 && H5Pset_driver(list, driver, &properties) >= 0;
}

const char *hdf5_driver_failure(int *code) {
  memcpy(told, failure, sizeof told);
  if (told[0] != '\0') *code = failure_code;
  failure[0] = '\0';
  return told;
}

#endif
