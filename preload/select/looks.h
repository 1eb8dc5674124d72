// What a run of a captured program is about to ask of its weights' bytes, asked by all workers at its begin. One weight after the other,
// each of them out of the caches, between steps for which the other workers wait, took 0.5 ms of a ResNet-50's 19 (two cores, 265 weights
// and statistics), which on many cores is a larger part of less.
//
// Torch-free. Thread rule: one thread adds, takes and asks; take() uses the workers that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/parallel.h"

namespace ipexrun::preload {

/// Hashes of regions of memory (fingerprint.h): what they held when take() ran.
class Looks {
 public:
  enum class Of { kSample, kAllBytes };

  void reserve(std::size_t count) { looks_.reserve(count); }
  /// In the order in which they will be asked for.
  void add(const void* data, std::size_t size_bytes, Of of) { looks_.push_back({data, size_bytes, of, 0}); }
  void take(const kernels::Parallel& parallel) noexcept;
  /// Nothing where it was not added, or not asked for within a while of its turn.
  [[nodiscard]] std::optional<std::uint64_t> find(const void* data, std::size_t size_bytes, Of of) noexcept;

 private:
  struct Look {
    const void* data;
    std::size_t size_bytes;
    Of of;
    std::uint64_t hash;
  };

  std::vector<Look> looks_;
  std::size_t next_ = 0;
};

/// Until its end hashes that this thread asks for come from `looks`. Nests.
class LooksOfRun {
 public:
  explicit LooksOfRun(Looks* looks) noexcept;
  ~LooksOfRun();
  LooksOfRun(const LooksOfRun&) = delete;
  LooksOfRun& operator=(const LooksOfRun&) = delete;

 private:
  Looks* outer_;
};

/// sampled_hash() and full_hash() (by this thread alone), or what the run of this thread has of them.
std::uint64_t sampled_hash_of_run(const void* data, std::size_t size_bytes) noexcept;
std::uint64_t full_hash_of_run(const void* data, std::size_t size_bytes) noexcept;

}  // namespace ipexrun::preload
