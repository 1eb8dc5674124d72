// Sites and candidates of a convolution: oneDNN with weights packed once, in bf16 or fp32, our own kernel, in bf16 or where each channel
// has a window of its own, and our own product where a window is one pixel. Stock reorders the weight at every call.
#include "preload/plugin/adapters/convolution_call.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include "configs/contract/decision.h"
#include "kernels/conv.h"
#include "kernels/linear.h"
#include "kernels/reorder.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

using Scalars = c10::List<std::optional<at::Scalar>>;
using Reorder = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t, at::OptionalIntArrayRef);
using ReorderTransposed = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t,
                                     at::OptionalIntArrayRef);
using Pointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, at::IntArrayRef, at::IntArrayRef,
                             at::IntArrayRef, std::int64_t, c10::string_view, Scalars, std::optional<c10::string_view>);
using PointwiseTransposed = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, at::IntArrayRef,
                                       at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t, c10::string_view, Scalars,
                                       std::optional<c10::string_view>);

struct Operators {
  std::optional<c10::TypedOperatorHandle<Reorder>> reorder;
  std::optional<c10::TypedOperatorHandle<ReorderTransposed>> reorder_transposed;
  std::optional<c10::TypedOperatorHandle<Pointwise>> pointwise;
  std::optional<c10::TypedOperatorHandle<PointwiseTransposed>> pointwise_transposed;
};

Operators& operators() {
  static auto* found = new Operators;
  return *found;
}

template <typename Schema>
void find(std::optional<c10::TypedOperatorHandle<Schema>>* to, const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!op) return;
  try {
    *to = op->typed<Schema>();
  } catch (const std::exception&) {  // a torch whose operator takes other arguments
  }
}

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

char layout_letter(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return 'c';
  return tensor.is_contiguous(tensor.suggest_memory_format()) ? 'l' : 's';
}

/// oneDNN's operators know two and three spatial dimensions: one more is put before a single one, as stock does.
at::Tensor widened(const at::Tensor& tensor) { return tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor; }

at::MemoryFormat last_format(const at::Tensor& tensor) {
  return tensor.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
}

kernels::ReorderArgs reorder_args(const at::Tensor& from, const at::Tensor& to) {
  kernels::ReorderArgs args;
  args.from = from.const_data_ptr();
  args.from_dtype = kernel_dtype(from);
  args.to = to.mutable_data_ptr();
  args.to_dtype = kernel_dtype(to);
  args.images = from.size(0);
  args.channels = from.size(1);
  args.pixels = from.numel() / (from.size(0) * from.size(1));
  return args;
}

/// In channels-last order and of type `inside`, which is what oneDNN works in: from planar images in one pass over them.
at::Tensor for_onednn(const at::Tensor& input, at::ScalarType inside, IsaSet isa) {
  const at::MemoryFormat last = last_format(input);
  if (!input.is_contiguous() || input.is_contiguous(last)) return input.to(inside);
  at::Tensor to = at::cpu::empty(input.sizes(), input.options().dtype(inside), last);
  kernels::to_channels_last(reorder_args(input, to), torch_pool(), isa);
  return to;
}

/// oneDNN's channels-last result in the type and order that stock returns.
at::Tensor as_stock(const at::Tensor& result, at::ScalarType dtype, bool channels_last, IsaSet isa) {
  const at::MemoryFormat last = last_format(result);
  const at::MemoryFormat format = channels_last ? last : at::MemoryFormat::Contiguous;
  if (channels_last || result.is_contiguous() || !result.is_contiguous(last)) {
    return result.to(result.options().dtype(dtype), false, false, format).contiguous(format);
  }
  at::Tensor to = at::cpu::empty(result.sizes(), result.options().dtype(dtype));
  kernels::to_planar(reorder_args(result, to), torch_pool(), isa);
  return to;
}

