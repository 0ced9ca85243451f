/* signal_undo.h - what must be undone elsewhere before a signal ends the process: an upload, which would stay open on
 * its server. A handler cannot ask a server for anything; a thread that waits for it can. */
#ifndef SHARDRT_SYSTEM_SIGNAL_UNDO_H
#define SHARDRT_SYSTEM_SIGNAL_UNDO_H

#include <stdbool.h>

/* From now on `undo` is called, once, in a thread of its own, when a signal asks the process to end (SIGINT, SIGHUP,
 * SIGTERM, where nothing handles them; what calls signal_undo_now). Then that signal ends it; one that comes two
 * seconds later ends it at once. On the main thread; one at a time. ENOMEM: no thread, or no pipe. EINVAL: there is
 * one.
 */
int signal_undo_begin(void (*undo)(void *context), void *context);
/* No more. Waits for `undo`, if it is under way; where a signal ends the process after it, this does not return. */
void signal_undo_end(void);

/* For a signal's handler: has it called. `number` > 0: that signal ends the process then; 0: the process goes on.
 * False: nothing is to undo, or it takes too long for whoever asks again. */
bool signal_undo_now(int number);

#endif
