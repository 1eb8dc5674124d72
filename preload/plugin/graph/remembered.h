// Decisions about captured modules and graphs (python/ipexrun/capture/capture.py, compiler.py): remembered between processes beside those
// of sites (docs/decisions/0012-decision-cache.md), pinned by a config like them, and told to the launcher.
#pragma once

#include <cstdint>
#include <string>

namespace ipexrun::preload::graph {

/// What is known of (op, key): a choice, "" = nothing. `key` is a name without '|' and tabs; the process's threads, instruction set and
/// torch are added to it. Thread-safe.
std::string recalled(const std::string& op, const std::string& key, bool only_pinned);

/// For processes to come.
struct Found {
  std::string choice;
  std::string reason;
  std::int64_t stock_ns = 0;
  std::int64_t choice_ns = 0;
  std::int64_t samples = 0;
};
void remember(const std::string& op, const std::string& key, const Found& found);

/// Makes torch.classes.ipexrun.Decisions known, and duels (duel.h) remembered.
///
/// recall(op, key): "captured", "stock", the name of a form, or "" where nothing is known; pinned(op, key): likewise, of a config alone.
/// remember(op, key, choice, stock_ns, choice_ns, samples, reason): for processes to come.
/// any(op): whether anything is known about what begins with `op`.
/// tell(op, key, choice, reason, values): one event of a site with its numbers (configs/contract/event.h); the latest of (op, key) counts.
/// tell_graph(where, form, values): likewise of a row of operators, REGION there.
/// Thread-safe; nothing raises.
void register_remembered();

}  // namespace ipexrun::preload::graph
