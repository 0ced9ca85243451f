/* cifar.c - CIFAR-10 and CIFAR-100. */
#include "../../fuzz.h"

void fuzz_cifar(const uint8_t *data, size_t size) {
  fuzz_open_both("cifar", fuzz_write("x.bin", data, size));
}
