/* alias.c - the same bytes under another shape or sharding. */
#include <inttypes.h>

#include "base/error.h"
#include "compute/work.h"

int shardrt_alias(const shardrt_array *x, shardrt_array *out) {
  const int32_t a = shardrt_array_dtype(x), b = shardrt_array_dtype(out);
  if (a != b) return error_set(SHARDRT_EINVAL, "%s cannot be seen as %s", shardrt_dtype_name(a), shardrt_dtype_name(b));
  int code = work_check("alias", 1, &x, out);
  if (code != SHARDRT_OK) return code;
  const int64_t count = shardrt_array_shard_count(out);
  if (count > 0 && work_shard_elements(x) != work_shard_elements(out))
    return error_set(SHARDRT_EINVAL, "a shard of %" PRId64 " elements cannot be seen as one of %" PRId64,
                     work_shard_elements(x), work_shard_elements(out));
  for (int64_t i = 0; i < count; i++) {
    const int64_t first = work_replica(out, i);
    if (shardrt_array_shard(x, first)->block != shardrt_array_shard(x, i)->block)
      return error_set(
          SHARDRT_EINVAL, "what lies in %s cannot be seen as %s: devices that hold different parts would hold the same",
          shardrt_sharding_text(shardrt_array_sharding(x)), shardrt_sharding_text(shardrt_array_sharding(out)));
  }
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++)
    code = shardrt_array_set_buffer(out, i, shardrt_array_buffer(x, i));
  return code;
}
