/* azure.c - Azure's Blob Storage (https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api).
 *
 * "az://container/blob", and abfs:// or abfss:// with the same behind it, or with
 * "container@account.dfs.core.windows.net" as Hadoop has it, or that of another of Azure's clouds. Who one is, and
 * where, stands where Azure's own tools look:
 *
 * 1. AZURE_STORAGE_CONNECTION_STRING: AccountName, AccountKey, SharedAccessSignature, BlobEndpoint, EndpointSuffix;
 *    UseDevelopmentStorage=true is Azurite's account on this machine;
 * 2. AZURE_STORAGE_ACCOUNT (AZURE_STORAGE_ACCOUNT_NAME) with AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_KEY
 *    (AZURE_STORAGE_ACCOUNT_KEY); AZURE_STORAGE_SERVICE_ENDPOINT names another server.
 *
 * A SAS stands in the query; requests are signed with a key
 * (https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key). With neither, containers must be
 * public. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/markup.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/settings.h"
#include "storage/exchange/signature.h"
#include "storage/exchange/times.h"
#include "storage/local/url.h"
#include "storage/service/body_digest.h"
#include "storage/service/s3.h"
#include "storage/service/services.h"

/* Azurite's, which is no secret: https://learn.microsoft.com/azure/storage/common/storage-use-azurite. */
#define DEVELOPER          "devstoreaccount1"
#define DEVELOPER_KEY      "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
#define DEVELOPER_ENDPOINT "http://127.0.0.1:10000/" DEVELOPER

enum { NAME = 64 }; /* containers have 3 to 63 characters, accounts up to 24 */

#define SUFFIX "core.windows.net"

/* Behind "account.dfs." in Azure's clouds; the last, with a zone before it, as in "z01.dfs.storage.azure.net". */
static const char *const clouds[] = {SUFFIX, "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de",
                                     "storage.azure.net"};

/* ---- addresses -------------------------------------------------------------------------------------------------- */

struct azure_address {
  char container[NAME];
  char account[NAME];  /* empty: it does not say */
  char host[2 * NAME]; /* "account.blob.core.windows.net"; empty: it does not say */
  const char *blob;    /* in the address */
};

static int refuse_address(const char *address) {
  char *shown = url_shown(address);
  const int code =
      shown == NULL
          ? ALLOC_FAILED
          : error_set(SHARDRT_EINVAL,
                      "%s: the name of a container stands behind ://, as in az://container/blob or "
                      "abfss://container@account.dfs.core.windows.net/blob; keys stand where Azure's own tools "
                      "look",
                      shown);
  alloc_free(shown);
  return code;
}

static int refuse_host(const char *address, const char *host) {
  char *shown = url_shown(address);
  const int code =
      shown == NULL ? ALLOC_FAILED
                    : error_set(SHARDRT_EINVAL,
                                "%s: %s is no host of Azure's; behind the account stands .dfs. and core.windows.net, "
                                "core.chinacloudapi.cn, core.usgovcloudapi.net, core.cloudapi.de or, after a zone, "
                                "storage.azure.net (AZURE_STORAGE_CONNECTION_STRING names other servers)",
                                shown, host);
  alloc_free(shown);
  return code;
}

/* The host of blobs of "account.dfs.SUFFIX" or "account.blob.SUFFIX"; false: it is no cloud's. */
static bool read_host(const char *host, struct azure_address *out) {
  const char *rest = host + strcspn(host, ".");
  const char *service = strncmp(rest, ".z", 2) == 0 ? rest + 2 + strspn(rest + 2, "0123456789") : rest;
  const size_t kind = strncmp(service, ".dfs.", 5) == 0 ? 5 : strncmp(service, ".blob.", 6) == 0 ? 6 : 0;
  const size_t count = sizeof clouds / sizeof *clouds;
  for (size_t i = service == rest ? 0 : count - 1; i < count && kind > 0; i++) {
    if (strcmp(service + kind, clouds[i]) != 0) continue;
    snprintf(out->host, sizeof out->host, "%.*s.blob.%s", (int)(service - host), host, clouds[i]);
    return true;
  }
  return false;
}

