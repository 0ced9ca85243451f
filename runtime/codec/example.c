#include "codec/example.h"

#include <string.h>

#include "base/error.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A message, or what is left of one. */
struct proto_message {
  const uint8_t *at, *end;
};

/* One entry of a message: a number, or bytes. */
struct proto_entry {
  uint32_t field;
  uint32_t wire;
  uint64_t number;           /* WIRE_VARINT */
  struct proto_message body; /* the others */
};

static bool read_varint(struct proto_message *m, uint64_t *out) {
  uint64_t value = 0;
  for (int32_t shift = 0; shift < 64 && m->at < m->end; shift += 7) {
    const uint8_t byte = *m->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *out = value;
      return true;
    }
  }
  return false;
}

static bool take_message(struct proto_message *m, uint64_t bytes, struct proto_message *out) {
  if (bytes > (uint64_t)(m->end - m->at)) return false;
  *out = (struct proto_message){.at = m->at, .end = m->at + bytes};
  m->at += bytes;
  return true;
}

/* The next entry of a message that is not at its end. */
static int next_entry(struct proto_message *m, struct proto_entry *out) {
  uint64_t tag, length;
  if (!read_varint(m, &tag)) return error_set(SHARDRT_EFORMAT, "a number in the example is cut off");
  if (tag > UINT32_MAX || tag >> 3 == 0)
    return error_set(SHARDRT_EFORMAT, "is no tf.train.Example: an entry has a number that no field has");
  *out = (struct proto_entry){.field = (uint32_t)(tag >> 3), .wire = (uint32_t)tag & 7};
  bool whole;
  switch (out->wire) {
  case WIRE_VARINT:
    whole = read_varint(m, &out->number);
    break;
  case WIRE_64:
    whole = take_message(m, 8, &out->body);
    break;
  case WIRE_BYTES:
    whole = read_varint(m, &length) && take_message(m, length, &out->body);
    break;
  case WIRE_32:
    whole = take_message(m, 4, &out->body);
    break;
  default:
    return error_set(SHARDRT_EFORMAT, "is no tf.train.Example: an entry has the wire type %u", (unsigned)out->wire);
  }
  return whole ? SHARDRT_OK : error_set(SHARDRT_EFORMAT, "an entry of the example is cut off");
}

/* Protocol buffers merge messages that stand where one should, and so would put lists together. Nobody writes such. */
static int refuse_merge(const struct proto_message *seen) {
  return seen->at == NULL ? SHARDRT_OK
                          : error_set(SHARDRT_EFORMAT, "the example holds parts that are to be merged; shardrt reads "
                                                       "those that are written whole");
}

/* One entry of the map of features: {1: name, 2: Feature}. */
static int read_feature(struct proto_message m, struct example_feature *out) {
  *out = (struct example_feature){.name = (const uint8_t *)""};
  struct proto_message feature = {0}, list = {0};
  struct proto_entry e;
  int code = SHARDRT_OK;
  while (m.at < m.end) {
    code = next_entry(&m, &e);
    if (code != SHARDRT_OK) return code;
    if (e.field == 1 && e.wire == WIRE_BYTES) {
      out->name = e.body.at;
      out->name_bytes = (size_t)(e.body.end - e.body.at);
    } else if (e.field == 2 && e.wire == WIRE_BYTES) {
      code = refuse_merge(&feature);
      if (code != SHARDRT_OK) return code;
      feature = e.body;
    }
  }
  while (feature.at < feature.end) {
    code = next_entry(&feature, &e);
    if (code != SHARDRT_OK) return code;
    if (e.wire != WIRE_BYTES || e.field < EXAMPLE_BYTES || e.field > EXAMPLE_INTS) continue;
    code = refuse_merge(&list);
    if (code != SHARDRT_OK) return code;
    list = e.body;
    out->kind = (int32_t)e.field;
    out->list = e.body.at;
    out->list_bytes = (size_t)(e.body.end - e.body.at);
  }
  return SHARDRT_OK;
}

/* The features of an example, of which there is one message: {1: Features}. `sequence`: that it also has lists of
 * features, {2: FeatureLists}, and so is a SequenceExample. */
static int features_of(const uint8_t *data, size_t bytes, struct proto_message *out, bool *sequence) {
  struct proto_message m = {.at = data, .end = data + bytes};
  *out = (struct proto_message){0};
  *sequence = false;
  while (m.at < m.end) {
    struct proto_entry e = {0};
    int code = next_entry(&m, &e);
    if (code != SHARDRT_OK) return code;
    if (e.wire != WIRE_BYTES) continue;
    *sequence = *sequence || e.field == 2;
    if (e.field == 1) code = refuse_merge(out);
    if (code != SHARDRT_OK) return code;
    if (e.field == 1) *out = e.body;
  }
  return SHARDRT_OK;
}

