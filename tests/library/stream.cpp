// stream.cpp - stream.c in C++: the same lines, each batch's printed by a thread of its own, which lets it go.
//
//     stream devices recipe.lua [loader…] [-- arguments of the recipe]
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>

#include "handles.hpp"

namespace {

void print_batch(const std::string &prefix, int64_t step, const Batch batch) {
  for (int f = 0; f < batch.fields(); f++) {
    const shardrt_array *array = batch.array(f);
    for (int64_t i = 0; i < shardrt_array_shard_count(array); i++) {
      const size_t bytes = shardrt_buffer_bytes(shardrt_array_buffer(array, i));
      std::printf("%s%" PRId64 " %s %d %016" PRIx64 "\n", prefix.c_str(), step, batch.name(f),
                  shardrt_array_shard(array, i)->device, shardrt_fingerprint(elements<uint8_t>(array, i), bytes));
    }
  }
}

void print_batches(const std::string &prefix, Recipe &from) {
  std::future<void> printing;
  int64_t step = 0;
  while (std::optional<Batch> batch = from.next()) {
    if (printing.valid()) printing.get();
    printing = std::async(std::launch::async, print_batch, prefix, step++, *std::move(batch));
  }
  if (printing.valid()) printing.get();
}

void run(int argc, char **argv) {
  char **const end = argv + argc;
  char **const dashes = std::find_if(argv + 3, end, [](const char *word) { return std::strcmp(word, "--") == 0; });
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = std::atoi(argv[1]);
  options.timeout = 60;
  Job job(options);
  {
    Recipe recipe(argv[2], {std::min(dashes + 1, end), end});
    if (dashes == argv + 3) print_batches("", recipe);
    for (char **loader = argv + 3; loader < dashes; loader++) {
      Recipe from = recipe.loader(*loader);
      print_batches(dashes > argv + 4 ? std::string(*loader) + " " : "", from);
    }
  }
  job.leave();
}

} // namespace

int main(int argc, char **argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // whole lines: others are printed by other processes
  try {
    run(argc, argv);
  } catch (const Error &problem) {
    std::fprintf(stderr, "%s: %s\n", shardrt_error_name(problem.code), problem.what());
    return 3;
  }
  return 0;
}
