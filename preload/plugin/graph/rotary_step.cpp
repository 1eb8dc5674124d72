#include "preload/plugin/graph/rotary_step.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>

#include "kernels/rotary.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload::graph {
namespace {

class RotaryStep final : public Step {
 public:
  explicit RotaryStep(const Node& node)
      : x_(node.arguments[kRotaryX].value),
        cos_(node.arguments[kRotaryCos].value),
        sin_(node.arguments[kRotarySin].value),
        result_(node.outputs[0]),
        contiguous_(node.index != 0) {}

  void run(Values& values) const override {
    const auto tensor = [&](Value value) -> const at::Tensor& { return values[static_cast<std::size_t>(value)].toTensor(); };
    const at::Tensor& x = tensor(x_);
    const at::Tensor& cos = tensor(cos_);
    const at::Tensor& sin = tensor(sin_);
    at::Tensor result;
    if (!run_own(x, cos, sin, &result)) {
      const std::int64_t half = x.size(-1) / 2;
      const at::Tensor turned = at::cat({at::neg(x.slice(-1, half)), x.slice(-1, 0, half)}, -1);
      result = at::add(at::mul(x, cos), at::mul(turned, sin)).to(x.scalar_type());
      if (contiguous_) result = result.contiguous();
    }
    values[static_cast<std::size_t>(result_)] = std::move(result);
  }

 private:
  /// [batch or 1, 1, positions, depth] with dense rows.
  static bool is_table(const at::Tensor& table, const at::Tensor& x) {
    return table.dim() == 4 && dtype_fits(table.scalar_type()) && plain(table) && (table.size(0) == 1 || table.size(0) == x.size(0)) &&
           table.size(1) == 1 && table.size(2) == x.size(2) && table.size(3) == x.size(3) && table.stride(3) == 1;
  }

  bool run_own(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, at::Tensor* result) const {
    TierState* state = tier();
    if (state == nullptr || !allowed_here() || x.dim() != 4 || !dtype_fits(x.scalar_type()) || !plain(x) || x.numel() == 0 ||
        x.stride(3) != 1) {
      return false;
    }
    const auto batch_stride = [](const at::Tensor& table) { return table.size(0) == 1 ? 0 : table.stride(0); };
    if (!is_table(cos, x) || !is_table(sin, x) || cos.scalar_type() != sin.scalar_type() || cos.stride(2) != sin.stride(2) ||
        batch_stride(cos) != batch_stride(sin)) {
      return false;
    }
    *result = contiguous_ ? scratch_empty(x.sizes(), x.scalar_type()) : scratch_empty_like(x, x.scalar_type());
    if (result->stride(3) != 1) return false;
    kernels::RotaryArgs args;
    args.from = x.const_data_ptr();
    args.to = result->mutable_data_ptr();
    args.dtype = kernel_dtype(x);
    args.batch = x.size(0);
    args.heads = x.size(1);
    args.positions = x.size(2);
    args.depth = args.rotated = x.size(3);
    args.from_strides = {x.stride(0), x.stride(2), x.stride(1)};
    args.to_strides = {result->stride(0), result->stride(2), result->stride(1)};
    args.cos = cos.const_data_ptr();
    args.sin = sin.const_data_ptr();
    args.table_dtype = kernel_dtype(cos);
    args.table_batch_stride = batch_stride(cos);
    args.table_position_stride = cos.stride(2);
    return kernels::rotary(args, torch_pool(), state->options.isa);
  }

  Value x_;
  Value cos_;
  Value sin_;
  Value result_;
  bool contiguous_;
};

}  // namespace

std::unique_ptr<Step> make_rotary_step(const Node& node) { return std::make_unique<RotaryStep>(node); }

}  // namespace ipexrun::preload::graph
