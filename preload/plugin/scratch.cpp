#include "preload/plugin/scratch.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <c10/core/CPUAllocator.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "preload/memory/arena.h"

namespace ipexrun::preload {
namespace {

constexpr std::size_t kLeastBytes = 4096;  ///< malloc has smaller ones at hand
constexpr std::size_t kScratchStep = std::size_t{8} << 20;
constexpr std::size_t kPackStep = std::size_t{32} << 20;
constexpr std::size_t kShareOfMemory = 8;  ///< no more than an eighth of what is free when it is first asked for, in each arena
constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

std::size_t limit_bytes() {
  static const std::size_t limit = static_cast<std::size_t>(std::max(::sysconf(_SC_AVPHYS_PAGES), 0L)) *
                                   static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / kShareOfMemory;
  return limit;
}

constinit thread_local ScratchRun* current = nullptr;

/// Arenas that no run has.
class Pool {
 public:
  explicit Pool(int users) : users_(users) {}

  /// The largest one: what several threads ran in turn becomes one thread's memory. Null where there is no memory.
  std::shared_ptr<Arena> lend() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
      if (idle_.empty()) return std::make_shared<Arena>(limit_bytes(), kScratchStep);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    const auto largest =
        std::max_element(idle_.begin(), idle_.end(), [](const auto& a, const auto& b) { return a->mapped_bytes() < b->mapped_bytes(); });
    std::shared_ptr<Arena> lent = std::move(*largest);
    idle_.erase(largest);
    return lent;
  }

  void take_back(std::shared_ptr<Arena> arena) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (users_ == 0) return;
    try {
      idle_.push_back(std::move(arena));
    } catch (const std::bad_alloc&) {
      return;
    }
  }

  void count_users(int change) noexcept {
    std::vector<std::shared_ptr<Arena>> gone;  // unmapped when the lock is free again
    const std::lock_guard<std::mutex> lock(mutex_);
    users_ += change;
    if (users_ == 0) gone.swap(idle_);
  }

  [[nodiscard]] int users() const noexcept { return users_; }

 private:
  std::mutex mutex_;
  std::atomic<int> users_;
  std::vector<std::shared_ptr<Arena>> idle_;
};

/// All packs of the process: one holder at a time.
struct KeptPacks {
  std::mutex mutex;
  const std::shared_ptr<Arena> arena = std::make_shared<Arena>(std::size_t{1} << 46, kPackStep);  // --pack-memory is what bounds packs
};

/// Never destroyed: tensors may outlive everything.
template <typename Shared>
std::atomic<Shared*>& the(Shared* (*make)()) {
  static std::atomic<Shared*> made{make()};
  return made;
}

std::atomic<Pool*>& pool() {
  return the<Pool>([] { return new Pool(0); });
}
std::atomic<KeptPacks*>& packs() {
  return the<KeptPacks>([] { return new KeptPacks; });
}

struct Lent {
  std::shared_ptr<Arena> arena;
  void* piece;
  std::size_t bytes;
};

void give_back(void* context) {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(context));
  for (const ScratchRun* run = current; run != nullptr; run = run->outer()) {
    if (run->holds(lent->arena.get())) return lent->arena->give_back(lent->piece, lent->bytes);
  }
  lent->arena->give_back_from_elsewhere(lent->piece, lent->bytes);
}

/// What tensors of a run are made with.
class ScratchAllocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    const std::shared_ptr<Arena> none;
    const std::shared_ptr<Arena>& arena = current == nullptr ? none : current->arena();
    if (bytes >= kLeastBytes && arena != nullptr) {
      auto lent = std::make_unique<Lent>(Lent{arena, nullptr, bytes});
      lent->piece = arena->take(bytes);
      if (void* const piece = lent->piece) return {piece, lent.release(), &give_back, at::Device(at::kCPU)};
    }
    return c10::GetCPUAllocator()->allocate(bytes);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

ScratchAllocator* allocator() {
  static auto* const made = new ScratchAllocator;
  return made;
}

void give_pack_back(void* context) {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(context));
  lent->arena->give_back_from_elsewhere(lent->piece, lent->bytes);
}

}  // namespace

ScratchRun::ScratchRun() noexcept : arena_(pool().load()->lend()), outer_(std::exchange(current, this)) {
  if (arena_ != nullptr) arena_->begin();
}

ScratchRun::~ScratchRun() {
  current = outer_;
  if (arena_ != nullptr) pool().load()->take_back(std::move(arena_));
}

at::Tensor scratch_empty(at::IntArrayRef sizes, at::ScalarType dtype, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, allocator(), kCpu, dtype, format);
}

at::Tensor scratch_empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, allocator(), kCpu, dtype);
}

at::Tensor scratch_empty_like(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.is_non_overlapping_and_dense()) return scratch_empty_strided(tensor.sizes(), tensor.strides(), dtype);
  const std::vector<std::int64_t> strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return scratch_empty_strided(tensor.sizes(), strides, dtype);
}

at::Tensor lasting(const at::Tensor& tensor) {
  const at::DataPtr& memory = tensor.storage().data_ptr();
  if (memory.get_deleter() != &give_back) return tensor;
  const std::size_t bytes = tensor.storage().nbytes();
  at::DataPtr copy = c10::GetCPUAllocator()->allocate(bytes);
  std::memcpy(copy.get(), memory.get(), bytes);
  at::Tensor result = at::detail::empty_generic({0}, c10::GetCPUAllocator(), kCpu, tensor.scalar_type(), std::nullopt);
  result.unsafeGetTensorImpl()->set_storage_keep_dtype(
      c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(copy), c10::GetCPUAllocator(), true));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return result;
}

at::Tensor pack_memory(std::size_t bytes) {
  KeptPacks& all = *packs().load();
  auto lent = std::make_unique<Lent>(Lent{all.arena, nullptr, bytes});
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.arena->begin();
    lent->piece = all.arena->take(bytes);
  }
  const auto count = static_cast<std::int64_t>(bytes);
  if (lent->piece == nullptr) return at::detail::empty_generic({count}, c10::GetCPUAllocator(), kCpu, at::kByte, std::nullopt);
  void* const piece = lent->piece;
  at::Tensor result = at::detail::empty_generic({0}, c10::GetCPUAllocator(), kCpu, at::kByte, std::nullopt);
  result.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(
      c10::Storage::use_byte_size_t(), bytes, at::DataPtr(piece, lent.release(), &give_pack_back, at::Device(at::kCPU)), nullptr, false));
  result.unsafeGetTensorImpl()->set_sizes_contiguous({count});
  return result;
}

void scratch_forget_after_fork() noexcept {
  // Another thread of the parent may have held a lock, or been in the middle of an arena: what there is stays as it is, for good.
  try {
    pool().store(new Pool(pool().load()->users()));
    packs().store(new KeptPacks);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void scratch_user_begins() noexcept { pool().load()->count_users(1); }
void scratch_user_ends() noexcept { pool().load()->count_users(-1); }

}  // namespace ipexrun::preload
