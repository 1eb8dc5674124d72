// Risk: a pack outlives the bytes it was made from. Every way in which a weight can change has a test here or in tests/op_tier.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <memory>
#include <thread>
#include <vector>

#include "preload/select/fingerprint.h"
#include "preload/select/weights.h"
#include "tests/unit/select/fakes.h"

namespace ipexrun::preload {
namespace {

class FakePack final : public Pack {
 public:
  explicit FakePack(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return bytes_; }

 private:
  std::size_t bytes_;
};

class FakeLiveness final : public Liveness {
 public:
  explicit FakeLiveness(std::shared_ptr<bool> alive) : alive_(std::move(alive)) {}
  [[nodiscard]] bool alive() const noexcept override { return *alive_; }

 private:
  std::shared_ptr<bool> alive_;
};

struct FakeWeight {
  explicit FakeWeight(std::size_t floats = 16384) : bytes(floats, 1.0f) {}

  [[nodiscard]] WeightUse use() const {
    WeightUse use;
    use.key.storage = use.key.data = bytes.data();
    use.key.sizes = {128, static_cast<std::int64_t>(bytes.size()) / 128};
    use.size_bytes = bytes.size() * sizeof(float);
    use.version = version;
    use.wants_grad = wants_grad;
    use.blind = blind;
    use.op_ns = op_ns;
    return use;
  }

  std::vector<float> bytes;
  std::int64_t version = 0;
  bool wants_grad = false;
  bool blind = false;
  std::int64_t op_ns = 1;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

struct WeightsTest : ::testing::Test {
  testing::FakeClock clock;
  WeightTable table{clock, WeightLimits{.hard_bytes = 1 << 20, .bounded_by_weights = true, .always_full_check = false}};

