#include "preload/plugin/graph/convolution_ways.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "configs/contract/env.h"
#include "kernels/linear_f32.h"
#include "kernels/winograd.h"
#include "preload/plugin/adapters/convolution_operators.h"

namespace ipexrun::preload::graph {
namespace {

using kernels::ConvActivation;

/// Beyond it a float32 image of ours, laid out once more, loses to oneDNN.
constexpr std::int64_t kMostOwnF32Bytes = 1 << 20;

/// oneDNN adds a float32 window up in one chain: 4608 products were 1.05e-6 from the truth where stock's operator (another kernel) and
/// ours, which begin anew every 256, were 2.1e-7 and 2.9e-7.
constexpr std::int64_t kLongestOnednnSum = 4096;

constexpr std::int64_t kDuelOfConvolutions = 2;

bool has_onednn(bool bf16 = false) {
  const ConvolutionOperators& known = convolution_operators();
  return known.reorder && known.pointwise && (!bf16 || known.take_bf16);
}

/// Rows and columns of pixels, one group.
bool may_take_windows(const ConvolutionCall& call, const Convolution& convolution) {
  return call.groups == 1 && !call.transposed && call.dims() <= 2 && call.in[0] == 1 && unary_of(convolution).has_value();
}

/// A result by F(4x4, 3x3) is rounded by what lies in its tile outside of its window, too: zeros become 1e-8, whole numbers others, and
/// beside a bright point nothing is left of dark ones. What follows may look closer than any check of whole results does, also outside of
/// the graph.
bool large_tiles() {
  static const bool asked = env::get_flag(env::Id::kLargeTiles);
  return asked;
}

/// Larger tiles of which fewer fit multiply less only where they do not reach far beyond the image.
bool has_fewer_products(const ConvolutionCall& call) {
  const auto products = [&](std::int64_t tile) {
    const auto tiles = [&](std::size_t axis) { return (call.out[axis] + tile - 1) / tile; };
    return tiles(1) * tiles(2) * (tile + 2) * (tile + 2);
  };
  return products(4) < products(2);
}

/// 3 x 3 pixels side by side, without strides.
bool may_take_winograd(const ConvolutionCall& call) {
  const auto is = [](const Spatial& sizes, std::int64_t what) { return sizes[1] == what && sizes[2] == what; };
  return call.dims() == 2 && is(call.kernel, 3) && is(call.stride, 1) && is(call.dilation, 1);
}

bool has_parts_by_tiles(const ConvolutionCall& call, IsaSet isa) {
  kernels::WinogradArgs args;
  args.images = call.x->size(0);
  for (std::size_t i = 0; i < 2; ++i) args.out[i] = call.out[i + 1];
  args.channels = call.in_channels();
  args.n = call.out_channels();
  return kernels::winograd_has_parts(args, isa);
}

}  // namespace

bool is_relu(const Convolution& convolution) {
  return convolution.activation == ConvActivation::kClamp && convolution.low == 0 && std::isinf(convolution.high);
}

/// What linear.h has as an epilogue; nothing where it has none.
std::optional<kernels::Unary> unary_of(const Convolution& convolution) {
  switch (convolution.activation) {
    case ConvActivation::kNone:
      return kernels::Unary::kNone;
    case ConvActivation::kClamp:
      return is_relu(convolution) ? std::optional(kernels::Unary::kRelu) : std::nullopt;
    case ConvActivation::kSilu:
      return kernels::Unary::kSilu;
    case ConvActivation::kGelu:
      return kernels::Unary::kGelu;
    case ConvActivation::kGeluTanh:
      return kernels::Unary::kGeluTanh;
    case ConvActivation::kHardswish:
      break;
  }
  return std::nullopt;
}

Method method_of(const ConvolutionCall& call, const Convolution& convolution, IsaSet isa) {
  if (!call.meets_image()) return Method::kStock;
  const bool own_f32 = call.depthwise() && kernels::conv_supported(call.kernel_args(kernels::DType::kF32), isa);
  if (convolution.bf16) {
    if (call.pointwise() && unary_of(convolution) && kernels::linear_bf16_supported(call.linear_args(), isa)) return Method::kProduct;
    if (own_f32) return Method::kOwnF32;
    if (!call.depthwise() && kernels::conv_supported(call.kernel_args(kernels::DType::kBf16), isa)) return Method::kOwnBf16;
    return has_onednn(true) ? Method::kOnednnBf16 : Method::kStock;
  }
  if (own_f32 && call.x->numel() / call.x->size(0) * 4 <= kMostOwnF32Bytes) return Method::kOwnF32;
  return has_onednn() ? Method::kOnednnF32 : Method::kStock;
}

Ways ways_of(const ConvolutionCall& call, const Convolution& convolution, bool all_f32, IsaSet isa) {
  Ways ways;
  const Method first = method_of(call, convolution, isa);
  ways.add(first);
  if (first == Method::kOnednnF32 && all_f32 && may_take_windows(call, convolution)) {
    kernels::LinearF32Args args;
    args.m = call.x->size(0) * call.out[1] * call.out[2];
    args.n = call.out_channels();
    args.k = call.depth();
    const bool windows = kernels::linear_f32_supported(args, isa);
    if (windows && call.depth() > kLongestOnednnSum) ways.count = 0;
    if (windows) ways.add(Method::kWindowsF32);
    if (windows && kernels::linear_f32_has_parts(args, isa)) ways.add(Method::kPartsF32);
    if (windows && may_take_winograd(call) && kernels::winograd_supported(call.in_channels(), call.out_channels(), false, 2, isa)) {
      ways.add(Method::kWinogradF32);
      if (has_parts_by_tiles(call, isa)) ways.add(Method::kWinogradPartsF32);
      if (large_tiles() && has_fewer_products(call)) ways.add(Method::kWinogradLargeF32);
    }
  }
  if (isa_has(isa, kIsaAmxBf16)) return ways;  // with tiles ours were ahead everywhere: docs/performance-kernels.md
  if (first == Method::kOnednnBf16 && may_take_windows(call, convolution)) {
    const kernels::ImageWindows any;
    kernels::LinearArgs args;
    args.m = args.n = 1;
    args.k = call.depth();
    args.windows = &any;
    const bool windows = kernels::linear_bf16_supported(args, isa);
    if (windows) ways.add(Method::kWindowsBf16);
    if (windows && may_take_winograd(call) && kernels::winograd_supported(call.in_channels(), call.out_channels(), true, 2, isa))
      ways.add(Method::kWinogradBf16);
  }
  if (first == Method::kProduct && has_onednn(true)) ways.add(Method::kOnednnBf16);
  return ways;
}

bool by_onednn(Method method) { return method == Method::kOnednnBf16 || method == Method::kOnednnF32; }

const char* name_of_raced(Method method) {
  switch (method) {
    case Method::kStock:
    case Method::kOwnBf16:
    case Method::kOwnF32:
      break;
    case Method::kProduct:
      return "products";
    case Method::kOnednnBf16:
    case Method::kOnednnF32:
      return "oneDNN's";
    case Method::kWindowsF32:
    case Method::kWindowsBf16:
      return "windows";
    case Method::kPartsF32:
      return "parts of bf16";
    case Method::kWinogradF32:
    case Method::kWinogradBf16:
      return "F(2x2, 3x3)";
    case Method::kWinogradPartsF32:
      return "F(2x2, 3x3) of parts of bf16";
    case Method::kWinogradLargeF32:
      return "F(4x4, 3x3)";
  }
  return nullptr;
}

DuelKey duel_key_of(const ConvolutionCall& call, const Convolution& convolution) {
  std::vector<std::int64_t> detail{
      call.in_channels(), call.x->size(0), static_cast<std::int64_t>(convolution.activation),
      static_cast<std::int64_t>(convolution.other != kNone) << 1 | static_cast<std::int64_t>(convolution.other_after),
      static_cast<std::int64_t>(convolution.bf16) << 1 | static_cast<std::int64_t>(convolution.bf16_out)};
  for (const Spatial* sizes : {&call.in, &call.kernel, &call.stride, &call.padding, &call.dilation}) {
    detail.insert(detail.end(), sizes->begin(), sizes->end());
  }
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const std::int64_t value : detail)
    digest = (digest ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15u, digest ^= digest >> 29;
  return {kDuelOfConvolutions, call.x->size(0) * call.out[1] * call.out[2], call.out_channels(),
          call.depth(),        static_cast<std::int64_t>(digest),           at::get_num_threads()};
}

}  // namespace ipexrun::preload::graph
