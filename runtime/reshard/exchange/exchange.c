#include "reshard/exchange/exchange.h"

#include <assert.h>

#include "shardrt.h"

static int exchange_post(struct exchange *x, int32_t slot) {
  assert(x->states[slot] == EXCHANGE_LOADING);
  x->states[slot] = EXCHANGE_POSTED;
  return x->backend->post(x->context, slot);
}

static void exchange_release(struct exchange *x, int32_t slot) {
  assert(x->states[slot] == EXCHANGE_STORING && x->busy > 0);
  x->states[slot] = EXCHANGE_FREE;
  x->busy--;
}

static int exchange_load(struct exchange *x, int32_t slot) {
  assert(x->states[slot] == EXCHANGE_FREE);
  bool ended = false;
  x->states[slot] = EXCHANGE_LOADING;
  x->busy++;
  int code = x->backend->load(x->context, slot, &ended);
  return code == SHARDRT_OK && ended ? exchange_post(x, slot) : code;
}

static int exchange_store(struct exchange *x, int32_t slot) {
  assert(x->states[slot] == EXCHANGE_POSTED);
  bool ended = false;
  x->states[slot] = EXCHANGE_STORING;
  int code = x->backend->store(x->context, slot, &ended);
  if (code == SHARDRT_OK && ended) exchange_release(x, slot);
  return code;
}

/* Sees to the slots that have arrived. */
static int exchange_arrive(struct exchange *x, bool *moved) {
  int32_t slots[EXCHANGE_SLOTS], count = 0;
  int code = x->backend->poll(x->context, slots, &count, moved);
  for (int32_t i = 0; i < count && code == SHARDRT_OK; i++) {
    *moved = true;
    code = exchange_store(x, slots[i]);
  }
  return code;
}

/* Sees to the slots whose load or store has ended. */
static int exchange_go_on(struct exchange *x, bool *moved) {
  int code = SHARDRT_OK;
  for (int32_t slot = 0; slot < x->groups * x->size && code == SHARDRT_OK; slot++) {
    if (x->states[slot] != EXCHANGE_LOADING && x->states[slot] != EXCHANGE_STORING) continue;
    bool ended = false;
    code = x->backend->ended(x->context, slot, &ended);
    if (code < 0 || !ended) continue;
    *moved = true;
    if (x->states[slot] == EXCHANGE_LOADING)
      code = exchange_post(x, slot);
    else
      exchange_release(x, slot);
  }
  return code;
}

static int exchange_fill(struct exchange *x, bool *moved) {
  int code = SHARDRT_OK;
  for (int32_t group = 0; group < x->groups; group++) {
    const int32_t end = (group + 1) * x->size;
    for (int32_t slot = group * x->size; slot < end && code == SHARDRT_OK; slot++) {
      if (x->states[slot] != EXCHANGE_FREE) continue;
      if (!x->backend->take(x->context, slot)) break;
      *moved = true;
      code = exchange_load(x, slot);
    }
  }
  return code;
}

/* All is done when nothing was left to take, and all slots are free. */
static int exchange_step(void *context, bool *done, bool *moved) {
  struct exchange *x = context;
  int code = x->busy > 0 ? exchange_arrive(x, moved) : SHARDRT_OK;
  if (code == SHARDRT_OK && x->busy > 0) code = exchange_go_on(x, moved);
  if (code == SHARDRT_OK) code = exchange_fill(x, moved);
  if (code < 0) return code;
  const bool more = !*moved && x->backend->help != NULL && x->backend->help(x->context, moved);
  *done = x->busy == 0 && !more && !*moved;
  return SHARDRT_OK;
}

/* Those that something is posted for. */
static void exchange_awaits(const void *context, bool *processes) {
  const struct exchange *x = context;
  for (int32_t slot = 0; slot < x->groups * x->size; slot++)
    if (x->states[slot] == EXCHANGE_POSTED) x->backend->awaits(x->context, slot, processes);
}

int exchange_run(struct exchange *x, struct collective *m, const char *what, size_t bytes) {
  assert(x->size > 0 && x->groups * x->size <= EXCHANGE_SLOTS && x->busy == 0);
  const struct collective_work work = {.step = exchange_step, .awaits = exchange_awaits, .context = x};
  return collective_until(m, &work, what, bytes);
}
