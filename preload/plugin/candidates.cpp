// The candidates of candidates.def: own kernel, oneDNN through stock's prepacked operators, and plain bf16 casts.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty_cpu_dispatch.h>
#include <ATen/record_function.h>

#include "kernels/linear.h"
#include "preload/plugin/linear_call.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

using Reorder = at::Tensor(const at::Tensor&, std::optional<c10::SymInt>);
using Pointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::string_view,
                             c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);

struct Operators {
  std::optional<c10::TypedOperatorHandle<Reorder>> reorder;
  std::optional<c10::TypedOperatorHandle<Pointwise>> pointwise;
};

Operators& operators() {
  static auto* found = new Operators;
  return *found;
}

kernels::DType kernel_dtype(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? kernels::DType::kF32 : kernels::DType::kBf16;
}

kernels::LinearArgs kernel_args(const LinearCall& call) {
  kernels::LinearArgs args;
  args.a = call.x->const_data_ptr();
  args.a_dtype = args.c_dtype = args.bias_dtype = call.dtype == at::kFloat ? kernels::DType::kF32 : kernels::DType::kBf16;
  args.lda = call.lda;
  args.ldc = args.n = call.n;
  args.m = call.m;
  args.k = call.k;
  return args;
}

bool bf16_is_native(IsaSet isa) { return isa_has(isa, kIsaAvx512Bf16) || isa_has(isa, kIsaAmxBf16); }

at::Tensor run_own(const LinearCall& call, const TensorPack& pack, IsaSet isa) {
  at::Tensor c = at::cpu::empty({call.m, call.n}, call.x->options());
  kernels::LinearArgs args = kernel_args(call);
  args.packed_b = pack.packed().const_data_ptr();
  if (call.bias != nullptr) args.bias = call.bias->const_data_ptr();
  args.c = c.mutable_data_ptr();
  return kernels::linear_bf16(args, torch_pool(), isa) ? c : at::Tensor();
}

at::Tensor run_onednn(const LinearCall& call, const TensorPack& pack, at::ScalarType inside) {
  const at::Tensor x = call.x2d().to(inside);
  std::optional<at::Tensor> bias;
  if (call.bias != nullptr) bias = call.bias->to(inside);
  return operators().pointwise->call(x, pack.packed(), bias, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt).to(call.dtype);
}

at::Tensor run_cast_bmm(const LinearCall& call) {
  return at::cpu::bmm(call.x->to(at::kBFloat16), call.w->to(at::kBFloat16)).to(call.dtype);
}

}  // namespace

const char* op_name(Op op) noexcept {
  switch (op) {
#define IPEXRUN_OP(id, name, adapter, dtypes, weights) \
  case Op::id:                                         \
    return name;
#include "preload/plugin/ops.def"
#undef IPEXRUN_OP
  }
  return "";
}

at::Tensor LinearCall::x2d() const { return folded() ? x->as_strided({m, k}, {lda, 1}) : *x; }
at::Tensor LinearCall::w2d() const { return folded() ? w->as_strided({k, n}, {stride_k, stride_n}) : *w; }

at::Tensor LinearCall::in_shape_of_stock(const at::Tensor& product) const {
  return folded() ? product.view({x->size(0), x->size(1), n}) : product;
}

bool find_candidate_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto reorder = dispatcher.findSchema({"mkldnn::_reorder_linear_weight", ""});
  const auto pointwise = dispatcher.findSchema({"mkldnn::_linear_pointwise", ""});
  if (!reorder || !pointwise) return false;
  try {
    operators().reorder = reorder->typed<Reorder>();
    operators().pointwise = pointwise->typed<Pointwise>();
  } catch (const std::exception&) {  // a torch whose operators take other arguments: those candidates are not offered
    operators() = Operators{};
  }
  return operators().pointwise.has_value();
}

std::vector<int> candidates_for(const LinearCall& call, const TierOptions& options) {
  const bool half_inputs = call.dtype == at::kBFloat16;
  // bf16 inputs are bf16 products already; what the dtype policy governs is bf16 inside fp32 calls.
  const bool bf16_allowed =
      half_inputs || options.dtype == DtypePolicy::kBfloat16 || (options.dtype == DtypePolicy::kAuto && bf16_is_native(options.isa));
  std::vector<int> fitting;
  const bool onednn = operators().pointwise.has_value();
  if (call.batched) {
    if (bf16_allowed && !half_inputs) fitting.push_back(kOnednnBf16Cast);
    return fitting;
  }
  if (bf16_allowed && kernels::packed_b_bytes(call.k, call.n) > 0 && kernels::linear_bf16_supported(kernel_args(call), options.isa)) {
    fitting.push_back(kOwnBf16);
  }
  if (bf16_allowed && onednn) fitting.push_back(kOnednnBf16Packed);
  // Asked for bfloat16, fp32 products are no answer unless the user forces them.
  if (onednn && !half_inputs && options.dtype != DtypePolicy::kBfloat16) fitting.push_back(kOnednnF32Packed);
  return fitting;
}

std::shared_ptr<const TensorPack> pack_weight(const LinearCall& call, int candidate) {
  at::AutoDispatchBelowAutograd below;
  if (candidate == kOwnBf16) {
    const std::size_t bytes = kernels::packed_b_bytes(call.k, call.n);
    at::Tensor packed = at::cpu::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
    kernels::MatrixB b{call.w->const_data_ptr(), kernel_dtype(*call.w), call.k, call.n, call.stride_k, call.stride_n};
    kernels::pack_b(b, packed.mutable_data_ptr(), torch_pool());
    return std::make_shared<const TensorPack>(std::move(packed), bytes);
  }
  const at::ScalarType inside = candidate_is_bf16(candidate) ? at::kBFloat16 : at::kFloat;
  const at::Tensor weight = call.w2d().t().to(inside).contiguous();
  const auto bytes = static_cast<std::size_t>(call.k * call.n) * weight.element_size();
  at::Tensor packed = operators().reorder->call(weight, c10::SymInt(call.m));
  return std::make_shared<const TensorPack>(std::move(packed), bytes);
}

at::Tensor run_candidate(const LinearCall& call, int candidate, const TensorPack* pack, IsaSet isa) {
  RECORD_FUNCTION(candidate_name(candidate), c10::ArrayRef<const c10::IValue>{});  // costs a branch while no profiler runs
  at::AutoDispatchBelowAutograd below;
  if (candidate == kOnednnBf16Cast) return run_cast_bmm(call);
  if (pack == nullptr) return {};
  const at::Tensor product = candidate == kOwnBf16 ? run_own(call, *pack, isa)
                                                   : run_onednn(call, *pack, candidate_is_bf16(candidate) ? at::kBFloat16 : at::kFloat);
  return product.defined() ? call.in_shape_of_stock(product) : product;
}

}  // namespace ipexrun::preload
