/* report.h - what is said when processes waited for others in vain, or call different things. */
#ifndef SHARDRT_COMM_REPORT_H
#define SHARDRT_COMM_REPORT_H

#include "comm/collective.h"

/* Sets the message of a wait that took too long, and returns ETIMEOUT: who did not come (or go on with `what`), and
 * then where in the recipe each process is, and for how long: those that say they wait, too, by what they said; others
 * by the last gathering that they came to. Processes in the same place are named together. All processes that wait get
 * the same message, but for numbers of seconds. */
int report_timeout(const struct collective *m, const struct collective_work *work, const char *what);
/* Sets the message of a meeting in which not all called the same, and returns EMISMATCH: which processes called what,
 * and where. */
int report_mismatch(const struct collective *m);
/* Sets the message of `what`, which is waited for in vain, as a process left: the first that did. Returns ECOMM. */
int report_left(const struct collective *m, const char *what);
/* The same in a slice that was cancelled: what is under way is not waited for. */
int report_abandoned(const char *what);

#endif
