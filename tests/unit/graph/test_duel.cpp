// The risk: packs that layers make count as the time of a way, so that the slower one stays wherever many layers have one size; a duel that
// never ends, or that has every layer make every pack.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "preload/plugin/graph/duel.h"

namespace ipexrun::preload::graph {
namespace {

/// `layers` steps of one size, called one after the other, call by call, with a clock of our own.
struct Model {
  struct Layer {
    WaysTried tried;
    int packs = 0;
  };

  Model(int layers, std::vector<std::int64_t> run_times, std::vector<std::int64_t> pack_times)
      : run_ns(std::move(run_times)), pack_ns(std::move(pack_times)), all(static_cast<std::size_t>(layers)) {}

  void call() {
    const int ways = static_cast<int>(run_ns.size());
    for (Layer& layer : all) {
      if (duel.decided()) return;
      const int way = duel.way(ways, layer.tried);
      const auto at = static_cast<std::size_t>(way);
      const bool counts = layer.tried.has(way);
      layer.packs += counts ? 0 : 1;
      duel.took(way, ways, run_ns[at] + (counts ? 0 : pack_ns[at]), counts);
      layer.tried.add(way);
    }
  }

  /// Calls until the duel is over.
  int play() {
    int calls = 0;
    for (; !duel.decided() && calls < 100; ++calls) call();
    return calls;
  }

  [[nodiscard]] int winner() const { return duel.winner(); }
  [[nodiscard]] int packs() const {
    int sum = 0;
    for (const Layer& layer : all) sum += layer.packs;
    return sum;
  }

  std::vector<std::int64_t> run_ns;
  std::vector<std::int64_t> pack_ns;
  Duel duel;
  std::vector<Layer> all;
};

TEST(Duel, PacksDoNotCountHoweverManyLayersShareIt) {
  for (int layers = 1; layers <= 48; ++layers) {
    Model two(layers, {200, 150}, {0, 1000});
    EXPECT_LE(two.play(), 10) << layers;
    EXPECT_EQ(two.winner(), 1) << layers;
    Model three(layers, {200, 190, 150}, {900, 100, 3000});
    EXPECT_LE(three.play(), 15) << layers;
    EXPECT_EQ(three.winner(), 2) << layers;
  }
}

TEST(Duel, FewLayersMakeMoreThanOnePack) {
  for (int layers = 3; layers <= 48; ++layers) {
    Model model(layers, {200, 190, 150}, {900, 100, 3000});
    model.play();
    EXPECT_LE(model.packs(), layers + 4) << layers;
  }
}

TEST(Duel, TheFirstWayStaysUnlessAnotherIsClearlyFaster) {
  Model close(2, {200, 197}, {0, 0});
  close.play();
  EXPECT_EQ(close.winner(), 0);
  Model clear(2, {200, 190}, {0, 0});
  clear.play();
  EXPECT_EQ(clear.winner(), 1);
}

TEST(Duel, WhatChoosingCostsIsKnown) {
  Model model(1, {200, 150, 400}, {50, 1000, 0});
  const std::int64_t before = duel_excess_here_ns();
  model.call();  // 250 with its pack, beside which nothing is known
  EXPECT_EQ(duel_excess_here_ns() - before, 0);
  const std::int64_t calls = model.play();
  // By then 150 is the best: 2 packs (nothing was known of times yet), the rest of 200's and 400's runs as it became known.
  const std::int64_t all = duel_excess_here_ns() - before;
  EXPECT_EQ(model.winner(), 1);
  EXPECT_GT(all, 0);
  EXPECT_LE(all, calls * 250);
  Model alone(1, {100, 100}, {0, 0});
  const std::int64_t again = duel_excess_here_ns();
  alone.play();
  EXPECT_EQ(duel_excess_here_ns() - again, 0);
}

TEST(Duel, LongRunsAreFew) {
  const std::int64_t ms = 1'000'000;
  Model model(1, {500 * ms, 400 * ms, 900 * ms}, {0, 0, 0});
  EXPECT_EQ(model.play(), 3 + 2 + 2 + 1);  // the first ones, which do not count, and one of what is far behind
  EXPECT_EQ(model.winner(), 1);
  Model short_ones(1, {500, 400, 900}, {0, 0, 0});
  EXPECT_EQ(short_ones.play(), 15);
}

TEST(Duel, AWayThatCannotBeTakenLoses) {
  Model model(3, {200, 150, 100}, {0, 0, 0});
  model.call();
  model.duel.failed(2, 3);
  model.play();
  EXPECT_EQ(model.winner(), 1);
  model.duel.failed(1, 3);  // it had won
  EXPECT_EQ(model.winner(), 0);
}

/// Else a step of two sizes, for which two ways won, would make its packs in each call.
TEST(Duel, PacksAreGivenBackOnce) {
  WaysTried tried;
  tried.add(1);
  EXPECT_TRUE(tried.forget());
  tried.remove(1);
  EXPECT_FALSE(tried.has(1));
  tried.add(1);
  EXPECT_FALSE(tried.forget());
  EXPECT_TRUE(tried.has(1));
}

DuelResult known;
std::vector<DuelResult> told;

DuelMemory memory() {
  return {[](const DuelKey&) noexcept { return known; }, [](const DuelKey&, const DuelResult& result) noexcept { told.push_back(result); }};
}

TEST(Duel, AWinnerIsToldOnceAndTakenAtOnceByProcessesToCome) {
  const DuelKey key;
  known = {};
  told.clear();
  Duel first;
  first.remember_in(&key, memory());
  WaysTried tried;
  for (int calls = 0; calls < 40; ++calls) {
    const int way = first.way(3, tried);
    first.took(way, 3, way == 1 ? 100 : 200, tried.has(way));
    tried.add(way);
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].way, 1);
  EXPECT_EQ(told[0].ways, 3);
  EXPECT_EQ(told[0].first_ns, 200);
  EXPECT_EQ(told[0].ns, 100);
  known = told[0];
  Duel second;
  second.remember_in(&key, memory());
  EXPECT_FALSE(second.decided()) << "what the way is, is looked at in its first run";
  EXPECT_EQ(second.way(3, {}), 1);
  EXPECT_TRUE(second.decided());
  EXPECT_TRUE(second.is_new(1));
}

/// There may be no room for its pack: way 0 would be the slowest of the rest for good.
TEST(Duel, WhereTheWinnerOfAnotherProcessFailsTheRestAreRaced) {
  const DuelKey key;
  known = {3, 4, 200, 50};
  told.clear();
  Duel duel;
  duel.remember_in(&key, memory());
  WaysTried tried;
  ASSERT_EQ(duel.way(4, tried), 3);
  duel.failed(3, 4);
  EXPECT_FALSE(duel.decided());
  for (int calls = 0; calls < 60; ++calls) {
    const int way = duel.way(4, tried);
    ASSERT_NE(way, 3);
    duel.took(way, 4, way == 1 ? 100 : 200, tried.has(way));
    tried.add(way);
  }
  EXPECT_EQ(duel.winner(), 1);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].way, 1);
}

