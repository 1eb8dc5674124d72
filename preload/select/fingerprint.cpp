#include "preload/select/fingerprint.h"

#include <algorithm>
#include <cstring>

namespace ipexrun::preload {
namespace {

constexpr std::uint64_t kPrime = 0x9e3779b185ebca87ull;
constexpr std::size_t kLine = 64;

std::uint64_t word_at(const unsigned char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// Eight independent lanes: the loop runs at the speed of memory without vector instructions.
struct Lanes {
  std::uint64_t lane[8] = {1, 2, 3, 4, 5, 6, 7, 8};

  void add_line(const unsigned char* line) {
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t mixed = lane[i] ^ word_at(line + 8 * i);
      lane[i] = mixed * kPrime + (mixed >> 47);
    }
  }

  [[nodiscard]] std::uint64_t finish(std::uint64_t hash) const {
    for (std::uint64_t value : lane) {
      hash = (hash ^ value) * kPrime;
      hash ^= hash >> 31;
    }
    return hash;
  }
};

/// A region is hashed in parts of this size, or in kPartsMost equal ones.
constexpr std::size_t kPartBytes = std::size_t{1} << 20;
constexpr std::size_t kPartsMost = 64;

std::uint64_t hash_of(const unsigned char* bytes, std::size_t size_bytes) {
  Lanes lanes;
  std::size_t at = 0;
  for (; at + kLine <= size_bytes; at += kLine) lanes.add_line(bytes + at);
  unsigned char tail[kLine] = {};
  if (at < size_bytes) std::memcpy(tail, bytes + at, size_bytes - at);
  lanes.add_line(tail);
  return lanes.finish(size_bytes);
}

/// Somewhere in the i-th stretch of so many bytes: at equal distances, lines of a matrix whose rows are as long as whole numbers of them
/// lie in few of its columns.
std::size_t sampled_place(std::size_t i, std::size_t stretch_bytes) {
  std::uint64_t mixed = (i + 1) * kPrime;
  mixed = (mixed ^ (mixed >> 32)) * kPrime;
  return i * stretch_bytes + static_cast<std::size_t>(((mixed >> 32) * stretch_bytes) >> 32) / kLine * kLine;
}

struct Parts {
  const unsigned char* bytes;
  std::size_t size_bytes;
  std::size_t part_bytes;
  std::uint64_t hashes[kPartsMost];
};

}  // namespace

std::uint64_t full_hash(const void* data, std::size_t size_bytes, const kernels::Parallel& parallel) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (size_bytes <= kPartBytes) return hash_of(bytes, size_bytes);
  Parts parts{bytes, size_bytes, std::max(kPartBytes, (size_bytes + kPartsMost - 1) / kPartsMost), {}};
  const std::size_t count = (size_bytes + parts.part_bytes - 1) / parts.part_bytes;
  const auto hash_part = [](void* arg, int i) {
    auto* all = static_cast<Parts*>(arg);
    const std::size_t begin = static_cast<std::size_t>(i) * all->part_bytes;
    all->hashes[i] = hash_of(all->bytes + begin, std::min(all->part_bytes, all->size_bytes - begin));
  };
  parallel(static_cast<int>(count), hash_part, &parts);
  return hash_of(reinterpret_cast<const unsigned char*>(parts.hashes), count * sizeof parts.hashes[0]);
}

std::uint64_t sampled_hash(const void* data, std::size_t size_bytes) noexcept {
  if (size_bytes <= kSampledLines * kLine) return full_hash(data, size_bytes);
  const auto* bytes = static_cast<const unsigned char*>(data);
  const std::size_t last = size_bytes - kLine;
  std::size_t places[kSampledLines + 1];
  for (std::size_t i = 0; i < kSampledLines; ++i) places[i] = sampled_place(i, last / kSampledLines);
  places[0] = 0;
  places[kSampledLines] = last;
  // Lines of a weight that other weights have put out of the caches: all are asked for before the first one is needed.
  for (const std::size_t place : places) {
    __builtin_prefetch(bytes + place);
    __builtin_prefetch(bytes + place + kLine - 1);
  }
  Lanes lanes;
  for (const std::size_t place : places) lanes.add_line(bytes + place);
  return lanes.finish(size_bytes);
}

}  // namespace ipexrun::preload
