#include "preload/plugin/graph/pool_step.h"

#include <ATen/core/jit_type.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/mean.h>

#include "kernels/pool_last.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload::graph {
namespace {

class PoolStep final : public Step {
 public:
  explicit PoolStep(const Node& node)
      : what_(static_cast<PoolOf>(node.index)), arguments_(node.arguments), x_(node.arguments[0].value), output_(node.outputs[0]) {}

  void run(Values& values) const override {
    const at::Tensor& x = values[static_cast<std::size_t>(x_)].toTensor();
    at::Tensor result = run_own(x);
    if (!result.defined()) result = run_stock(x);
    values[static_cast<std::size_t>(output_)] = std::move(result);
  }

 private:
  // All arguments but the image are constants: the pass saw to it.
  [[nodiscard]] std::vector<std::int64_t> numbers(std::size_t i) const {
    static const c10::TypePtr kNumbers = c10::ListType::ofInts();
    return resolve(arguments_[i], {}, kNumbers.get()).toIntVector();
  }
  [[nodiscard]] bool flag(std::size_t i) const { return arguments_[i].constant.toBool(); }
  [[nodiscard]] std::optional<std::int64_t> divisor() const { return arguments_[6].constant.toOptional<std::int64_t>(); }
  [[nodiscard]] std::optional<at::ScalarType> dtype() const {
    const c10::IValue& asked = arguments_[3].constant;
    return asked.isNone() ? std::nullopt : std::optional(static_cast<at::ScalarType>(asked.toInt()));
  }

  /// False for what stock raises.
  static bool window_of(const std::vector<std::int64_t>& size, const std::vector<std::int64_t>& stride,
                        const std::vector<std::int64_t>& pad, const std::vector<std::int64_t>& dilation, std::size_t axis,
                        kernels::PoolWindow* to) {
    const auto at = [axis](const std::vector<std::int64_t>& numbers) { return numbers[numbers.size() == 1 ? 0 : axis]; };
    for (const auto* each : {&size, &pad, &dilation}) {
      if (each->size() != 1 && each->size() != 2) return false;
    }
    if (stride.size() > 2) return false;
    *to = {at(size), stride.empty() ? at(size) : at(stride), at(pad), at(dilation)};
    return to->size > 0 && to->stride > 0 && to->dilation > 0 && to->pad >= 0 && to->pad <= to->size / 2;
  }

  bool describe(const at::Tensor& x, kernels::PoolLastArgs* args) const {
    args->height = x.size(2);
    args->width = x.size(3);
    if (what_ == PoolOf::kMean) {
      args->down = {args->height, args->height, 0, 1};
      args->across = {args->width, args->width, 0, 1};
      args->out_height = args->out_width = 1;
      return true;
    }
    const bool largest = what_ == PoolOf::kMax;
    const std::vector<std::int64_t> size = numbers(1);
    const std::vector<std::int64_t> stride = numbers(2);
    const std::vector<std::int64_t> pad = numbers(3);
    const std::vector<std::int64_t> dilation = largest ? numbers(4) : std::vector<std::int64_t>{1};
    if (!window_of(size, stride, pad, dilation, 0, &args->down) || !window_of(size, stride, pad, dilation, 1, &args->across)) return false;
    const bool ceil = flag(largest ? 5 : 4);
    const auto outputs = [ceil](const kernels::PoolWindow& window, std::int64_t in) {
      return at::native::pooling_output_shape_pad_lr<std::int64_t>(in, window.size, window.pad, window.pad, window.stride, window.dilation,
                                                                   ceil);
    };
    args->out_height = outputs(args->down, args->height);
    args->out_width = outputs(args->across, args->width);
    if (!largest) {
      args->count_padding = flag(5);
      args->divisor = divisor().value_or(0);
      if (divisor() && *divisor() <= 0) return false;
    }
    return args->out_height > 0 && args->out_width > 0;
  }

  [[nodiscard]] at::Tensor run_own(const at::Tensor& x) const {
    TierState* state = tier();
    if (state == nullptr || !allowed_here() || x.dim() != 4 || x.numel() == 0 || !dtype_fits(x.scalar_type()) || !plain(x) ||
        !x.is_contiguous(at::MemoryFormat::ChannelsLast) || !kernels::pool_last_supported(state->options.isa)) {
      return {};
    }
    kernels::PoolLastArgs args;
    if (!describe(x, &args)) return {};
    at::Tensor result;
    if (what_ == PoolOf::kMean) {
      const at::ScalarType to = dtype().value_or(x.scalar_type());
      if (!dtype_fits(to)) return {};
      result = flag(2) ? scratch_empty({x.size(0), x.size(1), 1, 1}, to) : scratch_empty({x.size(0), x.size(1)}, to);
    } else {
      result = scratch_empty({x.size(0), x.size(1), args.out_height, args.out_width}, x.scalar_type(), at::MemoryFormat::ChannelsLast);
    }
    args.from = x.const_data_ptr();
    args.from_dtype = kernel_dtype(x);
    args.to = result.mutable_data_ptr();
    args.to_dtype = kernel_dtype(result);
    args.images = x.size(0);
    args.channels = x.size(1);
    (what_ == PoolOf::kMax ? kernels::max_pool_last : kernels::average_pool_last)(args, torch_pool(), state->options.isa);
    return result;
  }

  [[nodiscard]] at::Tensor run_stock(const at::Tensor& x) const {
    switch (what_) {
      case PoolOf::kMax:
        return std::get<0>(at::max_pool2d_with_indices(x, numbers(1), numbers(2), numbers(3), numbers(4), flag(5)));
      case PoolOf::kAverage:
        return at::avg_pool2d(x, numbers(1), numbers(2), numbers(3), flag(4), flag(5), divisor());
      case PoolOf::kMean:
        break;
    }
    return at::mean(x, numbers(1), flag(2), dtype());
  }

  PoolOf what_;
  std::vector<Argument> arguments_;
  Value x_;
  Value output_;
};

}  // namespace

std::unique_ptr<Step> make_pool_step(const Node& node) { return std::make_unique<PoolStep>(node); }

}  // namespace ipexrun::preload::graph
