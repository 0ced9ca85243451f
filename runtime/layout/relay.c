#include "layout/relay.h"

#include <assert.h>
#include <stdlib.h>

static int compare_by_host(const void *a, const void *b, void *hosts) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b, *first = *(const int32_t *const *)hosts;
  if (first[x] != first[y]) return first[x] < first[y] ? -1 : 1;
  return (x > y) - (x < y);
}

struct relay_audience relay_audience_of(const int32_t *hosts, int32_t *processes, int64_t count, int64_t *begins) {
  struct relay_audience a = {.hosts = hosts, .processes = processes, .begins = begins};
  qsort_r(processes, (size_t)count, sizeof *processes, compare_by_host, (void *)&hosts);
  for (int64_t i = 0; i < count; i++)
    if (i == 0 || hosts[processes[i]] != hosts[processes[i - 1]]) begins[a.count++] = i;
  begins[a.count] = count;
  for (int64_t host = 0; host < a.count; host++) a.shared += begins[host + 1] - begins[host] > 1;
  return a;
}

static int32_t host_of(const struct relay_audience *a, int64_t host) {
  return a->hosts[a->processes[a->begins[host]]];
}

/* The first host of the audience's from this one on, in the order of numbers. */
static int64_t find_host(const struct relay_audience *a, int32_t first) {
  int64_t low = 0, high = a->count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (host_of(a, middle) < first)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

struct relay relay_of(const struct relay_audience *audience, int32_t root, int64_t spread, int64_t boxes) {
  const int32_t home = audience->hosts[root];
  const int64_t at = find_host(audience, home);
  struct relay r = {.audience = audience, .root = root, .spread = spread, .next = at};
  r.has_home = at < audience->count && host_of(audience, at) == home;
  if (r.has_home) r.next++;
  r.stops = audience->count + !r.has_home;
  r.is_at_once = boxes >= r.stops;
  return r;
}

/* The stops are numbered from the root's host on, 0, around. Which host of the audience's one is; 0: where there is a
 * home. */
static int64_t host_at(const struct relay *r, int64_t stop) {
  return (r->next + stop - 1 + r->audience->count) % r->audience->count;
}

static int64_t stop_of(const struct relay *r, int32_t process) {
  const struct relay_audience *a = r->audience;
  if (a->hosts[process] == a->hosts[r->root]) return 0;
  const int64_t host = find_host(a, a->hosts[process]);
  assert(host < a->count && host_of(a, host) == a->hosts[process]);
  return (host - r->next + a->count) % a->count + 1;
}

/* Who gets it there first, and passes it on. */
static int32_t first_at(const struct relay *r, int64_t stop) {
  if (stop == 0) return r->root;
  const struct relay_audience *a = r->audience;
  const int64_t host = host_at(r, stop), begin = a->begins[host];
  return a->processes[begin + r->spread % (a->begins[host + 1] - begin)];
}

/* Of n > 0. */
static int32_t log2_down(int64_t n) {
  return 63 - __builtin_clzll((unsigned long long)n);
}

static int32_t last_round(const struct relay *r) {
  if (r->is_at_once || r->stops < 2) return 1;
  return log2_down(r->stops - 1) + 1;
}

bool relay_saves(const struct relay *r) {
  if (!r->is_at_once && r->stops > 3) return true;
  const int64_t home = host_at(r, 0);
  const bool is_home_shared = r->has_home && r->audience->begins[home + 1] - r->audience->begins[home] > 1;
  return r->audience->shared > is_home_shared;
}

/* To the other hosts' first ones. */
static bool step_to_host(const struct relay *r, int64_t stop, int64_t number, struct relay_step *out) {
  if (r->is_at_once) {
    if (stop > 0 || number >= r->stops - 1) return false;
    *out = (struct relay_step){.peer = first_at(r, number + 1)};
    return true;
  }
  const int64_t round = (stop == 0 ? 0 : log2_down(stop) + 1) + number;
  if (round > log2_down(r->stops) || stop + (INT64_C(1) << round) >= r->stops) return false;
  *out = (struct relay_step){.peer = first_at(r, stop + (INT64_C(1) << round)), .round = (int32_t)round};
  return true;
}

static int64_t steps_to_hosts(const struct relay *r, int64_t stop) {
  int64_t count = 0;
  struct relay_step each;
  if (r->is_at_once) return stop == 0 ? r->stops - 1 : 0;
  while (step_to_host(r, stop, count, &each)) count++;
  return count;
}

/* To the others on this host. */
static bool step_here(const struct relay *r, int32_t process, int64_t stop, int64_t number, struct relay_step *out) {
  if (stop == 0 && !r->has_home) return false;
  const int64_t host = host_at(r, stop);
  for (int64_t i = r->audience->begins[host]; i < r->audience->begins[host + 1]; i++) {
    if (r->audience->processes[i] == process || number-- > 0) continue;
    *out = (struct relay_step){.peer = r->audience->processes[i], .round = last_round(r)};
    return true;
  }
  return false;
}

bool relay_step(const struct relay *r, int32_t process, int64_t number, struct relay_step *out) {
  const int64_t stop = stop_of(r, process);
  const int32_t first = first_at(r, stop);
  if (process != first) {
    *out = (struct relay_step){.peer = first, .round = last_round(r), .is_receive = true};
    return number == 0;
  }
  if (process != r->root && number-- == 0) {
    const int32_t round = r->is_at_once ? 0 : log2_down(stop);
    const int64_t giver = r->is_at_once ? 0 : stop - (INT64_C(1) << round);
    *out = (struct relay_step){.peer = first_at(r, giver), .round = round, .is_receive = true};
    return true;
  }
  const int64_t away = steps_to_hosts(r, stop);
  return number < away ? step_to_host(r, stop, number, out) : step_here(r, process, stop, number - away, out);
}
