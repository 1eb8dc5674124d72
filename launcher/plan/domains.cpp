#include "launcher/plan/domains.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace ipexrun::launcher {
namespace {

constexpr std::size_t index_of(Level level) { return static_cast<std::size_t>(level); }

/// Levels at which a cut within a domain of level `last` may be made.
std::vector<Level> levels_up_to(Level last) {
  std::vector<Level> out;
  for (std::size_t level = 0; level <= index_of(last); ++level) {
    if (last == Level::kPackage && level == index_of(Level::kNode)) continue;  // a node that holds several packages would leave its own
    out.push_back(static_cast<Level>(level));
  }
  return out;
}

constexpr std::array<Level, 3> kSpreadOver = {Level::kPackage, Level::kPart, Level::kL3};

/// `total` items shared over holders that have `room`, one each in turn.
std::vector<std::size_t> share_in_turn(const std::vector<std::size_t>& room, std::size_t total) {
  std::vector<std::size_t> out(room.size(), 0);
  while (total > 0) {
    std::size_t open = 0;
    std::size_t least = 0;
    for (std::size_t i = 0; i < room.size(); ++i) {
      const std::size_t left = room[i] - out[i];
      if (left == 0) continue;
      least = open == 0 ? left : std::min(least, left);
      ++open;
    }
    if (open == 0) return out;
    const std::size_t rounds = std::min(least, total / open);
    if (rounds == 0) {
      for (std::size_t i = 0; i < room.size() && total > 0; ++i) {
        if (room[i] == out[i]) continue;
        ++out[i];
        --total;
      }
      return out;
    }
    for (std::size_t i = 0; i < room.size(); ++i) {
      if (room[i] == out[i]) continue;
      out[i] += rounds;
      total -= rounds;
    }
  }
  return out;
}

/// `wanted` of the cuts `members` (indices), round over the domains of kSpreadOver[step] and of the steps after it.
std::vector<std::size_t> spread(const Domains& domains, const std::vector<Cut>& cuts, const std::vector<std::size_t>& members,
                                std::size_t wanted, std::size_t step) {
  std::vector<std::size_t> out;
  if (wanted == 0) return out;
  if (step == kSpreadOver.size()) {
    for (std::size_t i = 0; i < wanted; ++i) out.push_back(members[i * members.size() / wanted]);
    return out;
  }
  // Cuts by the domain of their first unit.
  Cut firsts;
  std::map<std::size_t, std::size_t> cut_of;
  for (const std::size_t member : members) {
    firsts.push_back(cuts[member].front());
    cut_of[cuts[member].front()] = member;
  }
  std::sort(firsts.begin(), firsts.end());
  std::vector<std::vector<std::size_t>> parts;
  std::vector<std::size_t> room;
  for (const Cut& group : domains.groups(kSpreadOver[step], firsts)) {
    parts.emplace_back();
    for (const std::size_t first : group) parts.back().push_back(cut_of[first]);
    room.push_back(group.size());
  }
  const std::vector<std::size_t> shares = share_in_turn(room, wanted);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<std::size_t> chosen = spread(domains, cuts, parts[i], shares[i], step + 1);
    out.insert(out.end(), chosen.begin(), chosen.end());
  }
  return out;
}

}  // namespace

Domains::Domains(const Machine& machine, const std::vector<Unit>& units) : all_(units.size()), domain_(units.size()) {
  std::iota(all_.begin(), all_.end(), std::size_t{0});
  using Key = std::tuple<int, int, int, int>;
  std::array<std::map<Key, std::size_t>, kLevels> seen;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Core& core = machine.cores[static_cast<std::size_t>(units[i].core)];
    const std::array<Key, kLevels> keys = {Key{units[i].core, 0, 0, 0},
                                           Key{core.node, core.package, core.l3, core.efficient ? 1 : 0},
                                           Key{core.node, core.package, core.l3, 0},
                                           Key{core.node, core.package, 0, 0},
                                           Key{core.node, 0, 0, 0},
                                           Key{core.package, 0, 0, 0},
                                           Key{}};
    for (std::size_t level = 0; level < kLevels; ++level)
      domain_[i][level] = seen[level].try_emplace(keys[level], seen[level].size()).first->second;
  }
}

