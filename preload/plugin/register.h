// The op tier's entries in torch's dispatcher.
#pragma once

#include <string>

namespace ipexrun::preload {

/// False while libtorch has not registered its own CPU kernels yet.
bool dispatcher_ready();

/// Puts the adapters of ops.def and the optimizer watchers in place. An op for which somebody else registered a CPU kernel before
/// us stays theirs. Returns the names of those, comma separated.
std::string register_ops();

/// Fused optimizers write weights without moving their version: each is wrapped so that it drops the packs it makes stale.
void register_optimizers();
/// Numbers that a training loop reads out of tensors: a loss that is NaN is noticed even where the program then skips its backward pass.
void register_losses();
/// Masks of dropout: torch's bits, drawn vector by vector.
void register_random_masks();
/// Gradients of group norms that torch's kernel ends the process at.
void register_group_norms();
/// Watchers of optimizers alone, in a process whose other kernels stay stock.
void watch_optimizers();
/// Fast paths of nn.TransformerEncoderLayer and nn.MultiheadAttention (fast_paths.h).
void register_fast_paths();

}  // namespace ipexrun::preload