int example_is_sequence(const uint8_t *data, size_t bytes, bool *out) {
  struct proto_message features;
  return features_of(data, bytes, &features, out);
}

int example_next(const uint8_t *data, size_t bytes, size_t *at, struct example_feature *out) {
  struct proto_message m;
  bool sequence;
  int code = features_of(data, bytes, &m, &sequence);
  if (code != SHARDRT_OK || m.at == NULL) return code; /* an example without features */
  const uint8_t *start = m.at;
  m.at += *at;
  while (m.at < m.end) {
    struct proto_entry e = {0};
    code = next_entry(&m, &e);
    if (code != SHARDRT_OK) return code;
    *at = (size_t)(m.at - start);
    if (e.field != 1 || e.wire != WIRE_BYTES) continue;
    code = read_feature(e.body, out);
    return code == SHARDRT_OK ? 1 : code;
  }
  return 0;
}

int example_find(const uint8_t *data, size_t bytes, const char *name, struct example_feature *out) {
  const size_t length = strlen(name);
  size_t at = 0;
  int found = 0;
  for (;;) {
    struct example_feature feature = {0};
    int code = example_next(data, bytes, &at, &feature);
    if (code <= 0) return code < 0 ? code : found;
    if (feature.name_bytes != length || feature.name == NULL || memcmp(feature.name, name, length) != 0) continue;
    *out = feature;
    found = 1;
  }
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

/* A feature without values has no list. */
static struct proto_message values_of(const struct example_feature *feature) {
  const uint8_t *end = feature->list_bytes > 0 ? feature->list + feature->list_bytes : feature->list;
  return (struct proto_message){.at = feature->list, .end = end};
}

/* Values may stand packed (one entry with all of them) or one by one, or mixed. */
int64_t example_count(const struct example_feature *feature) {
  struct proto_message m = values_of(feature);
  const uint32_t single = feature->kind == EXAMPLE_FLOATS ? WIRE_32 : WIRE_VARINT;
  int64_t count = 0;
  while (m.at < m.end) {
    struct proto_entry e = {0};
    int code = next_entry(&m, &e);
    if (code != SHARDRT_OK) return code;
    if (e.field != 1) continue;
    if (feature->kind == EXAMPLE_BYTES && e.wire == WIRE_BYTES) {
      count++;
    } else if (e.wire == single && feature->kind != EXAMPLE_BYTES) {
      count++;
    } else if (feature->kind == EXAMPLE_FLOATS && e.wire == WIRE_BYTES && (e.body.end - e.body.at) % 4 == 0) {
      count += (e.body.end - e.body.at) / 4;
    } else if (feature->kind == EXAMPLE_INTS && e.wire == WIRE_BYTES) {
      uint64_t value;
      for (; e.body.at < e.body.end; count++)
        if (!read_varint(&e.body, &value)) return error_set(SHARDRT_EFORMAT, "a list of int64 is cut off");
    } else {
      return error_set(SHARDRT_EFORMAT, "a list of values is malformed");
    }
  }
  return count;
}

void example_floats(const struct example_feature *feature, float *out) {
  struct proto_message m = values_of(feature);
  struct proto_entry e = {0};
  while (m.at < m.end && next_entry(&m, &e) == SHARDRT_OK) {
    if (e.field != 1) continue;
    const size_t bytes = (size_t)(e.body.end - e.body.at);
    memcpy(out, e.body.at, bytes);
    out += bytes / 4;
  }
}

void example_ints(const struct example_feature *feature, int64_t *out) {
  struct proto_message m = values_of(feature);
  struct proto_entry e = {0};
  while (m.at < m.end && next_entry(&m, &e) == SHARDRT_OK) {
    if (e.field != 1) continue;
    if (e.wire == WIRE_VARINT) *out++ = (int64_t)e.number;
    uint64_t value;
    while (e.wire == WIRE_BYTES && e.body.at < e.body.end && read_varint(&e.body, &value)) *out++ = (int64_t)value;
  }
}

void example_bytes(const struct example_feature *feature, const uint8_t **out, size_t *bytes) {
  struct proto_message m = values_of(feature);
  struct proto_entry e = {0};
  while (m.at < m.end && next_entry(&m, &e) == SHARDRT_OK) {
    if (e.field != 1) continue;
    *out = e.body.at;
    *bytes = (size_t)(e.body.end - e.body.at);
    return;
  }
}
