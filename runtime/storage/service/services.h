/* services.h - the kinds of servers, each with a file of its own: how one is asked for an object or a listing, and what
 * its refusals mean. A new one is entered in the table of service.c, and in storage/local/url.c. */
#ifndef SHARDRT_STORAGE_SERVICE_SERVICES_H
#define SHARDRT_STORAGE_SERVICE_SERVICES_H

#include "shardrt.h"
#include "storage/exchange/exchange.h"
#include "storage/service/service.h"

/* How objects are listed, page by page. */
struct service_lists {
  /* How much of an address stands before keys: "s3://bucket/" of "s3://bucket/key". 0: it names no such place. */
  size_t (*root)(const char *address);
  bool by_folder; /* a folder is asked for, which must end in "/", and not the root */
  /* The query for a page: of keys that begin with `prefix`, without `deep` only those without a "/" behind it; `next`
   * as the page before said it, NULL: the first. Owned; NULL: out of memory. */
  char *(*query)(const char *prefix, bool deep, const char *next);
  /* Adds a page's objects by listing_add. *next: where the next page begins, owned; NULL: it was the last. `root` as
   * above. EIO by listing_refuse; ENOMEM. */
  int (*take)(shardrt_listing *out, const char *root, const char *shown, const struct exchange_answer *page,
              char **next);
};

struct service {
  int (*request)(const struct service_call *call, struct service_request *out);
  /* As service_learn; NULL: nothing is learned. */
  bool (*learn)(const char *address, const struct refusal *refusal);
  /* Begins with "; " or " ("; or is "". Static, or of `room`. */
  const char *(*advice)(const char *address, const struct refusal *refusal, char *room, size_t bytes);
  const char *const *absent;         /* codes of a 404 by which more than the object is missing, then NULL */
  const struct service_lists *lists; /* NULL: it does not */
};

extern const struct service service_http, service_s3, service_google, service_azure, service_hub;

const struct service *service_of(const char *address);

/* Takes over a line of the headers. ENOMEM: `line` is NULL. */
int service_add_header(struct service_request *out, char *line);

/* Takes over the address, also where it fails, and adds it if it begins as those that are wanted. ENOMEM. */
int listing_add(shardrt_listing *self, char *address, int64_t bytes);
/* EIO: "…: the server's listing WHY". */
int listing_refuse(const char *shown, const char *why);

#endif
