// build: plug-in
/* host.c - what the plug-in's files know from base/ and memory/, which are in whoever opened it. */
#include "device/host.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

enum { MESSAGE_BYTES = 4096 }; /* as base/error.h says */

static const struct accelerator_host *host;

void host_is(const struct accelerator_host *given) {
  host = given;
}

int error_set(int code, const char *format, ...) {
  char text[MESSAGE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return host->error_set(code, "%s", text);
}

int error_prefix(int code, const char *format, ...) {
  char text[MESSAGE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return host->error_prefix(code, "%s", text);
}

void *alloc_array(size_t n, size_t size) {
  return host->alloc_array(n, size);
}

void *alloc_zeros(size_t n, size_t size) {
  return host->alloc_zeros(n, size);
}

void alloc_free(void *memory) {
  host->alloc_free(memory);
}

uint64_t hash_bytes(uint64_t seed, const void *data, size_t bytes) {
  return host->hash_bytes(seed, data, bytes);
}

size_t shardrt_dtype_size(int32_t dtype) {
  return host->dtype_size(dtype);
}

bool accelerator_reclaim(void) {
  return host->reclaim();
}
