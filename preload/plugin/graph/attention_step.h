// The step of attention: our kernel where it computes the call, else stock's operators.
#pragma once

#include <memory>

#include "preload/plugin/graph/executor.h"
#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// Arguments of the node: query, key, value [batch, heads, rows, depth], dropout_p, is_causal, attn_mask, scale; of attention that the
/// program wrote out, behind them three for each of its masks, in its order: what is added or says where, the number that is filled in
/// there (or None), whether that is where it says not.
std::unique_ptr<Step> make_attention_step(const Node& node);

/// Whether such a node has it in a mask.
bool is_mask(const Node& node, Value value);

}  // namespace ipexrun::preload::graph
