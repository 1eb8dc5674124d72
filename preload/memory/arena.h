// Memory in huge pages, handed out in pieces again and again: what a captured program computes on its way, and packed weights.
//
// malloc gives such blocks in pages of 4 KiB, from other places each time, and may return them to the kernel in between. Here the blocks
// of one run lie side by side in pages of 2 MiB, as far as the kernel has them (madvise), and are the same ones in the next run.
//
// Thread rule: one thread at a time calls take() and give_back(), the holder; any thread calls give_back_from_elsewhere(). No lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ipexrun::preload {

class Arena {
 public:
  /// Maps `step_bytes` at once, or more where that is asked for, and never more than `limit_bytes` in all. What is not touched costs
  /// nothing.
  Arena(std::size_t limit_bytes, std::size_t step_bytes) noexcept : limit_(limit_bytes), step_(step_bytes) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The smallest free piece that is large enough, aligned to 64 bytes; maps more where there is none. Null where that would exceed the
  /// limit, or fails.
  void* take(std::size_t bytes) noexcept;
  /// `bytes` as in take().
  void give_back(void* piece, std::size_t bytes) noexcept;
  /// It is free from the holder's next begin() on.
  void give_back_from_elsewhere(void* piece, std::size_t bytes) noexcept;
  /// Another run of the holder. Where nothing is in use and the memory is in several parts it is mapped anew in one.
  void begin() noexcept;

  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return mapped_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }

 private:
  struct Piece {
    char* at;
    std::size_t bytes;
  };
  struct Returned {
    Returned* next;
    std::size_t bytes;
  };
  bool map(std::size_t bytes) noexcept;
  void unmap_all() noexcept;

  const std::size_t limit_;
  const std::size_t step_;
  std::size_t mapped_ = 0;
  std::size_t used_ = 0;
  std::size_t taken_ = 0;     ///< pieces
  std::vector<Piece> parts_;  ///< mapped
  std::vector<Piece> free_;   ///< by address; neighbours within one part are one piece. Has room for all pieces that are taken
  std::atomic<Returned*> returned_{nullptr};
};

}  // namespace ipexrun::preload
