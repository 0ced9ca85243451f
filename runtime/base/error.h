/* error.h - codes and the one message that a failure leaves. */
#ifndef SHARDRT_BASE_ERROR_H
#define SHARDRT_BASE_ERROR_H

#include "shardrt.h"

/* Sets this thread's message (printf-like; at most 4,095 bytes are kept) and returns `code`, so that a function can
 * end with `return error_set(SHARDRT_EINVAL, "…", …);`. Of addresses no password and no signature is kept (secret.h).
 */
int error_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts text and ": " before this thread's message and returns `code`: for a caller that knows what was being done. */
int error_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a message says to who reads it: `command` to a user of the command ("--timeout"), `program` to that of a program
 * ("timeout", the name of shardrt_options' field and of the argument of Python's shardrt.open). */
const char *error_words(const char *command, const char *program);
/* From now on this process is the command; before its first thread. */
void error_for_command(void);

#endif
