/* source_blocks.c - which samples of a source are decoded or fetched together: what its format says, or runs of about
 * SOURCE_RUN_BYTES. */
#include "dataset/source.h"
#include "storage/block_cache.h"
#include "storage/restart_table.h"

int64_t source_block_count(const shardrt_source *source) {
  return source->format->block_count != NULL ? source->format->block_count(source) : source->count;
}

int64_t shardrt_source_blocks(const shardrt_source *source) {
  return source_block_count(source);
}

struct sample_range source_block(const shardrt_source *source, int64_t block) {
  if (source->format->block != NULL) return source->format->block(source, block);
  return (struct sample_range){.first = block, .count = 1};
}

int64_t source_block_from(const shardrt_source *source, int64_t sample) {
  int64_t low = 0, high = source_block_count(source); /* blocks before low begin before it, those from high on do not */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (source_block(source, middle).first < sample)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool source_stands_alone(const shardrt_source *source) {
  return source_block_count(source) == source->count;
}

/* Without those of formats that keep them together: of these, *together is the most that one source could keep. */
static int64_t blocks_kept_apart(const shardrt_source *source, int64_t *together) {
  int64_t kept = -1;
  if (source->format->blocks_kept != NULL) {
    kept = source->format->blocks_kept(source);
    if (!source->format->keeps_together) return kept;
    if (kept > *together) *together = kept;
    return -1;
  }
  for (int32_t b = 0; b < source->nbases; b++) {
    const int64_t of_base = blocks_kept_apart(source->bases[b], together);
    if (of_base >= 0) kept = (kept > 0 ? kept : 0) + of_base;
  }
  return kept;
}

int64_t source_blocks_kept(const shardrt_source *source) {
  int64_t together = -1;
  const int64_t apart = blocks_kept_apart(source, &together);
  return apart < 0 ? together : together < 0 ? apart : apart + together;
}

bool source_is_remote(const shardrt_source *source) {
  bool remote = false;
  for (int32_t i = 0; i < source->nfiles && !remote; i++)
    remote = source->files[i].stored != NULL ? stored_is_remote(source->files[i].stored) : source->files[i].is_remote;
  for (int32_t b = 0; b < source->nbases && !remote; b++) remote = source_is_remote(source->bases[b]);
  return remote;
}

size_t source_stored_bytes(const shardrt_source *source) {
  size_t stored = 0, laid_out = 0;
  for (int32_t i = 0; i < source->nfiles; i++)
    stored += source->files[i].stored != NULL ? source->files[i].stored->bytes : source->files[i].bytes;
  for (int32_t b = 0; b < source->nbases; b++) stored += source_stored_bytes(source->bases[b]);
  for (int32_t f = 0; f < source->nfields && source->nbases == 0; f++) {
    const shardrt_box whole = source_whole(&source->fields[f]);
    if (!source_is_ragged(&source->fields[f])) laid_out += source_box_bytes(&source->fields[f], &whole);
  }
  laid_out *= (size_t)source->count;
  return stored > laid_out ? stored : laid_out;
}

int64_t source_run_samples(int64_t count, size_t bytes) {
  const size_t each = count > 0 ? bytes / (size_t)count : 0;
  const int64_t samples = SOURCE_RUN_BYTES / (int64_t)(each < 1                  ? 1
                                                       : each < SOURCE_RUN_BYTES ? each
                                                                                 : SOURCE_RUN_BYTES);
  return samples < 1 ? 1 : samples;
}

int64_t source_run_count(int64_t count, int64_t samples) {
  return count / samples + (count % samples != 0);
}

struct sample_range source_run(int64_t count, int64_t samples, int64_t run) {
  const int64_t first = run * samples, left = count - first;
  return (struct sample_range){.first = first, .count = left < samples ? left : samples};
}

static int64_t samples_of_run(const shardrt_source *source) {
  return source_run_samples(source->count, source_stored_bytes(source));
}

int64_t source_runs_count(const shardrt_source *source) {
  return source_run_count(source->count, samples_of_run(source));
}

struct sample_range source_runs_block(const shardrt_source *source, int64_t block) {
  return source_run(source->count, samples_of_run(source), block);
}

/* The bytes of a compressed file that is read where it lies; 0: it is none. */
static size_t packed_bytes(const struct source_file *file) {
  return file->stored != NULL ? stored_packed_bytes(file->stored) : file->packed_bytes;
}

int64_t source_runs_kept(const shardrt_source *source) {
  for (int32_t i = 0; i < source->nfiles; i++)
    if (packed_bytes(&source->files[i]) > 0)
      return BLOCK_CACHE_BYTES / (SOURCE_RUN_BYTES + RESTART_SPAN); /* a run begins and ends within spans */
  return -1;
}

int32_t shardrt_source_in_place(const shardrt_source *source, int64_t *packed, int64_t *bytes) {
  int32_t count = 0;
  *packed = *bytes = 0;
  for (int32_t i = 0; i < source->nfiles; i++) {
    const struct source_file *file = &source->files[i];
    if (packed_bytes(file) == 0) continue;
    count++;
    *packed += (int64_t)packed_bytes(file);
    *bytes += (int64_t)(file->stored != NULL ? file->stored->bytes : file->bytes);
  }
  for (int32_t b = 0; b < source->nbases; b++) {
    int64_t packed_there, bytes_there;
    count += shardrt_source_in_place(source->bases[b], &packed_there, &bytes_there);
    *packed += packed_there;
    *bytes += bytes_there;
  }
  return count;
}
