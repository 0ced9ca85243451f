#include "comm/device_order.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "layout/link_order.h"
#include "platform/accelerator.h"

static const char what[] = "how the devices are linked";

enum { NAME = 256, UUID = sizeof((struct accelerator_info *)NULL)->uuid };

/* What the processes told: each its host's name, and then which GPUs its devices are. */
struct device_order {
  int32_t processes, devices;
  size_t stride; /* bytes that one told */
  char *told;
  int32_t *first; /* of each process, the first one on its host */
};

int64_t device_order_worth(int32_t link) {
  static const int64_t worths[] = {
      [ACCELERATOR_FAR] = 0,     [ACCELERATOR_HOST_LINK] = 1, [ACCELERATOR_PEER] = 8,
      [ACCELERATOR_NVLINK] = 64, [ACCELERATOR_SAME] = 512,
  };
  return worths[link];
}

static int device_order_tell(struct device_order *l, struct collective *m) {
  char *mine = alloc_zeros(1, l->stride);
  l->told = alloc_array((size_t)l->processes, l->stride);
  int code = mine == NULL || l->told == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK) gethostname(mine, NAME - 1);
  for (int32_t d = 0; code == SHARDRT_OK && d < l->devices; d++) {
    struct accelerator_info info;
    code = accelerator_get()->describe(d, &info);
    if (code == SHARDRT_OK) memcpy(mine + NAME + (size_t)d * UUID, info.uuid, UUID);
  }
  if (code == SHARDRT_OK) code = collective_gather(m, what, mine, l->stride, l->told);
  alloc_free(mine);
  return code;
}

static void find_hosts(const struct device_order *l) {
  for (int32_t p = 0; p < l->processes; p++) {
    int32_t q = 0;
    while (memcmp(l->told + (size_t)q * l->stride, l->told + (size_t)p * l->stride, NAME) != 0) q++;
    l->first[p] = q;
  }
}

/* How many processes are on the host whose first one this is. */
static int32_t count_host(const struct device_order *l, int32_t first) {
  int32_t count = 0;
  for (int32_t p = first; p < l->processes; p++) count += l->first[p] == first;
  return count;
}

/* ---- one host --------------------------------------------------------------------------------------------------- */

struct host {
  int32_t processes, devices; /* of each process */
  int32_t *ranks;             /* [processes] */
  uint8_t (*uuids)[UUID];     /* [processes * devices] */
  int32_t *links;             /* [processes * devices][processes * devices] */
  int64_t *worth;             /* room for one question */
  int32_t *order;             /* of the processes; behind it, of the devices of one */
};

static int64_t link_worth(const struct host *h, int64_t i, int64_t k) {
  const int64_t count = (int64_t)h->processes * h->devices;
  const int64_t there = device_order_worth(h->links[i * count + k]), back = device_order_worth(h->links[k * count + i]);
  return there < back ? there : back;
}

/* Two processes are worth to each other what all their devices are. */
static int order_processes(const struct host *h) {
  const int32_t n = h->processes, devices = h->devices;
  memset(h->worth, 0, (size_t)n * (size_t)n * sizeof *h->worth);
  for (int64_t i = 0; i < (int64_t)n * devices; i++)
    for (int64_t k = 0; k < (int64_t)n * devices; k++) h->worth[i / devices * n + k / devices] += link_worth(h, i, k);
  return link_order_find(n, h->worth, h->order);
}

static int order_devices(const struct host *h, int32_t process) {
  const int64_t from = (int64_t)process * h->devices;
  for (int64_t i = 0; i < h->devices; i++)
    for (int64_t k = 0; k < h->devices; k++) h->worth[i * h->devices + k] = link_worth(h, from + i, from + k);
  return link_order_find(h->devices, h->worth, h->order + h->processes);
}

