/* exchange.c - the global value of an array in every process.
 *
 * The process that owns replica 0 of a box sends it. Everybody works out from the sharding who sends what, so nothing
 * but data travels: in round r every process sends the next piece of its boxes, one after the other in mesh order, as
 * they lie in memory; receivers put the pieces at their place in the value. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "layout/sharding.h"
#include "memory/array_text.h"
#include "shardrt.h"

enum { STAGING = 32 << 20, LARGEST_PIECE = 4 << 20 };

/* What one process sends: `count` blocks, which begin at blocks[first]. */
typedef struct sender {
  int64_t first, count;
} sender;

typedef struct exchange {
  const shardrt_array *array;
  const shardrt_job *job;
  size_t element, box_bytes, piece; /* bytes */
  char *value;
  struct grid grid;
  sender *senders; /* [process_count] */
  int64_t *blocks; /* every block once, those that process 0 sends first */
  int64_t rounds;  /* the most blocks of one process */
  int32_t *counts; /* [process_count] bytes of the piece under way */
  char *staging;   /* a piece from each sender */
} exchange;

static void exchange_close(exchange *x) {
  alloc_free(x->senders);
  alloc_free(x->blocks);
  alloc_free(x->counts);
  alloc_free(x->staging);
}

/* Who sends what: the owner of replica 0 of each block. Returns how many processes send anything. */
static size_t list_senders(exchange *x) {
  const shardrt_sharding *sharding = shardrt_array_sharding(x->array);
  const shardrt_mesh *mesh = shardrt_sharding_mesh(sharding);
  int64_t replica, positions = shardrt_mesh_size(mesh);
  size_t senders = 0;
  for (int64_t i = 0; i < positions; i++) {
    sharding_block(sharding, &x->grid, i, &replica);
    x->senders[shardrt_mesh_device(mesh, i) / x->job->devices_per_process].count += replica == 0;
  }
  int64_t first = 0;
  for (int32_t p = 0; p < x->job->process_count; p++) {
    sender *s = &x->senders[p];
    s->first = first;
    first += s->count;
    senders += s->count > 0;
    if (x->rounds < s->count) x->rounds = s->count;
    s->count = 0; /* counted again below */
  }
  for (int64_t i = 0; i < positions; i++) {
    int64_t block = sharding_block(sharding, &x->grid, i, &replica);
    sender *s = &x->senders[shardrt_mesh_device(mesh, i) / x->job->devices_per_process];
    if (replica == 0) x->blocks[s->first + s->count++] = block;
  }
  return senders;
}

static int exchange_open(exchange *x) {
  const shardrt_sharding *sharding = shardrt_array_sharding(x->array);
  size_t processes = (size_t)x->job->process_count;
  int code = sharding_grid(sharding, shardrt_array_ndim(x->array), shardrt_array_shape(x->array), &x->grid);
  if (code < 0) return code;
  x->senders = alloc_zeros(processes, sizeof *x->senders);
  x->counts = alloc_zeros(processes, sizeof *x->counts);
  x->blocks = alloc_array((size_t)x->grid.blocks, sizeof *x->blocks);
  if (x->senders == NULL || x->counts == NULL || x->blocks == NULL) return ALLOC_FAILED;
  size_t senders = list_senders(x);
  x->piece = x->box_bytes < LARGEST_PIECE ? x->box_bytes : LARGEST_PIECE;
  if (senders > 0 && x->piece > STAGING / senders) x->piece = STAGING / senders;
  x->staging = alloc_array(senders, x->piece);
  return x->staging == NULL ? ALLOC_FAILED : SHARDRT_OK;
}

/* The bytes of the round-th box that this process sends; NULL where it has sent all of them. */
static const char *own_box(const exchange *x, int64_t round) {
  for (int64_t i = 0; i < shardrt_array_shard_count(x->array); i++)
    if (shardrt_array_shard(x->array, i)->replica_id == 0 && round-- == 0)
      return shardrt_buffer_data(shardrt_array_buffer(x->array, i));
  return NULL;
}

