/* nccl_drift.c - compiled, never run: the stand-in's part of NCCL's header beside the real one, which is included
 * first. A prototype that differs is a compiler's error, a value that differs a failed assertion. */
#include <nccl.h>

#define STANDIN_DRIFT
#include "standin/include/nccl.h"

#define SAME(name, value, ...) _Static_assert((int)name == (value), #name);
STANDIN_NCCL_RESULTS(SAME)
STANDIN_NCCL_TYPES(SAME)
STANDIN_NCCL_OPS(SAME)
_Static_assert(NCCL_UNIQUE_ID_BYTES == 128 && NCCL_CONFIG_UNDEF_INT == INT_MIN && NCCL_SPLIT_NOCOLOR == -1,
               "constants");
_Static_assert(NCCL_VERSION(2, 14, 0) == 21400 && NCCL_VERSION(2, 8, 4) == 2804, "versions");

/* The fields that are read and set, with their types. */
void fields(ncclConfig_t *config, ncclUniqueId *id);
void fields(ncclConfig_t *config, ncclUniqueId *id) {
  const ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
  size_t *size = &config->size;
  unsigned int *numbers[] = {&config->magic, &config->version};
  int *blocking = &config->blocking;
  char(*bytes)[128] = &id->internal;
  (void)made, (void)size, (void)numbers, (void)blocking, (void)bytes;
}
