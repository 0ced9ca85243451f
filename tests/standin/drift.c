/* drift.c - compiled, never run: the stand-in's values and prototypes beside those of the real toolkit, whose header is
 * included first. A prototype that differs is a compiler's error, a value that differs a failed assertion. */
#include <cuda_runtime_api.h>

#define STANDIN_DRIFT
#include "standin/include/cuda_runtime_api.h"

#define SAME(name, value) _Static_assert((int)name == (value), #name);
STANDIN_ERRORS(SAME)
STANDIN_ATTRIBUTES(SAME)
STANDIN_P2P(SAME)
STANDIN_POOL_ATTRIBUTES(SAME)
STANDIN_COPIES(SAME)
STANDIN_LOCATIONS(SAME)
STANDIN_ACCESS(SAME)
STANDIN_MEMORIES(SAME)
STANDIN_READS(SAME)
STANDIN_FLAGS(SAME)

/* The fields of structs that the plug-in reads and writes, with their types. */
void fields(struct cudaDeviceProp *properties, struct cudaMemAccessDesc *access, struct cudaPointerAttributes *data,
            struct cudaMemcpyAttributes *copy);
void fields(struct cudaDeviceProp *properties, struct cudaMemAccessDesc *access, struct cudaPointerAttributes *data,
            struct cudaMemcpyAttributes *copy) {
  char(*name)[256] = &properties->name;
  char(*uuid)[16] = &properties->uuid.bytes;
  size_t *memory = &properties->totalGlobalMem;
  int *counts[] = {&properties->major, &properties->minor, &properties->multiProcessorCount, &access->location.id};
  enum cudaMemLocationType *type = &access->location.type;
  enum cudaMemAccessFlags *flags = &access->flags;
  enum cudaMemoryType *kind = &data->type;
  enum cudaMemcpySrcAccessOrder *reads = &copy->srcAccessOrder;
  (void)name, (void)uuid, (void)memory, (void)counts, (void)type, (void)flags, (void)kind, (void)reads;
}
