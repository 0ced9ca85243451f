/* stop_request.h - somebody asks for an orderly end: a signal does, in the command; a program may, by itself. */
#ifndef SHARDRT_COMM_STOP_REQUEST_H
#define SHARDRT_COMM_STOP_REQUEST_H

#include "comm/comm_api.h"

/* Ended in an orderly way, before its end; a checkpoint holds where it was. Not a status of sysexits.h or of a shell.
 */
enum { STOP_STATUS = 85 };

/* From now on SIGTERM, SIGUSR1 and `also` (0: none) ask for an orderly end, wherever something listens; else they end
 * the process, as they would without this, and the job's process 0 says that nothing was saved. A second SIGTERM ends
 * the process at once. What the process ignores stays ignored. */
void stop_request_watch(const shardrt_job_info *info, int also);
/* The orderly end is near: signals come from the launcher now, as processes of the job have ended. They are ignored. */
void stop_request_ignore(void);
/* Somebody begins (true) or ends (false) to look whether one asked. */
void stop_request_listen(bool listens);
/* Forgets that somebody asked. */
void stop_request_clear(void);

#endif