std::vector<Cut> Domains::groups(Level level, const Cut& members) const {
  std::vector<Cut> out;
  std::vector<std::size_t> place(all_.size(), all_.size());  // domain number -> index in out
  for (const std::size_t member : members) {
    std::size_t& at = place[domain_[member][index_of(level)]];
    if (at == all_.size()) {
      at = out.size();
      out.emplace_back();
    }
    out[at].push_back(member);
  }
  return out;
}

bool Domains::spans(Level level, const Cut& cut) const {
  return std::any_of(cut.begin(), cut.end(),
                     [&](std::size_t unit) { return domain_[unit][index_of(level)] != domain_[cut.front()][index_of(level)]; });
}

std::size_t Domains::largest(Level level) const {
  std::size_t out = 0;
  for (const Cut& group : groups(level)) out = std::max(out, group.size());
  return out;
}

std::vector<LevelCuts> cut_all(const Domains& domains, std::size_t size, Level last) {
  std::vector<LevelCuts> out;
  Cut left = domains.all();
  for (const Level level : levels_up_to(last)) {
    LevelCuts here{level, {}};
    Cut rest;
    for (const Cut& group : domains.groups(level, left)) {
      const std::size_t whole = group.size() / size * size;
      for (std::size_t at = 0; at < whole; at += size)
        here.cuts.emplace_back(group.begin() + static_cast<std::ptrdiff_t>(at), group.begin() + static_cast<std::ptrdiff_t>(at + size));
      rest.insert(rest.end(), group.begin() + static_cast<std::ptrdiff_t>(whole), group.end());
    }
    std::sort(rest.begin(), rest.end());
    left = std::move(rest);
    if (!here.cuts.empty()) out.push_back(std::move(here));
    if (left.size() < size) break;
  }
  return out;
}

std::size_t count_cuts(const Domains& domains, std::size_t size, Level last) {
  // Leftovers of small domains meet in the larger one, so only the outermost level counts.
  std::size_t out = 0;
  for (const Cut& group : domains.groups(last)) out += group.size() / size;
  return out;
}

std::size_t largest_size(const Domains& domains, std::size_t count, Level last) {
  std::size_t low = 0;
  std::size_t high = domains.all().size() / count;
  while (low < high) {  // the larger the size, the fewer fit
    const std::size_t middle = (low + high + 1) / 2;
    if (count_cuts(domains, middle, last) >= count) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::vector<Cut> pick(const Domains& domains, const std::vector<LevelCuts>& cuts, std::size_t wanted, bool scatter) {
  std::vector<Cut> out;
  for (const LevelCuts& here : cuts) {
    const std::size_t missing = wanted - out.size();
    if (here.cuts.size() <= missing) {
      out.insert(out.end(), here.cuts.begin(), here.cuts.end());
    } else if (scatter) {
      std::vector<std::size_t> members(here.cuts.size());
      std::iota(members.begin(), members.end(), std::size_t{0});
      for (const std::size_t chosen : spread(domains, here.cuts, members, missing, 0)) out.push_back(here.cuts[chosen]);
    } else {
      out.insert(out.end(), here.cuts.begin(), here.cuts.begin() + static_cast<std::ptrdiff_t>(missing));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Cut> deal(const Domains& domains, const Cut& members, std::size_t count) {
  const std::vector<Cut> cores = domains.groups(Level::kCore, members);
  std::vector<Cut> out(count);
  for (std::size_t i = 0, next = 0; i < count; ++i) {
    const std::size_t share = cores.size() / count + (i < cores.size() % count ? 1 : 0);
    for (std::size_t core = 0; core < share; ++core, ++next) out[i].insert(out[i].end(), cores[next].begin(), cores[next].end());
    std::sort(out[i].begin(), out[i].end());
  }
  return out;
}

}  // namespace ipexrun::launcher
