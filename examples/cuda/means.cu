// means.cu - the brightness of images, computed on the GPUs where shardrt has put them, on streams of the program's
// own.
//
//     nvcc -std=c++17 -O2 -o means means.cu $(pkg-config --cflags --libs shardrt)
//     ./means data.lua
#include <cstdio>
#include <deque>

#include <cuda_runtime_api.h>

#include "../cpp/handles.hpp"
#include "memory/dlpack.h" // in a program of your own <dlpack/dlpack.h>, of DLPack 1.0 or later

namespace {

constexpr int THREADS = 128;
constexpr size_t UNDER_WAY = 2; // batches

// A thread for each row.
__global__ void mean_of_row(const float *rows, int64_t count, int64_t width, float *means) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= count) return;
  float sum = 0;
  for (int64_t i = 0; i < width; i++) sum += rows[row * width + i];
  means[row] = sum / static_cast<float>(width);
}

void on_gpu(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

using Tensor = std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned *)>;

// A shard, whose memory the stream may read from now on.
Tensor take(const shardrt_array *array, int64_t shard, cudaStream_t stream) {
  DLManagedTensorVersioned *made;
  must(shardrt_array_dlpack(array, shard, stream, &made));
  return Tensor(made, made->deleter);
}

// What a GPU computes of a shard: it holds the shard's memory until the event has come.
class Means {
public:
  Means(Tensor &&of, cudaStream_t stream) : tensor(std::move(of)) {
    const DLTensor &t = tensor->dl_tensor;
    const auto *rows = reinterpret_cast<const float *>(static_cast<const char *>(t.data) + t.byte_offset);
    int64_t width = 1;
    for (int32_t d = 1; d < t.ndim; d++) width *= t.shape[d];
    count = t.shape[0];
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    const auto blocks = static_cast<unsigned>((count + THREADS - 1) / THREADS);
    void *means;
    on_gpu(cudaSetDevice(t.device.device_id));
    on_gpu(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    on_gpu(cudaHostAlloc(&values, bytes, cudaHostAllocDefault));
    on_gpu(cudaMallocAsync(&means, bytes, stream));
    mean_of_row<<<blocks, THREADS, 0, stream>>>(rows, count, width, static_cast<float *>(means));
    on_gpu(cudaGetLastError());
    on_gpu(cudaMemcpyAsync(values, means, bytes, cudaMemcpyDeviceToHost, stream));
    on_gpu(cudaFreeAsync(means, stream));
    on_gpu(cudaEventRecord(done, stream));
  }
  Means(const Means &) = delete;
  Means &operator=(const Means &) = delete;
  ~Means() {
    cudaEventSynchronize(done); // the tensor goes after that
    cudaEventDestroy(done);
    cudaFreeHost(values);
  }

  double sum() const {
    on_gpu(cudaEventSynchronize(done));
    double all = 0;
    for (int64_t i = 0; i < count; i++) all += static_cast<double>(static_cast<const float *>(values)[i]);
    return all;
  }
  int64_t rows() const { return count; }

private:
  Tensor tensor;
  cudaEvent_t done;
  void *values;
  int64_t count;
};

// A stream for each of this process's devices.
class Streams {
public:
  explicit Streams(const shardrt_array *array) {
    for (int64_t s = 0; s < shardrt_array_shard_count(array); s++) {
      cudaStream_t made;
      on_gpu(cudaSetDevice(take(array, s, cudaStreamLegacy)->dl_tensor.device.device_id));
      on_gpu(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
      list.push_back(made);
    }
  }
  Streams(const Streams &) = delete;
  Streams &operator=(const Streams &) = delete;
  ~Streams() { // after all tensors that they were given
    for (cudaStream_t stream : list) cudaStreamDestroy(stream);
  }
  cudaStream_t of(int64_t shard) const { return list[static_cast<size_t>(shard)]; }

private:
  std::vector<cudaStream_t> list;
};

void run(const char *path, const std::vector<const char *> &arguments) {
  shardrt_options options;
  shardrt_options_init(&options);
  options.platform = "cuda";
  Job job(options);
  {
    Recipe recipe(path, arguments);
    std::unique_ptr<Streams> streams;
    std::deque<std::vector<std::unique_ptr<Means>>> under_way;
    double sum = 0;
    int64_t rows = 0;
    const auto finish_oldest = [&] {
      for (const auto &means : under_way.front()) {
        sum += means->sum();
        rows += means->rows();
      }
      under_way.pop_front(); // frees the shards' memory
    };
    while (const std::optional<Batch> batch = recipe.next()) {
      const shardrt_array *images = (*batch)["image"];
      if (!streams) streams = std::make_unique<Streams>(images);
      std::vector<std::unique_ptr<Means>> each;
      for (int64_t s = 0; s < shardrt_array_shard_count(images); s++)
        each.push_back(std::make_unique<Means>(take(images, s, streams->of(s)), streams->of(s)));
      under_way.push_back(std::move(each)); // the batch itself may go: its tensors have counts of their own
      if (under_way.size() > UNDER_WAY) finish_oldest();
    }
    while (!under_way.empty()) finish_oldest();
    std::printf("the mean of %d images is %.5f\n", static_cast<int>(rows), sum / static_cast<double>(rows));
  }
  job.leave();
}

} // namespace

int main(int argc, char **argv) {
  try {
    if (argc < 2) throw std::invalid_argument("usage: means data.lua [arguments of the recipe]");
    run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "means: %s\n", problem.what());
    return 1;
  }
  return 0;
}
