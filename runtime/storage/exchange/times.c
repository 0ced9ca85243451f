#include "storage/exchange/times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const time_t LAST = 253402300799; /* 9999-12-31T23:59:59Z */

time_t times_read(const char *text) {
  struct tm when = {0};
  const int fields = sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &when.tm_year, &when.tm_mon, &when.tm_mday, &when.tm_hour,
                            &when.tm_min, &when.tm_sec);
  if (fields < 3) {
    when = (struct tm){0};
    if (sscanf(text, "%4d%2d%2dT%2d%2d%2d", &when.tm_year, &when.tm_mon, &when.tm_mday, &when.tm_hour, &when.tm_min,
               &when.tm_sec) != 6)
      return 0;
  }
  when.tm_year -= 1900;
  when.tm_mon -= 1;
  return timegm(&when);
}

time_t times_after(time_t begin, const char *seconds) {
  char *end = NULL;
  errno = 0;
  const long long after = strtoll(seconds, &end, 10);
  if (end == seconds) return 0;
  if (after <= 0) return begin;
  return begin > LAST || after > LAST - begin ? LAST : begin + (time_t)after;
}

void times_show(time_t when, char out[TIMES_ROOM]) {
  struct tm parts = {0};
  gmtime_r(&when, &parts);
  if (strftime(out, TIMES_ROOM, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) out[0] = '\0';
}

void times_compact(time_t when, char out[TIMES_ROOM]) {
  struct tm parts = {0};
  gmtime_r(&when, &parts);
  if (strftime(out, TIMES_ROOM, "%Y%m%dT%H%M%SZ", &parts) == 0) out[0] = '\0';
}

void times_http(time_t when, char out[TIMES_ROOM]) {
  static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  struct tm parts = {0};
  gmtime_r(&when, &parts);
  snprintf(out, TIMES_ROOM, "%s, %02d %s %d %02d:%02d:%02d GMT", days[parts.tm_wday % 7], parts.tm_mday,
           months[parts.tm_mon % 12], parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
}
