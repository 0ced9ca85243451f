/* thread.h - threads that leave signals to the main one. */
#ifndef SHARDRT_SYSTEM_THREAD_H
#define SHARDRT_SYSTEM_THREAD_H

#include <pthread.h>

/* As pthread_create, with default attributes: 0 or a number of errno. All signals are blocked in the new thread but
 * those that a thread raises itself (SIGBUS: a mapped file was cut short), whose handlers would not run otherwise. What
 * it runs begins with numeric_state_enter: rounding is its maker's, the locale the program's. */
int thread_start(pthread_t *out, void *(*run)(void *argument), void *argument);

#endif
