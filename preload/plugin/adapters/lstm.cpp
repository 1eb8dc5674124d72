// mkldnn_rnn_layer: what nn.LSTM calls once a layer and direction on the CPU. (GRU and plain RNN layers are made of products.)
#include <ATen/ops/mkldnn_rnn_layer_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/lstm_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

constexpr std::int64_t kWorthwhileLstm = 1'000'000;

bool fits(LstmCall* call, const at::Tensor& tensor) {
  return call->is(Declined::kDtype, tensor.scalar_type() == at::kFloat) && call->is(Declined::kKind, plain(tensor)) &&
         call->is(Declined::kLayout, tensor.is_contiguous());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> four_of(Outputs outputs) {
  return {std::move(outputs.first), std::move(outputs.more[0]), std::move(outputs.more[1]), std::move(outputs.more[2])};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> mkldnn_rnn_layer(
    const at::Tensor& input, const at::Tensor& weight0, const at::Tensor& weight1, const at::Tensor& weight2, const at::Tensor& weight3,
    const at::Tensor& hx, const at::Tensor& cx, bool reverse, at::IntArrayRef batch_sizes, std::int64_t mode, std::int64_t hidden_size,
    std::int64_t num_layers, bool has_biases, bool bidirectional, bool batch_first, bool train) {
  return four_of(answer<LstmCall>(
      Op::kMkldnnRnnLayer,
      [&](LstmCall* call) {
        if (mode != kLstmMode || !has_biases || train || !batch_sizes.empty() || input.dim() != 3) return false;
        for (const at::Tensor* tensor : {&input, &weight0, &weight1, &weight2, &weight3, &hx, &cx}) {
          if (!tensor->defined() || !fits(call, *tensor)) return false;
        }
        call->declined = Declined::kForm;
        const std::int64_t gates = 4 * hidden_size;
        if (weight0.sizes() != at::IntArrayRef({gates, input.size(2)}) || weight1.sizes() != at::IntArrayRef({gates, hidden_size})) {
          return false;
        }
        if (weight2.sizes() != at::IntArrayRef({gates}) || weight3.sizes() != at::IntArrayRef({gates}) || input.numel() == 0) return false;
        call->x = &input;
        call->w = {&weight0, &weight1};
        call->bias = {&weight2, &weight3};
        call->state = {&hx, &cx};
        call->reverse = reverse;
        call->bidirectional = bidirectional;
        call->batch_first = batch_first;
        call->hidden = hidden_size;
        call->layers = num_layers;
        const std::int64_t products = input.size(0) * input.size(1) * gates * (input.size(2) + hidden_size);
        return call->is(Declined::kSmall, products >= kWorthwhileLstm || tier()->forced.load(std::memory_order_relaxed) != kStock);
      },
      [&]() -> Outputs {
        auto [y, h, c, workspace] = at::cpu::mkldnn_rnn_layer(input, weight0, weight1, weight2, weight3, hx, cx, reverse, batch_sizes, mode,
                                                              hidden_size, num_layers, has_biases, bidirectional, batch_first, train);
        Outputs outputs(std::move(y));
        outputs.more = {std::move(h), std::move(c), std::move(workspace)};
        return outputs;
      }));
}

}  // namespace ipexrun::preload::adapters
