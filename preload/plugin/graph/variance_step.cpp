#include "preload/plugin/graph/variance_step.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>

#include "preload/plugin/answer.h"
#include "preload/plugin/graph/match.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::int64_t kWorthwhileNumbers = 8192;

class VarianceStep final : public Step {
 public:
  explicit VarianceStep(const Node& node)
      : stock_(make_operator_step(node)),
        arguments_(node.arguments),
        dims_(ints_of(node.arguments[1]).value_or(std::vector<std::int64_t>{})),
        result_(node.outputs[0]),
        root_(node.index != 0) {}

  void run(Values& values) const override {
    const at::Tensor x = resolve(arguments_[0], values, nullptr).toTensor();
    at::Tensor result;
    if (x.scalar_type() != at::kFloat || x.numel() < kWorthwhileNumbers || !plain(x) || !allowed_here() || !two_passes(x, &result)) {
      stock_->run(values);
      return;
    }
    values[static_cast<std::size_t>(result_)] = std::move(result);
  }

 private:
  /// Squares in float32 end where numbers do not, and say nothing of numbers that are alike but for their rounding.
  static bool representable(const at::Tensor& variance, const at::Tensor& mean) {
    constexpr double kLeast = 1e-30;
    constexpr double kMost = 1e36;
    constexpr double kOfMean = 1e-10;  // of its square: differences that are a hundred times what float32 rounds
    const auto [least, most] = at::aminmax(variance);
    const auto [lowest, highest] = at::aminmax(mean);
    const double low = least.item<float>();
    const double far = std::max(std::abs(static_cast<double>(lowest.item<float>())), std::abs(static_cast<double>(highest.item<float>())));
    return low >= std::max(kLeast, kOfMean * far * far) && most.item<float>() <= kMost;
  }

  bool two_passes(const at::Tensor& x, at::Tensor* result) const {
    std::int64_t count = 1;
    for (const std::int64_t dim : dims_) {
      if (dim < -x.dim() || dim >= x.dim()) return false;
      count *= x.size(dim);
    }
    const bool keep = arguments_[3].constant.toBool();
    const double left = static_cast<double>(count) - (arguments_[2].constant.isNone() ? 1.0 : arguments_[2].constant.toScalar().toDouble());
    if (left <= 0) return false;
    const at::Tensor mean = at::mean(x, dims_, true);
    at::Tensor apart = at::sub(x, mean);
    const at::Tensor rest = at::sum(apart, dims_, keep);
    apart.mul_(apart);
    at::Tensor variance = at::sum(apart, dims_, keep);
    variance.sub_(rest.mul(rest).div_(static_cast<double>(count))).div_(left).clamp_min_(0);
    if (!representable(variance, mean)) return false;
    *result = root_ ? variance.sqrt_() : variance;
    return true;
  }

  std::unique_ptr<Step> stock_;
  std::vector<Argument> arguments_;
  std::vector<std::int64_t> dims_;
  Value result_;
  bool root_;
};

class InstanceNormStep final : public Step {
 public:
  explicit InstanceNormStep(const Node& node) : stock_(make_operator_step(node)), arguments_(node.arguments), result_(node.outputs[0]) {}

  void run(Values& values) const override {
    const at::Tensor x = resolve(arguments_[0], values, nullptr).toTensor();
    const auto parameter = [&](std::size_t i) { return resolve(arguments_[i], values, nullptr).toOptional<at::Tensor>(); };
    if (x.scalar_type() != at::kFloat || x.dim() < 3 || x.size(0) != 1 || x.numel() == 0 || !x.is_contiguous() || !plain(x) ||
        !allowed_here()) {
      stock_->run(values);
      return;
    }
    const std::int64_t channels = x.size(1);
    const double eps = arguments_[5].constant.toScalar().toDouble();
    values[static_cast<std::size_t>(result_)] =
        std::get<0>(at::native_group_norm(x, parameter(1), parameter(2), 1, channels, x.numel() / channels, channels, eps));
  }

 private:
  std::unique_ptr<Step> stock_;
  std::vector<Argument> arguments_;
  Value result_;
};

}  // namespace

std::unique_ptr<Step> make_variance_step(const Node& node) { return std::make_unique<VarianceStep>(node); }
std::unique_ptr<Step> make_instance_norm_step(const Node& node) { return std::make_unique<InstanceNormStep>(node); }

}  // namespace ipexrun::preload::graph
