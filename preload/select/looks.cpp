#include "preload/select/looks.h"

#include <algorithm>

#include "preload/select/fingerprint.h"

namespace ipexrun::preload {
namespace {

constexpr std::size_t kEach = 8;     ///< of a worker at least
constexpr std::size_t kAround = 32;  ///< so far from its turn

constinit thread_local Looks* of_run = nullptr;

}  // namespace

void Looks::take(const kernels::Parallel& parallel) noexcept {
  struct Job {
    std::vector<Look>& looks;
    std::size_t workers;
  };
  Job job{looks_, std::clamp<std::size_t>(looks_.size() / kEach, 1, static_cast<std::size_t>(parallel.threads))};
  const auto work = [](void* arg, int worker) {
    const Job& all = *static_cast<const Job*>(arg);
    const auto at = [&](std::size_t i) { return all.looks.size() * i / all.workers; };
    for (std::size_t i = at(static_cast<std::size_t>(worker)); i < at(static_cast<std::size_t>(worker) + 1); ++i) {
      Look& look = all.looks[i];
      look.hash = look.of == Of::kSample ? sampled_hash(look.data, look.size_bytes) : full_hash(look.data, look.size_bytes);
    }
  };
  parallel(static_cast<int>(job.workers), work, &job);
}

std::optional<std::uint64_t> Looks::find(const void* data, std::size_t size_bytes, Of of) noexcept {
  const std::size_t count = looks_.size();
  for (std::size_t i = 0; i < std::min(count, kAround); ++i) {
    const std::size_t at = (next_ + i) % count;
    const Look& look = looks_[at];
    if (look.data != data || look.size_bytes != size_bytes || look.of != of) continue;
    next_ = at + 1;
    return look.hash;
  }
  return std::nullopt;
}

LooksOfRun::LooksOfRun(Looks* looks) noexcept : outer_(of_run) { of_run = looks; }
LooksOfRun::~LooksOfRun() { of_run = outer_; }

std::uint64_t sampled_hash_of_run(const void* data, std::size_t size_bytes) noexcept {
  const auto known = of_run == nullptr ? std::nullopt : of_run->find(data, size_bytes, Looks::Of::kSample);
  return known ? *known : sampled_hash(data, size_bytes);
}

std::uint64_t full_hash_of_run(const void* data, std::size_t size_bytes) noexcept {
  const auto known = of_run == nullptr ? std::nullopt : of_run->find(data, size_bytes, Looks::Of::kAllBytes);
  return known ? *known : full_hash(data, size_bytes);
}

}  // namespace ipexrun::preload
