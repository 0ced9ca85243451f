#include "base/alloc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"

static _Atomic int64_t countdown; /* > 0: the allocation that brings it to 0 fails */
static _Atomic int64_t counted;
static const char *_Atomic without; /* what was not allocated, and was not missed */

int64_t shardrt_alloc_fail_at(int64_t n) {
  atomic_store(&without, NULL);
  atomic_store(&countdown, n);
  return atomic_exchange(&counted, 0);
}

bool alloc_must_fail(size_t bytes) {
  atomic_fetch_add_explicit(&counted, 1, memory_order_relaxed);
  if (atomic_load_explicit(&countdown, memory_order_relaxed) <= 0) return false;
  if (atomic_fetch_sub(&countdown, 1) != 1) return false;
  error_set(SHARDRT_ENOMEM, "out of memory: %zu bytes", bytes);
  return true;
}

bool alloc_will_fail(void) {
  return atomic_load_explicit(&countdown, memory_order_relaxed) > 0;
}

void alloc_do_without(const char *what) {
  atomic_store(&without, what);
}

const char *shardrt_alloc_went_without(void) {
  return atomic_load(&without);
}

static void *checked(void *memory, size_t bytes) {
  if (memory == NULL) error_set(SHARDRT_ENOMEM, "out of memory: %zu bytes", bytes);
  return memory;
}

void *alloc_array(size_t n, size_t size) {
  size_t bytes;
  if (!size_multiply(n, size, &bytes)) {
    error_set(SHARDRT_ENOMEM, "out of memory: %zu times %zu bytes", n, size);
    return NULL;
  }
  if (alloc_must_fail(bytes)) return NULL;
  return checked(malloc(bytes != 0 ? bytes : 1), bytes);
}

void *alloc_zeros(size_t n, size_t size) {
  size_t bytes;
  if (!size_multiply(n, size, &bytes)) {
    error_set(SHARDRT_ENOMEM, "out of memory: %zu times %zu bytes", n, size);
    return NULL;
  }
  if (alloc_must_fail(bytes)) return NULL;
  return checked(calloc(bytes != 0 ? bytes : 1, 1), bytes);
}

void *alloc_aligned(size_t alignment, size_t bytes) {
  assert(alignment >= sizeof(void *) && (alignment & (alignment - 1)) == 0);
  if (alloc_must_fail(bytes)) return NULL;
  void *memory = NULL;
  if (posix_memalign(&memory, alignment, bytes != 0 ? bytes : 1) != 0) memory = NULL;
  return checked(memory, bytes);
}

char *alloc_text(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *text = length < 0 ? NULL : alloc_array((size_t)length + 1, 1);
  if (text == NULL) return NULL;
  va_start(args, format);
  vsnprintf(text, (size_t)length + 1, format, args);
  va_end(args);
  return text;
}

void alloc_free(void *memory) {
  free(memory);
}

void *alloc_one_more(void *list, int64_t count, int64_t *room, int64_t least, size_t size) {
  if (count < *room) return list;
  const int64_t larger = *room > 0 ? 2 * *room : least;
  void *made = alloc_array((size_t)larger, size);
  if (made == NULL) return NULL;
  if (count > 0) memcpy(made, list, (size_t)count * size);
  alloc_free(list);
  *room = larger;
  return made;
}