static int host_order(const struct host *h, int32_t *ids) {
  int code = accelerator_get()->topology(h->processes * h->devices, (const uint8_t(*)[UUID])h->uuids, h->links);
  if (code == SHARDRT_OK) code = order_processes(h);
  for (int32_t place = 0; place < h->processes && code == SHARDRT_OK; place++) {
    const int32_t process = h->order[place];
    code = order_devices(h, process);
    for (int32_t d = 0; d < h->devices; d++) *ids++ = h->ranks[process] * h->devices + h->order[h->processes + d];
  }
  return code;
}

/* Of the host whose first process this is. */
static int order_host(const struct device_order *l, int32_t first, int32_t *ids) {
  struct host h = {.processes = count_host(l, first), .devices = l->devices};
  const size_t count = (size_t)h.processes * (size_t)h.devices;
  const size_t more = (size_t)(h.processes > h.devices ? h.processes : h.devices);
  h.ranks = alloc_array((size_t)h.processes, sizeof *h.ranks);
  h.uuids = alloc_array(count, sizeof *h.uuids);
  h.links = alloc_array(count * count, sizeof *h.links);
  h.worth = alloc_array(more * more, sizeof *h.worth);
  h.order = alloc_array((size_t)h.processes + (size_t)h.devices, sizeof *h.order);
  int code = SHARDRT_OK;
  if (h.ranks == NULL || h.uuids == NULL || h.links == NULL || h.worth == NULL || h.order == NULL) code = ALLOC_FAILED;
  for (int32_t p = first, n = 0; code == SHARDRT_OK && p < l->processes; p++) {
    if (l->first[p] != first) continue;
    memcpy(h.uuids + (size_t)n * (size_t)h.devices, l->told + (size_t)p * l->stride + NAME, (size_t)h.devices * UUID);
    h.ranks[n++] = p;
  }
  if (code == SHARDRT_OK) code = host_order(&h, ids);
  alloc_free(h.order);
  alloc_free(h.worth);
  alloc_free(h.links);
  alloc_free(h.uuids);
  alloc_free(h.ranks);
  return code;
}

/* ---- the job ---------------------------------------------------------------------------------------------------- */

/* The first process of each host says its order: not all need to see all GPUs. */
static int device_order_gather(const struct device_order *l, struct collective *m, int32_t *ids) {
  size_t most = 0;
  for (int32_t p = 0; p < l->processes; p++) {
    const size_t here = l->first[p] == p ? (size_t)count_host(l, p) * (size_t)l->devices : 0;
    if (here > most) most = here;
  }
  int32_t *mine = alloc_zeros(most, sizeof *mine), *all = alloc_array((size_t)l->processes, most * sizeof *all);
  int code = mine == NULL || all == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK && l->first[m->index] == m->index) code = order_host(l, m->index, mine);
  if (code == SHARDRT_OK) code = collective_gather(m, what, mine, most * sizeof *mine, all);
  for (int32_t p = 0; code == SHARDRT_OK && p < l->processes; p++) {
    if (l->first[p] != p) continue;
    const size_t count = (size_t)count_host(l, p) * (size_t)l->devices;
    memcpy(ids, all + (size_t)p * most, count * sizeof *ids);
    ids += count;
  }
  alloc_free(all);
  alloc_free(mine);
  return code;
}

static bool is_counting(const int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (ids[i] != i) return false;
  return true;
}

int device_order_settle(struct collective *m, int32_t devices, int32_t **ids) {
  struct device_order l = {.processes = m->count, .devices = devices, .stride = NAME + (size_t)devices * UUID};
  const size_t count = (size_t)l.processes * (size_t)devices;
  int32_t *found = alloc_array(count, sizeof *found);
  l.first = alloc_array((size_t)l.processes, sizeof *l.first);
  int code = found == NULL || l.first == NULL ? ALLOC_FAILED : device_order_tell(&l, m);
  if (code == SHARDRT_OK) {
    find_hosts(&l);
    code = device_order_gather(&l, m, found);
  }
  alloc_free(l.first);
  alloc_free(l.told);
  if (code < 0 || is_counting(found, (int64_t)count)) {
    alloc_free(found);
    found = NULL;
  }
  *ids = found;
  return code;
}
