// train.cpp - softmax regression in C++, with MPI of its own: most processes train, the last ones test meanwhile. Each
// kind is a job by itself.
//
//     c++ -std=c++17 -O2 -pthread -o softmax train.cpp $(pkg-config --cflags --libs shardrt ompi-c)
//     mpirun -n 3 ./softmax data.lua 1      one of the three tests
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>

#define OMPI_SKIP_MPICXX 1 // MPI's functions of C are enough
#include <mpi.h>

#include "handles.hpp"

namespace {

constexpr int PIXELS = 28 * 28, CLASSES = 10, WEIGHTS = (PIXELS + 1) * CLASSES;
constexpr double RATE = 0.1;
constexpr int64_t TOLD = 50; // steps between two messages to those that test

using Vector = std::vector<double>;

// What each class is worth for an image; returns the logarithm of the sum of their exponentials.
double score(const Vector &weights, const float *image, double *scores) {
  double highest = -INFINITY, sum = 0;
  for (int c = 0; c < CLASSES; c++) {
    const double *w = &weights[static_cast<size_t>(c) * (PIXELS + 1)];
    scores[c] = w[PIXELS];
    for (int i = 0; i < PIXELS; i++) scores[c] += w[i] * static_cast<double>(image[i]);
    highest = std::fmax(highest, scores[c]);
  }
  for (int c = 0; c < CLASSES; c++) sum += std::exp(scores[c] - highest);
  return std::log(sum) + highest;
}

// The sums over the rows of this process: the gradient, and behind it the loss. It runs on a thread of its own, which
// holds the batch for as long as it reads.
Vector gradient_of(const Batch batch, const Vector &weights) {
  const shardrt_array *images = batch["image"], *labels = batch["label"];
  const auto rows = static_cast<int64_t>(shardrt_array_shard_bytes(labels));
  Vector sums(WEIGHTS + 1);
  for (int64_t s = 0; s < shardrt_array_shard_count(images); s++) {
    const auto *label = elements<uint8_t>(labels, s);
    for (int64_t r = 0; r < rows; r++) {
      const float *image = elements<float>(images, s) + r * PIXELS;
      double scores[CLASSES];
      const double all = score(weights, image, scores);
      for (int c = 0; c < CLASSES; c++) {
        const double off = std::exp(scores[c] - all) - (c == label[r] ? 1 : 0);
        double *g = &sums[static_cast<size_t>(c) * (PIXELS + 1)];
        g[PIXELS] += off;
        for (int i = 0; i < PIXELS; i++) g[i] += off * static_cast<double>(image[i]);
      }
      sums[WEIGHTS] += all - scores[label[r]];
    }
  }
  return sums;
}

// Process 0 tells all the weights, and how many steps there are still to come.
void tell(Vector &weights, int64_t &left) {
  MPI_Bcast(weights.data(), WEIGHTS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  MPI_Bcast(&left, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
}

void train(const Recipe &recipe, bool speaks) {
  Recipe loader = recipe.loader("train");
  Vector weights(WEIGHTS);
  const int64_t steps = loader.steps();
  double last = 0;
  std::optional<Batch> batch = loader.next();
  for (int64_t step = 1; batch; step++) {
    auto computing = std::async(std::launch::async, gradient_of, *batch, std::cref(weights));
    std::optional<Batch> after = loader.next(); // meanwhile
    Vector sums = computing.get();
    const shardrt_array *images = (*batch)["image"];
    const shardrt_mesh *mesh = shardrt_sharding_mesh(shardrt_array_sharding(images));
    must(shardrt_allreduce(sums.data(), sums.size(), SHARDRT_FLOAT64, mesh, "data"));
    const auto rows = static_cast<double>(shardrt_array_shape(images)[0]);
    for (size_t i = 0; i < WEIGHTS; i++) weights[i] -= RATE / rows * sums[i];
    const double loss = sums[WEIGHTS] / rows;
    if (step > steps - 20) last += loss;
    if (speaks && step % TOLD == 0)
      std::printf("step %d of %d: loss %.4f\n", static_cast<int>(step), static_cast<int>(steps), loss);
    int64_t left = steps - step;
    if (left == 0 || step % TOLD == 0) tell(weights, left);
    batch = std::move(after);
  }
  if (speaks) std::printf("mean loss of the last 20 steps: %.4f\n", last / 20);
}

int64_t count_right(const Batch &batch, const Vector &weights) {
  const shardrt_array *images = batch["image"], *labels = batch["label"];
  const auto rows = static_cast<int64_t>(shardrt_array_shard_bytes(labels));
  int64_t right = 0;
  for (int64_t s = 0; s < shardrt_array_shard_count(images); s++) {
    for (int64_t r = 0; r < rows; r++) {
      double scores[CLASSES];
      score(weights, elements<float>(images, s) + r * PIXELS, scores);
      int best = 0;
      for (int c = 1; c < CLASSES; c++) best = scores[c] > scores[best] ? c : best;
      right += best == elements<uint8_t>(labels, s)[r] ? 1 : 0;
    }
  }
  return right;
}

void test(const Recipe &recipe, MPI_Comm testers) {
  Recipe loader = recipe.loader("test");
  int rank;
  MPI_Comm_rank(testers, &rank);
  Vector weights(WEIGHTS);
  for (int64_t left = 1; left > 0;) {
    tell(weights, left);
    int64_t right = 0, rows = 0;
    for (int64_t step = 0; step < loader.steps(); step++) {
      const Batch batch = loader.next().value();
      right += count_right(batch, weights);
      rows += shardrt_array_shape(batch["image"])[0];
    }
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT64_T, MPI_SUM, testers);
    if (rank == 0)
      std::printf("%d steps before the end: %d of %d test images right\n", static_cast<int>(left),
                  static_cast<int>(right), static_cast<int>(rows));
  }
}

void run(const std::string &path, int testers, const std::vector<const char *> &arguments) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool trains = rank < size - testers;
  MPI_Comm own;
  MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : 1, rank, &own);
  shardrt_options options;
  shardrt_options_init(&options);
  options.devices = 2; // of each process
  options.mpi_comm = &own;
  Job job(options);
  {
    const Recipe recipe(path, arguments);
    if (trains)
      train(recipe, rank == 0);
    else
      test(recipe, own);
  }
  job.leave();
  MPI_Comm_free(&own);
}

} // namespace

int main(int argc, char **argv) {
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  try {
    if (argc < 2) throw std::invalid_argument("usage: train data.lua [processes that test [arguments of the recipe]]");
    run(argv[1], argc > 2 ? std::atoi(argv[2]) : 0, {argv + std::min(argc, 3), argv + argc});
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "train: %s\n", problem.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
