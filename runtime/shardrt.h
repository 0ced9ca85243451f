/* shardrt.h - a distributed job's data, batch by batch, for programs in C and C++; and all that recipes in Lua call.
 *
 *     #include <shardrt.h>
 *     #include <stdio.h>
 *
 *     int main(void) {
 *       shardrt_options options;
 *       shardrt_recipe *recipe;
 *       shardrt_batch *batch;
 *       shardrt_options_init(&options);
 *       options.devices = 2;
 *       int code = shardrt_join(&options);
 *       if (code == SHARDRT_OK) code = shardrt_open("data.lua", 0, NULL, &recipe);
 *       while (code >= 0 && (code = shardrt_next(recipe, -1, &batch)) == 1) {
 *         const shardrt_array *image = shardrt_batch_find(batch, "image");
 *         for (int64_t s = 0; s < shardrt_array_shard_count(image); s++) {
 *           const shardrt_box *box = &shardrt_array_shard(image, s)->box;
 *           const float *rows = shardrt_array_host_data(image, s);
 *           printf("rows %d to %d begin with %g\n", (int)box->start[0], (int)box->stop[0], rows[0]);
 *         }
 *         shardrt_batch_free(batch);
 *       }
 *       if (code < 0) return fprintf(stderr, "%s\n", shardrt_error_message()), 1;
 *       shardrt_close(recipe);
 *       return shardrt_leave() < 0;
 *     }
 *
 * data.lua ends in `return shardrt.loader { … }`. `cc program.c $(pkg-config --cflags --libs shardrt)` compiles the
 * program; `shardrt run -n 4 ./a.out` runs it in four processes. docs/c.md says more.
 *
 * First come errors and handles, then join and options, recipes and their batches, shards, arrays. What stands below
 * "For recipes" a program can do without.
 *
 * For every function here:
 *   - One that can fail returns SHARDRT_OK (0) or a negative code from the list below. It leaves one message, which
 *     says what and where, in shardrt_error_message() of the calling thread. It has then freed all it took, and its
 *     out-parameters are untouched.
 *   - Handles are counted. `_new` (and every out-parameter that is a handle) gives one count, which the caller owns
 *     and gives back with `_free`; a function that keeps a handle takes a count of its own. `_free(NULL)` does
 *     nothing.
 *   - Sizes are int64_t elements or size_t bytes, and say which. Ids, positions, ranks and axes count from 0.
 *   - What is done by all processes of a job takes the job. NULL is this process alone, in no job, where it says so,
 *     and where the call has nothing to tell another process; else it is EINVAL.
 *   - Process index, process count and devices per process are arguments, never globals, so that one process can ask
 *     as any process of any job. Device d belongs to process d / devices_per_process.
 */
#ifndef SHARDRT_H
#define SHARDRT_H

#ifndef SHARDRT_CDEF
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* clang-format off */
#include "base/base_api.h"
#include "comm/program_api.h"
#include "library/recipe_api.h"
#include "layout/shard_api.h"
#include "memory/array_api.h"

/* ==== For recipes: what Lua calls ================================================================================
 *
 * LuaJIT's FFI reads this very header: `cc -E -P -DSHARDRT_CDEF -Iruntime runtime/shardrt.h` gives text that ffi.cdef
 * accepts as it stands. So constants are enums, no system header is included under SHARDRT_CDEF, and what has an inside
 * is a handle. In the source tree the parts lie in the rooms that they are of; `make install` puts them in one file. */

#include "layout/layout_api.h"
#include "platform/inventory_api.h"
#include "memory/memory_api.h"
#include "comm/comm_api.h"
#include "reshard/reshard_api.h"
#include "check/check_api.h"
#include "storage/write/write_api.h"
#include "storage/upload/upload_api.h"
#include "storage/storage_api.h"
#include "trace/trace_api.h"
#include "dataset/dataset_api.h"
#include "arrayfile/arrayfile_api.h"
#include "transform/transform_api.h"
#include "loader/loader_api.h"
#include "compute/compute_api.h"
#include "compute/elementwise/elementwise_api.h"
#include "compute/reduce/reduce_api.h"
#include "compute/rearrange/rearrange_api.h"
#include "compute/matmul/matmul_api.h"
#include "compute/random/random_api.h"
/* clang-format on */

#ifndef SHARDRT_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif
