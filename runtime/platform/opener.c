// build: plug-in
/* opener.c - what a plug-in's files know from rooms that are in whoever opened it. */
#include "platform/opener.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "platform/accelerator.h"
#include "system/thread.h"

enum { MESSAGE_BYTES = 4096 }; /* as base/error.h says */

static const struct plugin_host *opener;

void opener_set(const struct plugin_host *given) {
  opener = given;
}

int error_set(int code, const char *format, ...) {
  char text[MESSAGE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return opener->error_set(code, "%s", text);
}

int error_prefix(int code, const char *format, ...) {
  char text[MESSAGE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return opener->error_prefix(code, "%s", text);
}

const char *error_words(const char *command, const char *program) {
  return opener->error_words(command, program);
}

void *alloc_array(size_t n, size_t size) {
  return opener->alloc_array(n, size);
}

void *alloc_zeros(size_t n, size_t size) {
  return opener->alloc_zeros(n, size);
}

void alloc_free(void *memory) {
  opener->alloc_free(memory);
}

uint64_t hash_bytes(uint64_t seed, const void *data, size_t bytes) {
  return opener->hash_bytes(seed, data, bytes);
}

size_t shardrt_dtype_size(int32_t dtype) {
  return opener->dtype_size(dtype);
}

bool accelerator_reclaim(void) {
  return opener->reclaim();
}

double shardrt_clock(void) {
  return opener->clock();
}

int thread_start(pthread_t *out, void *(*run)(void *argument), void *argument) {
  return opener->thread_start(out, run, argument);
}
