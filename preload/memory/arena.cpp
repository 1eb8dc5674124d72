#include "preload/memory/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace ipexrun::preload {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLine = 64;  // holds a Returned as well

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Arena::~Arena() { unmap_all(); }

void Arena::unmap_all() noexcept {
  for (const Piece& part : parts_) ::munmap(part.at, part.bytes);
  parts_.clear();
  free_.clear();
  mapped_ = 0;
}

bool Arena::map(std::size_t bytes) noexcept {
  if (bytes > limit_ || mapped_ > limit_ - bytes) return false;
  try {
    parts_.reserve(parts_.size() + 1);
    free_.reserve(parts_.size() + taken_ + 2);
  } catch (const std::bad_alloc&) {
    return false;
  }
  // More than is wanted, and what lies outside of whole huge pages back.
  void* const mapped = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  char* const begin = static_cast<char*>(mapped);
  const std::size_t before = rounded(reinterpret_cast<std::uintptr_t>(begin), kHugePage) - reinterpret_cast<std::uintptr_t>(begin);
  if (before != 0) ::munmap(begin, before);
  if (before != kHugePage) ::munmap(begin + before + bytes, kHugePage - before);
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);  // refused: pages of the usual size
  const Piece part{begin + before, bytes};
  parts_.push_back(part);
  free_.insert(std::upper_bound(free_.begin(), free_.end(), part, [](const Piece& a, const Piece& b) { return a.at < b.at; }), part);
  mapped_ += bytes;
  return true;
}

void* Arena::take(std::size_t bytes) noexcept {
  if (bytes > limit_) return nullptr;
  try {
    free_.reserve(parts_.size() + taken_ + 2);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  bytes = rounded(std::max(bytes, kLine), kLine);
  const auto smallest = [&] {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes >= bytes && (best == free_.end() || it->bytes < best->bytes)) best = it;
    }
    return best;
  };
  auto found = smallest();
  if (found == free_.end()) {
    if (!map(rounded(std::max(bytes, step_), kHugePage)) && !map(rounded(bytes, kHugePage))) return nullptr;
    found = smallest();
  }
  char* const piece = found->at;
  found->at += bytes;
  found->bytes -= bytes;
  if (found->bytes == 0) free_.erase(found);
  used_ += bytes;
  ++taken_;
  return piece;
}

void Arena::give_back(void* piece, std::size_t bytes) noexcept {
  bytes = rounded(std::max(bytes, kLine), kLine);
  used_ -= bytes;
  --taken_;
  char* const at = static_cast<char*>(piece);
  const auto after = std::upper_bound(free_.begin(), free_.end(), at, [](const char* a, const Piece& b) { return a < b.at; });
  const auto starts_a_part = [&](const char* address) {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Piece& part) { return part.at == address; });
  };
  const bool joins_before = after != free_.begin() && std::prev(after)->at + std::prev(after)->bytes == at && !starts_a_part(at);
  const bool joins_after = after != free_.end() && at + bytes == after->at && !starts_a_part(after->at);
  if (joins_before) {
    std::prev(after)->bytes += bytes + (joins_after ? after->bytes : 0);
    if (joins_after) free_.erase(after);
  } else if (joins_after) {
    after->at = at;
    after->bytes += bytes;
  } else {
    free_.insert(after, {at, bytes});
  }
}

void Arena::give_back_from_elsewhere(void* piece, std::size_t bytes) noexcept {
  auto* const mine = new (piece) Returned{returned_.load(std::memory_order_relaxed), bytes};
  while (!returned_.compare_exchange_weak(mine->next, mine, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void Arena::begin() noexcept {
  Returned* one = returned_.exchange(nullptr, std::memory_order_acquire);
  while (one != nullptr) {
    const Returned returned = *one;
    give_back(one, returned.bytes);
    one = returned.next;
  }
  if (used_ == 0 && parts_.size() > 1) {
    const std::size_t bytes = mapped_;
    unmap_all();
    map(bytes);
  }
}

}  // namespace ipexrun::preload