/* Puts bytes at … at + bytes of a packed box to their place in the whole value. */
static void unpack(const exchange *x, const shardrt_box *box, size_t at, const char *from, size_t bytes) {
  const int64_t *shape = shardrt_array_shape(x->array);
  /* One run of the box lies in one piece in the value: dimension `outer` and all after it. */
  int32_t outer = box->ndim;
  size_t run = x->element;
  while (outer > 0) {
    outer--;
    run *= (size_t)(box->stop[outer] - box->start[outer]);
    if (box->stop[outer] - box->start[outer] != shape[outer]) break;
  }
  while (bytes > 0) {
    size_t within = at % run, n = run - within < bytes ? run - within : bytes;
    int64_t rest = (int64_t)(at / run);
    size_t place = 0, stride = x->element;
    for (int32_t d = box->ndim - 1; d >= 0; d--) {
      int64_t extent = box->stop[d] - box->start[d];
      int64_t index = box->start[d];
      if (d < outer) {
        index += rest % extent;
        rest /= extent;
      }
      place += (size_t)index * stride;
      stride *= (size_t)shape[d];
    }
    memcpy(x->value + place + within, from, n);
    at += n;
    from += n;
    bytes -= n;
  }
}

/* The round-th box of every process that has so many: bytes at … at + bytes of it. */
static int exchange_piece(exchange *x, const char *what, int64_t round, size_t at, size_t bytes) {
  size_t moved = 0;
  for (int32_t p = 0; p < x->job->process_count; p++) {
    x->counts[p] = round < x->senders[p].count ? (int32_t)bytes : 0;
    moved += (size_t)x->counts[p];
  }
  meet *m = job_meet();
  const char *box = own_box(x, round);
  int started = m->transport->gather_uneven(box == NULL ? NULL : box + at, x->counts, x->staging);
  int code = meet_wait(m, started, what, moved);
  if (code < 0) return code;
  const char *from = x->staging;
  for (int32_t p = 0; p < x->job->process_count; p++) {
    if (x->counts[p] == 0) continue;
    shardrt_box place = grid_box(&x->grid, x->blocks[x->senders[p].first + round]);
    unpack(x, &place, at, from, bytes);
    from += bytes;
  }
  return SHARDRT_OK;
}

static int exchange_run(exchange *x, const char *what) {
  int code = shardrt_barrier(what);
  for (int64_t round = 0; round < x->rounds; round++)
    for (size_t at = 0; code == SHARDRT_OK && at < x->box_bytes; at += x->piece)
      code = exchange_piece(x, what, round, at, x->box_bytes - at < x->piece ? x->box_bytes - at : x->piece);
  return code;
}

int shardrt_process_allgather(const shardrt_array *array, void *value) {
  const shardrt_job *job = shardrt_job_get();
  if (job == NULL) return error_set(SHARDRT_EINVAL, "process_allgather: shardrt_init was not called");
  if (job->planning) return error_set(SHARDRT_EDATA, "process_allgather: there is no data under `shardrt plan`");
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++)
    if (shardrt_array_buffer(array, i) == NULL)
      return error_set(SHARDRT_EDATA, "process_allgather: the array's data was deleted or never given");
  if (job->process_count == 1) return shardrt_array_gather(array, value);
  char what[512];
  struct text text = {.bytes = what, .capacity = sizeof what};
  text_add(&text, "process_allgather (layout %08" PRIx32 ") of ",
           (uint32_t)shardrt_sharding_fingerprint(shardrt_array_sharding(array)));
  array_add_text(array, &text);
  exchange x = {.array = array,
                .job = job,
                .element = shardrt_dtype_size(shardrt_array_dtype(array)),
                .box_bytes = shardrt_array_shard_bytes(array),
                .value = value};
  int code = exchange_open(&x);
  if (code == SHARDRT_OK) code = exchange_run(&x, what);
  exchange_close(&x);
  return code;
}