  WeightState use(FakeWeight& weight, bool at_once = false) {
    return table.use(
        weight.use(), [&] { return std::make_unique<FakeLiveness>(weight.alive); }, at_once);
  }
  bool pack(FakeWeight& weight, int candidate = 1) {
    const WeightState state = use(weight, true);
    table.pin_bytes(*state.weight, weight.use());
    return table.put(*state.weight, candidate, std::make_shared<FakePack>(weight.bytes.size() * sizeof(float)), false);
  }
  bool packed(FakeWeight& weight) {
    const WeightState state = use(weight);
    return state.weight != nullptr && state.packs[1] != nullptr;
  }
};

TEST_F(WeightsTest, two_earlier_uses_with_the_same_bytes_make_a_weight) {
  FakeWeight weight;
  EXPECT_EQ(use(weight).weight, nullptr);
  EXPECT_EQ(use(weight).weight, nullptr);
  EXPECT_NE(use(weight).weight, nullptr);
}

TEST_F(WeightsTest, a_weight_is_one_after_as_many_calls_as_a_server_makes_in_days) {
  FakeWeight weight;
  weight.wants_grad = true;
  for (int i = 0; i < 20; ++i) use(weight);
  ASSERT_NE(use(weight).weight, nullptr);
  Weight& known = *table.find(weight.use().key);
  known.sightings = known.forward_calls = INT_MAX - 1;
  for (int i = 0; i < 4; ++i) EXPECT_NE(use(weight).weight, nullptr);
}

TEST_F(WeightsTest, bytes_that_change_between_uses_start_the_count_again) {
  FakeWeight weight;
  for (int i = 0; i < 10; ++i) {
    weight.bytes[0] = static_cast<float>(i);
    EXPECT_EQ(use(weight).weight, nullptr);
  }
}

TEST_F(WeightsTest, a_change_that_sampling_sees_drops_the_pack_at_the_next_use) {
  FakeWeight weight;
  for (int i = 0; i < 3; ++i) use(weight);
  ASSERT_TRUE(pack(weight));
  EXPECT_TRUE(packed(weight));
  for (float& value : weight.bytes) value += 1;
  EXPECT_FALSE(packed(weight));
  EXPECT_EQ(table.pack_bytes(), 0u);
}

TEST_F(WeightsTest, a_hidden_change_is_found_by_version_by_time_when_a_full_hash_is_cheap_and_where_no_version_tells) {
  for (int way = 0; way < 4; ++way) {
    FakeWeight weight;
    for (int i = 0; i < 3; ++i) use(weight);
    ASSERT_TRUE(pack(weight));
    // 64 KiB: lines are sampled every 1024 bytes or so, this one lies between two.
    const std::uint64_t before = sampled_hash(weight.bytes.data(), weight.use().size_bytes);
    weight.bytes[16384 / 2 + 100] = 5;
    ASSERT_EQ(sampled_hash(weight.bytes.data(), weight.use().size_bytes), before);
    EXPECT_TRUE(packed(weight)) << "what docs/limits-op-tier.md says that sampling can miss";
    if (way == 0) weight.version = 1;
    if (way == 1) clock.advance(kFullHashEveryNs);
    if (way == 2) weight.op_ns = 1'000'000'000;
    if (way == 3) weight.blind = true;
    EXPECT_FALSE(packed(weight)) << way;
    *weight.alive = false;  // the next weight may get the same address
    table.sweep();
  }
}

TEST_F(WeightsTest, hashing_many_weights_takes_about_a_hundredth_of_the_time) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  WeightTable large(clock, WeightLimits{.hard_bytes = std::uint64_t{1} << 50, .bounded_by_weights = false, .always_full_check = false});
  FakeWeight weight;
  const auto ask = [&] {
    return large.use(
        weight.use(), [&] { return std::make_unique<FakeLiveness>(weight.alive); }, true);
  };
  const WeightState state = ask();
  large.pin_bytes(*state.weight, weight.use());
  // Hashing takes no time by this clock, which counts as 1 ps a byte: 20 ms for the weights of packs of 10 GB.
  ASSERT_TRUE(large.put(*state.weight, 1, std::make_shared<FakePack>(10'000'000'000), false));
  weight.bytes[16384 / 2 + 100] = 5;
  clock.advance(kSecond + kSecond / 2);
  EXPECT_NE(ask().packs[1], nullptr) << "after a second it would take 2 of every 100 ms";
  clock.advance(kSecond / 2);
  EXPECT_EQ(ask().packs[1], nullptr);
  // However large they are:
  const WeightState again = ask();
  large.pin_bytes(*again.weight, weight.use());
  ASSERT_TRUE(large.put(*again.weight, 1, std::make_shared<FakePack>(std::size_t{1} << 49), false));
  weight.bytes[16384 / 2 + 100] = 6;
  clock.advance(kFullHashAtLeastEveryNs);
  EXPECT_EQ(ask().packs[1], nullptr);
}

TEST_F(WeightsTest, a_version_that_moves_without_the_bytes_keeps_the_pack) {
  FakeWeight weight;
  for (int i = 0; i < 3; ++i) use(weight);
  ASSERT_TRUE(pack(weight));
  weight.version = 9;
  EXPECT_TRUE(packed(weight));
}

TEST_F(WeightsTest, full_checks_miss_nothing) {
  WeightTable strict(clock, WeightLimits{.hard_bytes = 1 << 20, .bounded_by_weights = true, .always_full_check = true});
  FakeWeight weight;
  const auto live = [&] { return std::make_unique<FakeLiveness>(weight.alive); };
  const WeightState state = strict.use(weight.use(), live, true);
  strict.pin_bytes(*state.weight, weight.use());
  ASSERT_TRUE(strict.put(*state.weight, 1, std::make_shared<FakePack>(100), false));
  weight.bytes[16384 / 2 + 100] = 5;
  EXPECT_EQ(strict.use(weight.use(), live, true).packs[1], nullptr);
}

TEST_F(WeightsTest, a_weight_that_changed_twice_under_a_pack_stays_stock) {
  FakeWeight weight;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) use(weight);
    ASSERT_TRUE(pack(weight));
    for (float& value : weight.bytes) value += 1;
    use(weight);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(use(weight).weight, nullptr);
}

TEST_F(WeightsTest, a_freed_storage_frees_its_packs) {
  auto weight = std::make_unique<FakeWeight>();
  ASSERT_TRUE(pack(*weight));
  EXPECT_GT(table.pack_bytes(), 0u);
  *weight->alive = false;
  table.sweep();
  EXPECT_EQ(table.pack_bytes(), 0u);
  EXPECT_EQ(table.weights(), 0u);
}

// A program that makes its models anew all the time would check and pack weights that answer a call or two.
TEST_F(WeightsTest, weights_that_die_young_teach_patience_to_those_that_come) {
  const auto uses_until_known = [&](FakeWeight& weight, int most) {
    for (int used = 1; used <= most; ++used) {
      if (use(weight).weight != nullptr) return used;
    }
    return most + 1;
  };
  const auto generation = [&](int uses) {
    std::vector<std::unique_ptr<FakeWeight>> made;  // none takes another's address
    for (int i = 0; i < kDeathsThatTeach; ++i) {
      made.push_back(std::make_unique<FakeWeight>(128));
      for (int used = 0; used < uses; ++used) use(*made.back());
    }
    for (auto& weight : made) *weight->alive = false;
    table.sweep();
  };
  FakeWeight first, second, third, fourth;
  EXPECT_EQ(uses_until_known(first, 100), kSightings + 1);
  generation(2);
  EXPECT_EQ(uses_until_known(second, 100), kSightings + 1) << "what is new in each call is no weight";
  generation(6);
  EXPECT_GT(uses_until_known(third, 100), 8);
  for (int i = 0; i < 8; ++i) generation(60);
  EXPECT_EQ(uses_until_known(fourth, 100), kSightings + 1) << "these live long enough to gain";
}

TEST_F(WeightsTest, the_least_recently_used_pack_makes_room) {
  WeightTable small(clock, WeightLimits{.hard_bytes = 250, .bounded_by_weights = false, .always_full_check = false});
  std::vector<FakeWeight> weights(3);
  std::vector<WeightState> states;
  for (FakeWeight& weight : weights) {
    states.push_back(small.use(
        weight.use(), [&] { return std::make_unique<FakeLiveness>(weight.alive); }, true));
    small.pin_bytes(*states.back().weight, weight.use());
    EXPECT_TRUE(small.put(*states.back().weight, 1, std::make_shared<FakePack>(100), false));
    EXPECT_LE(small.pack_bytes(), 250u);
  }
  EXPECT_EQ(small
                .use(
                    weights[0].use(), [] { return nullptr; }, true)
                .packs[1],
            nullptr);
  EXPECT_NE(small
                .use(
                    weights[2].use(), [] { return nullptr; }, true)
                .packs[1],
            nullptr);
  EXPECT_FALSE(small.put(*states[2].weight, 2, std::make_shared<FakePack>(300), false));
}

// A model larger than the memory for packs, layer after layer: the pack that makes room is the one that is needed next.
TEST_F(WeightsTest, packs_that_evict_each_other_are_not_made_again_and_again) {
  WeightTable small(clock, WeightLimits{.hard_bytes = 250, .bounded_by_weights = false, .always_full_check = false});
  std::vector<FakeWeight> weights(4);
  constexpr int kRounds = 1000;
  int made = 0;
  int hits = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (FakeWeight& weight : weights) {
      const WeightState state = small.use(
          weight.use(), [&] { return std::make_unique<FakeLiveness>(weight.alive); }, true);
      hits += state.packs[1] != nullptr ? 1 : 0;
      if (state.packs[1] != nullptr || !small.may_pack(*state.weight)) continue;
      ++made;
      EXPECT_TRUE(small.put(*state.weight, 1, std::make_shared<FakePack>(100), false));
    }
  }
  EXPECT_LE(made, 60);
  EXPECT_GE(hits, kRounds);  // what has its place keeps it most of the time: two of four weights fit
}

/// Of many layers whose packs are four times as large, all fit: the graph of a second run has met no other weights.
TEST_F(WeightsTest, packs_that_are_larger_than_their_weights_count_as_they_are) {
  WeightTable roomy(clock, WeightLimits{.hard_bytes = 1 << 30, .bounded_by_weights = true, .always_full_check = false});
  std::vector<FakeWeight> weights(6);
  for (int call = 0; call < 2; ++call) {
    for (FakeWeight& weight : weights) {
      const WeightState state = roomy.use(
          weight.use(), [&] { return std::make_unique<FakeLiveness>(weight.alive); }, true);
      ASSERT_NE(state.weight, nullptr);
      if (call == 0) {
        roomy.pin_bytes(*state.weight, weight.use());
        EXPECT_TRUE(roomy.put(*state.weight, 1, std::make_shared<FakePack>(4 * weight.use().size_bytes), true));
      } else {
        EXPECT_NE(state.packs[1], nullptr);
      }
    }
  }
}

TEST_F(WeightsTest, a_pack_for_which_there_is_no_room_is_not_made_at_each_use) {
  WeightTable small(clock, WeightLimits{.hard_bytes = 50, .bounded_by_weights = false, .always_full_check = false});
  FakeWeight weight;
  int made = 0;
  for (int call = 0; call < 1000; ++call) {
    const WeightState state = small.use(
        weight.use(), [&] { return std::make_unique<FakeLiveness>(weight.alive); }, true);
    if (!small.may_pack(*state.weight)) continue;
    ++made;
    EXPECT_FALSE(small.put(*state.weight, 1, std::make_shared<FakePack>(100), false));
  }
  EXPECT_LE(made, 12);
}

TEST_F(WeightsTest, a_weight_that_wants_grad_waits_for_sixteen_calls_and_leaves_at_the_first_backward) {
  FakeWeight weight;
  weight.wants_grad = true;
  for (int i = 0; i < kForwardCalls; ++i) EXPECT_EQ(use(weight).weight, nullptr) << i;
  EXPECT_NE(use(weight).weight, nullptr);
  ASSERT_TRUE(pack(weight));
  table.saw_backward();
  EXPECT_EQ(table.pack_bytes(), 0u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(use(weight).weight, nullptr);
  weight.wants_grad = false;  // under no_grad it is a weight like others
  EXPECT_NE(use(weight).weight, nullptr);
}

TEST_F(WeightsTest, after_a_backward_the_first_use_is_checked_in_full) {
  FakeWeight weight;
  for (int i = 0; i < 3; ++i) use(weight);
  ASSERT_TRUE(pack(weight));
  weight.bytes[16384 / 2 + 100] = 5;
  EXPECT_TRUE(packed(weight));
  table.saw_backward();
  EXPECT_FALSE(packed(weight));
}

TEST_F(WeightsTest, positions_of_a_sliding_window_are_forgotten_and_packs_are_not) {
  constexpr std::size_t kMaxKnown = 65536;
  FakeWeight kept(1024);
  FakeWeight window(128);
  ASSERT_TRUE(pack(kept));
  const auto slide = [&](std::size_t to) {
    WeightUse at = window.use();
    at.key.offset = static_cast<std::int64_t>(to);
    return table.use(
        at, [&] { return std::make_unique<FakeLiveness>(window.alive); }, true);
  };
  const WeightState first = slide(0);
  for (std::size_t i = 1; i < kMaxKnown + kMaxKnown / 2; ++i) slide(i);
  EXPECT_LE(table.weights(), kMaxKnown);
  EXPECT_TRUE(packed(kept));
  const std::uint64_t bytes = table.pack_bytes();
  EXPECT_FALSE(table.put(*first.weight, 1, std::make_shared<FakePack>(64), false));  // nobody would ever free it
  EXPECT_EQ(table.pack_bytes(), bytes);
}

TEST_F(WeightsTest, an_optimizer_that_wrote_a_storage_drops_its_packs) {
  FakeWeight weight;
  ASSERT_TRUE(pack(weight));
  table.drop_storage(weight.bytes.data());
  EXPECT_EQ(table.pack_bytes(), 0u);
}

TEST_F(WeightsTest, verdicts_belong_to_site_and_candidate_and_end_with_the_bytes) {
  FakeWeight weight;
  const WeightState state = use(weight, true);
  table.set_verdict(*state.weight, 3, 1, true);
  table.set_verdict(*state.weight, 3, 2, false);
  EXPECT_EQ(table.verdict(*state.weight, 3, 1), Verdict::kAccurate);
  EXPECT_EQ(table.verdict(*state.weight, 3, 2), Verdict::kInaccurate);
  EXPECT_EQ(table.verdict(*state.weight, 4, 1), Verdict::kUnknown);
  for (float& value : weight.bytes) value += 1;
  use(weight);
  EXPECT_EQ(table.verdict(*state.weight, 3, 1), Verdict::kUnknown);
}

TEST_F(WeightsTest, losers_of_a_race_free_their_packs) {
  FakeWeight weight;
  for (int i = 0; i < 3; ++i) use(weight);
  const WeightState state = use(weight, true);
  table.pin_bytes(*state.weight, weight.use());
  ASSERT_TRUE(table.put(*state.weight, 1, std::make_shared<FakePack>(100), true));
  ASSERT_TRUE(table.put(*state.weight, 2, std::make_shared<FakePack>(200), true));
  table.drop_losers(128, 128, 0, 1u << 2);
  EXPECT_EQ(table.pack_bytes(), 200u);
}

TEST_F(WeightsTest, threads_use_and_change_tables_at_once) {
  std::vector<FakeWeight> weights(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        FakeWeight& weight = weights[static_cast<std::size_t>((t + i) % 4)];
        pack(weight);
        packed(weight);
        if (i % 50 == 0) table.drop_all();
        if (i % 70 == 0) table.saw_backward();
        table.sweep();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(table.pack_bytes(), 4u * 65536u);
}

#if !defined(__SANITIZE_THREAD__)
TEST_F(WeightsTest, a_forked_child_reads_packs_and_adds_none) {
  FakeWeight weight;
  for (int i = 0; i < 3; ++i) use(weight);
  ASSERT_TRUE(pack(weight));
  table.lock_for_fork();
  const pid_t child = ::fork();
  table.unlock_after_fork();
  if (child == 0) {
    table.become_read_only();
    FakeWeight other;
    const bool good = packed(weight) && !pack(other);
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace ipexrun::preload
