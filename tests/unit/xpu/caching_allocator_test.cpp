// The caching allocator, rule by rule. Risk covered: memory handed out twice, work on memory that the driver took back, a cache that
// says "out of memory" while it holds some.
#include "xpu/core/caching_allocator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/unit/xpu/fake_device.h"
#include "xpu/core/streams.h"

namespace ipexrun::xpu {
namespace {

using test::FakeDevice;
constexpr std::size_t kMiB = 1u << 20;

struct Allocation : ::testing::Test {
  FakeDevice device{256 * kMiB};
  CachingAllocator<FakeDevice> allocator{device};
};

TEST_F(Allocation, FreedMemoryIsHandedOutAgainWithoutTheDriver) {
  void* first = allocator.allocate(1000, 0);
  ASSERT_TRUE(allocator.free(first));
  EXPECT_EQ(allocator.allocate(1000, 0), first);
  EXPECT_EQ(device.allocations, 1);
}

TEST_F(Allocation, SmallRequestsShareASegment) {
  for (int i = 0; i < 100; ++i) ASSERT_NE(allocator.allocate(512, 0), nullptr);
  EXPECT_EQ(device.allocations, 1);
  EXPECT_EQ(device.used(), kSmallSegment);
}

TEST_F(Allocation, TheSmallestBlockThatFitsIsTaken) {
  void* large = allocator.allocate(16 * kMiB, 0);
  void* middle = allocator.allocate(12 * kMiB, 0);
  allocator.free(large);
  allocator.free(middle);
  EXPECT_EQ(allocator.allocate(11 * kMiB + kMiB / 2, 0), middle);
}

TEST_F(Allocation, NeighboursJoinWhenFreed) {
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(512 * 1024, 0));
  EXPECT_EQ(device.allocations, 1);
  for (const int i : {1, 3, 0, 2}) allocator.free(blocks[static_cast<std::size_t>(i)]);
  const auto segments = allocator.snapshot();
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].blocks.size(), 1u);
  EXPECT_EQ(allocator.stats().inactive_split.current(), 0);
}

TEST_F(Allocation, StreamsDoNotShareCachedBlocks) {
  void* first = allocator.allocate(kMiB, 1);
  allocator.free(first);
  EXPECT_NE(allocator.allocate(kMiB, 2), first);
  EXPECT_EQ(allocator.allocate(kMiB, 1), first);
}

TEST_F(Allocation, ABlockOfTwoStreamsWaitsForTheOther) {
  void* block = allocator.allocate(kMiB, 0);
  device.submit(7);
  ASSERT_TRUE(allocator.record_stream(block, 7));
  allocator.free(block);
  void* other = allocator.allocate(kMiB, 0);
  EXPECT_NE(other, block);
  EXPECT_EQ(allocator.stats().active.current(), 2);
  device.run(7);
  EXPECT_EQ(allocator.allocate(kMiB, 0), block);
}

TEST_F(Allocation, OutOfMemoryEmptiesTheCacheAndAsksAgain) {
  void* first = allocator.allocate(200 * kMiB, 0);
  allocator.free(first);
  device.submit(0);
  ASSERT_NE(allocator.allocate(220 * kMiB, 0), nullptr);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  EXPECT_EQ(device.releases_while_busy, 0);
}

