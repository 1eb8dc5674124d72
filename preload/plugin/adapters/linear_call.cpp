// Sites and candidates of a product: own kernel, oneDNN and MKL through stock's prepacked operators, and plain bf16 casts.
#include "preload/plugin/adapters/linear_call.h"

#include <ATen/Parallel.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/zeros_compositeexplicitautograd_dispatch.h>

#include "configs/contract/decision.h"
#include "kernels/batched.h"
#include "kernels/linear.h"
#include "kernels/linear_f32.h"
#include "preload/plugin/adapters/digest.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/select/changing_sizes.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kExactBatches = 16;

using Reorder = at::Tensor(const at::Tensor&, std::optional<c10::SymInt>);
using Pointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::string_view,
                             c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);

using MklLinear = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::SymInt);

struct Operators {
  std::optional<c10::TypedOperatorHandle<Reorder>> reorder;
  std::optional<c10::TypedOperatorHandle<Pointwise>> pointwise;
  std::optional<c10::TypedOperatorHandle<at::Tensor(const at::Tensor&, c10::SymInt)>> mkl_reorder;
  std::optional<c10::TypedOperatorHandle<MklLinear>> mkl_linear;
};

/// MKL packs for a number of rows.
class MklPack final : public TensorPack {
 public:
  MklPack(at::Tensor packed, std::size_t bytes, std::int64_t rows) : TensorPack(std::move(packed), bytes), rows_(rows) {}
  [[nodiscard]] std::int64_t rows() const { return rows_; }

 private:
  std::int64_t rows_;
};

Operators& operators() {
  static auto* found = new Operators;
  return *found;
}

/// Torches without MKL do not have these.
void find_mkl_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto reorder = dispatcher.findSchema({"mkl::_mkl_reorder_linear_weight", ""});
  const auto linear = dispatcher.findSchema({"mkl::_mkl_linear", ""});
  if (!reorder || !linear) return;
  try {
    const auto typed = reorder->typed<at::Tensor(const at::Tensor&, c10::SymInt)>();
    operators().mkl_linear = linear->typed<MklLinear>();
    operators().mkl_reorder = typed;
  } catch (const std::exception&) {  // other arguments
    operators().mkl_linear.reset();
  }
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

kernels::LinearF32Args kernel_args_f32(const LinearCall& call) {
  kernels::LinearF32Args args;
  args.half = call.dtype == at::kHalf;
  args.a = call.x->const_data_ptr();
  args.lda = call.lda;
  args.ldc = args.n = call.n;
  args.m = call.m;
  args.k = call.k;
  return args;
}

/// Of a batched call, without what is added and where the result goes.
kernels::BatchedArgs batched_args(const LinearCall& call, bool bf16_inside) {
  kernels::BatchedArgs args;
  args.a = {call.x->const_data_ptr(), kernel_dtype(*call.x), call.x->stride(0), call.lda, call.x_step};
  args.b = {call.w->const_data_ptr(), kernel_dtype(*call.w), call.w->stride(0), call.stride_k, call.stride_n};
  args.out_dtype = args.a.dtype;
  args.ldo = args.n = call.n;
  args.batch = call.batch;
  args.m = call.m;
  args.k = call.k;
  args.out_batch = call.m * call.n;
  args.alpha = static_cast<float>(call.alpha);
  args.beta = static_cast<float>(call.beta);
  args.bf16_inside = bf16_inside;
  return args;
}

}  // namespace

bool find_linear_operators() {
  find_mkl_operators();
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto reorder = dispatcher.findSchema({"mkldnn::_reorder_linear_weight", ""});
  const auto pointwise = dispatcher.findSchema({"mkldnn::_linear_pointwise", ""});
  if (!reorder || !pointwise) return false;
  try {
    operators().reorder = reorder->typed<Reorder>();
    operators().pointwise = pointwise->typed<Pointwise>();
  } catch (const std::exception&) {  // a torch whose operators take other arguments
    operators().reorder.reset();
    operators().pointwise.reset();
  }
  return operators().pointwise.has_value();
}

SiteId LinearCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(x_layout) << 8 | static_cast<std::uint32_t>(w_layout) << 16 |
            (bias != nullptr ? 1u << 24 : 0) | (batched ? 1u << 25 : 0) | (addend != nullptr ? 1u << 26 : 0) | (alpha != 1 ? 1u << 27 : 0) |
            (training ? kFormTraining : 0);
  id.threads = at::get_num_threads();
  id.batch = batched && batch > kExactBatches ? round_up_rows(batch) : batch;  // of graphs with ever other numbers of edges
  id.m = round_up_rows(m);
  // Of training steps the rows of a batch are the K of a weight's gradient, and attention written out has its length in N or K: sizes that
  // change with every batch.
  id.n = training && batched ? round_up_rows(n) : n;
  id.k = training && (batched || x_layout == 't') ? round_up_rows(k) : k;
  return id;
}

