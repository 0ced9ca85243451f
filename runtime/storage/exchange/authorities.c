#include "storage/exchange/authorities.h"

#ifndef SHARDRT_WITHOUT_CURL

#include <curl/curl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const variables[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE"};

static const char *const places[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Gentoo */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* the same, of late */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
    "/etc/ssl/cert.pem",                                 /* Alpine */
};

const char *authorities_file(void) {
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *named = getenv(variables[i]); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
    if (named != NULL && named[0] != '\0') return named;
  }
  const curl_version_info_data *built = curl_version_info(CURLVERSION_NOW);
  if (built->age >= CURLVERSION_SEVENTH && built->cainfo != NULL && access(built->cainfo, R_OK) == 0) return NULL;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (access(places[i], R_OK) == 0) return places[i];
  return NULL;
}

#endif
