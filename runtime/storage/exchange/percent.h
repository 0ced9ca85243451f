/* percent.h - percent-encoding (RFC 3986, 2.1) as signatures of AWS want it: all but A-Z a-z 0-9 - . _ ~ by their
 * bytes.
 */
#ifndef SHARDRT_STORAGE_EXCHANGE_PERCENT_H
#define SHARDRT_STORAGE_EXCHANGE_PERCENT_H

/* `kept`: what else stays as it is, such as "/". Owned by the caller; NULL when out of memory. */
char *percent_encoded(const char *text, const char *kept);

/* In place: "%41" becomes "A" and "+" a space, as servers write keys in listings. */
void percent_decode(char *text);

/* What a hexadecimal digit stands for; -1: it is none. */
int percent_digit(char c);

#endif
