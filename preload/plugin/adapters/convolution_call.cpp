// Sites and candidates of a convolution: oneDNN with weights packed once, in bf16 or fp32, our own kernel, in bf16 or where each channel
// has a window of its own, and our own product where a window is one pixel. Stock reorders the weight at every call.
#include "preload/plugin/adapters/convolution_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/aminmax_cpu_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <cmath>

#include "configs/contract/decision.h"
#include "kernels/conv.h"
#include "kernels/linear.h"
#include "preload/plugin/adapters/convolution_operators.h"
#include "preload/plugin/adapters/images.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload {
namespace {

std::uint64_t digest(std::uint64_t hash, at::IntArrayRef values) {
  for (const std::int64_t value : values) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

/// A batch as sites see it: stock's choice of kernel changes at 16, so small ones are exact.
std::int64_t site_batch(std::int64_t batch) { return batch <= 16 ? batch : round_up_rows(batch); }

/// ",k=3x1", or ",k=3" when all are equal; "" where they are what they are when nobody says anything.
std::string sizes_text(char name, const Spatial& sizes, std::int64_t dims, std::int64_t usual) {
  std::string text;
  bool all_equal = true;
  for (std::int64_t i = 3 - dims; i < 3; ++i) {
    text += (text.empty() ? "" : "x") + std::to_string(sizes[static_cast<std::size_t>(i)]);
    all_equal = all_equal && sizes[static_cast<std::size_t>(i)] == sizes[2];
  }
  if (all_equal && sizes[2] == usual) return "";
  return std::string(",") + name + '=' + (all_equal ? std::to_string(sizes[2]) : text);
}

/// oneDNN multiplies bf16 in pairs: behind an odd number of channels the first one of what follows in memory meets a zero. Such products
/// are zero, but for those of an infinity or NaN.
bool meets_next_pixel(const ConvolutionCall& call, int candidate) {
  const bool pairs = call.groups == 1 || !call.depthwise();
  return candidate_is_bf16(candidate) && candidate != kOwnBf16 && pairs && call.in_channels() / call.groups % 2 != 0;
}

bool finite(const at::Tensor& tensor) {
  const auto [least, most] = at::cpu::aminmax(tensor);  // NaN, where there is one
  const auto number = [](const at::Tensor& one) { return one.to(at::kFloat).const_data_ptr<float>()[0]; };
  return std::isfinite(number(least)) && std::isfinite(number(most));
}

char layout_letter(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return 'c';
  return tensor.is_contiguous(tensor.suggest_memory_format()) ? 'l' : 's';
}

}  // namespace

SiteId ConvolutionCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(layout_letter(*x)) << 8 |
            static_cast<std::uint32_t>(layout_letter(*w)) << 16 | (bias != nullptr ? 1u << 24 : 0) | (channels_last ? 1u << 25 : 0) |
            (transposed ? 1u << 26 : 0) | (training ? kFormTraining : 0);
  id.threads = at::get_num_threads();
  id.batch = site_batch(x->size(0));
  id.m = round_up_rows(out[0] * out[1] * out[2]);
  id.n = out_channels();
  id.k = depth();
  std::uint64_t hash = digest(static_cast<std::uint64_t>(dims()), {groups, in_channels()});
  for (const Spatial* each : {&kernel, &stride, &padding, &dilation, &output_padding}) hash = digest(hash, *each);
  id.detail = hash;
  return id;
}