static int parse_address(const char *address, struct azure_address *out) {
  static const char in_names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-$";
  const char *name = strstr(address, "://") + 3;
  const size_t all = strcspn(name, "/"), length = strcspn(name, "@/");
  const size_t account = length < all ? strcspn(name + length + 1, "./") : 0;
  *out = (struct azure_address){.blob = name[all] == '/' ? name + all + 1 : ""};
  if (length == 0 || length >= NAME || strspn(name, in_names) < length) return refuse_address(address);
  if (length < all && (account == 0 || account >= NAME || strspn(name + length + 1, in_names) < account))
    return refuse_address(address);
  snprintf(out->container, sizeof out->container, "%.*s", (int)length, name);
  if (length == all) return SHARDRT_OK;
  snprintf(out->account, sizeof out->account, "%.*s", (int)account, name + length + 1);
  if (length + 1 + account == all) return SHARDRT_OK;
  char host[2 * NAME];
  snprintf(host, sizeof host, "%.*s", (int)(all - length - 1), name + length + 1);
  return read_host(host, out) ? SHARDRT_OK : refuse_host(address, host);
}

/* ---- who and where ---------------------------------------------------------------------------------------------- */

struct azure_place {
  char *endpoint;            /* "https://account.blob.core.windows.net" */
  char *account, *key, *sas; /* NULL: none */
};

static void free_place(struct azure_place *self) {
  alloc_free(self->endpoint);
  alloc_free(self->account);
  alloc_free(self->key);
  alloc_free(self->sas);
  *self = (struct azure_place){0};
}

