// The pieces that the caching allocator deals in, and the sizes it deals by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "xpu/core/memory_stats.h"

namespace ipexrun::xpu {

/// A queue of a device that runs what it was given one after the other. 0 is the device's default one.
using StreamId = std::uint64_t;

// Method: the pools and sizes of PyTorch's caching allocator for CUDA (c10/cuda/CUDACachingAllocator.h describes them), whose behaviour
// programs are tuned for; the code is our own.
inline constexpr std::size_t kGranularity = 512;          ///< every size is a multiple of it, and so is every distance within a segment
inline constexpr std::size_t kSmallRequest = 1u << 20;    ///< requests up to here come from the small pool
inline constexpr std::size_t kSmallSegment = 2u << 20;    ///< what the small pool asks the driver for
inline constexpr std::size_t kMiddleRequest = 10u << 20;  ///< requests below share segments of kMiddleSegment
inline constexpr std::size_t kMiddleSegment = 20u << 20;
inline constexpr std::size_t kLargeGranularity = 2u << 20;  ///< larger ones get a segment of their own, rounded up to this

/// Bytes of the block that answers a request of `bytes`.
constexpr std::size_t rounded(std::size_t bytes) {
  return bytes == 0 ? kGranularity : (bytes + kGranularity - 1) / kGranularity * kGranularity;
}

constexpr PoolKind pool_of(std::size_t block_bytes) { return block_bytes <= kSmallRequest ? PoolKind::kSmall : PoolKind::kLarge; }

/// Bytes to ask the driver for when no cached block fits.
constexpr std::size_t segment_bytes(std::size_t block_bytes) {
  if (block_bytes <= kSmallRequest) return kSmallSegment;
  if (block_bytes < kMiddleRequest) return kMiddleSegment;
  return (block_bytes + kLargeGranularity - 1) / kLargeGranularity * kLargeGranularity;
}

/// A piece of a segment; the pieces of one segment form a list in the order of their addresses.
struct Block {
  char* address = nullptr;
  std::size_t bytes = 0;
  std::size_t requested_bytes = 0;
  StreamId stream = 0;
  PoolKind pool = PoolKind::kSmall;
  bool allocated = false;
  std::size_t pending_events = 0;  ///< freed, but these uses on other streams have not ended yet
  Block* previous = nullptr;
  Block* next = nullptr;
  std::vector<StreamId> other_streams;

  [[nodiscard]] bool is_free() const { return !allocated && pending_events == 0; }
  [[nodiscard]] bool is_split() const { return previous != nullptr || next != nullptr; }
};

/// Free blocks of a pool: the first one at or after {stream, bytes} of the same stream is the smallest that fits.
struct BySize {
  bool operator()(const Block* left, const Block* right) const {
    if (left->stream != right->stream) return left->stream < right->stream;
    if (left->bytes != right->bytes) return left->bytes < right->bytes;
    return left->address < right->address;
  }
};
using FreeBlocks = std::set<Block*, BySize>;

/// What snapshot() tells of one piece and of one allocation of the driver.
struct BlockInfo {
  std::uintptr_t address;
  std::size_t bytes;
  std::size_t requested_bytes;
  bool allocated;
  bool active;
};
struct SegmentInfo {
  std::uintptr_t address;
  std::size_t bytes;
  StreamId stream;
  PoolKind pool;
  std::vector<BlockInfo> blocks;
};

}  // namespace ipexrun::xpu
