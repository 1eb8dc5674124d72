#include "preload/select/changing_sizes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <unordered_map>

namespace ipexrun::preload {
namespace {

constexpr std::size_t kMostKinds = 4096;

struct Sizes {
  std::array<std::uint64_t, kFewSizes> seen{};
  int count = 0;
  bool many = false;
};

}  // namespace

bool comes_in_many_sizes(std::uint64_t kind, std::uint64_t size) noexcept {
  static auto* lock = new std::mutex;  // never destroyed: threads may multiply while the process ends
  static auto* kinds = new std::unordered_map<std::uint64_t, Sizes>;
  try {
    const std::unique_lock<std::mutex> held(*lock, std::try_to_lock);  // a forked child may find it held for ever
    if (!held.owns_lock()) return false;
    if (kinds->size() >= kMostKinds && !kinds->contains(kind)) return false;
    Sizes& known = (*kinds)[kind];
    if (known.many) return true;
    const auto end = known.seen.begin() + known.count;
    if (std::find(known.seen.begin(), end, size) != end) return false;
    if (known.count == kFewSizes) return known.many = true;
    known.seen[static_cast<std::size_t>(known.count++)] = size;
  } catch (const std::exception&) {  // no memory
  }
  return false;
}

std::int64_t one_of_few_sizes(std::int64_t size) noexcept {
  if (size <= 128) return size;
  const std::int64_t step = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size))) / 8;
  return (size + step - 1) / step * step;
}

}  // namespace ipexrun::preload