SiteKey ConvolutionCall::site_key(const SiteId& id, const TierOptions& options) const {
  const std::string word = dtype_word(dtype);
  SiteKey key;
  key.op = (transposed ? "convolution_transpose" : "convolution") + std::to_string(dims()) + 'd';
  key.dtypes = word + ',' + word + (bias != nullptr ? ',' + word : "");
  key.layouts = {layout_letter(*x), layout_letter(*w), channels_last ? 'l' : 'c'};
  key.sizes = "b=" + std::to_string(id.batch) + ",px=" + std::to_string(id.m) + ",ci=" + std::to_string(in_channels()) +
              ",co=" + std::to_string(id.n) + sizes_text('k', kernel, dims(), 0) + sizes_text('s', stride, dims(), 1) +
              sizes_text('p', padding, dims(), 0) + sizes_text('d', dilation, dims(), 1) + sizes_text('o', output_padding, dims(), 0) +
              (groups == 1 ? "" : ",g=" + std::to_string(groups)) + (training ? ",training=1" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> ConvolutionCall::candidates(const TierOptions& options) const {
  const ConvolutionOperators& known = convolution_operators();
  const bool offered = transposed ? known.reorder_transposed && known.pointwise_transposed : known.reorder && known.pointwise;
  // Where the CPU has no such products, stock's convolutions of 16 bits are loops over elements: in float32 they take a fraction of that.
  const bool widen = dtype != at::kFloat && offered && !half_is_native(dtype, options.isa);
  if (dtype == at::kHalf) return widen ? std::vector<int>{kOnednnF32Packed} : std::vector<int>{};
  const bool half_inputs = dtype == at::kBFloat16;
  const bool in_f32 = half_inputs || options.dtype != DtypePolicy::kBfloat16;
  std::vector<int> fitting;
  if (in_f32 && !transposed && kernels::conv_supported(kernel_args(kernels::DType::kF32), options.isa)) fitting.push_back(kOwnF32);
  const bool in_bf16 = half_inputs ? bf16_is_native(options.isa) : bf16_inside_allowed(options);
  if (in_bf16 && (pointwise() ? kernels::linear_bf16_supported(linear_args(), options.isa)
                              : dense() && kernels::conv_supported(kernel_args(kernels::DType::kBf16), options.isa))) {
    fitting.push_back(kOwnBf16);
  }
  if (training && in_bf16 && !half_inputs) fitting.push_back(kOnednnBf16Cast);
  if (!offered) return fitting;
  if (in_bf16 && known.take_bf16) fitting.push_back(kOnednnBf16Packed);
  if (widen || (!half_inputs && options.dtype != DtypePolicy::kBfloat16)) fitting.push_back(kOnednnF32Packed);
  return fitting;
}

void ConvolutionCall::weight_view(int /*i*/, WeightKey* key) const {
  key->sizes = {depth(), out_channels()};
  // One weight may serve a plain and a transposed convolution, several numbers of groups, or windows of one pixel with strides and without:
  // each has its own layout of packs.
  const std::uint64_t use = static_cast<std::uint64_t>(groups) << 2 | (pointwise() ? 2 : 0) | (transposed ? 1 : 0);
  key->strides = {static_cast<std::int64_t>(digest(use, w->sizes())), static_cast<std::int64_t>(digest(use, w->strides()))};
}

kernels::ConvArgs ConvolutionCall::kernel_args(kernels::DType packed) const {
  kernels::ConvArgs args;
  args.packed_dtype = packed;
  args.images = x->size(0);
  args.in_channels = in_channels();
  args.out_channels = out_channels();
  args.groups = groups;
  for (std::size_t i = 0; i < 3; ++i) args.axes[i] = {in[i], out[i], kernel[i], stride[i], padding[i], dilation[i]};
  return args;
}

bool ConvolutionCall::pointwise() const {
  const Spatial ones{1, 1, 1};
  return !transposed && groups == 1 && kernel == ones && stride == ones && padding == Spatial{} && more_behind == Spatial{};
}

bool ConvolutionCall::depthwise() const { return !transposed && groups == in_channels() && groups == out_channels(); }

bool ConvolutionCall::dense() const { return !transposed && !depthwise(); }

void ConvolutionCall::describe_sizes() {
  for (std::size_t dim = static_cast<std::size_t>(3 - dims()); dim < 3; ++dim) {
    const auto index = static_cast<std::int64_t>(dim) - (3 - dims()) + 2;
    kernel[dim] = w->size(index);
    in[dim] = x->size(index);
    const std::int64_t reach = dilation[dim] * (kernel[dim] - 1) + 1;
    out[dim] = transposed ? (in[dim] - 1) * stride[dim] - 2 * padding[dim] + reach + output_padding[dim]
                          : (in[dim] + 2 * padding[dim] + more_behind[dim] - reach) / stride[dim] + 1;
    // A kernel that reaches over the padded input: the division would round towards zero. Stock raises.
    if (!transposed && in[dim] + 2 * padding[dim] + more_behind[dim] < reach) out[dim] = 0;
  }
}

bool ConvolutionCall::sizes_fit() const {
  if (groups <= 0 || x->size(1) % groups != 0) return false;
  if (transposed ? w->size(0) != x->size(1) : w->size(1) * groups != x->size(1)) return false;
  if (!transposed && w->size(0) % groups != 0) return false;
  if (bias != nullptr && bias->size(0) != out_channels()) return false;
  for (std::size_t dim = 0; transposed && dim < 3; ++dim) {
    if (output_padding[dim] >= std::max(stride[dim], dilation[dim])) return false;
  }
  return out[0] > 0 && out[1] > 0 && out[2] > 0;
}

bool ConvolutionCall::meets_image() const {
  if (transposed) return true;
  for (std::size_t dim = 0; dim < 3; ++dim) {
    const std::int64_t gap = kernel[dim] > 1 ? dilation[dim] : 1;  // an image smaller than this may lie between two elements
    const std::int64_t behind = padding[dim] + more_behind[dim];
    if (std::max(padding[dim], behind) > dilation[dim] * (kernel[dim] - 1)) return false;
    if ((padding[dim] > 0 || behind > 0) && gap > in[dim]) return false;
  }
  return true;
}

kernels::LinearArgs ConvolutionCall::linear_args() const {
  kernels::LinearArgs args;
  args.m = x->size(0) * in[0] * in[1] * in[2];
  args.k = args.lda = in_channels();
  args.n = args.ldc = out_channels();
  return args;
}

std::shared_ptr<const TensorPack> ConvolutionCall::pointwise_pack() const {
  const std::size_t bytes = kernels::packed_b_bytes(in_channels(), out_channels());
  at::Tensor packed = pack_memory(bytes);
  kernels::pack_b({w->const_data_ptr(), kernel_dtype(*w), in_channels(), out_channels(), w->stride(1), w->stride(0)},
                  packed.mutable_data_ptr(), torch_pool(), isa_of_process());
  return std::make_shared<const TensorPack>(std::move(packed), uncounted_padding(bytes));
}

Outputs ConvolutionCall::run_pointwise(const TensorPack& pack, IsaSet isa) const {
  at::Tensor input = widened(*x);
  if (!input.is_contiguous(last_format(input))) {
    input = input.is_contiguous() ? for_onednn(input, at::kBFloat16, isa) : input.contiguous(last_format(input));
  }
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes[1] = out_channels();
  const at::Tensor result = scratch_empty(sizes, dtype, last_format(input));
  kernels::LinearArgs args = linear_args();
  args.a = input.const_data_ptr();
  args.a_dtype = kernel_dtype(input);
  args.c = result.mutable_data_ptr();
  args.c_dtype = kernel_dtype(result);
  args.packed_b = pack.packed().const_data_ptr();
  at::Tensor added;
  if (bias != nullptr) {
    added = bias->contiguous();
    args.bias = added.const_data_ptr();
    args.bias_dtype = kernel_dtype(added);
  }
  if (!kernels::linear_bf16(args, torch_pool(), isa)) return {};
  const at::Tensor answer = as_stock(result, dtype, channels_last, isa);
  return dims() == 1 ? answer.squeeze(2) : answer;
}

std::size_t ConvolutionCall::uncounted_padding(std::size_t bytes) const {
  return std::min(bytes, static_cast<std::size_t>(w->numel()) * w->element_size());
}

std::shared_ptr<const TensorPack> ConvolutionCall::own_pack(kernels::DType packed_dtype) const {
  kernels::ConvWeight weight;
  weight.data = w->const_data_ptr();
  weight.dtype = kernel_dtype(*w);
  weight.packed_dtype = packed_dtype;
  weight.in_channels = in_channels();
  weight.out_channels = out_channels();
  weight.groups = groups;
  for (std::size_t i = 0; i < 3; ++i) weight.kernel[i] = kernel[i];
  weight.out_stride = w->stride(0);
  weight.in_stride = w->stride(1);
  const kernels::ConvStrides strides = kernel_strides(*w);
  for (std::size_t i = 0; i < 3; ++i) weight.strides[i] = strides.axis[i];
  const std::size_t bytes = kernels::conv_packed_bytes(weight);
  if (bytes == 0) return nullptr;
  at::Tensor packed = pack_memory(bytes);
  kernels::pack_conv(weight, packed.mutable_data_ptr(), torch_pool());
  return std::make_shared<const TensorPack>(std::move(packed), uncounted_padding(bytes));
}

Outputs ConvolutionCall::run_own(const TensorPack& pack, kernels::DType packed_dtype, IsaSet isa) const {
  const at::Tensor input = with_channels_last(widened(*x), packed_dtype == kernels::DType::kBf16 ? at::kBFloat16 : dtype, isa);
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes[1] = out_channels();
  for (std::size_t i = 2; i < sizes.size(); ++i) sizes[i] = out[3 - (sizes.size() - i)];
  // What is put into planar order is converted there: half the memory on the way, as oneDNN's candidate has it.
  const bool half = packed_dtype == kernels::DType::kBf16 && !channels_last;
  const at::Tensor result = at::cpu::empty(sizes, input.options().dtype(half ? at::kBFloat16 : dtype), last_format(input));
  kernels::ConvArgs args = kernel_args(packed_dtype);
  args.from = input.const_data_ptr();
  args.from_dtype = kernel_dtype(input);
  args.to = result.mutable_data_ptr();
  args.to_dtype = kernel_dtype(result);
  args.from_strides = kernel_strides(input);
  args.to_strides = kernel_strides(result);
  args.packed = pack.packed().const_data_ptr();
  at::Tensor added;
  if (bias != nullptr) {
    added = bias->contiguous();
    args.bias = added.const_data_ptr();
    args.bias_dtype = kernel_dtype(added);
  }
  if (!kernels::convolve(args, torch_pool(), isa)) return {};
  const at::Tensor answer = as_stock(result, dtype, channels_last, isa);
  return dims() == 1 ? answer.squeeze(2) : answer;
}

std::shared_ptr<const TensorPack> ConvolutionCall::pack(int /*i*/, int candidate) const {
  if (candidate == kOwnF32) return own_pack(kernel_dtype(*w));
  if (candidate == kOwnBf16) return pointwise() ? pointwise_pack() : own_pack(kernels::DType::kBf16);
  const at::ScalarType inside = candidate_is_bf16(candidate) ? at::kBFloat16 : at::kFloat;
  const at::Tensor weight = widened(*w).to(inside);
  const at::Tensor input = widened(*x);
  const auto bytes = static_cast<std::size_t>(weight.numel()) * weight.element_size();
  at::Tensor packed = transposed ? convolution_operators().reorder_transposed->call(
                                       weight, OnednnSizes(padding, dims()), OnednnSizes(output_padding, dims()),
                                       OnednnSizes(stride, dims()), OnednnSizes(dilation, dims()), groups, input.sizes())
                                 : convolution_operators().reorder->call(weight, OnednnSizes(padding, dims()), OnednnSizes(stride, dims()),
                                                                         OnednnSizes(dilation, dims()), groups, input.sizes());
  return std::make_shared<const TensorPack>(std::move(packed), bytes);
}

Outputs ConvolutionCall::run_cast() const {
  std::optional<at::Tensor> added;
  if (bias != nullptr) added = bias->to(at::kBFloat16);
  const at::Tensor result = at::compositeexplicitautograd::convolution(
      widened(*x).to(at::kBFloat16), widened(*w).to(at::kBFloat16), added, OnednnSizes(stride, dims()), OnednnSizes(padding, dims()),
      OnednnSizes(dilation, dims()), transposed, OnednnSizes(output_padding, dims()), groups);
  const at::Tensor answer = as_stock(result, dtype, channels_last, tier()->options.isa);
  return dims() == 1 ? answer.squeeze(2) : answer;
}

Outputs ConvolutionCall::run(int candidate, const Packs& packs, IsaSet isa) const {
  if (meets_next_pixel(*this, candidate) && !finite(*x)) return {};
  if (candidate == kOnednnBf16Cast) return run_cast();
  const TensorPack* pack = packs[0];
  std::shared_ptr<const TensorPack> of_this_step;
  if (training) {
    of_this_step = this->pack(0, candidate);
    pack = of_this_step.get();
  }
  if (pack == nullptr) return {};
  if (candidate == kOwnF32) return run_own(*pack, kernel_dtype(*w), isa);
  if (candidate == kOwnBf16) return pointwise() ? run_pointwise(*pack, isa) : run_own(*pack, kernels::DType::kBf16, isa);
  const at::ScalarType inside = candidate_is_bf16(candidate) ? at::kBFloat16 : at::kFloat;
  // What reorders knows float32 and bf16.
  const bool float16 = dtype == at::kHalf;
  const at::Tensor input = for_onednn(float16 ? widened(*x).to(at::kFloat) : widened(*x), inside, isa);
  std::optional<at::Tensor> added;
  if (bias != nullptr) added = bias->to(inside).contiguous();  // the operators read it as if its elements were adjacent
  const at::Tensor result =
      transposed
          ? convolution_operators().pointwise_transposed->call(input, pack->packed(), added, OnednnSizes(padding, dims()),
                                                               OnednnSizes(output_padding, dims()), OnednnSizes(stride, dims()),
                                                               OnednnSizes(dilation, dims()), groups, "none", NoScalars(), std::nullopt)
          : convolution_operators().pointwise->call(input, pack->packed(), added, OnednnSizes(padding, dims()), OnednnSizes(stride, dims()),
                                                    OnednnSizes(dilation, dims()), groups, "none", NoScalars(), std::nullopt);
  at::Tensor answer = as_stock(result, float16 ? at::kFloat : dtype, channels_last, isa);
  if (float16) answer = answer.to(at::kHalf);
  return dims() == 1 ? answer.squeeze(2) : answer;
}

}  // namespace ipexrun::preload
