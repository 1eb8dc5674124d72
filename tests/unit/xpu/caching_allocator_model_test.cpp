// Random programs against a model of what an allocator owes its callers: blocks of memory that the device has, that do not overlap, that no
// other stream still works on, and books that balance.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/unit/xpu/fake_device.h"
#include "xpu/core/caching_allocator.h"

namespace ipexrun::xpu {
namespace {

using test::FakeDevice;
constexpr std::size_t kMiB = 1u << 20;
constexpr StreamId kStreams = 3;

class Program {
 public:
  explicit Program(unsigned seed) : random_(seed), device_((64 + seed % 5 * 100) * kMiB), allocator_(device_) {}

  void run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      switch (pick(12)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
          allocate();
          break;
        case 5:
        case 6:
        case 7:
        case 8:
          release();
          break;
        case 9:
          share();
          break;
        case 10:
          device_.run(pick(kStreams));
          settle();
          break;
        default:
          if (pick(6) == 0) allocator_.empty_cache(), settle_all();
          break;
      }
      check_books();
    }
    while (!live_.empty()) release();
    allocator_.empty_cache();
    settle_all();
    EXPECT_EQ(device_.used(), 0u);
    EXPECT_EQ(allocator_.stats().reserved_bytes.current(), 0);
    EXPECT_EQ(allocator_.stats().active_bytes.current(), 0);
    EXPECT_EQ(allocator_.stats().inactive_split_bytes.current(), 0);
    EXPECT_TRUE(allocator_.snapshot().empty());
    EXPECT_EQ(device_.wrong_releases, 0);
    EXPECT_EQ(device_.releases_while_busy, 0);
  }

 private:
  struct Live {
    std::size_t bytes;
    StreamId stream;
    std::set<StreamId> others;
  };
  struct Waiting {
    std::uintptr_t address;
    std::size_t bytes;
    std::vector<FakeDevice::Event> events;
  };

  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  std::size_t some_size() {
    switch (pick(5)) {
      case 0:
        return pick(2000);
      case 1:
        return pick(kMiB + 1024);
      case 2:
        return pick(12 * kMiB);
      case 3:
        return pick(40 * kMiB);
      default:
        return kMiB - 512 + pick(1024);
    }
  }

  void allocate() {
    const std::size_t bytes = some_size();
    const StreamId stream = pick(kStreams);
    auto* address = allocator_.allocate(bytes, stream);
    if (address == nullptr) {
      settle_all();
      // It may only give up when the device cannot hold another segment beside those that hold live blocks.
      std::size_t held = 0;
      for (const SegmentInfo& segment : allocator_.snapshot()) held += segment.bytes;
      EXPECT_EQ(held, device_.used());
      EXPECT_EQ(device_.allocate(segment_bytes(rounded(bytes))), nullptr);
      return;
    }
    if (device_used_before_ != device_.allocations) settle_if_idle();
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    EXPECT_EQ(start % kGranularity, 0u);
    EXPECT_TRUE(device_.holds(start, bytes)) << "memory that the device does not have";
    const auto after = live_.lower_bound(start);
    if (after != live_.end()) {
      EXPECT_LE(start + bytes, after->first) << "overlaps the next";
    }
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      EXPECT_LE(before->first + std::max<std::size_t>(before->second.bytes, 1), start) << "overlaps the one before";
    }
    settle();
    for (const Waiting& waiting : waiting_) {
      EXPECT_TRUE(start + bytes <= waiting.address || waiting.address + waiting.bytes <= start) << "another stream still works there";
    }
    live_[start] = {bytes, stream, {}};
    device_.submit(stream);
  }

  void release() {
    if (live_.empty()) return;
    auto at = live_.begin();
    std::advance(at, static_cast<long>(pick(live_.size())));
    if (!at->second.others.empty()) {
      Waiting waiting{at->first, at->second.bytes, {}};
      for (const StreamId other : at->second.others) waiting.events.push_back(device_.record(other));
      waiting_.push_back(waiting);
    }
    EXPECT_TRUE(allocator_.free(reinterpret_cast<void*>(at->first)));
    live_.erase(at);
  }

  void share() {
    if (live_.empty()) return;
    auto at = live_.begin();
    std::advance(at, static_cast<long>(pick(live_.size())));
    const StreamId other = pick(kStreams);
    EXPECT_TRUE(allocator_.record_stream(reinterpret_cast<void*>(at->first), other));
    if (other != at->second.stream) at->second.others.insert(other);
    device_.submit(other);
  }

  /// Forgets blocks whose events have passed.
  void settle() {
    std::erase_if(waiting_, [this](const Waiting& waiting) {
      return std::all_of(waiting.events.begin(), waiting.events.end(), [this](const FakeDevice::Event& e) { return device_.passed(e); });
    });
  }
  void settle_if_idle() {
    device_used_before_ = device_.allocations;
    settle();
  }
  void settle_all() { settle(); }

  void check_books() {
    const MemoryStats stats = allocator_.stats();
    std::int64_t requested = 0;
    for (const auto& [address, live] : live_) requested += static_cast<std::int64_t>(live.bytes);
    EXPECT_EQ(stats.requested_bytes.current(), requested);
    EXPECT_EQ(stats.allocation.current(), static_cast<std::int64_t>(live_.size()));
    EXPECT_EQ(stats.reserved_bytes.current(), static_cast<std::int64_t>(device_.used()));
    std::size_t reserved = 0, allocated = 0, active = 0, inactive_split = 0;
    for (const SegmentInfo& segment : allocator_.snapshot()) {
      std::uintptr_t expected = segment.address;
      bool free_before = false;
      for (const BlockInfo& block : segment.blocks) {
        EXPECT_EQ(block.address, expected) << "a gap within a segment";
        expected += block.bytes;
        EXPECT_FALSE(free_before && !block.active) << "free neighbours that did not join";
        free_before = !block.active;
        if (block.allocated) allocated += block.bytes;
        if (block.active) active += block.bytes;
        if (!block.active && segment.blocks.size() > 1) inactive_split += block.bytes;
      }
      EXPECT_EQ(expected, segment.address + segment.bytes);
      reserved += segment.bytes;
    }
    EXPECT_EQ(stats.reserved_bytes.current(), static_cast<std::int64_t>(reserved));
    EXPECT_EQ(stats.allocated_bytes.current(), static_cast<std::int64_t>(allocated));
    EXPECT_EQ(stats.active_bytes.current(), static_cast<std::int64_t>(active));
    EXPECT_EQ(stats.inactive_split_bytes.current(), static_cast<std::int64_t>(inactive_split));
    EXPECT_EQ(stats.reserved_bytes.of[0].current, stats.reserved_bytes.of[1].current + stats.reserved_bytes.of[2].current);
  }

  std::mt19937_64 random_;
  FakeDevice device_;
  CachingAllocator<FakeDevice> allocator_;
  std::map<std::uintptr_t, Live> live_;
  std::vector<Waiting> waiting_;
  int device_used_before_ = 0;
};

class RandomPrograms : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomPrograms, KeepTheContract) {
  for (unsigned seed = GetParam() * 20; seed < GetParam() * 20 + 20 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program(seed).run(400);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range(0u, 8u));

}  // namespace
}  // namespace ipexrun::xpu
