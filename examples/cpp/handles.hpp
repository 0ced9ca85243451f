// handles.hpp - shardrt's handles as objects of C++: a copy is a count, a code below 0 is an exception. To be copied
// into a program of your own, and changed there.
#ifndef HANDLES_HPP
#define HANDLES_HPP

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <shardrt.h>

struct Error : std::runtime_error {
  const int code; // SHARDRT_EINVAL, …
  explicit Error(int failed) : std::runtime_error(shardrt_error_message()), code(failed) {}
};

inline int must(int code) {
  if (code < 0) throw Error(code);
  return code;
}

// A count of a batch. Any thread may copy it, read it and let it go.
class Batch {
public:
  explicit Batch(shardrt_batch *counted) noexcept : handle(counted) {}
  Batch(const Batch &other) noexcept : handle(other.handle) { shardrt_batch_retain(handle); }
  Batch(Batch &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Batch &operator=(Batch other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Batch() { shardrt_batch_free(handle); }

  int fields() const { return shardrt_batch_fields(handle); }
  const char *name(int field) const { return shardrt_batch_name(handle, field); }
  const shardrt_array *array(int field) const { return shardrt_batch_array(handle, field); }
  const shardrt_array *operator[](const std::string &wanted) const {
    for (int f = 0; f < fields(); f++)
      if (wanted == name(f)) return array(f);
    throw std::out_of_range("the batch has no field " + wanted);
  }

private:
  shardrt_batch *handle;
};

// The elements of a shard, which lie row by row.
template <class Element> const Element *elements(const shardrt_array *array, int64_t shard) {
  return static_cast<const Element *>(shardrt_buffer_data(shardrt_array_buffer(array, shard)));
}

// The job that the process is in, from its making to `leave`. Where an exception comes between, nobody is waited for.
class Job {
public:
  explicit Job(const shardrt_options &options) { must(shardrt_join(&options)); }
  Job(const Job &) = delete;
  Job &operator=(const Job &) = delete;
  ~Job() {
    if (joined) shardrt_abandon();
  }
  void leave() {
    joined = false; // whatever comes of it
    must(shardrt_leave());
  }

private:
  bool joined = true;
};

// A recipe that was run, or one of its loaders; on the job's thread.
class Recipe {
public:
  explicit Recipe(const std::string &path, const std::vector<const char *> &arguments = {}) {
    shardrt_recipe *made;
    must(shardrt_open(path.c_str(), static_cast<int>(arguments.size()), arguments.data(), &made));
    handle.reset(made);
  }
  Recipe loader(const std::string &name) const {
    shardrt_recipe *made;
    must(shardrt_recipe_loader(handle.get(), name.c_str(), &made));
    return Recipe(made);
  }
  int64_t steps() const { return shardrt_steps(handle.get()); }
  // Nothing after the last batch.
  std::optional<Batch> next() {
    shardrt_batch *made;
    if (must(shardrt_next(handle.get(), -1, &made)) == 0) return std::nullopt;
    return Batch(made);
  }

private:
  struct Close {
    void operator()(shardrt_recipe *recipe) const { shardrt_close(recipe); }
  };
  explicit Recipe(shardrt_recipe *owned) : handle(owned) {}
  std::unique_ptr<shardrt_recipe, Close> handle;
};

#endif