/// Channels of a pixel are neighbours, which our kernel reads; how pixels lie is its strides'. What is copied anyway is of type `inside`.
at::Tensor with_channels_last(const at::Tensor& input, at::ScalarType inside, IsaSet isa) {
  if (input.size(1) == 1 || input.stride(1) == 1) return input;
  if (input.is_contiguous()) return for_onednn(input, inside, isa);
  return input.contiguous(last_format(input));
}

kernels::ConvStrides kernel_strides(const at::Tensor& tensor) {
  kernels::ConvStrides strides;
  strides.image = tensor.stride(0);
  const std::int64_t dims = tensor.dim() - 2;
  for (std::int64_t i = 0; i < dims; ++i) strides.axis[3 - dims + i] = tensor.stride(2 + i);
  return strides;
}

/// The parameters of the widened problem.
class Parameters {
 public:
  Parameters(const ConvolutionCall& call, const Spatial& from) : from_(from), count_(call.dims() == 3 ? 3 : 2) {}
  operator at::IntArrayRef() const {  // NOLINT(google-explicit-constructor): it stands for the list
    return {from_.data() + (3 - count_), static_cast<std::size_t>(count_)};
  }

 private:
  const Spatial& from_;
  std::int64_t count_;
};

}  // namespace

bool find_convolution_operators() {
  Operators& found = operators();
  find(&found.reorder, "mkldnn::_reorder_convolution_weight");
  find(&found.pointwise, "mkldnn::_convolution_pointwise");
  find(&found.reorder_transposed, "mkldnn::_reorder_convolution_transpose_weight");
  find(&found.pointwise_transposed, "mkldnn::_convolution_transpose_pointwise");
  return found.reorder && found.pointwise;
}

SiteId ConvolutionCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(layout_letter(*x)) << 8 |
            static_cast<std::uint32_t>(layout_letter(*w)) << 16 | (bias != nullptr ? 1u << 24 : 0) | (channels_last ? 1u << 25 : 0) |
            (transposed ? 1u << 26 : 0);
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
  const std::string word = dtype == at::kFloat ? "f32" : "bf16";
  SiteKey key;
  key.op = (transposed ? "convolution_transpose" : "convolution") + std::to_string(dims()) + 'd';
  key.dtypes = word + ',' + word + (bias != nullptr ? ',' + word : "");
  key.layouts = {layout_letter(*x), layout_letter(*w), channels_last ? 'l' : 'c'};
  key.sizes = "b=" + std::to_string(id.batch) + ",px=" + std::to_string(id.m) + ",ci=" + std::to_string(in_channels()) +
              ",co=" + std::to_string(id.n) + sizes_text('k', kernel, dims(), 0) + sizes_text('s', stride, dims(), 1) +
              sizes_text('p', padding, dims(), 0) + sizes_text('d', dilation, dims(), 1) + sizes_text('o', output_padding, dims(), 0) +
              (groups == 1 ? "" : ",g=" + std::to_string(groups));
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> ConvolutionCall::candidates(const TierOptions& options) const {
  const Operators& known = operators();
  const bool offered = transposed ? known.reorder_transposed && known.pointwise_transposed : known.reorder && known.pointwise;
  const bool half_inputs = dtype == at::kBFloat16;
  const bool in_f32 = half_inputs || options.dtype != DtypePolicy::kBfloat16;
  std::vector<int> fitting;
  if (in_f32 && !transposed && kernels::conv_supported(kernel_args(kernels::DType::kF32), options.isa)) fitting.push_back(kOwnF32);
  const bool in_bf16 = half_inputs ? bf16_is_native(options.isa) : bf16_inside_allowed(options);
  if (in_bf16 && (pointwise() ? kernels::linear_bf16_supported(linear_args(), options.isa)
                              : dense() && kernels::conv_supported(kernel_args(kernels::DType::kBf16), options.isa))) {
    fitting.push_back(kOwnBf16);
  }
  if (!offered) return fitting;
  if (in_bf16) fitting.push_back(kOnednnBf16Packed);
  if (!half_inputs && options.dtype != DtypePolicy::kBfloat16) fitting.push_back(kOnednnF32Packed);
  return fitting;
}

