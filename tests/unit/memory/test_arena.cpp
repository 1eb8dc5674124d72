// Risk: two tensors share memory; a run does not find the memory of the one before; what other threads return is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "preload/memory/arena.h"

namespace ipexrun::preload {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(Arena, GivesTheSameMemoryInTheNextRun) {
  Arena arena(64 * kMiB, 2 * kMiB);
  std::vector<void*> first;
  for (int run = 0; run < 3; ++run) {
    arena.begin();
    std::vector<void*> taken;
    for (const std::size_t bytes : {100U, 70000U, 5000U}) taken.push_back(arena.take(bytes));
    if (run == 0) first = taken;
    EXPECT_EQ(taken, first);
    arena.give_back(taken[1], 70000);
    arena.give_back(taken[0], 100);
    arena.give_back(taken[2], 5000);
    EXPECT_EQ(arena.used_bytes(), 0U);
    EXPECT_EQ(arena.mapped_bytes(), 2 * kMiB);
  }
}

TEST(Arena, PiecesAreAlignedAndApart) {
  Arena arena(256 * kMiB, 2 * kMiB);
  std::mt19937 random(1);
  struct Held {
    unsigned char* at;
    std::size_t bytes;
    unsigned char mark;
  };
  std::vector<Held> held;
  for (int i = 0; i < 1000; ++i) {
    if (held.size() > 40 || (!held.empty() && random() % 2 == 0)) {
      const std::size_t which = random() % held.size();
      const Held one = held[which];
      ASSERT_TRUE(std::all_of(one.at, one.at + one.bytes, [&](unsigned char byte) { return byte == one.mark; }));
      arena.give_back(one.at, one.bytes);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      const std::size_t bytes = random() % 3 == 0 ? random() % (kMiB / 2) : random() % 9000;
      auto* at = static_cast<unsigned char*>(arena.take(bytes));
      ASSERT_NE(at, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(at) % 64, 0U);
      held.push_back({at, bytes, static_cast<unsigned char>(i)});
      std::memset(at, i & 0xff, bytes);
    }
  }
  for (const Held& one : held) arena.give_back(one.at, one.bytes);
  EXPECT_EQ(arena.used_bytes(), 0U);
}

TEST(Arena, IsOnePartWhenARunBeganWithNothingInUse) {
  Arena arena(64 * kMiB, 2 * kMiB);
  void* const a = arena.take(kMiB + kMiB / 2);
  void* const b = arena.take(kMiB + kMiB / 2);
  EXPECT_EQ(arena.mapped_bytes(), 4 * kMiB);
  arena.begin();  // in use: as it is
  std::memset(a, 1, kMiB);
  arena.give_back(a, kMiB + kMiB / 2);
  arena.give_back(b, kMiB + kMiB / 2);
  arena.begin();
  void* const both = arena.take(4 * kMiB);
  EXPECT_NE(both, nullptr);
  EXPECT_EQ(arena.mapped_bytes(), 4 * kMiB);
  arena.give_back(both, 4 * kMiB);
}

TEST(Arena, NeverExceedsItsLimit) {
  Arena arena(4 * kMiB, 2 * kMiB);
  EXPECT_EQ(arena.take(5 * kMiB), nullptr);
  EXPECT_EQ(arena.take(~std::size_t{0}), nullptr);
  void* const all = arena.take(4 * kMiB);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.take(1), nullptr);
  arena.give_back(all, 4 * kMiB);
  EXPECT_NE(arena.take(1), nullptr);
}

TEST(Arena, ASmallerStepThanTheUsualOneStillFits) {
  Arena arena(4 * kMiB, 32 * kMiB);
  EXPECT_NE(arena.take(kMiB), nullptr);
  EXPECT_EQ(arena.mapped_bytes(), 2 * kMiB);
}

TEST(Arena, OtherThreadsReturnPieces) {
  Arena arena(64 * kMiB, 2 * kMiB);
  for (int run = 0; run < 5; ++run) {
    arena.begin();
    EXPECT_EQ(arena.used_bytes(), 0U);
    std::vector<void*> pieces;
    for (int i = 0; i < 100; ++i) pieces.push_back(arena.take(10000));
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = t; i < pieces.size(); i += 4) arena.give_back_from_elsewhere(pieces[i], 10000);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(arena.mapped_bytes(), 2 * kMiB);
}

}  // namespace
}  // namespace ipexrun::preload
