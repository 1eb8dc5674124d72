// Memory of one device, kept when it is freed and handed out again without asking the driver. Knows neither torch nor OpenCL.
//
// Order is by stream: a freed block goes back to the stream it was allocated on at once, since whatever that stream is given next runs
// after what it was given before. A block that other streams used too (record_stream) comes back when an event on each of them has passed.
// Any thread may call anything; one lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "xpu/core/memory_blocks.h"
#include "xpu/core/memory_stats.h"

namespace ipexrun::xpu {

/// What the allocator needs of a device. Nothing of it throws, except release() and the rest for a device that is lost.
template <typename D>
concept MemoryDevice = requires(D& device, std::size_t bytes, void* address, StreamId stream, typename D::Event& event) {
  { device.allocate(bytes) } -> std::same_as<void*>;  // aligned for every type; nullptr: there is not so much
  device.release(address);                            // what allocate() returned; nothing that was enqueued uses it any more
  { device.record(stream) } -> std::same_as<typename D::Event>;
  { device.passed(event) } -> std::same_as<bool>;
  device.synchronize();  // returns when everything that was enqueued on any stream has run
};

template <MemoryDevice D>
class CachingAllocator {
 public:
  explicit CachingAllocator(D& device) : device_(device) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator() = default;  // at the end of a process its memory goes with it; call empty_cache() where it should go before

  /// At least `bytes` for work on `stream`; nullptr when neither the cache nor the driver has it (explain() then says why).
  void* allocate(std::size_t bytes, StreamId stream) {
    const std::lock_guard lock(mutex_);
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) return out_of_memory();
    const std::size_t size = rounded(bytes);
    collect_passed();
    Block* block = take_cached(size, stream);
    if (block == nullptr) block = new_segment(size, stream);
    if (block == nullptr) return out_of_memory();
    split(block, size);
    block->allocated = true;
    block->requested_bytes = bytes;
    live_[block->address] = block;
    const auto held = static_cast<std::int64_t>(block->bytes);
    stats_.allocation.increase(block->pool, 1);
    stats_.allocated_bytes.increase(block->pool, held);
    stats_.active.increase(block->pool, 1);
    stats_.active_bytes.increase(block->pool, held);
    stats_.requested_bytes.increase(block->pool, static_cast<std::int64_t>(bytes));
    return block->address;
  }

  /// Returns at once; never waits for the device. False for an address that is not allocated.
  bool free(void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(address);
    if (found == live_.end()) return false;
    Block* block = found->second;
    live_.erase(found);
    block->allocated = false;
    stats_.allocation.decrease(block->pool, 1);
    stats_.allocated_bytes.decrease(block->pool, static_cast<std::int64_t>(block->bytes));
    stats_.requested_bytes.decrease(block->pool, static_cast<std::int64_t>(block->requested_bytes));
    if (block->other_streams.empty()) {
      give_back(block);
      return true;
    }
    for (const StreamId stream : std::exchange(block->other_streams, {})) {
      events_.emplace_back(device_.record(stream), block);
      ++block->pending_events;
    }
    return true;
  }

