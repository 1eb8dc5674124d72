// The accuracy rule for a whole module: its results beside stock's, which stand for the truth unless exact ones are there.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace ipexrun::preload::graph {

inline constexpr double kModuleF32Error = 1e-6;   ///< float32 inside
inline constexpr double kModuleBf16Error = 3e-2;  ///< bf16 inside
/// While a form with bf16 inside is tried. Of networks with random weights the worst of 24 batches lay up to 1.3 times as far from stock as
/// the worst of the first four.
inline constexpr double kBf16ErrorToWin = 0.8 * kModuleBf16Error;
inline constexpr double kModuleCosine = 0.999;  ///< likewise

struct Likeness {
  /// Dtypes, sizes and strides agree, integers, booleans and results that are whole numbers throughout are equal, NaN and infinities lie at
  /// the same places.
  bool same_kind = true;
  /// RMS(mine - stock) / RMS(stock) of the worst sample of the worst result; 0/0 = 0. With exact results: what the error exceeds twice
  /// stock's by.
  double error = 0;
  double cosine = 1;  ///< of the worst sample
};

/// A sample is what has one index in the first dimension. Both are results of one call; `exact`, none or as many, those of the same call in
/// float64, which stand for the truth where stock is within 1e-2 of them.
Likeness compare(const std::vector<std::optional<at::Tensor>>& stock, const std::vector<std::optional<at::Tensor>>& mine,
                 const std::vector<std::optional<at::Tensor>>& exact = {});

/// Counts, votes, numbers of a table, and not ones and zeros alone: a program that gets such numbers compares them. What a form with bf16
/// inside found of them was exact by being small.
bool counts(const std::optional<at::Tensor>& result);

}  // namespace ipexrun::preload::graph
