// Risk: a hash of another region, of other bytes than those of now, or one that outlives its run.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "preload/select/fingerprint.h"
#include "preload/select/looks.h"
#include "tests/unit/select/workers.h"

namespace ipexrun::preload {
namespace {

std::vector<std::vector<unsigned char>> regions(std::size_t count) {
  std::vector<std::vector<unsigned char>> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i].resize(100 + 700 * i);
    for (std::size_t at = 0; at < made[i].size(); ++at) made[i][at] = static_cast<unsigned char>(at * 13 + i);
  }
  return made;
}

TEST(Looks, are_what_the_hashes_are) {
  const auto memory = regions(50);
  for (const int threads : {1, 4}) {
    Looks looks;
    for (const auto& region : memory) {
      looks.add(region.data(), region.size(), Looks::Of::kSample);
      looks.add(region.data(), region.size(), Looks::Of::kAllBytes);
    }
    looks.take({threads, run_on_threads, nullptr});
    for (const auto& region : memory) {
      EXPECT_EQ(looks.find(region.data(), region.size(), Looks::Of::kSample), sampled_hash(region.data(), region.size()));
      EXPECT_EQ(looks.find(region.data(), region.size(), Looks::Of::kAllBytes), full_hash(region.data(), region.size()));
    }
  }
}

TEST(Looks, are_found_again_and_out_of_their_turn) {
  const auto memory = regions(20);
  Looks looks;
  for (const auto& region : memory) looks.add(region.data(), region.size(), Looks::Of::kSample);
  looks.take({});
  for (const std::size_t i : {3u, 3u, 0u, 19u, 7u, 6u}) {
    EXPECT_EQ(looks.find(memory[i].data(), memory[i].size(), Looks::Of::kSample), sampled_hash(memory[i].data(), memory[i].size())) << i;
  }
}

TEST(Looks, do_not_answer_for_others) {
  const auto memory = regions(3);
  Looks looks;
  EXPECT_EQ(looks.find(memory[0].data(), memory[0].size(), Looks::Of::kSample), std::nullopt);
  looks.add(memory[0].data(), memory[0].size(), Looks::Of::kSample);
  looks.take({});
  EXPECT_EQ(looks.find(memory[1].data(), memory[0].size(), Looks::Of::kSample), std::nullopt);
  EXPECT_EQ(looks.find(memory[0].data(), memory[0].size() - 1, Looks::Of::kSample), std::nullopt);
  EXPECT_EQ(looks.find(memory[0].data(), memory[0].size(), Looks::Of::kAllBytes), std::nullopt);
}

TEST(Looks, belong_to_their_run) {
  auto memory = regions(2);
  const std::uint64_t before = sampled_hash(memory[1].data(), memory[1].size());
  Looks looks;
  looks.add(memory[1].data(), memory[1].size(), Looks::Of::kSample);
  looks.take({});
  memory[1][0] ^= 1;
  const std::uint64_t after = sampled_hash(memory[1].data(), memory[1].size());
  ASSERT_NE(before, after);
  {
    const LooksOfRun run(&looks);
    EXPECT_EQ(sampled_hash_of_run(memory[1].data(), memory[1].size()), before);
    {
      const LooksOfRun none(nullptr);
      EXPECT_EQ(sampled_hash_of_run(memory[1].data(), memory[1].size()), after);
    }
    std::uint64_t elsewhere = 0;
    std::thread([&] { elsewhere = sampled_hash_of_run(memory[1].data(), memory[1].size()); }).join();
    EXPECT_EQ(elsewhere, after);
  }
  EXPECT_EQ(sampled_hash_of_run(memory[1].data(), memory[1].size()), after);
  EXPECT_EQ(full_hash_of_run(memory[1].data(), memory[1].size()), full_hash(memory[1].data(), memory[1].size()));
}

}  // namespace
}  // namespace ipexrun::preload
