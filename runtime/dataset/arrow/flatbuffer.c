#include "dataset/arrow/flatbuffer.h"

#include "base/little_endian.h"

enum { OFFSET = 4, SLOT = 2, HEAD = 2 * SLOT /* of a vtable: its bytes and the table's */ };

static bool inside(struct flatbuffer *in, size_t at, size_t bytes) {
  if (at > in->bytes || bytes > in->bytes - at) in->failed = true;
  return !in->failed;
}

static uint64_t number_at(struct flatbuffer *in, size_t at, size_t bytes) {
  uint64_t value = 0;
  if (!inside(in, at, bytes)) return 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | in->data[at + i];
  return value;
}

static int64_t signed_at(struct flatbuffer *in, size_t at, size_t bytes) {
  const uint64_t value = number_at(in, at, bytes);
  const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
  return (int64_t)((value ^ sign) - sign);
}

static struct flat_table table_at(struct flatbuffer *in, size_t at) {
  struct flat_table table = {.in = in};
  const int64_t back = signed_at(in, at, OFFSET); /* from the table to its vtable */
  if (in->failed) return table;
  if (back > (int64_t)at || back < (int64_t)at - (int64_t)in->bytes) in->failed = true;
  const size_t vtable = (size_t)((int64_t)at - back);
  const size_t slots = number_at(in, vtable, SLOT), bytes = number_at(in, vtable + SLOT, SLOT);
  if (slots < HEAD || !inside(in, vtable, slots) || !inside(in, at, bytes)) in->failed = true;
  if (in->failed) return table;
  table.at = at;
  table.bytes = bytes;
  table.vtable = vtable;
  table.slots = (int32_t)((slots - HEAD) / SLOT);
  return table;
}

struct flat_table flat_root(struct flatbuffer *in) {
  return table_at(in, number_at(in, 0, OFFSET));
}

/* Where a slot's value is, of so many bytes; 0: it is absent. */
static size_t value_at(const struct flat_table *table, int32_t slot, size_t bytes) {
  if (table->at == 0 || table->in->failed || slot >= table->slots) return 0;
  const size_t offset = number_at(table->in, table->vtable + HEAD + (size_t)slot * SLOT, SLOT);
  if (offset == 0) return 0;
  if (offset > table->bytes || bytes > table->bytes - offset) table->in->failed = true;
  return table->in->failed ? 0 : table->at + offset;
}

/* What an offset leads to; 0: it is absent. */
static size_t target_of(struct flatbuffer *in, size_t at) {
  if (at == 0) return 0;
  const size_t forward = number_at(in, at, OFFSET);
  if (forward == 0 || !inside(in, at, forward)) in->failed = true;
  return in->failed ? 0 : at + forward;
}

int64_t flat_whole(const struct flat_table *table, int32_t slot, size_t bytes, int64_t otherwise) {
  const size_t at = value_at(table, slot, bytes);
  return at == 0 ? otherwise : signed_at(table->in, at, bytes);
}

struct flat_table flat_child(const struct flat_table *table, int32_t slot) {
  const size_t at = target_of(table->in, value_at(table, slot, OFFSET));
  return at == 0 ? (struct flat_table){.in = table->in} : table_at(table->in, at);
}

struct flat_vector flat_list(const struct flat_table *table, int32_t slot, size_t each) {
  struct flat_vector list = {.in = table->in};
  const size_t at = target_of(table->in, value_at(table, slot, OFFSET));
  if (at == 0) return list;
  const uint64_t count = number_at(table->in, at, OFFSET);
  if (!inside(table->in, at + OFFSET, count * each)) return list; /* 2^32 of some bytes do not overflow */
  list.at = at + OFFSET;
  list.count = (int64_t)count;
  return list;
}

struct flat_table flat_list_table(const struct flat_vector *list, int64_t i) {
  const size_t at = target_of(list->in, list->at + (size_t)i * OFFSET);
  return at == 0 ? (struct flat_table){.in = list->in} : table_at(list->in, at);
}

int64_t flat_list_whole(const struct flat_vector *list, int64_t i, size_t each, size_t offset, size_t bytes) {
  return signed_at(list->in, list->at + (size_t)i * each + offset, bytes);
}

const char *flat_text(const struct flat_table *table, int32_t slot, size_t *length) {
  const struct flat_vector text = flat_list(table, slot, 1);
  *length = (size_t)text.count;
  return text.at == 0 || text.in->failed ? NULL : (const char *)text.in->data + text.at;
}
