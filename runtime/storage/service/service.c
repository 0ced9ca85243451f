#include "storage/service/service.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/service/services.h"

static const struct {
  const char *scheme;
  const struct service *service;
} services[] = {
    {"s3://", &service_s3},    {"gs://", &service_google},  {"hf://", &service_hub},
    {"az://", &service_azure}, {"abfs://", &service_azure}, {"abfss://", &service_azure},
};

const struct service *service_of(const char *address) {
  for (size_t i = 0; i < sizeof services / sizeof *services; i++)
    if (strncasecmp(address, services[i].scheme, strlen(services[i].scheme)) == 0) return services[i].service;
  return &service_http;
}

int service_add_header(struct service_request *out, char *line) {
  int32_t n = 0;
  if (line == NULL) return ALLOC_FAILED;
  while (out->headers[n] != NULL) n++;
  assert(n < SERVICE_HEADERS);
  out->headers[n] = line;
  return SHARDRT_OK;
}

int service_request_make(const struct service_call *call, struct service_request *out) {
  *out = (struct service_request){0};
  int code = service_of(call->address)->request(call, out);
  if (code != SHARDRT_OK) service_request_free(out);
  return code;
}

int service_request_part(const char *address, const char *range, const char *known, struct service_request *out) {
  const struct service_call call = {.method = "GET", .address = address, .range = range, .known = known};
  return service_request_make(&call, out);
}

void service_request_free(struct service_request *self) {
  for (int32_t i = 0; i < SERVICE_HEADERS; i++) alloc_free(self->headers[i]);
  alloc_free(self->url);
  *self = (struct service_request){0};
}

bool service_learn(const char *address, const struct refusal *refusal) {
  const struct service *service = service_of(address);
  return service->learn != NULL && service->learn(address, refusal);
}

bool service_is_missing(const char *address, const struct refusal *refusal) {
  if (refusal->status != 404 && refusal->status != 410) return false;
  for (const char *const *code = service_of(address)->absent; code != NULL && *code != NULL; code++)
    if (strcmp(refusal->code, *code) == 0) return false;
  return true;
}

void service_explain(const char *address, const struct refusal *refusal, char out[SERVICE_ADVICE + 320]) {
  char room[SERVICE_ADVICE];
  snprintf(out, SERVICE_ADVICE + 320, "%ld%s%s%s%s%s", refusal->status, refusal->code[0] != '\0' ? " " : "",
           refusal->code, refusal->message[0] != '\0' ? ": " : "", refusal->message,
           service_of(address)->advice(address, refusal, room, sizeof room));
}
