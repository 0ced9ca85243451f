/* times.h - points in time as servers and signatures write them, all in UTC. */
#ifndef SHARDRT_STORAGE_EXCHANGE_TIMES_H
#define SHARDRT_STORAGE_EXCHANGE_TIMES_H

#include <time.h>

enum { TIMES_ROOM = 48 };

/* "2026-11-23T12:00:00Z", "2026-11-23", "20261123T120000Z"; 0: it is none. */
time_t times_read(const char *text);
/* So many seconds after `begin`, of a text of digits; 0: it is none. Servers may say anything: what is later than the
 * year 9999, which no text above says, is its end, and none is before `begin`. */
time_t times_after(time_t begin, const char *seconds);
/* "2026-11-23 12:00:00 UTC", for messages. */
void times_show(time_t when, char out[TIMES_ROOM]);
/* "20261123T120000Z". */
void times_compact(time_t when, char out[TIMES_ROOM]);
/* "Mon, 23 Nov 2026 12:00:00 GMT" (RFC 9110, 5.6.7), in whatever language the process is. */
void times_http(time_t when, char out[TIMES_ROOM]);

#endif
