/* fingerprint.cu - 64 bits of bytes in a device's memory.
 *
 * The bytes are words of 8, the lowest byte first, the last one filled up with zeros. Word i (from 0) becomes
 *   mix(word ^ (i + 1) * 0x9E3779B97F4A7C15), mix being the finalizer of SplitMix64 (Steele, Lea, Flood: Fast
 * Splittable Pseudorandom Number Generators, 2014; https://prng.di.unimi.it/splitmix64.c), and the fingerprint is
 * mix((the sum of these, modulo 2^64) ^ mix(number of bytes)). A sum has no order: so it is the same on every GPU,
 * however the words were spread over threads.
 *
 * Mixing loses nothing, so two arrays of one length that differ in a single word, by one bit or by all of them, always
 * have different fingerprints. What differs in several words (elements that changed places, other lengths) has equal
 * ones by chance alone, once in 2^64. It is no protection from somebody who looks for equal ones. */
#include "device/launch.h"

namespace {

enum {
  THREADS = 256,
  AHEAD = 8,         /* pairs of words that a thread reads before it mixes them */
  MOST_BLOCKS = 1024 /* so many partial sums are added up by one block */
};

struct alignas(16) fingerprint_pair {
  uint64_t word[2];
};

__device__ __forceinline__ uint64_t fingerprint_mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}

__device__ __forceinline__ uint64_t fingerprint_word(uint64_t word, int64_t i) {
  return fingerprint_mix(word ^ (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15));
}

/* Words at any address, and the last, short one. */
__device__ __forceinline__ uint64_t fingerprint_read(const uint8_t *data, int64_t bytes, int64_t i) {
  uint64_t word = 0;
  for (int64_t k = 0; k < 8 && i * 8 + k < bytes; k++) word |= (uint64_t)data[i * 8 + k] << (8 * k);
  return word;
}

/* The sum of what a block's threads have, in the first of them. */
__device__ __forceinline__ uint64_t fingerprint_meet(uint64_t sum) {
  __shared__ uint64_t room[THREADS];
  room[threadIdx.x] = sum;
  for (unsigned half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) room[threadIdx.x] = sum += room[threadIdx.x + half];
  }
  return sum;
}

/* Of the first `pairs`, read 16 bytes at a time, and whatever bytes come behind these. */
static __global__ void __launch_bounds__(THREADS)
    fingerprint_sums(const uint8_t *data, int64_t bytes, int64_t pairs, uint64_t *sums) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, threads = (int64_t)gridDim.x * THREADS;
  const fingerprint_pair *from = (const fingerprint_pair *)data;
  uint64_t sum = 0;
  int64_t i = thread;
  for (; i + (AHEAD - 1) * threads < pairs; i += AHEAD * threads) {
    fingerprint_pair ahead[AHEAD];
    KERNEL_UNROLL
    for (int k = 0; k < AHEAD; k++) ahead[k] = from[i + k * threads];
    KERNEL_UNROLL
    for (int k = 0; k < AHEAD; k++)
      sum += fingerprint_word(ahead[k].word[0], 2 * (i + k * threads)) +
             fingerprint_word(ahead[k].word[1], 2 * (i + k * threads) + 1);
  }
  for (; i < pairs; i += threads) {
    const fingerprint_pair pair = from[i];
    sum += fingerprint_word(pair.word[0], 2 * i) + fingerprint_word(pair.word[1], 2 * i + 1);
  }
  for (i = 2 * pairs + thread; i < bytes / 8 + (bytes % 8 > 0); i += threads)
    sum += fingerprint_word(fingerprint_read(data, bytes, i), i);
  sum = fingerprint_meet(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    fingerprint_end(const uint64_t *sums, int32_t count, uint64_t bytes, uint64_t *out) {
  uint64_t sum = 0;
  for (int32_t i = (int32_t)threadIdx.x; i < count; i += THREADS) sum += sums[i];
  sum = fingerprint_meet(sum);
  if (threadIdx.x == 0) *out = fingerprint_mix(sum ^ fingerprint_mix(bytes));
}

int fingerprint_launch(int32_t device, cudaStream_t stream, const void *data, size_t bytes, uint64_t *sums,
                       uint64_t *out) {
  const char *what = "a fingerprint";
  const int64_t pairs =
      (uintptr_t)data % sizeof(fingerprint_pair) == 0 ? (int64_t)(bytes / sizeof(fingerprint_pair)) : 0;
  const int64_t each = THREADS * AHEAD * (int64_t)sizeof(fingerprint_pair), wanted = (int64_t)bytes / each + 1;
  const int32_t blocks = wanted < MOST_BLOCKS ? (int32_t)wanted : (int32_t)MOST_BLOCKS;
  KERNEL_LAUNCH_TOGETHER(fingerprint_sums, blocks, THREADS, stream, (const uint8_t *)data, (int64_t)bytes, pairs, sums);
  int code = cuda_launched(what, device);
  if (code < 0) return code;
  KERNEL_LAUNCH_TOGETHER(fingerprint_end, 1, THREADS, stream, sums, blocks, (uint64_t)bytes, sums + MOST_BLOCKS);
  code = cuda_launched(what, device);
  if (code < 0) return code;
  return cuda_check(cudaMemcpyAsync(out, sums + MOST_BLOCKS, sizeof *out, cudaMemcpyDeviceToHost, stream),
                    "cudaMemcpyAsync", what, device);
}

} // namespace

int cuda_fingerprint(int32_t device, int32_t stream, const void *data, size_t bytes, uint64_t *out) {
  const struct accelerator *a = &cuda_accelerator;
  const size_t room = (MOST_BLOCKS + 1) * sizeof(uint64_t);
  void *sums;
  int code = cuda_use("a fingerprint", device);
  if (code == SHARDRT_OK) code = a->memory->allocate(device, stream, ACCELERATOR_SCRATCH, room, &sums);
  if (code < 0) return code;
  code = fingerprint_launch(device, cuda_stream(device, stream), data, bytes, (uint64_t *)sums, out);
  a->memory->free(device, stream, ACCELERATOR_SCRATCH, sums, room);
  return code;
}