SiteKey LinearCall::site_key(const SiteId& id, const TierOptions& options) const {
  const std::string word = dtype_word(dtype);
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = word + ',' + word + (bias != nullptr || addend != nullptr ? ',' + word : "");
  key.layouts = {x_layout, folded() ? 'e' : w_layout};
  if (addend != nullptr) key.layouts += 's';
  key.sizes = (batched ? "b=" + std::to_string(id.batch) + ',' : "") + "m=" + std::to_string(id.m) + ",n=" + std::to_string(id.n) +
              ",k=" + std::to_string(id.k) + (alpha != 1 ? ",scaled=1" : "") + (training ? ",training=1" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> LinearCall::candidates(const TierOptions& options) const {
  const bool half_inputs = dtype == at::kBFloat16;
  const bool bf16_allowed = half_inputs || bf16_inside_allowed(options);
  if (dtype == at::kHalf) return float16_candidates(options);
  if (training && !batched) return training_candidates(options);
  std::vector<int> fitting;
  const bool onednn = operators().pointwise.has_value();
  if (batched) {
    const bool without_rounding = kernels::batched_supported(batched_args(*this, false), options.isa);
    if (without_rounding && !half_inputs) {
      if (options.dtype != DtypePolicy::kBfloat16) fitting.push_back(kOwnF32);
    } else if (without_rounding || (bf16_allowed && kernels::batched_supported(batched_args(*this, true), options.isa))) {
      fitting.push_back(kOwnBf16);
    }
    if (bf16_allowed && !half_inputs) fitting.push_back(kOnednnBf16Cast);
    if (half_inputs && widens(options)) fitting.push_back(kF32Cast);
    return fitting;
  }
  if (bf16_allowed && kernels::packed_b_bytes(k, n) > 0 && kernels::linear_bf16_supported(kernel_args(*this), options.isa)) {
    fitting.push_back(kOwnBf16);
  }
  // oneDNN's product is rounded before something is added to it, where stock rounds a bf16 sum once.
  if (bf16_allowed && onednn && !(half_inputs && scaled())) fitting.push_back(kOnednnBf16Packed);
  // Asked for bfloat16, fp32 products are no answer unless the user forces them.
  if (half_inputs || options.dtype == DtypePolicy::kBfloat16) return fitting;
  if (onednn) fitting.push_back(kOnednnF32Packed);
  if (operators().mkl_linear) fitting.push_back(kMklF32Packed);
  if (kernels::packed_f32_bytes(k, n, false) > 0 && kernels::linear_f32_supported(kernel_args_f32(*this), options.isa)) {
    fitting.push_back(kOwnF32);
  }
  return fitting;
}

/// Stock's products of float16 are loops over elements but on CPUs that have such products. What is added or scaled afterwards would be
/// rounded twice.
std::vector<int> LinearCall::float16_candidates(const TierOptions& options) const {
  if (batched || training) return widens(options) ? std::vector<int>{kF32Cast} : std::vector<int>{};
  const bool fits =
      !scaled() && kernels::packed_f32_bytes(k, n, true) > 0 && kernels::linear_f32_supported(kernel_args_f32(*this), options.isa);
  return fits ? std::vector<int>{kOwnF32} : std::vector<int>{};
}

/// Products of 16 bits by way of float32, where they are loops over elements.
bool LinearCall::widens(const TierOptions& options) const { return (batched || training) && !half_is_native(dtype, options.isa); }

/// float32 stays with stock, whose product reads both operands where they lie.
std::vector<int> LinearCall::training_candidates(const TierOptions& options) const {
  const bool half_inputs = dtype == at::kBFloat16;  // the program's own autocast, or a model in bf16
  if (!half_inputs && !bf16_inside_allowed(options)) return {};
  std::vector<int> fitting;
  const bool own = x_layout == 't' ? isa_has(options.isa, kIsaAmxBf16)
                                   : kernels::packed_b_bytes(k, n) > 0 && kernels::linear_bf16_supported(kernel_args(*this), options.isa);
  if (own && !(half_inputs && scaled())) fitting.push_back(kOwnBf16);  // which rounds before what is added
  if (!half_inputs) fitting.push_back(kOnednnBf16Cast);
  if (half_inputs && widens(options)) fitting.push_back(kF32Cast);
  return fitting;
}

void LinearCall::weight_view(int /*i*/, WeightKey* key) const {
  key->sizes = {k, n};
  key->strides = {stride_k, stride_n};
}

std::shared_ptr<const TensorPack> LinearCall::pack(int /*i*/, int candidate) const {
  if (candidate == kOwnBf16) {
    const std::size_t bytes = kernels::packed_b_bytes(k, n);
    at::Tensor packed = pack_memory(bytes);
    kernels::MatrixB b{w->const_data_ptr(), kernel_dtype(*w), k, n, stride_k, stride_n};
    kernels::pack_b(b, packed.mutable_data_ptr(), torch_pool(), isa_of_process());
    return std::make_shared<const TensorPack>(std::move(packed), bytes);
  }
  if (candidate == kOwnF32) {
    const bool half = dtype == at::kHalf;
    const std::size_t bytes = kernels::packed_f32_bytes(k, n, half);
    at::Tensor packed = pack_memory(bytes);
    kernels::pack_f32({w->const_data_ptr(), half, k, n, stride_k, stride_n}, packed.mutable_data_ptr(), torch_pool(), isa_of_process());
    return std::make_shared<const TensorPack>(std::move(packed), bytes);
  }
  const at::ScalarType inside = candidate_is_bf16(candidate) ? at::kBFloat16 : at::kFloat;
  const at::Tensor weight = w2d().t().to(inside).contiguous();
  const auto bytes = static_cast<std::size_t>(k * n) * weight.element_size();
  if (candidate == kMklF32Packed) {
    return std::make_shared<const MklPack>(operators().mkl_reorder->call(weight, c10::SymInt(m)), bytes, m);
  }
  at::Tensor packed = operators().reorder->call(weight, c10::SymInt(m));
  return std::make_shared<const TensorPack>(std::move(packed), bytes);
}

at::Tensor LinearCall::run_own(const TensorPack& pack, IsaSet isa) const {
  at::Tensor c = at::cpu::empty({m, n}, scaled() ? x->options().dtype(at::kFloat) : x->options());
  kernels::LinearArgs args = kernel_args(*this);
  args.c_dtype = kernel_dtype(c);
  args.packed_b = pack.packed().const_data_ptr();
  if (bias != nullptr) args.bias = bias->const_data_ptr();
  args.c = c.mutable_data_ptr();
  return kernels::linear_bf16(args, torch_pool(), isa) ? c : at::Tensor();
}

at::Tensor LinearCall::run_own_f32(const TensorPack& pack, IsaSet isa) const {
  at::Tensor c = at::cpu::empty({m, n}, x->options());
  kernels::LinearF32Args args = kernel_args_f32(*this);
  args.packed_b = pack.packed().const_data_ptr();
  if (bias != nullptr) args.bias = bias->const_data_ptr();
  args.c = c.mutable_data_ptr();
  return kernels::linear_f32(args, torch_pool(), isa) ? c : at::Tensor();
}

at::Tensor LinearCall::run_own_unpacked(IsaSet isa) const {
  at::Tensor c = at::cpu::empty({m, n}, x->options());
  if (x_layout == 't') {
    kernels::BatchedArgs args = batched_args(*this, true);
    args.a.batch = args.b.batch = 0;
    args.alpha = 1;
    args.beta = 0;
    args.out = c.mutable_data_ptr();
    return kernels::batched(args, torch_pool(), isa) ? c : at::Tensor();
  }
  const auto bytes = static_cast<std::int64_t>(kernels::packed_b_bytes(k, n));
  const at::Tensor packed = at::cpu::empty({bytes}, x->options().dtype(at::kByte));
  kernels::pack_b({w->const_data_ptr(), kernel_dtype(*w), k, n, stride_k, stride_n}, packed.mutable_data_ptr(), torch_pool(), isa);
  kernels::LinearArgs args = kernel_args(*this);
  args.packed_b = packed.const_data_ptr();
  if (bias != nullptr) args.bias = bias->const_data_ptr();
  args.c = c.mutable_data_ptr();
  return kernels::linear_bf16(args, torch_pool(), isa) ? c : at::Tensor();
}

at::Tensor LinearCall::run_own_batched(bool bf16_inside, IsaSet isa) const {
  at::Tensor result = at::cpu::empty({batch, m, n}, x->options());
  kernels::BatchedArgs args = batched_args(*this, bf16_inside);
  at::Tensor added;
  if (addend != nullptr) {
    added = addend->expand({batch, m, n});
    args.c = {added.const_data_ptr(), kernel_dtype(added), added.stride(0), added.stride(1), added.stride(2)};
  }
  args.out = result.mutable_data_ptr();
  return kernels::batched(args, torch_pool(), isa) ? result : at::Tensor();
}

/// In bf16, `sizes` large, what is more being zero; its last two dimensions lie as they do.
at::Tensor LinearCall::in_bf16(const at::Tensor& from, std::vector<std::int64_t> sizes) {
  if (from.sizes() == sizes) return from.to(at::kBFloat16);
  const std::int64_t last = from.dim() - 1;
  const bool by_columns = from.stride(last) != 1;
  if (by_columns) std::swap(sizes[static_cast<std::size_t>(last)], sizes[static_cast<std::size_t>(last - 1)]);
  at::Tensor to = at::compositeexplicitautograd::zeros(sizes, from.options().dtype(at::kBFloat16));
  if (by_columns) to = to.transpose(last - 1, last);
  part_of(to, from.sizes()).copy_(from);
  return to;
}

at::Tensor LinearCall::part_of(const at::Tensor& tensor, at::IntArrayRef sizes) { return tensor.as_strided(sizes, tensor.strides()); }

/// Kernels of oneDNN are built for each size: of the dimensions that change, few are given to it (changing_sizes.h).
at::Tensor LinearCall::product_of_copies() const {
  const SiteId id = site_id();
  const auto given = [&](std::int64_t dimension, std::int64_t exact) {
    const std::uint64_t kind =
        digest_of({dimension, id.op, id.form, id.threads, id.batch, id.m, id.n, id.k, static_cast<std::int64_t>(id.detail)});
    return comes_in_many_sizes(kind, static_cast<std::uint64_t>(exact)) ? one_of_few_sizes(exact) : exact;
  };
  const std::int64_t rows = given(0, m);
  const std::int64_t columns = given(1, n);
  const std::int64_t depth = given(2, k);
  at::Tensor whole;
  if (batched) {
    const std::int64_t count = given(3, batch);
    whole = part_of(at::cpu::bmm(in_bf16(*x, {count, rows, depth}), in_bf16(*w, {count, depth, columns})), {batch, m, n});
  } else {
    whole = part_of(at::cpu::mm(in_bf16(x2d(), {rows, depth}), in_bf16(w2d(), {depth, columns})), {m, n});
  }
  return whole.to(dtype, /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::Contiguous);
}

at::Tensor LinearCall::run_onednn(const TensorPack& pack, at::ScalarType inside) const {
  std::optional<at::Tensor> bias_inside;
  if (bias != nullptr) bias_inside = bias->to(inside);
  return operators()
      .pointwise->call(x2d().to(inside), pack.packed(), bias_inside, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt)
      .to(dtype);
}

at::Tensor LinearCall::run_mkl(const TensorPack& pack) const {
  const at::Tensor x_rows = x2d();
  const std::int64_t rows = static_cast<const MklPack&>(pack).rows();
  if (rows == m && lda == k) {
    const std::optional<at::Tensor> added = bias != nullptr ? std::optional(*bias) : std::nullopt;
    return operators().mkl_linear->call(x_rows, pack.packed(), w2d().t(), added, c10::SymInt(rows));
  }
  // Packed for calls with another number of rows: as stock does it.
  return bias != nullptr ? at::cpu::addmm(*bias, x_rows, w2d()) : at::cpu::mm(x_rows, w2d());
}

Outputs LinearCall::run(int candidate, const Packs& packs, IsaSet isa) const {
  if (batched && (candidate == kOwnF32 || candidate == kOwnBf16)) {
    return run_own_batched(candidate == kOwnBf16 && dtype == at::kFloat, isa);
  }
  const TensorPack* pack = packs[0];
  at::Tensor product;
  if (candidate == kF32Cast && batched) {
    product = at::cpu::bmm(x->to(at::kFloat), w->to(at::kFloat));
  } else if (candidate == kF32Cast) {
    product = at::cpu::mm(x2d().to(at::kFloat), w2d().to(at::kFloat));
    if (bias != nullptr) at::cpu::add_(product, *bias);
  } else if (candidate == kOnednnBf16Cast && batched) {
    product = product_of_copies();
  } else if (candidate == kOnednnBf16Cast) {
    product = product_of_copies();
    if (bias != nullptr) at::cpu::add_(product, *bias);
  } else if (training) {
    product = run_own_unpacked(isa);
  } else if (pack != nullptr) {
    if (candidate == kOwnBf16) {
      product = run_own(*pack, isa);
    } else if (candidate == kOwnF32) {
      product = run_own_f32(*pack, isa);
    } else if (candidate == kMklF32Packed) {
      product = run_mkl(*pack);
    } else {
      product = run_onednn(*pack, candidate_is_bf16(candidate) ? at::kBFloat16 : at::kFloat);
    }
  }
  if (!product.defined()) return {};
  if (folded()) product = product.view({x->size(0), x->size(1), n});
  if (alpha != 1) at::cpu::mul_(product, c10::scalar_to_tensor(alpha));
  if (addend != nullptr) at::cpu::add_(product, *addend, beta);
  return product.scalar_type() == dtype ? product : product.to(dtype);
}

void LinearCall::deliver(Outputs* results) const {
  if (out == nullptr) return;
  out->copy_(results->first);
  results->first = *out;
}

void LinearCall::deliver_aside(const Outputs& results) const {
  if (out != nullptr) at::empty_like(*out).copy_(results.first);
}

}  // namespace ipexrun::preload
