// flat.cpp - flat.c in C++: each batch is read and let go on another thread, by a copy of its own.
//
//     flat recipe.lua [batch]     forgets one object for each batch
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>

#include "handles.hpp"

namespace {

constexpr int FIRST = 1000, ALL = 10000;

void print_memory(int count) {
  std::ifstream file("/proc/self/smaps_rollup");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto bytes = [&](const std::string &name) {
    return std::atoll(text.c_str() + text.find(name) + name.size()) * 1024;
  };
  std::printf("%d %lld %lld\n", count, bytes("\nRss:"), bytes("\nAnonymous:"));
}

double first_element(const Batch batch) {
  return static_cast<double>(elements<float>(batch["x"], 0)[0]);
}

} // namespace

int main(int argc, char **argv) {
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = 2;
  double sum = 0;
  try {
    Job job(options);
    {
      Recipe recipe(argv[1]);
      for (int count = 1; count <= ALL; count++) {
        Batch batch = recipe.next().value(), other = batch;
        auto reading = std::async(std::launch::async, first_element, std::move(batch));
        if (argc > 2) new Batch(other);
        try {
          recipe.loader("none");
        } catch (const Error &) {
          sum += reading.get();
        }
        if (count == FIRST || count == ALL) print_memory(count);
      }
    }
    job.leave();
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
  return sum > 0 ? 0 : 1;
}
