/* percent.h - percent-encoding (RFC 3986, 2.1) as signatures of AWS want it: all but A-Z a-z 0-9 - . _ ~ by their
 * bytes.
 */
#ifndef SHARDRT_STORAGE_EXCHANGE_PERCENT_H
#define SHARDRT_STORAGE_EXCHANGE_PERCENT_H

#include <stdbool.h>

/* `kept`: what else stays as it is, such as "/". Owned by the caller; NULL when out of memory. */
char *percent_encoded(const char *text, const char *kept);

/* In place: "%41" becomes "A", and, where `has_plus`, "+" a space, as in queries and S3's listings. */
void percent_decode(char *text, bool has_plus);

/* What a hexadecimal digit stands for; -1: it is none. */
int percent_digit(char c);

#endif
