/* authorities.h - the certificates by which HTTPS servers are known, where this system has them. */
#ifndef SHARDRT_STORAGE_EXCHANGE_AUTHORITIES_H
#define SHARDRT_STORAGE_EXCHANGE_AUTHORITIES_H

/* The file that holds them: $CURL_CA_BUNDLE, $SSL_CERT_FILE, or one of those that systems have where libcurl's own is
 * missing, as it was built on another system (Debian's, in a wheel, on Fedora). NULL: libcurl's own, or there is none.
 * Static, or of the environment. */
const char *authorities_file(void);

#endif