  /// `stream` uses the block too. False for an address that is not allocated.
  bool record_stream(void* address, StreamId stream) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(address);
    if (found == live_.end()) return false;
    std::vector<StreamId>& others = found->second->other_streams;
    if (stream == found->second->stream) return true;
    if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
    return true;
  }

  /// Gives every segment that nothing uses back to the driver.
  void empty_cache() {
    const std::lock_guard lock(mutex_);
    release_cached();
  }

  /// No more than this is taken from the driver. What is held already stays.
  void set_limit_bytes(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_bytes_ = bytes;
  }
  [[nodiscard]] std::size_t limit_bytes() const {
    const std::lock_guard lock(mutex_);
    return limit_bytes_;
  }

  [[nodiscard]] MemoryStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.each([](Stat& stat) { stat.reset_peak(); });
  }
  void reset_accumulated() {
    const std::lock_guard lock(mutex_);
    stats_.each([](Stat& stat) { stat.reset_accumulated(); });
    stats_.num_alloc_retries = stats_.num_ooms = stats_.num_device_alloc = stats_.num_device_free = stats_.num_sync_all_streams = 0;
  }

  /// How often memory came from the driver or went back to it: as long as this stays, so does what segment_of() says.
  [[nodiscard]] std::uint64_t segment_changes() const { return segment_changes_.load(std::memory_order_relaxed); }
  /// Where the segment that holds an address begins; nullptr for an address that is not this device's.
  [[nodiscard]] const void* segment_of(const void* address) const {
    const std::lock_guard lock(mutex_);
    const auto after = segments_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
    if (after == segments_.begin()) return nullptr;
    const auto& [start, segment] = *std::prev(after);
    return static_cast<const char*>(address) < start + segment.bytes ? start : nullptr;
  }

  /// Every segment with its pieces, by address.
  [[nodiscard]] std::vector<SegmentInfo> snapshot() const {
    const std::lock_guard lock(mutex_);
    std::vector<SegmentInfo> out;
    for (const auto& [address, segment] : segments_) {
      SegmentInfo info{reinterpret_cast<std::uintptr_t>(address), segment.bytes, segment.first->stream, segment.first->pool, {}};
      for (const Block* block = segment.first; block != nullptr; block = block->next) {
        info.blocks.push_back({reinterpret_cast<std::uintptr_t>(block->address), block->bytes, block->requested_bytes, block->allocated,
                               block->allocated || block->pending_events > 0});
      }
      out.push_back(std::move(info));
    }
    return out;
  }

  /// For the message of an out-of-memory error: what was asked and what is held.
  [[nodiscard]] std::string explain(std::size_t bytes, std::size_t device_bytes) const {
    const std::lock_guard lock(mutex_);
    const auto mib = [](double amount) {
      const auto tenths = static_cast<long long>(amount / (1u << 20) * 10 + 0.5);
      return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
    };
    const auto allocated = static_cast<double>(stats_.allocated_bytes.current());
    const auto reserved = static_cast<double>(stats_.reserved_bytes.current());
    std::string out = "tried to allocate " + mib(static_cast<double>(bytes)) + "; the device has " +
                      mib(static_cast<double>(device_bytes)) + "; " + mib(allocated) + " in " +
                      std::to_string(stats_.allocation.current()) + " blocks are in use, " + mib(reserved - allocated) +
                      " are cached but in pieces or on streams that do not fit";
    if (limit_bytes_ != kNoLimit) out += "; this process may take " + mib(static_cast<double>(limit_bytes_));
    return out;
  }

  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

 private:
  struct Segment {
    std::size_t bytes;
    Block* first;
  };

  void* out_of_memory() {
    ++stats_.num_ooms;
    return nullptr;
  }

  FreeBlocks& free_of(PoolKind pool) { return pool == PoolKind::kSmall ? free_small_ : free_large_; }

  Block* take_cached(std::size_t bytes, StreamId stream) {
    Block wanted;
    wanted.bytes = bytes;
    wanted.stream = stream;
    const PoolKind pool = pool_of(bytes);
    FreeBlocks& blocks = free_of(pool);
    const auto found = blocks.lower_bound(&wanted);
    if (found == blocks.end() || (*found)->stream != stream) return nullptr;
    Block* block = *found;
    blocks.erase(found);
    if (block->is_split()) count_inactive_split(*block, -1);
    return block;
  }

  Block* new_segment(std::size_t bytes, StreamId stream) {
    const std::size_t size = segment_bytes(bytes);
    void* address = ask_driver(size);
    if (address == nullptr && segments_.size() + events_.size() > 0) {
      ++stats_.num_alloc_retries;
      release_cached();
      // What waited for events has come back meanwhile, perhaps in a segment that cannot go as a whole.
      if (Block* block = take_cached(bytes, stream)) return block;
      address = ask_driver(size);
    }
    if (address == nullptr) return nullptr;
    ++stats_.num_device_alloc;
    ++segment_changes_;
    Block* block = make_block(static_cast<char*>(address), size, stream, pool_of(bytes));
    segments_[block->address] = {size, block};
    stats_.segment.increase(block->pool, 1);
    stats_.reserved_bytes.increase(block->pool, static_cast<std::int64_t>(size));
    return block;
  }

  void* ask_driver(std::size_t bytes) {
    const auto reserved = static_cast<std::size_t>(stats_.reserved_bytes.current());
    if (bytes > limit_bytes_ || reserved > limit_bytes_ - bytes) return nullptr;
    return device_.allocate(bytes);
  }

  /// Keeps `bytes` of a block and gives the rest to the free blocks, where the rest is worth it.
  void split(Block* block, std::size_t bytes) {
    const std::size_t rest = block->bytes - bytes;
    if (block->pool == PoolKind::kSmall ? rest < kGranularity : rest <= kSmallRequest) return;
    Block* tail = make_block(block->address + bytes, rest, block->stream, block->pool);
    tail->previous = block;
    tail->next = block->next;
    if (tail->next != nullptr) tail->next->previous = tail;
    block->next = tail;
    block->bytes = bytes;
    count_inactive_split(*tail, 1);
    free_of(tail->pool).insert(tail);
  }

  /// A block that nothing uses any more joins its free neighbours and waits for the next request.
  void give_back(Block* block) {
    stats_.active.decrease(block->pool, 1);
    stats_.active_bytes.decrease(block->pool, static_cast<std::int64_t>(block->bytes));
    block->requested_bytes = 0;
    for (Block* neighbour : {block->previous, block->next}) {
      if (neighbour == nullptr || !neighbour->is_free()) continue;
      free_of(neighbour->pool).erase(neighbour);
      count_inactive_split(*neighbour, -1);
      join(block, neighbour);
    }
    free_of(block->pool).insert(block);
    if (block->is_split()) count_inactive_split(*block, 1);
  }

  /// `block` takes the place of both; the neighbour is gone.
  void join(Block* block, Block* neighbour) {
    block->bytes += neighbour->bytes;
    if (neighbour == block->previous) {
      const auto segment = segments_.find(neighbour->address);
      if (segment != segments_.end()) segment->second.first = block;
      block->address = neighbour->address;
      block->previous = neighbour->previous;
      if (block->previous != nullptr) block->previous->next = block;
    } else {
      block->next = neighbour->next;
      if (block->next != nullptr) block->next->previous = block;
    }
    blocks_.erase(neighbour);
  }

  void count_inactive_split(const Block& block, int sign) {
    if (sign > 0) {
      stats_.inactive_split.increase(block.pool, 1);
      stats_.inactive_split_bytes.increase(block.pool, static_cast<std::int64_t>(block.bytes));
    } else {
      stats_.inactive_split.decrease(block.pool, 1);
      stats_.inactive_split_bytes.decrease(block.pool, static_cast<std::int64_t>(block.bytes));
    }
  }

  void collect_passed() {
    for (auto at = events_.begin(); at != events_.end();) {
      if (!device_.passed(at->first)) {
        ++at;
        continue;
      }
      Block* block = at->second;
      at = events_.erase(at);
      if (--block->pending_events == 0) give_back(block);
    }
  }

  /// The device is idle afterwards.
  void release_cached() {
    ++stats_.num_sync_all_streams;
    device_.synchronize();
    for (auto& [event, block] : std::exchange(events_, {})) {
      if (--block->pending_events == 0) give_back(block);
    }
    for (auto at = segments_.begin(); at != segments_.end();) {
      Block* block = at->second.first;
      if (block->is_split() || !block->is_free()) {
        ++at;
        continue;
      }
      free_of(block->pool).erase(block);
      stats_.segment.decrease(block->pool, 1);
      stats_.reserved_bytes.decrease(block->pool, static_cast<std::int64_t>(block->bytes));
      ++stats_.num_device_free;
      ++segment_changes_;
      device_.release(block->address);
      blocks_.erase(block);
      at = segments_.erase(at);
    }
  }

  Block* make_block(char* address, std::size_t bytes, StreamId stream, PoolKind pool) {
    auto owned = std::make_unique<Block>();
    Block* block = owned.get();
    block->address = address;
    block->bytes = bytes;
    block->stream = stream;
    block->pool = pool;
    blocks_.emplace(block, std::move(owned));
    return block;
  }

  D& device_;
  mutable std::mutex mutex_;
  std::unordered_map<Block*, std::unique_ptr<Block>> blocks_;
  std::unordered_map<void*, Block*> live_;
  std::map<char*, Segment> segments_;
  FreeBlocks free_small_;
  FreeBlocks free_large_;
  std::list<std::pair<typename D::Event, Block*>> events_;
  MemoryStats stats_;
  std::size_t limit_bytes_ = kNoLimit;
  std::atomic<std::uint64_t> segment_changes_{0};
};

}  // namespace ipexrun::xpu
