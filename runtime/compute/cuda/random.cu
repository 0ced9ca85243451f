/* random.cu - random numbers on the device: each element by itself, from its place in the whole array, by the host's
 * formulas (threefry.h, key.h, deviate.h), which give the same bits here: nothing is fused (-fmad=false) but by fmaf,
 * and roots are rounded correctly. An element costs some eighty operations on whole numbers and one store, so that
 * arithmetic is the limit, not memory. */
#include "compute/random/deviate.h"
#include "compute/random/key.h"
#include "compute/random/threefry.h"
#include "device/launch.h"

enum { THREADS = 256, BLOCKS_PER_MULTIPROCESSOR = 32 };

/* What is asked for, and what follows from it for all elements. */
struct made {
  struct accelerator_random asked;
  uint32_t words;      /* of the older layout */
  uint32_t multiplier; /* of whole numbers */
  bool narrow;         /* 32 bits count the box's elements */
};

/* The place of a box's element in the whole array. */
template <class Count>
static __device__ __forceinline__ int64_t place_in_runs(const struct accelerator_random &asked, Count element) {
  Count number = element / (Count)asked.run;
  int64_t at = asked.origin + (int64_t)(element - number * (Count)asked.run);
  for (int32_t d = asked.outer - 1; d > 0; d--) {
    const Count extent = (Count)asked.extent[d], next = number / extent;
    at += (int64_t)(number - next * extent) * asked.step[d];
    number = next;
  }
  return at + (int64_t)number * asked.step[0];
}

static __device__ __forceinline__ int64_t place_of(const made &self, int64_t element) {
  if (self.asked.outer == 0) return self.asked.origin + element;
  return self.narrow ? place_in_runs(self.asked, (uint32_t)element) : place_in_runs(self.asked, element);
}

/* The bits of the element at a place, and, where they are fewer than 32, any above them. */
static __device__ __forceinline__ uint32_t bits_at(const made &self, const shardrt_key &key, int64_t at) {
  uint32_t a, b;
  if (key.partitionable) {
    a = (uint32_t)((uint64_t)at >> 32);
    b = (uint32_t)at;
    threefry_block(key.words[0], key.words[1], &a, &b);
    return a ^ b;
  }
  const int32_t width = self.asked.width;
  const uint32_t word = (uint32_t)((uint64_t)at >> key_word_shift(width));
  key_pair(word, self.words, &a, &b);
  threefry_block(key.words[0], key.words[1], &a, &b);
  return key_within(key_word_of_pair(word, self.words, a, b), at, width);
}

template <class T> struct bits {
  typedef T type;
  static __device__ __forceinline__ T make(const made &self, int64_t at) {
    return (T)bits_at(self, self.asked.keys[0], at);
  }
};

struct uniform {
  typedef float type;
  static __device__ __forceinline__ float make(const made &self, int64_t at) {
    return deviate_uniform_of(bits_at(self, self.asked.keys[0], at), self.asked.low, self.asked.span);
  }
};

struct normal {
  typedef float type;
  static __device__ __forceinline__ float make(const made &self, int64_t at) {
    return deviate_normal_of(bits_at(self, self.asked.keys[0], at));
  }
};

struct bernoulli {
  typedef bool type;
  static __device__ __forceinline__ bool make(const made &self, int64_t at) {
    return deviate_bernoulli_of(bits_at(self, self.asked.keys[0], at), self.asked.probability);
  }
};

struct randint {
  typedef int32_t type;
  static __device__ __forceinline__ int32_t make(const made &self, int64_t at) {
    const uint32_t high = bits_at(self, self.asked.keys[0], at), low = bits_at(self, self.asked.keys[1], at);
    return deviate_randint_of(high, low, self.asked.least, self.asked.count, self.multiplier);
  }
};

template <class Kind> static __global__ void __launch_bounds__(THREADS) fill(made self, typename Kind::type *out) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < self.asked.elements; i += step)
    out[i] = Kind::make(self, place_of(self, i));
}

template <class Kind> static int launch(const char *what, int32_t device, const made &self, void *out) {
  const int64_t needed = (self.asked.elements - 1) / THREADS + 1;
  const int64_t most = (int64_t)cuda_multiprocessors(device) * BLOCKS_PER_MULTIPROCESSOR;
  typename Kind::type *to = (typename Kind::type *)out;
  KERNEL_LAUNCH(fill<Kind>, needed < most ? needed : most, THREADS, cuda_stream(device, ACCELERATOR_MAIN), self, to);
  return cuda_launched(what, device);
}

int cuda_random(const char *what, int32_t device, const struct accelerator_random *random, void *out) {
  if (random->elements == 0) return SHARDRT_OK;
  int code = cuda_use(what, device);
  if (code < 0) return code;
  made self;
  self.asked = *random;
  self.words = (uint32_t)key_word_count(random->size, random->width);
  self.multiplier = deviate_multiplier(random->count);
  self.narrow = random->elements <= kernel_narrow();
  switch (random->kind) {
  case ACCELERATOR_UNIFORM:
    return launch<uniform>(what, device, self, out);
  case ACCELERATOR_NORMAL:
    return launch<normal>(what, device, self, out);
  case ACCELERATOR_BERNOULLI:
    return launch<bernoulli>(what, device, self, out);
  case ACCELERATOR_RANDINT:
    return launch<randint>(what, device, self, out);
  default:
    break;
  }
  return random->width == 32   ? launch<bits<uint32_t>>(what, device, self, out)
         : random->width == 16 ? launch<bits<uint16_t>>(what, device, self, out)
                               : launch<bits<uint8_t>>(what, device, self, out);
}
