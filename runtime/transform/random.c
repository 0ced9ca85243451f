/* random.c - the draws of one sample (draw.h) one after the other, as Lua takes them. */
#include <math.h>

#include "shardrt.h"
#include "transform/draw.h"

enum { TOGETHER = sizeof((shardrt_random){0}.bits) / sizeof(uint32_t) };

uint32_t shardrt_random_bits(shardrt_random *random) {
  const uint32_t lane = random->used % TOGETHER;
  if (lane == 0) {
    const struct draw draw = {
        .seed = random->seed, .epoch = random->epoch, .number = random->number, .place = random->place};
    draw_block(&draw, random->used / TOGETHER, random->bits);
  }
  random->used++;
  return random->bits[lane];
}

double shardrt_random_uniform(shardrt_random *random) {
  return (shardrt_random_bits(random) >> 8) * 0x1p-24;
}

double shardrt_random_below(shardrt_random *random, int64_t count) {
  return (double)(int64_t)((unsigned __int128)shardrt_random_bits(random) * (uint64_t)count >> 32);
}

/* Box and Muller: "A note on the generation of random normal deviates", 1958. */
double shardrt_random_normal(shardrt_random *random) {
  const double radius = sqrt(-2 * log(1 - shardrt_random_uniform(random)));
  return radius * cos(2 * 3.14159265358979323846 * shardrt_random_uniform(random));
}
