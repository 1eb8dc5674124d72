#include "preload/plugin/graph/convolution_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sub.h>

#include <cmath>
#include <cstdint>
#include <new>

#include "kernels/linear_f32.h"
#include "kernels/winograd.h"
#include "preload/plugin/adapters/convolution_operators.h"
#include "preload/plugin/adapters/images.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/graph/convolution_ways.h"
#include "preload/plugin/graph/linear_step.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/select/clock.h"

namespace ipexrun::preload::graph {
namespace {

using kernels::ConvActivation;

constexpr int kMostRefused = 3;

/// In place.
at::Tensor activated(at::Tensor x, const Convolution& convolution) {
  switch (convolution.activation) {
    case ConvActivation::kNone:
      break;
    case ConvActivation::kClamp:
      return is_relu(convolution) ? at::relu_(x) : at::hardtanh_(x, convolution.low, convolution.high);
    case ConvActivation::kHardswish:
      return at::hardswish_(x);
    case ConvActivation::kSilu:
      return at::silu_(x);
    case ConvActivation::kGelu:
      return at::gelu_(x);
    case ConvActivation::kGeluTanh:
      return at::gelu_(x, "tanh");
  }
  return x;
}

/// oneDNN's words for an activation. Its relu, its clamp and its gelu by erf lose NaN: they are no part of the call.
struct Attribute {
  const char* name = nullptr;  ///< null: stock's operator follows
  std::optional<c10::string_view> algorithm;
};

Attribute attribute_of(const Convolution& convolution) {
  switch (convolution.activation) {
    case ConvActivation::kNone:
      return {"none", std::nullopt};
    case ConvActivation::kHardswish:
      return {"hardswish", std::nullopt};
    case ConvActivation::kSilu:
      return {"swish", std::nullopt};
    case ConvActivation::kGeluTanh:
      return {"gelu", "tanh"};
    case ConvActivation::kClamp:
    case ConvActivation::kGelu:
      break;
  }
  return {};
}

bool kernels_read(const at::Tensor& tensor) { return dtype_fits(tensor.scalar_type()) && plain(tensor); }

/// Dense, with the channels of a pixel side by side.
at::Tensor channels_last(const at::Tensor& image, at::ScalarType dtype, IsaSet isa) {
  return for_onednn(image, dtype, isa).contiguous(last_format(image));
}

/// Nobody else sees its memory, which is what a result of these sizes would have.
bool ours_alone(const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.sizes() == sizes && tensor.scalar_type() == dtype &&
         tensor.is_contiguous(format);
}

void read(const std::vector<std::int64_t>& from, Spatial* to) {
  std::copy(from.begin(), from.end(), to->end() - static_cast<std::ptrdiff_t>(from.size()));
}

/// With its zeros around it, where there are others in front than behind: stock's operators do not know that.
at::Tensor padded(const at::Tensor& image, const Convolution& convolution) {
  std::vector<std::int64_t> pads;
  for (std::size_t i = convolution.padding.size(); i-- > 0;) pads.insert(pads.end(), {convolution.padding[i], convolution.behind[i]});
  return at::constant_pad_nd(image, pads, 0);
}

}  // namespace

struct ConvolutionStep::Operands {
  const at::Tensor& x;
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& other;
  Norm norm;
};

namespace {

bool all_f32(const ConvolutionStep::Operands& operands, const Convolution& convolution) {
  const auto is_f32 = [](const at::Tensor& tensor) { return !tensor.defined() || tensor.scalar_type() == at::kFloat; };
  return is_f32(operands.x) && is_f32(operands.weight) && is_f32(operands.bias) && is_f32(operands.other) && !convolution.bf16_out;
}

/// Relative RMS that results by tiles may be apart from those of windows: half of what the accuracy rule has for an operator. Near the
/// edges of small images tiles lose digits that windows do not.
constexpr double kApartF32 = 5e-7;
constexpr double kApartBf16 = 1e-2;
/// Of larger tiles, 4e-7 to 9e-7: all that the rule has for an operator beyond twice stock's own error. What they come to in a whole module
/// is judged there (Step::be_exact()).
constexpr double kApartLargeF32 = 1e-6;

double apart(Method method) {
  return method == Method::kWinogradBf16 ? kApartBf16 : method == Method::kWinogradLargeF32 ? kApartLargeF32 : kApartF32;
}

bool near_enough(const at::Tensor& result, const at::Tensor& exact, double most) {
  const auto norm = [](const at::Tensor& of) { return at::linalg_vector_norm(of, 2, std::nullopt, false, at::kDouble).item<double>(); };
  return norm(result.to(at::kFloat) - exact.to(at::kFloat)) <= most * norm(exact.to(at::kFloat));
}

kernels::ImageWindows windows_of(const ConvolutionCall& call, const at::Tensor& image) {
  kernels::ImageWindows windows;
  const kernels::ConvStrides strides = kernel_strides(image);
  windows.channels = call.in_channels();
  for (std::size_t i = 0; i < 2; ++i) {
    windows.in[i] = call.in[i + 1];
    windows.out[i] = call.out[i + 1];
    windows.kernel[i] = call.kernel[i + 1];
    windows.stride[i] = call.stride[i + 1];
    windows.padding[i] = call.padding[i + 1];
    windows.dilation[i] = call.dilation[i + 1];
  }
  windows.image_stride = strides.image;
  windows.row_stride = strides.axis[1];
  windows.pixel_stride = strides.axis[2];
  return windows;
}

}  // namespace

ConvolutionStep::ConvolutionStep(const Node& node) : convolution_(node.convolution), output_(node.outputs[0]) {}

void ConvolutionStep::run(Values& values) const {
  const Convolution& c = convolution_;
  const Operands operands{
      tensor_of(values, c.x),
      tensor_of(values, c.weight),
      tensor_of(values, c.bias),
      tensor_of(values, c.other),
      {tensor_of(values, c.mean), tensor_of(values, c.variance), tensor_of(values, c.scale), tensor_of(values, c.shift), c.eps}};
  at::Tensor result = run_own(operands);
  if (!result.defined()) result = run_stock(operands);
  values[static_cast<std::size_t>(output_)] = std::move(result);
}

bool ConvolutionStep::describe(const Operands& operands, ConvolutionCall* call) const {
  const at::Tensor& x = operands.x;
  if (!kernels_read(x) || !kernels_read(operands.weight) || x.dim() != operands.weight.dim() || x.numel() == 0) return false;
  if (x.dim() != static_cast<std::int64_t>(convolution_.stride.size()) + 2) return false;
  for (const at::Tensor* each : {&operands.bias, &operands.other}) {
    if (each->defined() && !kernels_read(*each)) return false;
  }
  call->x = &x;
  call->w = &operands.weight;
  call->dtype = operands.weight.scalar_type();
  call->bias = operands.bias.defined() ? &operands.bias : nullptr;
  call->groups = convolution_.groups;
  read(convolution_.stride, &call->stride);
  read(convolution_.padding, &call->padding);
  read(convolution_.dilation, &call->dilation);
  for (std::size_t i = 0; i < convolution_.behind.size(); ++i) {
    call->more_behind[3 - convolution_.behind.size() + i] = convolution_.behind[i] - convolution_.padding[i];
  }
  call->describe_sizes();
  return call->sizes_fit();
}

at::Tensor ConvolutionStep::run_own(const Operands& operands) const {
  TierState* state = tier();
  ConvolutionCall call;
  if (state == nullptr || !allowed_here() || !describe(operands, &call)) return {};
  const ForkGate::Passage passage(state->fork_gate);
  if (!passage) return {};
  const IsaSet isa = state->options.isa;
  const Ways ways = ways_of(call, convolution_, all_f32(operands, convolution_), isa);
  if (ways.at(0) == Method::kStock) return {};
  Duel* duel = ways.count > 1 ? duel_of(duel_key_of(call, convolution_)) : nullptr;
  const bool open = duel != nullptr && !duel->decided();
  const bool closer = exact_.load(std::memory_order_relaxed) && ways.at(ways.count - 1) == Method::kWinogradLargeF32;
  const int count = ways.count - (closer ? 1 : 0);
  int way = duel == nullptr ? 0 : duel->way(count, tried_);
  if (way >= count) way = duel->is_out(count - 1) ? 0 : count - 1;  // smaller tiles
  if (closer && tried_.has(count)) {
    forget_pack(*state, call, operands.norm, Method::kWinogradLargeF32);
    tried_.remove(count);
  }
  const bool counts = tried_.has(way);
  if (duel != nullptr && !open && tried_.forget()) {
    for (int other = 0; other < ways.count; ++other) {
      if (other == way || pack_of(ways.at(other)) == pack_of(ways.at(way))) continue;
      forget_pack(*state, call, operands.norm, pack_of(ways.at(other)));
      tried_.remove(other);
    }
  }
  const std::int64_t started_ns = open ? steady_clock().now_ns() : 0;
  at::Tensor result = run_method(operands, call, ways.at(way), isa);
  if (way != 0 && !result.defined()) {
    // There is no room for another pack, or numbers are such that this way may not be taken.
    if (open || refused_.fetch_add(1, std::memory_order_relaxed) >= kMostRefused) duel->failed(way, count);
    return run_method(operands, call, ways.at(0), isa);
  }
  if (is_winograd(ways.at(way)) && open && duel->is_new(way)) {
    // Not beside oneDNN's, whose long sums may be further from the truth than tiles are.
    at::Tensor exact = run_method(operands, call, convolution_.bf16 ? Method::kWindowsBf16 : Method::kWindowsF32, isa);
    if (exact.defined() && !near_enough(result, exact, apart(ways.at(way)))) {
      duel->failed(way, count);
      return exact;
    }
  }
  if (open && result.defined()) duel->took(way, count, steady_clock().now_ns() - started_ns, counts);
  if (duel != nullptr && result.defined()) {
    tried_.add(way);
    raced_.store(ways.at(way), std::memory_order_relaxed);
  }
  if (open && !result.defined()) duel->failed(way, count);
  return result;
}

bool ConvolutionStep::be_exact() const {
  return !exact_.exchange(true, std::memory_order_relaxed) && raced_.load(std::memory_order_relaxed) == Method::kWinogradLargeF32;
}

at::Tensor ConvolutionStep::run_method(const Operands& operands, const ConvolutionCall& call, Method method, IsaSet isa) const {
  const Folded folded = packed(*tier(), call, operands.norm, pack_of(method));
  if (folded.weight == nullptr) return {};
  const at::ScalarType dtype = convolution_.bf16_out ? at::kBFloat16 : operands.weight.scalar_type();
  const bool last = convolution_.layout == Layout::kUnknown ? asks_for_channels_last(operands.x) || asks_for_channels_last(operands.weight)
                                                            : convolution_.layout == Layout::kChannelsLast;
  at::Tensor result;
  if (by_onednn(method)) {
    result = run_onednn(operands, call, method, folded, isa);
  } else if (pack_of(method) == Method::kWindowsF32) {
    result = run_windows(operands, call, method, folded, isa);
  } else {
    // What is put into planar order is converted there: half the memory on the way.
    const at::ScalarType kept = convolution_.bf16 && !last && method != Method::kOwnF32 ? at::kBFloat16 : dtype;
    result = is_winograd(method) ? run_winograd(operands, call, method, folded, kept, isa)
                                 : run_kernel(operands, call, method, folded, kept, isa);
  }
  if (!result.defined()) return {};
  result = as_stock(result, dtype, last, isa);
  return operands.x.dim() == 3 ? result.squeeze(2) : result;
}

at::Tensor ConvolutionStep::run_kernel(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                       at::ScalarType dtype, IsaSet isa) const {
  const at::Tensor wide = widened(operands.x);
  const at::Tensor image = method == Method::kProduct && !wide.is_contiguous(last_format(wide)) ? channels_last(wide, at::kBFloat16, isa)
                           : method == Method::kOwnF32 ? with_channels_last(wide, wide.scalar_type(), isa)
                                                       : with_channels_last(wide, at::kBFloat16, isa);
  std::array<std::int64_t, 5> sizes{image.size(0), call.out_channels()};
  const auto dims = static_cast<std::size_t>(image.dim());
  for (std::size_t i = 2; i < dims; ++i) sizes[i] = call.out[3 - (dims - i)];
  // A sum is written where its second part lies, if nothing else does: a third image less in the caches.
  const bool in_place =
      reuses_other_ && operands.other.defined() && ours_alone(operands.other, {sizes.data(), dims}, dtype, last_format(image));
  at::Tensor result = in_place ? operands.other : scratch_empty({sizes.data(), dims}, dtype, last_format(image));
  at::Tensor other;
  if (in_place) {
    other = result;
  } else if (operands.other.defined()) {
    other = widened(operands.other);
    if (other.scalar_type() != dtype || !other.is_contiguous(last_format(other))) other = channels_last(other, dtype, isa);
  }
  const auto checked = [&](bool done) {
    if (!done && in_place) throw std::bad_alloc();  // memory was short, and what stock would add is no longer there
    return done ? result : at::Tensor();
  };
  if (method == Method::kProduct || method == Method::kWindowsBf16) {
    kernels::LinearArgs args = call.linear_args();
    kernels::ImageWindows windows;
    if (method == Method::kWindowsBf16) {
      windows = windows_of(call, image);
      args.m = image.size(0) * call.out[1] * call.out[2];
      args.k = args.lda = call.depth();
      args.n = args.ldc = call.out_channels();
      args.windows = &windows;
    }
    args.a = image.const_data_ptr();
    args.a_dtype = kernel_dtype(image);
    args.c = result.mutable_data_ptr();
    args.c_dtype = kernel_dtype(result);
    args.packed_b = folded.weight->packed().const_data_ptr();
    if (folded.bias.defined()) {
      args.bias = folded.bias.const_data_ptr();
      args.bias_dtype = kernel_dtype(folded.bias);
    }
    args.epilogue.unary = *unary_of(convolution_);
    if (other.defined()) {
      args.epilogue.binary = kernels::Binary::kAdd;
      args.epilogue.binary_first = !convolution_.other_after;
      args.epilogue.other = other.const_data_ptr();
      args.epilogue.other_dtype = kernel_dtype(other);
      args.epilogue.ld_other = call.out_channels();
    }
    return checked(kernels::linear_bf16(args, torch_pool(), isa));
  }
  kernels::ConvArgs args = call.kernel_args(method == Method::kOwnBf16 ? kernels::DType::kBf16 : folded.weight_dtype);
  args.from = image.const_data_ptr();
  args.from_dtype = kernel_dtype(image);
  args.from_strides = kernel_strides(image);
  args.to = result.mutable_data_ptr();
  args.to_dtype = kernel_dtype(result);
  args.to_strides = kernel_strides(result);
  args.packed = folded.weight->packed().const_data_ptr();
  if (folded.bias.defined()) {
    args.bias = folded.bias.const_data_ptr();
    args.bias_dtype = kernel_dtype(folded.bias);
  }
  if (other.defined()) {
    args.residual = other.const_data_ptr();
    args.residual_strides = kernel_strides(other);
    args.residual_after = convolution_.other_after;
  }
  args.activation = convolution_.activation;
  args.low = convolution_.low;
  args.high = convolution_.high;
  return checked(kernels::convolve(args, torch_pool(), isa));
}

at::Tensor ConvolutionStep::run_windows(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                        IsaSet isa) const {
  const at::Tensor image = with_channels_last(widened(operands.x), at::kFloat, isa);
  std::array<std::int64_t, 4> sizes{image.size(0), call.out_channels(), call.out[1], call.out[2]};
  const bool in_place = reuses_other_ && operands.other.defined() && ours_alone(operands.other, sizes, at::kFloat, last_format(image));
  at::Tensor result = in_place ? operands.other : scratch_empty(sizes, at::kFloat, last_format(image));
  at::Tensor other = in_place ? result : operands.other;
  if (other.defined() && !in_place) {
    other = widened(other);
    if (other.scalar_type() != at::kFloat || !other.is_contiguous(last_format(other))) other = channels_last(other, at::kFloat, isa);
  }
  const kernels::ImageWindows windows = windows_of(call, image);
  kernels::LinearF32Args args;
  args.parts = method == Method::kPartsF32;
  args.m = image.size(0) * call.out[1] * call.out[2];
  args.k = args.lda = call.depth();
  args.n = args.ldc = call.out_channels();
  args.a = image.const_data_ptr();
  if (!call.pointwise() || windows.pixel_stride != windows.channels || windows.row_stride != windows.channels * windows.in[1] ||
      windows.image_stride != windows.row_stride * windows.in[0]) {
    args.windows = &windows;
  }
  args.c = result.mutable_data_ptr();
  args.packed_b = folded.weight->packed().const_data_ptr();
  if (folded.bias.defined()) args.bias = folded.bias.const_data_ptr();
  args.epilogue.unary = *unary_of(convolution_);
  if (other.defined()) {
    args.epilogue.binary = kernels::Binary::kAdd;
    args.epilogue.binary_first = !convolution_.other_after;
    args.epilogue.other = other.const_data_ptr();
    args.epilogue.ld_other = call.out_channels();
  }
  const bool done = kernels::linear_f32(args, torch_pool(), isa);
  if (!done && in_place) throw std::bad_alloc();  // what stock would add is no longer there
  return done ? result : at::Tensor();
}

at::Tensor ConvolutionStep::run_winograd(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                         at::ScalarType dtype, IsaSet isa) const {
  const at::Tensor image = with_channels_last(widened(operands.x), method == Method::kWinogradBf16 ? at::kBFloat16 : at::kFloat, isa);
  at::Tensor other = operands.other;
  if (other.defined()) {
    other = widened(other);
    if (other.scalar_type() != dtype || !other.is_contiguous(last_format(other))) other = channels_last(other, dtype, isa);
  }
  // Not where the other part of a sum lies: it is needed once more where this one refuses.
  at::Tensor result = scratch_empty({image.size(0), call.out_channels(), call.out[1], call.out[2]}, dtype, last_format(image));
  const kernels::ConvStrides strides = kernel_strides(image);
  kernels::WinogradArgs args;
  args.bf16 = method == Method::kWinogradBf16;
  args.parts = method == Method::kWinogradPartsF32;
  args.tile = winograd_tile(method);
  args.from = image.const_data_ptr();
  args.from_dtype = kernel_dtype(image);
  args.images = image.size(0);
  for (std::size_t i = 0; i < 2; ++i) {
    args.in[i] = call.in[i + 1];
    args.out[i] = call.out[i + 1];
    args.padding[i] = call.padding[i + 1];
  }
  args.image_stride = strides.image;
  args.row_stride = strides.axis[1];
  args.pixel_stride = strides.axis[2];
  args.channels = call.in_channels();
  args.packed = folded.weight->packed().const_data_ptr();
  if (folded.bias.defined()) {
    args.bias = folded.bias.const_data_ptr();
    args.bias_dtype = kernel_dtype(folded.bias);
  }
  args.to = result.mutable_data_ptr();
  args.to_dtype = kernel_dtype(result);
  args.n = args.ld_to = call.out_channels();
  args.epilogue.unary = *unary_of(convolution_);
  if (other.defined()) {
    args.epilogue.binary = kernels::Binary::kAdd;
    args.epilogue.binary_first = !convolution_.other_after;
    args.epilogue.other = other.const_data_ptr();
    args.epilogue.other_dtype = kernel_dtype(other);
    args.epilogue.ld_other = call.out_channels();
  }
  return kernels::winograd(args, torch_pool(), isa) == kernels::WinogradResult::kDone ? result : at::Tensor();
}

at::Tensor ConvolutionStep::run_onednn(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                       IsaSet isa) const {
  const ConvolutionOperators& stock = convolution_operators();
  const at::ScalarType inside = method == Method::kOnednnBf16 ? at::kBFloat16 : at::kFloat;
  const bool even = convolution_.padding == convolution_.behind;
  const at::Tensor image = channels_last(widened(even ? operands.x : padded(operands.x, convolution_)), inside, isa);
  const std::optional<at::Tensor> bias = folded.bias.defined() ? std::optional(folded.bias) : std::nullopt;
  const std::int64_t dims = call.dims();
  const Spatial none_left{};
  const OnednnSizes padding(even ? call.padding : none_left, dims);
  const OnednnSizes stride(call.stride, dims);
  const OnednnSizes dilation(call.dilation, dims);
  const at::Tensor& weight = folded.weight->packed();
  const auto call_with = [&](const Attribute& attribute) {
    return stock.pointwise->call(image, weight, bias, padding, stride, dilation, call.groups, attribute.name, NoScalars(),
                                 attribute.algorithm);
  };
  const Attribute attribute = attribute_of(convolution_);
  const Attribute none{"none", std::nullopt};
  if (!operands.other.defined()) return attribute.name != nullptr ? call_with(attribute) : activated(call_with(none), convolution_);
  const at::Tensor other = channels_last(widened(operands.other), inside, isa);
  if (convolution_.other_after) {
    return (attribute.name != nullptr ? call_with(attribute) : activated(call_with(none), convolution_)).add_(other);
  }
  at::Tensor sums = stock.pointwise_binary
                        ? stock.pointwise_binary->call(image, other, weight, bias, padding, stride, dilation, call.groups, "add",
                                                       std::nullopt, std::nullopt, NoScalars(), std::nullopt)
                        : call_with(none).add_(other);
  return activated(std::move(sums), convolution_);
}

/// x and what is added may be bf16 beside a float32 weight.
at::Tensor ConvolutionStep::run_stock(const Operands& operands) const {
  const Convolution& c = convolution_;
  const at::ScalarType dtype = operands.weight.scalar_type();
  const std::vector<std::int64_t> none(c.stride.size(), 0);
  const bool even = c.padding == c.behind;
  const at::Tensor x = (even ? operands.x : padded(operands.x, c)).to(dtype);
  at::Tensor result = at::convolution(x, operands.weight, operands.bias.defined() ? std::optional(operands.bias) : std::nullopt, c.stride,
                                      even ? c.padding : none, c.dilation, false, none, c.groups);
  if (operands.norm.any()) {
    const auto given = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
    result = std::get<0>(at::native_batch_norm(result, given(operands.norm.scale), given(operands.norm.shift), given(operands.norm.mean),
                                               given(operands.norm.variance), false, 0.0, c.eps));
  }
  if (c.other_after) result = activated(result, c);
  if (operands.other.defined()) result = at::add(result, operands.other.to(dtype));
  if (!c.other_after) result = activated(result, c);
  if (c.layout == Layout::kUnknown || result.dim() == 3) return c.bf16_out ? result.to(at::kBFloat16) : result;
  return as_stock(result, c.bf16_out ? at::kBFloat16 : dtype, c.layout == Layout::kChannelsLast, tier()->options.isa);
}

ReorderStep::ReorderStep(const Node& node)
    : from_(node.arguments[0].value),
      to_(node.outputs[0]),
      layout_(static_cast<Layout>(node.index)),
      dtype_(static_cast<at::ScalarType>(node.arguments[1].constant.toInt())) {}

void ReorderStep::run(Values& values) const {
  const at::Tensor& from = tensor_of(values, from_);
  const IsaSet isa = tier()->options.isa;
  const bool known = dtype_fits(from.scalar_type()) && from.dim() >= 4 && from.numel() > 0;
  at::Tensor made;
  if (!known) {
    const at::MemoryFormat format = layout_ == Layout::kChannelsLast ? last_format(from) : at::MemoryFormat::Contiguous;
    made = from.to(from.options().dtype(dtype_), false, false, format).contiguous(format);
  } else if (layout_ == Layout::kChannelsLast) {
    made = channels_last(from, dtype_, isa);
  } else {
    made = as_stock(from, dtype_, false, isa);
  }
  values[static_cast<std::size_t>(to_)] = std::move(made);
}

}  // namespace ipexrun::preload::graph