void ConvolutionCall::weight_view(int /*i*/, WeightKey* key) const {
  key->sizes = {depth(), out_channels()};
  // One weight may serve a plain and a transposed convolution, or several numbers of groups: each has its own layout of packs.
  const std::uint64_t use = static_cast<std::uint64_t>(groups) << 1 | (transposed ? 1 : 0);
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
  return !transposed && groups == 1 && kernel == ones && stride == ones && padding == Spatial{};
}

bool ConvolutionCall::dense() const { return !transposed && (groups != in_channels() || groups != out_channels()); }

kernels::LinearArgs ConvolutionCall::linear_args() const {
  kernels::LinearArgs args;
  args.m = x->size(0) * in[0] * in[1] * in[2];
  args.k = args.lda = in_channels();
  args.n = args.ldc = out_channels();
  return args;
}

std::shared_ptr<const TensorPack> ConvolutionCall::pointwise_pack() const {
  const std::size_t bytes = kernels::packed_b_bytes(in_channels(), out_channels());
  at::Tensor packed = at::cpu::empty({static_cast<std::int64_t>(bytes)}, w->options().dtype(at::kByte));
  kernels::pack_b({w->const_data_ptr(), kernel_dtype(*w), in_channels(), out_channels(), w->stride(1), w->stride(0)},
                  packed.mutable_data_ptr(), torch_pool());
  return std::make_shared<const TensorPack>(std::move(packed), uncounted_padding(bytes));
}

Outputs ConvolutionCall::run_pointwise(const TensorPack& pack, IsaSet isa) const {
  at::Tensor input = widened(*x);
  if (!input.is_contiguous(last_format(input))) {
    input = input.is_contiguous() ? for_onednn(input, at::kBFloat16, isa) : input.contiguous(last_format(input));
  }
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes[1] = out_channels();
  const at::Tensor result = at::cpu::empty(sizes, input.options().dtype(dtype), last_format(input));
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
  at::Tensor packed = at::cpu::empty({static_cast<std::int64_t>(bytes)}, w->options().dtype(at::kByte));
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
  at::Tensor packed =
      transposed ? operators().reorder_transposed->call(weight, Parameters(*this, padding), Parameters(*this, output_padding),
                                                        Parameters(*this, stride), Parameters(*this, dilation), groups, input.sizes())
                 : operators().reorder->call(weight, Parameters(*this, padding), Parameters(*this, stride), Parameters(*this, dilation),
                                             groups, input.sizes());
  return std::make_shared<const TensorPack>(std::move(packed), bytes);
}

Outputs ConvolutionCall::run(int candidate, const Packs& packs, IsaSet isa) const {
  const TensorPack* pack = packs[0];
  if (pack == nullptr) return {};
  if (candidate == kOwnF32) return run_own(*pack, kernel_dtype(*w), isa);
  if (candidate == kOwnBf16) return pointwise() ? run_pointwise(*pack, isa) : run_own(*pack, kernels::DType::kBf16, isa);
  const at::ScalarType inside = candidate_is_bf16(candidate) ? at::kBFloat16 : at::kFloat;
  const at::Tensor input = for_onednn(widened(*x), inside, isa);
  std::optional<at::Tensor> added;
  if (bias != nullptr) added = bias->to(inside).contiguous();  // the operators read it as if its elements were adjacent
  const at::Tensor result =
      transposed ? operators().pointwise_transposed->call(input, pack->packed(), added, Parameters(*this, padding),
                                                          Parameters(*this, output_padding), Parameters(*this, stride),
                                                          Parameters(*this, dilation), groups, "none", Scalars(), std::nullopt)
                 : operators().pointwise->call(input, pack->packed(), added, Parameters(*this, padding), Parameters(*this, stride),
                                               Parameters(*this, dilation), groups, "none", Scalars(), std::nullopt);
  const at::Tensor answer = as_stock(result, dtype, channels_last, isa);
  return dims() == 1 ? answer.squeeze(2) : answer;
}

}  // namespace ipexrun::preload