static int copy_text(const char *text, size_t length, char **out) {
  *out = alloc_text("%.*s", (int)length, text);
  return *out != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* NULL stays NULL. */
static int copy_setting(const char *text, char **out) {
  return text != NULL ? copy_text(text, strlen(text), out) : SHARDRT_OK;
}

/* The value of a name in "AccountName=a;AccountKey=b=="; owned; NULL: none. ENOMEM. */
static int connection_value(const char *text, const char *name, char **out) {
  const size_t length = strlen(name);
  for (const char *at = text; at != NULL && *at != '\0'; at = strchr(at, ';')) {
    while (*at == ';' || *at == ' ') at++;
    if (strncasecmp(at, name, length) == 0 && at[length] == '=')
      return copy_text(at + length + 1, strcspn(at + length + 1, ";"), out);
  }
  return SHARDRT_OK;
}

/* Without the slashes at its end, in place; NULL is allowed. */
static void drop_slashes(char *text) {
  for (size_t n = text != NULL ? strlen(text) : 0; n > 0 && text[n - 1] == '/'; n--) text[n - 1] = '\0';
}

/* The account whose blobs an endpoint has: the beginning of a host of Azure's, or what stands in the path, as with
 * Azurite; *out stays NULL where it does not say. */
static int endpoint_account(const char *endpoint, char **out) {
  const char *begin = endpoint != NULL ? strstr(endpoint, "://") : NULL;
  if (begin == NULL) return SHARDRT_OK;
  begin += 3;
  const char *path = strchr(begin, '/');
  if (path != NULL && path[1] != '\0') return copy_text(path + 1, strcspn(path + 1, "/"), out);
  const size_t first = strcspn(begin, ".");
  const bool is_account = strncmp(begin + first, ".blob.", 6) == 0 || strncmp(begin + first, ".z", 2) == 0;
  return is_account ? copy_text(begin, first, out) : SHARDRT_OK;
}

static int read_developer(struct azure_place *out) {
  int code = copy_setting(DEVELOPER_ENDPOINT, &out->endpoint);
  if (code == SHARDRT_OK) code = copy_setting(DEVELOPER, &out->account);
  return code == SHARDRT_OK ? copy_setting(DEVELOPER_KEY, &out->key) : code;
}

/* The endpoint of an account of which only its name is said. */
static int make_endpoint(const char *text, struct azure_place *out) {
  char *protocol = NULL, *suffix = NULL;
  int code = connection_value(text, "DefaultEndpointsProtocol", &protocol);
  if (code == SHARDRT_OK) code = connection_value(text, "EndpointSuffix", &suffix);
  if (code == SHARDRT_OK) {
    out->endpoint = alloc_text("%s://%s.blob.%s", protocol != NULL ? protocol : "https", out->account,
                               suffix != NULL ? suffix : SUFFIX);
    if (out->endpoint == NULL) code = ALLOC_FAILED;
  }
  alloc_free(protocol);
  alloc_free(suffix);
  return code;
}

static int read_connection(const char *text, struct azure_place *out) {
  char *developer = NULL;
  int code = connection_value(text, "UseDevelopmentStorage", &developer);
  const bool is_developer = developer != NULL && strcasecmp(developer, "true") == 0;
  alloc_free(developer);
  if (is_developer) return read_developer(out);
  if (code == SHARDRT_OK) code = connection_value(text, "AccountName", &out->account);
  if (code == SHARDRT_OK) code = connection_value(text, "AccountKey", &out->key);
  if (code == SHARDRT_OK) code = connection_value(text, "SharedAccessSignature", &out->sas);
  if (code == SHARDRT_OK) code = connection_value(text, "BlobEndpoint", &out->endpoint);
  drop_slashes(out->endpoint);
  if (code == SHARDRT_OK && out->account == NULL) code = endpoint_account(out->endpoint, &out->account);
  return code == SHARDRT_OK && out->endpoint == NULL && out->account != NULL ? make_endpoint(text, out) : code;
}

static const char *either(const char *first, const char *second) {
  const char *value = settings_variable(first);
  return value != NULL ? value : settings_variable(second);
}

/* The endpoint of an account's blobs on `host`, which is empty where it is not said. */
static int set_host(const char *host, const char *account, struct azure_place *out) {
  out->endpoint = host[0] != '\0' ? alloc_text("https://%s", host) : alloc_text("https://%s.blob." SUFFIX, account);
  return out->endpoint != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* `named`: the account of the address, NULL: it names none; `host`: where its blobs are, empty: it does not say. */
static int read_variables(const char *named, const char *host, struct azure_place *out) {
  const char *account = named != NULL ? named : either("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME");
  const char *endpoint = settings_variable("AZURE_STORAGE_SERVICE_ENDPOINT");
  int code = copy_setting(account, &out->account);
  if (code == SHARDRT_OK) code = copy_setting(either("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"), &out->key);
  if (code == SHARDRT_OK) code = copy_setting(settings_variable("AZURE_STORAGE_SAS_TOKEN"), &out->sas);
  if (code == SHARDRT_OK) code = copy_setting(endpoint, &out->endpoint);
  drop_slashes(out->endpoint);
  return code == SHARDRT_OK && endpoint == NULL && account != NULL ? set_host(host, account, out) : code;
}

/* Whether an endpoint of Azure's is of another cloud than a host; others, which somebody has named, may be of any. */
static bool is_elsewhere(const char *endpoint, const char *host) {
  const char *begin = endpoint != NULL ? strstr(endpoint, "://") : NULL;
  struct azure_address at = {0};
  return begin != NULL && host[0] != '\0' && read_host(begin + 3, &at) && strcmp(at.host, host) != 0;
}

/* Credentials are of one account: an address that names another one, or one of another cloud, goes there without them.
 */
static int find_place(const char *address, const struct azure_address *parsed, struct azure_place *out) {
  const char *connection = settings_variable("AZURE_STORAGE_CONNECTION_STRING"), *host = parsed->host;
  const char *named = parsed->account[0] != '\0' ? parsed->account : NULL;
  const char *variable = either("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME");
  *out = (struct azure_place){0};
  int code = connection != NULL ? read_connection(connection, out)
                                : read_variables(variable != NULL ? variable : named, host, out);
  if (code == SHARDRT_OK && out->endpoint == NULL && host[0] != '\0') code = set_host(host, named, out);
  const bool is_other = named != NULL && ((out->account != NULL && strcmp(out->account, named) != 0) ||
                                          (connection != NULL && is_elsewhere(out->endpoint, host)));
  if (code == SHARDRT_OK && is_other) {
    free_place(out);
    code = copy_setting(named, &out->account);
    if (code == SHARDRT_OK) code = set_host(host, named, out);
  }
  if (code != SHARDRT_OK || out->endpoint != NULL) return code;
  char *shown = url_shown(address);
  code = shown == NULL ? ALLOC_FAILED
                       : error_set(SHARDRT_EINVAL,
                                   "%s: of which account this is, nothing says; AZURE_STORAGE_ACCOUNT or "
                                   "AZURE_STORAGE_CONNECTION_STRING would do, with AZURE_STORAGE_KEY or "
                                   "AZURE_STORAGE_SAS_TOKEN, or abfss://container@account.dfs.core.windows.net/…",
                                   shown);
  alloc_free(shown);
  return code;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static const char VERSION[] = "2021-08-06";

/* Of a request, beside those that all servers know. */
struct azure_headers {
  char date[TIMES_ROOM];
  char md5[BODY_MD5]; /* of the body; "": there is none */
  const char *kind;   /* "x-ms-blob-type:BlockBlob"; "" */
};

/* "\nname:value" of each part of a query, decoded; its names are sorted. Owned. */
static char *canonical_query(const char *query) {
  char *out = alloc_text("%s", "");
  for (const char *at = query; at != NULL && *at != '\0' && out != NULL;) {
    const size_t length = strcspn(at, "&"), name = strcspn(at, "=&");
    char *value = alloc_text("%.*s", (int)(length - name), at + name + (name < length)), *before = out;
    if (value != NULL && name < length) {
      value[length - name - 1] = '\0';
      percent_decode(value, false);
    }
    out = value != NULL ? alloc_text("%s\n%.*s:%s", before, (int)name, at, value) : NULL;
    alloc_free(value);
    alloc_free(before);
    at += length + (at[length] == '&');
  }
  return out;
}

/* What is signed: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key. `path`: of the URL,
 * encoded, which begins with a slash. Owned; NULL: out of memory. */
static char *text_to_sign(const struct service_call *call, const struct azure_place *place, const char *path,
                          const struct azure_headers *own) {
  char length[24] = "";
  char *query = canonical_query(call->query);
  if (call->body != NULL && call->bytes > 0) snprintf(length, sizeof length, "%zu", call->bytes);
  char *text =
      query != NULL
          ? alloc_text("%s\n\n\n%s\n%s\n\n\n\n\n%s\n\n%s\n%s%sx-ms-date:%s\nx-ms-version:%s\n/%s%s%s", call->method,
                       length, own->md5, call->known != NULL ? call->known : "", call->range != NULL ? call->range : "",
                       own->kind, own->kind[0] != '\0' ? "\n" : "", own->date, VERSION, place->account, path, query)
          : NULL;
  alloc_free(query);
  return text;
}

static int sign(const struct service_call *call, const struct azure_place *place, const char *path,
                const struct azure_headers *own, struct service_request *out) {
  char *text = text_to_sign(call, place, path, own), *signature = NULL;
  int code = text != NULL ? signature_hmac(place->key, text, &signature) : ALLOC_FAILED;
  if (code == SHARDRT_EINVAL) code = error_prefix(code, "the key of the storage account %s", place->account);
  if (code == SHARDRT_OK)
    code = service_add_header(out, alloc_text("Authorization: SharedKey %s:%s", place->account, signature));
  alloc_free(text);
  alloc_free(signature);
  return code;
}

static int add_headers(const struct service_call *call, struct azure_headers *own, struct service_request *out) {
  times_http(time(NULL), own->date);
  if (call->body != NULL && call->query == NULL) own->kind = "x-ms-blob-type:BlockBlob"; /* it is a whole blob */
  int code = body_md5(call->body, call->bytes, own->md5);
  if (code == SHARDRT_OK) code = service_add_header(out, alloc_text("x-ms-date: %s", own->date));
  if (code == SHARDRT_OK) code = service_add_header(out, alloc_text("x-ms-version: %s", VERSION));
  if (code == SHARDRT_OK && own->md5[0] != '\0')
    code = service_add_header(out, alloc_text("Content-MD5: %s", own->md5));
  if (code == SHARDRT_OK && own->kind[0] != '\0') code = service_add_header(out, alloc_text("%s", own->kind));
  return code;
}

/* Sends a request to `endpoint``path`, signed if there is a key and no SAS. */
static int make_request(const struct service_call *call, const struct azure_place *place, const char *key,
                        struct service_request *out) {
  struct azure_headers own = {.kind = ""};
  assert(place->endpoint != NULL);
  const char *sas = place->sas, *host = strstr(place->endpoint, "://");
  if (sas != NULL && sas[0] == '?') sas++;
  const char *query = call->query;
  out->url = alloc_text("%s/%s%s%s%s%s", place->endpoint, key, query != NULL || sas != NULL ? "?" : "",
                        query != NULL ? query : "", query != NULL && sas != NULL ? "&" : "", sas != NULL ? sas : "");
  int code = out->url != NULL ? add_headers(call, &own, out) : ALLOC_FAILED;
  if (code != SHARDRT_OK) return code;
  if (sas != NULL || place->key == NULL || place->account == NULL) return SHARDRT_OK;
  const char *within = host != NULL ? strchr(host + 3, '/') : NULL; /* Azurite's account stands in the path */
  char *path = alloc_text("%s/%s", within != NULL ? within : "", key);
  code = path != NULL ? sign(call, place, path, &own, out) : ALLOC_FAILED;
  alloc_free(path);
  return code;
}

static int azure_request(const struct service_call *call, struct service_request *out) {
  struct azure_address address;
  struct azure_place place = {0};
  int code = parse_address(call->address, &address);
  if (code == SHARDRT_OK && call->query == NULL && address.blob[0] == '\0')
    code = url_refuse(SHARDRT_EINVAL, call->address, "it names a container, and no blob in it");
  if (code == SHARDRT_OK && address.blob[0] != '\0') code = s3_check_key(call->address, address.blob);
  if (code == SHARDRT_OK) code = find_place(call->address, &address, &place);
  if (code == SHARDRT_OK) {
    char *blob = percent_encoded(address.blob, "/");
    char *key = blob != NULL ? alloc_text("%s%s%s", address.container, blob[0] != '\0' ? "/" : "", blob) : NULL;
    code = key != NULL ? make_request(call, &place, key, out) : ALLOC_FAILED;
    alloc_free(blob);
    alloc_free(key);
  }
  free_place(&place);
  return code;
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

/* When the SAS ends; 0: there is none, or it does not say. */
static time_t sas_ends(const struct azure_place *place) {
  const char *at = place->sas != NULL ? strstr(place->sas, "se=") : NULL;
  while (at != NULL && at != place->sas && at[-1] != '&' && at[-1] != '?') at = strstr(at + 1, "se=");
  if (at == NULL) return 0;
  char *text = alloc_text("%.*s", (int)strcspn(at + 3, "&"), at + 3);
  if (text == NULL) return 0;
  percent_decode(text, false);
  const time_t ends = times_read(text);
  alloc_free(text);
  return ends;
}

static const char *advise(const struct azure_place *place, const struct refusal *refusal, char *room, size_t bytes) {
  const time_t ends = sas_ends(place);
  const bool is_refused = refusal->status == 401 || refusal->status == 403;
  if (is_refused && ends != 0 && ends < time(NULL)) {
    char when[TIMES_ROOM];
    times_show(ends, when);
    snprintf(room, bytes, "; the SAS token expired at %s: a new one in AZURE_STORAGE_SAS_TOKEN would do", when);
    return room;
  }
  const bool is_nobody = place->sas == NULL && place->key == NULL;
  if (is_nobody && (is_refused || refusal->status == 404 || refusal->status == 409))
    return "; no credentials were found: AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN with AZURE_STORAGE_ACCOUNT would "
           "do, or AZURE_STORAGE_CONNECTION_STRING";
  if (strcmp(refusal->code, "AuthenticationFailed") == 0 && place->sas != NULL)
    return "; the SAS token is not of this account, or not whole";
  if (strcmp(refusal->code, "AuthenticationFailed") == 0)
    return "; the key is not this account's, or this machine's clock is off (15 minutes at most)";
  if (strncmp(refusal->code, "Authorization", 13) == 0 && place->sas != NULL)
    return "; the SAS token must allow reading (r in its sp=), for patterns also listing (l), for what is written also "
           "writing (cw), for checkpoints also removing (d)";
  if (strcmp(refusal->code, "InvalidBlobOrBlock") == 0)
    return "; another program left blocks under this name, which vanish after a week: another name would do";
  if (strcmp(refusal->code, "InvalidBlockList") == 0)
    return "; somebody else wrote there meanwhile: each job needs names of its own";
  if (strcmp(refusal->code, "ContainerNotFound") == 0)
    return "; the container's name, or the account's (AZURE_STORAGE_ACCOUNT), is another one";
  return "";
}

static const char *azure_advice(const char *address, const struct refusal *refusal, char *room, size_t bytes) {
  struct azure_address parsed;
  struct azure_place place = {0};
  const char *advice = "";
  if (parse_address(address, &parsed) == SHARDRT_OK && find_place(address, &parsed, &place) == SHARDRT_OK)
    advice = advise(&place, refusal, room, bytes);
  free_place(&place);
  return advice;
}

/* ---- listings ---------------------------------------------------------------------------------------------------
 *
 * List Blobs (https://learn.microsoft.com/rest/api/storageservices/list-blobs). */

static size_t azure_root(const char *address) {
  const char *name = strstr(address, "://"), *slash = name != NULL ? strchr(name + 3, '/') : NULL;
  return slash != NULL && slash > name + 3 ? (size_t)(slash + 1 - address) : 0;
}

static char *list_query(const char *prefix, bool deep, const char *next) {
  char *coded_prefix = percent_encoded(prefix, ""), *coded_next = next != NULL ? percent_encoded(next, "") : NULL;
  char *query = NULL;
  if (coded_prefix != NULL && (next == NULL || coded_next != NULL))
    query = alloc_text("comp=list%s%s%s&prefix=%s&restype=container", deep ? "" : "&delimiter=%2F",
                       next != NULL ? "&marker=" : "", next != NULL ? coded_next : "", coded_prefix);
  alloc_free(coded_prefix);
  alloc_free(coded_next);
  return query;
}

/* A name that XML cannot hold is encoded: <Name Encoded="true">. */
static char *name_of(const struct markup *blob) {
  static const char mark[] = "<Name Encoded=\"true\">";
  char *name = markup_text(blob, "Name");
  if (name != NULL && memmem(blob->at, (size_t)(blob->end - blob->at), mark, strlen(mark)) != NULL)
    percent_decode(name, false);
  return name;
}

static int add_blob(shardrt_listing *out, const char *root, const char *shown, const struct markup *blob) {
  struct markup place;
  if (!markup_find(blob, "Name", &place) || !markup_find(blob, "Content-Length", &place))
    return listing_refuse(shown, "has a blob without name or length");
  if (markup_is(blob, "ResourceType", "directory") || markup_is(blob, "hdi_isfolder", "true")) return SHARDRT_OK;
  char *name = name_of(blob), *size = markup_text(blob, "Content-Length");
  int code = name != NULL && size != NULL ? listing_add(out, alloc_text("%s%s", root, name), strtoll(size, NULL, 10))
                                          : ALLOC_FAILED;
  alloc_free(name);
  alloc_free(size);
  return code;
}

static int take_page(shardrt_listing *out, const char *root, const char *shown, const struct exchange_answer *page,
                     char **next) {
  const struct markup all = {.at = page->body, .end = page->body + page->bytes};
  struct markup list, blob = {.end = NULL}, marker;
  if (!markup_find(&all, "EnumerationResults", &list))
    return listing_refuse(shown, strstr(page->body, "<EnumerationResults") != NULL
                                     ? "ends in the middle"
                                     : "is none: it speaks another language");
  int code = SHARDRT_OK;
  bool more = markup_find(&list, "Blob", &blob);
  for (; more && code == SHARDRT_OK; more = markup_next(&list, "Blob", &blob)) code = add_blob(out, root, shown, &blob);
  if (code != SHARDRT_OK || !markup_find(&list, "NextMarker", &marker) || marker.at == marker.end) return code;
  *next = markup_text(&list, "NextMarker");
  return *next != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static const struct service_lists azure_lists = {.root = azure_root, .query = list_query, .take = take_page};

static const char *const azure_absent[] = {"ContainerNotFound", "ResourceNotFound", NULL};

const struct service service_azure = {
    .request = azure_request, .advice = azure_advice, .absent = azure_absent, .lists = &azure_lists};
