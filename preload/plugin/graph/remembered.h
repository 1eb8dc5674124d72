// Decisions about captured modules and graphs (python/ipexrun/capture.py, compiler.py): remembered between processes beside those of sites
// (docs/decisions/0012-decision-cache.md), pinned by a config like them, and told to the launcher.
#pragma once

namespace ipexrun::preload::graph {

/// Makes torch.classes.ipexrun.Decisions known.
///
/// recall(op, key): "captured", "stock", the name of a form, or "" where nothing is known; pinned(op, key): likewise, of a config alone.
/// remember(op, key, choice, stock_ns, choice_ns, samples, reason): for processes to come.
/// any(op): whether anything is known about what begins with `op`.
/// tell(op, key, choice, reason, values): one event of a site with its numbers (configs/contract/event.h); the latest of (op, key) counts.
/// tell_graph(where, form, values): likewise of a row of operators, REGION there.
/// `key` is a name without '|' and tabs; the process's threads, instruction set and torch are added to it. Thread-safe; nothing raises.
void register_remembered();

}  // namespace ipexrun::preload::graph
