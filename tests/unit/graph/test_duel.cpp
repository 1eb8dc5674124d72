// The risk: packs that layers make count as the time of a way, so that the slower one stays wherever many layers have one size; a duel that never ends, or
// that has every layer make every pack.
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

  [[nodiscard]] int winner() const { return duel.way(static_cast<int>(run_ns.size()), {}); }
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
