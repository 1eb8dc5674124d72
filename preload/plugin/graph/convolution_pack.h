// The weight of a convolution of a graph, packed once with the batch norm that was folded into it.
#pragma once

#include "preload/plugin/adapters/convolution_call.h"
#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// A batch norm's tensors as they are now; `mean` undefined: there is none.
struct Norm {
  at::Tensor mean;
  at::Tensor variance;
  at::Tensor scale;
  at::Tensor shift;
  double eps = 0;

  [[nodiscard]] bool any() const { return mean.defined(); }
};

/// Which kernel a pack is for. The first four are the op tier's, with their packs where nothing is folded.
enum class Method : int {
  kStock = 0,
  kProduct,     ///< linear.h: windows of one pixel
  kOwnBf16,     ///< conv.h
  kOwnF32,      ///< conv.h: each channel has a window of its own
  kOnednnBf16,  ///< mkldnn::_convolution_pointwise
  kOnednnF32,
  kWindowsF32,        ///< linear_f32.h over windows
  kWindowsBf16,       ///< linear.h over windows
  kPartsF32,          ///< linear_f32.h's parts over windows, by the pack of kWindowsF32
  kWinogradF32,       ///< winograd.h, tiles of 2 x 2
  kWinogradPartsF32,  ///< the same by winograd.h's parts, by the pack of kWinogradF32
  kWinogradBf16,
  kWinogradLargeF32,  ///< winograd.h, tiles of 4 x 4: less exact than the others
};

bool is_winograd(Method method);
/// Of a method of winograd.h: results of a tile, down and across.
int winograd_tile(Method method);
/// The method whose pack this one takes.
Method pack_of(Method method);

struct Folded {
  std::shared_ptr<const TensorPack> weight;            ///< null: there is no room for it, or no such kernel
  at::Tensor bias;                                     ///< undefined: none
  kernels::DType weight_dtype = kernels::DType::kF32;  ///< of a pack of conv.h: what the weight was packed from is float32 or bf16
};

/// The pack of `call`'s weight for `method`, from the weight table: made at the first use, and again when one of the tensors behind it has
/// changed. The weight is checked as the table does it, the others, which are short, in full.
Folded packed(TierState& state, const ConvolutionCall& call, const Norm& norm, Method method);

/// Another method answers from now on.
void forget_pack(TierState& state, const ConvolutionCall& call, const Norm& norm, Method method);

/// What a batch norm makes of a weight [Co, ...] and the bias before it, which may be undefined: both in float32, computed in double.
std::pair<at::Tensor, at::Tensor> fold(const at::Tensor& weight, const at::Tensor& bias, const Norm& norm);

}  // namespace ipexrun::preload::graph
