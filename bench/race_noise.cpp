// How often are races called won on a machine that others use? The table of docs/decisions/0046-noise.md: the race itself
// (preload/select/race.h) on made-up calls, whose seed is fixed. Prints Markdown.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "preload/select/race.h"

namespace {

using ipexrun::preload::Race;
using ipexrun::preload::RaceResult;

using Random = std::mt19937;
using Length = std::function<double(Random&)>;  // of a call, in those of one that nobody disturbs

constexpr int kRaces = 2000;
constexpr int kAppeals = 3;  // as python/ipexrun/capture/capture.py has them

Length disturbed(double how_often, double at_most) {
  return [=](Random& random) {
    std::uniform_real_distribution<double> chance(0, 1);
    const bool alone = chance(random) >= how_often;
    return alone ? 1.0 : 1 + (at_most - 1) * chance(random);
  };
}

Length scattered(double deviation) {
  return [=](Random& random) { return std::max(0.4, std::normal_distribution<double>(1, deviation)(random)); };
}

bool wins(const Length& length, double share, bool doubted, Random& random) {
  Race race;
  if (doubted) race.doubt();
  while (race.result() == RaceResult::kUndecided) {
    const auto rival = static_cast<std::int64_t>(1e6 * length(random));
    race.add(rival, static_cast<std::int64_t>(1e6 * share * length(random)));
  }
  return race.result() == RaceResult::kWon;
}

double share_of_wins(const Length& length, double share, int appeals, Random& random) {
  int won = 0;
  for (int i = 0; i < kRaces; ++i) {
    bool one = wins(length, share, false, random);
    for (int appeal = 0; appeal < appeals && !one; ++appeal) one = wins(length, share, true, random);
    won += one ? 1 : 0;
  }
  return static_cast<double>(won) / kRaces;
}

}  // namespace

int main() {
  const std::vector<std::pair<std::string, Length>> kinds{{"10%, up to 2", disturbed(0.1, 2)},
                                                          {"40%, up to 2.2", disturbed(0.4, 2.2)},
                                                          {"50%, up to 4", disturbed(0.5, 4)},
                                                          {"all, normal with 15%", scattered(0.15)}};
  Random random(1);
  std::printf("| calls that are longer | true share | one race | and three more |\n|---|---|---|---|\n");
  for (const auto& [name, length] : kinds) {
    for (const double share : {0.75, 0.85, 0.9, 1.0, 1.05}) {
      const double once = share_of_wins(length, share, 0, random);
      std::printf("| %s | %.2f | %.3f | %.3f |\n", name.c_str(), share, once, share_of_wins(length, share, kAppeals, random));
    }
  }
}
