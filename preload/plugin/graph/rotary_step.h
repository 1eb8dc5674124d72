// The step of a rotary position embedding: kernels/rotary.h on tables whose second half repeats the first.
#pragma once

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// What a node that make_rotary_step() reads has in `arguments`.
enum RotaryArgument : std::size_t { kRotaryX, kRotaryCos, kRotarySin };

/// x is [batch, heads, positions, depth]; cos and sin are [batch or 1, 1, positions, depth]. Gives x * cos + (-x2, x1) * sin, where x1 and
/// x2 are the halves of each row of x, in x's dtype; contiguous where `index` is not 0, else in the order of x's strides, as stock has it
/// when the product with cos comes first.
std::unique_ptr<Step> make_rotary_step(const Node& node);

}  // namespace ipexrun::preload::graph
