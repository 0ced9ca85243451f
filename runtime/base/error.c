#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/secret.h"

enum { MESSAGE_BYTES = 4096 };
static _Thread_local char message[MESSAGE_BYTES];
static bool is_command;

int error_set(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  /* Through a copy: an argument may be the old message. */
  char text[MESSAGE_BYTES];
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  secret_hide(text);
  memcpy(message, text, sizeof text);
  return code;
}

int error_prefix(int code, const char *format, ...) {
  char prefix[MESSAGE_BYTES], old[MESSAGE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(prefix, sizeof prefix, format, args);
  va_end(args);
  secret_hide(prefix);
  memcpy(old, message, sizeof old);
  int length = snprintf(message, sizeof message, "%s: %s", prefix, old); /* what does not fit is cut off */
  return length > 0 ? code : SHARDRT_EINVAL;
}

const char *error_words(const char *command, const char *program) {
  return is_command ? command : program;
}

void error_for_command(void) {
  is_command = true;
}

const char *shardrt_error_message(void) {
  return message;
}

void shardrt_error_hide(char *text) {
  secret_hide(text);
}

const char *shardrt_error_name(int code) {
  switch (code) {
  case SHARDRT_OK:
    return "OK";
#define ERROR_NAME(name, number, text)                                                                                 \
  case number:                                                                                                         \
    return #name;
    SHARDRT_ERRORS(ERROR_NAME)
#undef ERROR_NAME
  default:
    return "unknown";
  }
}

const char *shardrt_error_text(int code) {
  switch (code) {
  case SHARDRT_OK:
    return "no error";
#define ERROR_TEXT(name, number, text)                                                                                 \
  case number:                                                                                                         \
    return text;
    SHARDRT_ERRORS(ERROR_TEXT)
#undef ERROR_TEXT
  default:
    return "unknown error";
  }
}

const char *shardrt_version(void) {
  return "0.1.0";
}
