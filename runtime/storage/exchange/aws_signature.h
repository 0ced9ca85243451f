/* aws_signature.h - requests signed by AWS's Signature Version 4, in their headers
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html).
 *
 * libcurl signs, too, and each of its versions in another way: 8.14, which Debian 13 has, signs a space where a query
 * has %2B, as many tokens of listings do. */
#ifndef SHARDRT_STORAGE_EXCHANGE_AWS_SIGNATURE_H
#define SHARDRT_STORAGE_EXCHANGE_AWS_SIGNATURE_H

/* `headers` have aws_host's among them. */
struct aws_request {
  const char *method, *url;   /* as they are sent: encoded, the names of a query sorted, each with a "=" */
  char *const *headers;       /* "name: value", up to a NULL: all are signed. Small letters, no spaces but that one */
  const char *date, *payload; /* the values of x-amz-date and x-amz-content-sha256, which are among them */
  const char *key, *secret, *region;
};

/* "host: name:port", as the address has it: without its user, and without a port that is the protocol's own. It must be
 * sent so: libcurl's own "Host" is another one where it writes the name in another way ("127.1", "[0:0::1]", "name.").
 * Owned; NULL: out of memory. */
char *aws_host(const char *url);

/* The header "Authorization: …"; owned. EINVAL: this shardrt was built without OpenSSL; ENOMEM. */
int aws_sign(const struct aws_request *request, char **out);

#endif
