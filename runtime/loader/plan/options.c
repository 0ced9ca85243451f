#include "loader/plan/options.h"

#include "base/error.h"

enum { MAX_WORKERS = 1024, MAX_PREFETCH = 1024 }; /* that may be asked for */

static int check_range(const char *what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s = %lld: it is a number from %lld to %lld", what, (long long)value,
                   (long long)least, (long long)most);
}

int options_check(const shardrt_loader_options *o) {
  int code = check_range("batch_size", o->batch_size, 1, INT64_MAX);
  if (code == SHARDRT_OK) code = check_range("num_workers", o->num_workers, 0, MAX_WORKERS);
  if (code == SHARDRT_OK) code = check_range("prefetch", o->prefetch, 0, MAX_PREFETCH);
  if (code == SHARDRT_OK) code = check_range("read_size", o->read_size, 0, INT64_MAX);
  if (code == SHARDRT_OK) code = check_range("shuffle", o->shuffle, SHARDRT_IN_ORDER, SHARDRT_BY_BLOCKS);
  if (code == SHARDRT_OK && o->shuffle == SHARDRT_BY_BLOCKS) code = check_range("window", o->window, 1, INT64_MAX);
  if (code == SHARDRT_OK) code = check_range("remainder", o->remainder, SHARDRT_DROP, SHARDRT_ERROR);
  if (code == SHARDRT_OK) code = check_range("pipeline", o->pipeline, SHARDRT_PER_PROCESS, SHARDRT_PER_DEVICE);
  return code;
}
