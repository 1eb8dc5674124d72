// The step of attention: our kernel where it computes the call, else stock's operators.
#pragma once

#include <memory>

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// Arguments of the node: query, key, value [batch, heads, rows, depth], dropout_p, is_causal, attn_mask, scale.
std::unique_ptr<Step> make_attention_step(const Node& node);

}  // namespace ipexrun::preload::graph
