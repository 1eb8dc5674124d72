// The step of what a program computes from its weights alone (standardized or normalized weights, tables taken by fixed indices): computed
// once, and again when one of the weights was changed, which is asked as for any pack.
//
// Thread rule: as Program.
#pragma once

#include <memory>

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// `inside` of the node: the graph that computes it, of which the inputs are the node's arguments and which has one result. That result is
/// the same tensor as long as the weights are, so it may be packed like a weight; nobody may write into it.
std::unique_ptr<Step> make_weights_step(const Node& node);

}  // namespace ipexrun::preload::graph