TEST(Duel, WhereTheWinnerOfThisOneFailsTheNextBestIsTaken) {
  Model model(4, {200, 150, 100}, {0, 0, 0});
  model.play();
  ASSERT_EQ(model.winner(), 2);
  model.duel.failed(2, 3);
  EXPECT_EQ(model.winner(), 1);
}

TEST(Duel, AResultOfOtherWaysIsNotTaken) {
  const DuelKey key;
  for (const DuelResult& other : {DuelResult{2, 4, 9, 9}, DuelResult{3, 3, 9, 9}, DuelResult{-1, 3, 9, 9}}) {
    known = other;
    Duel duel;
    duel.remember_in(&key, memory());
    EXPECT_EQ(duel.way(3, {}), 0);
    EXPECT_FALSE(duel.decided());
  }
  known = {1, 2, 9, 9};
  told.clear();
  Duel without;
  without.remember_in(&key, memory());
  without.failed(1, 2);
  EXPECT_EQ(without.way(2, {}), 0);
  EXPECT_TRUE(told.empty()) << "nothing was timed";
}

/// One that won by chance is raced again the next day; one that always wins, ever less often.
TEST(Duel, TrustGrowsWithEachResultThatIsTheSame) {
  constexpr std::int64_t kDay = 24 * 3600;
  EXPECT_EQ(duel_trust_seconds(0), kDay);
  EXPECT_EQ(duel_trust_seconds(1), kDay);
  EXPECT_EQ(duel_trust_seconds(2), 2 * kDay);
  EXPECT_EQ(duel_trust_seconds(4), 8 * kDay);
  EXPECT_EQ(duel_trust_seconds(1000000), 128 * kDay);
}

TEST(Duel, OneThatIsLeftAloneWins) {
  Duel duel;
  duel.failed(0, 2);
  EXPECT_TRUE(duel.decided());
  EXPECT_EQ(duel.way(2, {}), 1);
}

/// Layers of a graph that is called no more leave runs that others have to make.
TEST(Duel, LayersThatAreNotCalledAgainDoNotHoldItUp) {
  Model gone(2, {200, 150, 100}, {0, 0, 0});
  gone.call();
  Model::Layer stays;
  int calls = 0;
  for (; !gone.duel.decided() && calls < 100; ++calls) {
    const int way = gone.duel.way(3, stays.tried);
    gone.duel.took(way, 3, gone.run_ns[static_cast<std::size_t>(way)], stays.tried.has(way));
    stays.tried.add(way);
  }
  EXPECT_LE(calls, 15);
  EXPECT_EQ(gone.winner(), 2);
}

}  // namespace
}  // namespace ipexrun::preload::graph
