/* jsonl.c - lines of JSON. */
#include "../../fuzz.h"

void fuzz_jsonl(const uint8_t *data, size_t size) {
  fuzz_open_files("jsonl", fuzz_write("x.jsonl", data, size), NULL);
}