TEST_F(Allocation, OutOfMemorySaysWhatIsHeld) {
  ASSERT_NE(allocator.allocate(200 * kMiB, 0), nullptr);
  EXPECT_EQ(allocator.allocate(100 * kMiB, 0), nullptr);
  EXPECT_EQ(allocator.stats().num_ooms, 1);
  const std::string text = allocator.explain(100 * kMiB, 256 * kMiB);
  EXPECT_NE(text.find("tried to allocate 100.0 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("200.0 MiB in 1 blocks are in use"), std::string::npos) << text;
  ASSERT_NE(allocator.allocate(10 * kMiB, 0), nullptr) << "work goes on after an error";
}

TEST_F(Allocation, ALimitHoldsAndIsToldOf) {
  allocator.set_limit_bytes(64 * kMiB);
  ASSERT_NE(allocator.allocate(40 * kMiB, 0), nullptr);
  EXPECT_EQ(allocator.allocate(40 * kMiB, 0), nullptr);
  EXPECT_NE(allocator.explain(40 * kMiB, 256 * kMiB).find("this process may take 64.0 MiB"), std::string::npos);
  allocator.set_limit_bytes(CachingAllocator<FakeDevice>::kNoLimit);
  EXPECT_NE(allocator.allocate(40 * kMiB, 0), nullptr);
}

TEST_F(Allocation, EmptyCacheKeepsWhatIsUsed) {
  void* kept = allocator.allocate(30 * kMiB, 0);
  void* freed = allocator.allocate(50 * kMiB, 0);
  allocator.free(freed);
  allocator.empty_cache();
  EXPECT_EQ(device.used(), 30 * kMiB);
  allocator.free(kept);
  allocator.empty_cache();
  EXPECT_EQ(device.used(), 0u);
  EXPECT_EQ(allocator.stats().reserved_bytes.current(), 0);
}

TEST_F(Allocation, AboveFourGibibytes) {
  FakeDevice big(16ull << 30);
  CachingAllocator<FakeDevice> of_big(big);
  void* block = of_big.allocate(6ull << 30, 0);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(of_big.stats().requested_bytes.current(), 6ll << 30);
}

TEST_F(Allocation, AbsurdSizesAreRefused) {
  EXPECT_EQ(allocator.allocate(std::numeric_limits<std::size_t>::max() - 5, 0), nullptr);
  EXPECT_EQ(allocator.allocate(std::numeric_limits<std::size_t>::max() / 2, 0), nullptr);
  EXPECT_EQ(device.used(), 0u);
}

TEST_F(Allocation, AddressesThatAreNotAllocatedAreRefused) {
  void* block = allocator.allocate(100, 0);
  EXPECT_FALSE(allocator.free(static_cast<char*>(block) + 1));
  EXPECT_TRUE(allocator.free(block));
  EXPECT_FALSE(allocator.free(block));
  EXPECT_FALSE(allocator.record_stream(block, 3));
}

TEST_F(Allocation, PeaksAndSumsStartAgain) {
  allocator.free(allocator.allocate(4 * kMiB, 0));
  EXPECT_EQ(allocator.stats().allocated_bytes.of[0].peak, static_cast<std::int64_t>(4 * kMiB));
  allocator.reset_peak();
  allocator.reset_accumulated();
  EXPECT_EQ(allocator.stats().allocated_bytes.of[0].peak, 0);
  EXPECT_EQ(allocator.stats().allocated_bytes.of[0].allocated, 0);
}

TEST(AllocationOfThreads, NoBlockIsHandedOutTwice) {
  FakeDevice device(1ull << 32);
  CachingAllocator<FakeDevice> allocator(device);
  std::mutex lock;
  std::set<void*> held;
  std::atomic<int> twice{0}, refused{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::vector<void*> mine;
      unsigned state = seed * 7919 + 1;
      for (int i = 0; i < 2000; ++i) {
        state = state * 1664525u + 1013904223u;
        if (mine.size() < 20 && (state >> 16) % 3 != 0) {
          void* block = allocator.allocate((state >> 8) % (3 * kMiB), state % 3);
          const std::lock_guard guard(lock);
          if (block == nullptr)
            ++refused;
          else if (!held.insert(block).second)
            ++twice;
          mine.push_back(block);
        } else if (!mine.empty()) {
          void* block = mine.back();
          mine.pop_back();
          {
            const std::lock_guard guard(lock);
            held.erase(block);
          }
          allocator.free(block);
        }
      }
      for (void* block : mine) {
        {
          const std::lock_guard guard(lock);
          held.erase(block);
        }
        allocator.free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(twice, 0);
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(allocator.stats().allocation.current(), 0);
}

TEST(Streams, NumbersComeInTurnAndNeverZero) {
  StreamNumbers numbers;
  std::set<StreamId> seen;
  for (StreamId i = 0; i < 2 * kStreamsPerDevice; ++i) seen.insert(numbers.next());
  EXPECT_EQ(seen.size(), kStreamsPerDevice);
  EXPECT_EQ(seen.count(0), 0u);
}

}  // namespace
}  // namespace ipexrun::xpu
