// Which kernels may compute a convolution of a graph, and what the duel between them is called.
#pragma once

#include <array>
#include <optional>

#include "kernels/epilogue.h"
#include "preload/plugin/graph/convolution_pack.h"
#include "preload/plugin/graph/duel.h"

namespace ipexrun::preload::graph {

/// Which kernel computes a call, as far as no timing decides. bf16 inside: our product where windows are one pixel, our own convolutions
/// where the CPU has AMX, each channel's own window in float32 (more exact, and as fast); else oneDNN. float32: oneDNN, and our own where
/// each channel has a window of its own and the image is not larger than the caches: docs/performance-kernels.md has them side by side.
Method method_of(const ConvolutionCall& call, const Convolution& convolution, IsaSet isa);

struct Ways {
  std::array<Method, Duel::kMostWays> methods{};
  int count = 0;

  void add(Method method) { methods[static_cast<std::size_t>(count++)] = method; }
  [[nodiscard]] Method at(int way) const { return methods[static_cast<std::size_t>(way)]; }
};

/// method_of() and those beside it of which it is not known who is faster; the one that is less exact than the others, if any, is the last.
/// `all_f32`: every operand is, and the result.
Ways ways_of(const ConvolutionCall& call, const Convolution& convolution, bool all_f32, IsaSet isa);

/// Of the duel between them.
DuelKey duel_key_of(const ConvolutionCall& call, const Convolution& convolution);

bool by_onednn(Method method);

/// For reports, of methods that race; null for others.
const char* name_of_raced(Method method);

bool is_relu(const Convolution& convolution);

/// What linear.h has as an epilogue; nothing where it has none.
std::optional<kernels::Unary> unary_of(const Convolution& convolution);

}  // namespace ipexrun::preload::graph
