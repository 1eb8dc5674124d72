// Tensors in memory of ours (memory/arena.h): values on the way of a captured program, and packed weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace ipexrun::preload {

class Arena;

/// Until its end scratch_empty() gives this thread memory that comes back in the next run. Nests.
class ScratchRun {
 public:
  ScratchRun() noexcept;
  ~ScratchRun();
  ScratchRun(const ScratchRun&) = delete;
  ScratchRun& operator=(const ScratchRun&) = delete;

  /// What is made from here on outlives the run and comes from torch's allocator, or no longer does.
  void pause(bool paused) noexcept { paused_ = paused; }

  [[nodiscard]] bool holds(const Arena* arena) const noexcept { return arena_.get() == arena; }
  [[nodiscard]] const ScratchRun* outer() const noexcept { return outer_; }
  /// Null while paused, and where there is none.
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const noexcept { return paused_ ? none_ : arena_; }

 private:
  std::shared_ptr<Arena> arena_;
  const std::shared_ptr<Arena> none_;
  bool paused_ = false;
  ScratchRun* outer_;
};

/// As at::empty and at::empty_strided of CPU tensors, not initialized; torch's allocator outside of runs, and for small ones.
at::Tensor scratch_empty(at::IntArrayRef sizes, at::ScalarType dtype, std::optional<at::MemoryFormat> format = std::nullopt);
at::Tensor scratch_empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
/// The same face as at::empty_like(tensor, dtype).
at::Tensor scratch_empty_like(const at::Tensor& tensor, at::ScalarType dtype);

/// The tensor itself, or where its memory is scratch a copy that is not: values, sizes and strides are the same.
at::Tensor lasting(const at::Tensor& tensor);

/// Bytes for a packed weight, in huge pages with those of others. Any thread. Throws what torch's allocator throws.
at::Tensor pack_memory(std::size_t bytes);

/// In the child of fork(): nothing that the parent's threads may have held is waited for.
void scratch_forget_after_fork() noexcept;

/// Programs that exist: with the last one all scratch memory goes.
void scratch_user_begins() noexcept;
void scratch_user_ends() noexcept;

}  // namespace ipexrun::preload
