#include "dataset/parquet/metadata/thrift.h"

enum { DEEPEST = 32, VARINT_BITS = 64, DOUBLE_BYTES = 8, LONG_LIST = 15 };

static uint8_t next_byte(struct thrift *self) {
  if (self->failed || self->at == self->end) {
    self->failed = true;
    return 0;
  }
  return *self->at++;
}

static uint64_t next_varint(struct thrift *self) {
  uint64_t value = 0;
  for (int32_t shift = 0; shift < VARINT_BITS; shift += 7) {
    const uint8_t byte = next_byte(self);
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  self->failed = true;
  return 0;
}

int64_t thrift_whole_element(struct thrift *self) {
  const uint64_t value = next_varint(self);
  return (int64_t)(value >> 1 ^ (~(value & 1) + 1));
}

bool thrift_bool_element(struct thrift *self) {
  return next_byte(self) == THRIFT_TRUE;
}

const uint8_t *thrift_bytes_element(struct thrift *self, size_t *bytes) {
  const uint64_t length = next_varint(self);
  *bytes = 0;
  if (self->failed || length > (uint64_t)(self->end - self->at)) {
    self->failed = true;
    return self->end;
  }
  const uint8_t *found = self->at;
  *bytes = (size_t)length;
  self->at += length;
  return found;
}

/* A list's head; an element takes a byte at least. */
static int64_t next_list(struct thrift *self, int32_t *type) {
  const uint8_t head = next_byte(self);
  uint64_t count = head >> 4;
  *type = head & 15;
  if (count == LONG_LIST) count = next_varint(self);
  if (count > (uint64_t)(self->end - self->at)) self->failed = true;
  return self->failed ? 0 : (int64_t)count;
}

bool thrift_next(struct thrift *self, struct thrift_field *field) {
  const uint8_t head = next_byte(self);
  if (self->failed || head == 0) return false;
  const int64_t id = head >> 4 != 0 ? field->id + (head >> 4) : thrift_whole_element(self);
  field->type = head & 15;
  if (id < 1 || id > INT16_MAX || field->type < THRIFT_TRUE || field->type > THRIFT_STRUCT) self->failed = true;
  field->id = (int32_t)id;
  return !self->failed;
}

static void skip_deeper(struct thrift *self, int32_t type, int32_t depth, bool in_list);

static void skip_elements(struct thrift *self, int64_t count, int32_t type, int32_t depth) {
  for (int64_t i = 0; i < count && !self->failed; i++) skip_deeper(self, type, depth, true);
}

static void skip_map(struct thrift *self, int32_t depth) {
  const uint64_t count = next_varint(self);
  if (count == 0 || self->failed) return;
  const uint8_t types = next_byte(self);
  if (count > (uint64_t)(self->end - self->at)) self->failed = true;
  for (uint64_t i = 0; i < count && !self->failed; i++) {
    skip_deeper(self, types >> 4, depth, true);
    skip_deeper(self, types & 15, depth, true);
  }
}

/* NOLINTNEXTLINE(misc-no-recursion): to DEEPEST */
static void skip_deeper(struct thrift *self, int32_t type, int32_t depth, bool in_list) {
  struct thrift_field field = {0};
  int32_t of;
  size_t bytes;
  if (depth == DEEPEST) self->failed = true;
  if (self->failed) return;
  switch (type) {
  case THRIFT_TRUE:
  case THRIFT_FALSE:
    if (in_list) next_byte(self);
    return;
  case THRIFT_I8:
    next_byte(self);
    return;
  case THRIFT_I16:
  case THRIFT_I32:
  case THRIFT_I64:
    next_varint(self);
    return;
  case THRIFT_DOUBLE:
    for (int32_t i = 0; i < DOUBLE_BYTES; i++) next_byte(self);
    return;
  case THRIFT_BINARY:
    thrift_bytes_element(self, &bytes);
    return;
  case THRIFT_LIST:
  case THRIFT_SET: {
    const int64_t count = next_list(self, &of);
    skip_elements(self, count, of, depth + 1);
    return;
  }
  case THRIFT_MAP:
    skip_map(self, depth + 1);
    return;
  case THRIFT_STRUCT:
    while (thrift_next(self, &field)) skip_deeper(self, field.type, depth + 1, false);
    return;
  default:
    self->failed = true;
  }
}

void thrift_skip(struct thrift *self, int32_t type) {
  skip_deeper(self, type, 0, false);
}

int64_t thrift_whole(struct thrift *self, const struct thrift_field *field) {
  if (field->type == THRIFT_I8) return (int8_t)next_byte(self);
  if (field->type < THRIFT_I16 || field->type > THRIFT_I64) self->failed = true;
  return thrift_whole_element(self);
}

bool thrift_bool(struct thrift *self, const struct thrift_field *field) {
  if (field->type != THRIFT_TRUE && field->type != THRIFT_FALSE) self->failed = true;
  return field->type == THRIFT_TRUE;
}

const uint8_t *thrift_bytes(struct thrift *self, const struct thrift_field *field, size_t *bytes) {
  if (field->type != THRIFT_BINARY) self->failed = true;
  return thrift_bytes_element(self, bytes);
}

int64_t thrift_list(struct thrift *self, const struct thrift_field *field, int32_t type) {
  int32_t of;
  if (field->type != THRIFT_LIST) self->failed = true;
  const int64_t count = next_list(self, &of);
  if (of != type && !(type == THRIFT_TRUE && of == THRIFT_FALSE) && count > 0) self->failed = true;
  return self->failed ? 0 : count;
}
