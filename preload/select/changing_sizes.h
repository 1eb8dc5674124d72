// Calls of one kind that come in ever other sizes: batches of graphs or sentences. oneDNN builds a kernel for each size, and torch and
// oneDNN keep a thousand of them, some 0.8 MB each for products of bf16. Where that is so, operands that are copied anyway are copied into
// one of few sizes.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

/// Whether a dimension of calls of `kind` came in more than kFewSizes sizes so far, this one included. Any thread; false where another
/// thread asks at the same moment.
bool comes_in_many_sizes(std::uint64_t kind, std::uint64_t size) noexcept;

inline constexpr int kFewSizes = 6;

/// The next of eight sizes an octave: at most an eighth more. Up to 128 as they are.
std::int64_t one_of_few_sizes(std::int64_t size) noexcept;

}  // namespace ipexrun::preload
