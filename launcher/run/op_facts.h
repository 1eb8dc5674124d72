// What the op tier of one instance left in its event file: the events OP, SITE, DRIFT, REGION and TOTALS (configs/contract/event.h), latest
// state of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/contract/event.h"

namespace ipexrun::launcher {

/// Totals of one op.
struct OpFact {
  std::string op;  ///< "addmm", "bmm.out"
  std::int64_t calls = 0;
  std::int64_t taken = 0;
  std::int64_t declined = 0;  ///< never came to selection
  std::int64_t stock_ns = 0;  ///< what stock would have taken for the calls taken
  std::int64_t saved_ns = 0;
  std::int64_t sites = 0;
  std::vector<std::pair<std::string, std::int64_t>> reasons;  ///< of `declined`: {"small", 12}; most frequent first
};

/// One kind of call.
struct SiteFact {
  std::string key;  ///< SiteKey::text()
  std::string choice;
  std::string reason;
  std::int64_t calls = 0;
  std::int64_t taken = 0;
  std::int64_t stock_ns = 0;  ///< median of one call
  std::int64_t choice_ns = 0;
  std::int64_t samples = 0;

  [[nodiscard]] std::string op() const { return key.substr(0, key.find('|')); }
  [[nodiscard]] double saved_ns() const { return static_cast<double>(taken) * static_cast<double>(stock_ns - choice_ns); }
};

/// Whole passes that were computed twice before bf16 might answer (docs/decisions/0013-drift.md). What is counted as let through, left
/// in float32 and waiting: weights, and sites of ops without weights.
struct DriftFact {
  std::int64_t checks = 0;      ///< that came to an end
  std::int64_t failed = 0;      ///< of these: beyond IPEXRUN_DRIFT_BOUND
  std::int64_t unfinished = 0;  ///< came to no end
  std::int64_t let_through = 0;
  std::int64_t left_in_float32 = 0;
  std::int64_t waiting = 0;
  std::optional<double> largest;  ///< drift of the checks within the bound

  /// "8 of 30 weights and sites left in float32 (drift)"; "" = there is nothing that a user would have to know.
  [[nodiscard]] std::string text() const;
};

/// A module that the program called again and again (docs/capture.md), or an optimizer (docs/training.md); the site's key begins with
/// "module:" or "optimizer:" and its class.
struct ModuleFact : SiteFact {
  [[nodiscard]] std::string name() const { return op().substr(op().find(':') + 1); }
  [[nodiscard]] double speed() const { return choice_ns > 0 ? static_cast<double>(stock_ns) / static_cast<double>(choice_ns) : 0; }
};

/// A row of operators in a captured graph: of torch.compile, of a captured module or of TorchScript.
struct RegionFact {
  std::string where;  ///< module or line of the program's text
  std::string form;   ///< which form answers and what is fused in it, or why stock's does
  std::int64_t nodes = 0;
  std::int64_t calls = 0;
  std::int64_t taken = 0;
  double speed = 0;  ///< times stock's; 0 = not decided
  double error = 0;  ///< of results, relative
};

/// An operator inside captured graphs: how often it stands there, and the time that it would have taken in the calls that programs of
/// ipexrun answered; before: as captured, by torch's kernels, after: in the programs.
struct OpTimeFact {
  std::string op;
  std::int64_t before = 0;
  std::int64_t before_ns = 0;
  std::int64_t after = 0;
  std::int64_t after_ns = 0;
};

struct OpFacts {
  std::vector<OpFact> ops;          ///< most time saved first; from the sites where the process was ended before it wrote totals
  std::vector<SiteFact> sites;      ///< most time saved first
  std::vector<ModuleFact> modules;  ///< captured ones first
  std::vector<RegionFact> regions;  ///< most calls taken first
  std::vector<OpTimeFact> times;    ///< longest first
  std::optional<DriftFact> drift;   ///< nullopt: nothing had to be checked
  std::int64_t pack_bytes = 0;

  [[nodiscard]] std::int64_t calls() const;
  [[nodiscard]] std::int64_t taken() const;
};

OpFacts op_facts_of(const std::vector<IpexrunEvent>& events);

/// "36 of 48 linear calls, 53 of 53 convolutions"; ops with no word of their own by their name. With `kept`: "48 linear calls, 53
/// convolutions".
std::string calls_by_kind(const std::vector<OpFact>& ops, bool kept = false);

/// "BertModel captured (4.2x), Head stock"; "" without modules.
std::string modules_text(const std::vector<ModuleFact>& modules);

/// "43 MB".
std::string bytes_text(std::int64_t bytes);

}  // namespace ipexrun::launcher
