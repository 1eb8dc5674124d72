#include "preload/plugin/graph/norm_step.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/rsqrt.h>

#include "kernels/normalize.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload::graph {
namespace {

class NormStep final : public Step {
 public:
  explicit NormStep(const Node& node)
      : centered_((node.index & kNormCentered) != 0),
        bf16_out_((node.index & kNormBf16Out) != 0),
        eps_(node.arguments[kNormEps]),
        dims_(node.arguments[kNormDims].constant.toInt()),
        result_(node.outputs[0]),
        sum_((node.index & kNormSum) != 0 ? node.outputs[1] : kNone),
        narrow_((node.index & kNormBf16Too) != 0 ? node.outputs.back() : kNone) {
    for (std::size_t i = kNormX; i <= kNormResidual; ++i) operands_[i] = node.arguments[i].value;
  }

  void run(Values& values) const override {
    const auto tensor = [&](NormArgument which) -> const at::Tensor& {
      static const at::Tensor none;
      return operands_[which] == kNone ? none : values[static_cast<std::size_t>(operands_[which])].toTensor();
    };
    const double eps = eps_.kind == Argument::Kind::kConstant ? eps_.constant.toScalar().toDouble()
                                                              : values[static_cast<std::size_t>(eps_.value)].toTensor().item<double>();
    Results results;
    if (!run_own(tensor(kNormX), tensor(kNormWeight), tensor(kNormBias), tensor(kNormResidual), eps, &results)) {
      results = run_stock(tensor(kNormX), tensor(kNormWeight), tensor(kNormBias), tensor(kNormResidual), eps);
    }
    if (sum_ != kNone) values[static_cast<std::size_t>(sum_)] = std::move(results.sum);
    if (narrow_ != kNone) values[static_cast<std::size_t>(narrow_)] = std::move(results.narrow);
    values[static_cast<std::size_t>(result_)] = std::move(results.norm);
  }

 private:
  struct Results {
    at::Tensor norm;
    at::Tensor sum;
    at::Tensor narrow;
  };

  [[nodiscard]] std::int64_t columns_of(const at::Tensor& x) const {
    std::int64_t columns = 1;
    for (std::int64_t i = x.dim() - dims_; i < x.dim(); ++i) columns *= x.size(i);
    return columns;
  }

  static bool of_kernel(const at::Tensor& tensor) { return dtype_fits(tensor.scalar_type()) && tensor.is_contiguous() && plain(tensor); }

  bool run_own(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual, double eps,
               Results* results) const {
    TierState* state = tier();
    if (state == nullptr || !allowed_here() || x.dim() < dims_ || x.numel() == 0 || !of_kernel(x)) return false;
    kernels::NormArgs args;
    args.columns = columns_of(x);
    args.rows = x.numel() / args.columns;
    for (const at::Tensor* parameter : {&weight, &bias}) {
      if (!parameter->defined()) continue;
      if (!of_kernel(*parameter) || parameter->numel() != args.columns) return false;
      args.parameter_dtype = kernel_dtype(*parameter);
    }
    if (weight.defined() && bias.defined() && weight.scalar_type() != bias.scalar_type()) return false;
    if (residual.defined() && (!of_kernel(residual) || residual.scalar_type() != x.scalar_type() || residual.sizes() != x.sizes()))
      return false;
    const bool wide = x.scalar_type() == at::kFloat;
    const bool narrow_alone = bf16_out_ && wide;
    args.from = x.const_data_ptr();
    if (narrow_alone || narrow_ != kNone) {
      if (!wide) return false;
      results->narrow = scratch_empty(x.sizes(), at::kBFloat16);
      args.narrow = results->narrow.mutable_data_ptr();
    }
    if (!narrow_alone) {
      results->norm = scratch_empty(x.sizes(), x.scalar_type());
      args.to = results->norm.mutable_data_ptr();
    }
    if (sum_ != kNone) {
      results->sum = scratch_empty(x.sizes(), x.scalar_type());
      args.sum = results->sum.mutable_data_ptr();
    }
    args.dtype = kernel_dtype(x);
    args.weight = weight.defined() ? weight.const_data_ptr() : nullptr;
    args.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
    args.eps = eps;
    args.residual = residual.defined() ? residual.const_data_ptr() : nullptr;
    if (!(centered_ ? kernels::layer_norm : kernels::rms_norm)(args, torch_pool(), state->options.isa)) return false;
    if (narrow_alone) results->norm = std::move(results->narrow);
    return true;
  }

  [[nodiscard]] Results run_stock(const at::Tensor& given, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual,
                                  double eps) const {
    Results results;
    at::Tensor& norm = results.norm;
    const at::Tensor x = residual.defined() ? at::add(given, residual) : given;
    if (centered_) {
      norm = std::get<0>(at::native_layer_norm(x, x.sizes().slice(static_cast<std::size_t>(x.dim() - dims_)), weight, bias, eps));
    } else {
      const at::Tensor wide = x.to(at::kFloat);
      const at::Tensor scale = at::rsqrt(at::add(at::mean(at::mul(wide, wide), {-1}, true), eps));
      norm = at::mul(wide, scale);
      if (weight.defined()) norm = at::mul(norm, weight);
      norm = norm.to(x.scalar_type());
    }
    if (bf16_out_) norm = norm.to(at::kBFloat16);
    if (narrow_ != kNone) results.narrow = norm.to(at::kBFloat16);
    results.sum = x;
    return results;
  }

  bool centered_;
  bool bf16_out_;
  Argument eps_;
  std::int64_t dims_;
  Value operands_[kNormResidual + 1];
  Value result_;
  Value sum_;
  Value narrow_;
};

}  // namespace

std::unique_ptr<Step> make_norm_step(const Node& node) { return std::make_unique<NormStep>(node); }

}  // namespace ipexrun::preload::graph
