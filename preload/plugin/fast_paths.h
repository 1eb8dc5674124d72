// The fast paths of nn.TransformerEncoderLayer and nn.MultiheadAttention in eval mode: one operator each, which makes views of the
// parameters below autograd. Such a view has a version counter of its own, always 0; the parameter's, which moves with its bytes, is known
// to the operator alone.
#pragma once

#include <cstdint>
#include <optional>

namespace ipexrun::preload {

/// Inside such an operator of this thread: the version of the parameter that owns `storage` (a StorageImpl, compared and never read). Empty
/// where there is none, or more than one, or one that counts nothing.
std::optional<std::int64_t> version_in_fast_path(const void* storage) noexcept;

}  // namespace ipexrun::preload
