#include "preload/plugin/training_class.h"

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "preload/plugin/answer.h"
#include "preload/plugin/batch_norms.h"
#include "preload/plugin/convolutions.h"
#include "preload/plugin/dropouts.h"
#include "preload/plugin/kept_pages.h"
#include "preload/plugin/split_weights.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

bool is_dense(const at::Tensor& tensor) {
  return tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

/// Whether their elements have the same places in memory: strides of dimensions of one element say nothing.
bool same_places(const at::Tensor& one, const at::Tensor& other) {
  if (one.sizes() != other.sizes()) return false;
  for (std::int64_t i = 0; i < one.dim(); ++i) {
    if (one.size(i) != 1 && one.stride(i) != other.stride(i)) return false;
  }
  return true;
}

struct Training final : torch::CustomClassHolder {
  /// Whether each of `tensors` is a dense CPU tensor of float32 or float64.
  bool are_dense(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& one : tensors) {
      if (!plain(one) || (one.scalar_type() != at::kFloat && one.scalar_type() != at::kDouble) || !is_dense(one)) return false;
    }
    return true;
  }
  /// Whether each of `tensors` lies as its neighbour in `like` does: kernels that walk through memory need that.
  bool lie_alike(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& like) {
    if (tensors.size() != like.size()) return false;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& one = tensors[i];
      const at::Tensor& other = like[i];
      if (!plain(one) || one.scalar_type() != other.scalar_type() || !same_places(one, other)) return false;
    }
    return true;
  }
  /// split_weights.h, of dense tensors that lie alike.
  bool mixed() { return multiply_mixed(); }
  void split(const at::Tensor& value, at::Tensor high, at::Tensor low) { split_into(value, high, low); }
  at::Tensor joined(const at::Tensor& high, const at::Tensor& low) { return join(high, low); }
  /// batch_norms.h; `tensors`: residual, weight, bias, running mean, running variance.
  std::optional<at::Tensor> batch_norm(const at::Tensor& from, const std::vector<std::optional<at::Tensor>>& tensors, bool training,
                                       double momentum, double eps, bool relu) {
    if (tensors.size() != 5) return std::nullopt;
    return fused_batch_norm({from, tensors[0], tensors[1], tensors[2], tensors[3], tensors[4], training, momentum, eps, relu});
  }
  /// convolutions.h; `sizes`: stride, padding, dilation, two numbers each.
  std::optional<at::Tensor> convolution(const at::Tensor& from, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                        const std::vector<std::int64_t>& sizes, std::int64_t groups) {
    if (sizes.size() != 6) return std::nullopt;
    return rounded_convolution({from, weight, bias, {sizes[0], sizes[1]}, {sizes[2], sizes[3]}, {sizes[4], sizes[5]}, groups});
  }
  /// bf16 answered a whole forward pass (step_graphs.py).
  void note_use() {
    if (tier() != nullptr) tier()->training.note_use(true);
  }
  /// A captured step is about to use these weights: whether gradients belong to steps that change one of them (training_guard.h).
  bool trains(const std::vector<at::Tensor>& weights) {
    if (tier() == nullptr) return true;
    bool any = false;
    bool known = false;
    for (const at::Tensor& weight : weights) {
      const std::optional<bool> steps = plain(weight) ? weight_steps(weight) : std::nullopt;
      known = known || steps.has_value();
      any = any || steps.value_or(false);
    }
    return tier()->options.dtype != DtypePolicy::kAuto || any || (!known && tier()->training.steps());
  }
  /// An optimizer searches along lines, where values of the loss are compared to more digits than bf16 gives.
  void searches_lines() {
    if (tier() != nullptr && tier()->options.dtype == DtypePolicy::kAuto)
      tier()->training.needs_exact("its optimizer searches along lines");
  }
  void steps_are_told() {
    if (tier() != nullptr) tier()->training.steps_are_told();
  }
  void stepped() {
    if (tier() != nullptr) tier()->training.stepped();
  }
  /// Whether the guard took training back to float32.
  bool is_off() { return tier() != nullptr && tier()->training.off(); }
};

}  // namespace

void register_training_class() {
  static auto made =
      torch::class_<Training>("ipexrun", "Training")
          .def(torch::init<>())
          .def("leave_fresh_pages", [](const c10::intrusive_ptr<Training>&) { leave_fresh_pages(); })
          .def("fresh_pages", [](const c10::intrusive_ptr<Training>&) { return std::string(fresh_pages_state()); })
          .def("are_dense",
               [](const c10::intrusive_ptr<Training>& self, std::vector<at::Tensor> tensors) { return self->are_dense(tensors); })
          .def("lie_alike", [](const c10::intrusive_ptr<Training>& self, std::vector<at::Tensor> tensors,
                               std::vector<at::Tensor> like) { return self->lie_alike(tensors, like); })
          .def("multiply_mixed", [](const c10::intrusive_ptr<Training>& self) { return self->mixed(); })
          .def("split", [](const c10::intrusive_ptr<Training>& self, const at::Tensor& value, at::Tensor high,
                           at::Tensor low) { self->split(value, std::move(high), std::move(low)); })
          .def("joined", [](const c10::intrusive_ptr<Training>& self, const at::Tensor& high,
                            const at::Tensor& low) { return self->joined(high, low); })
          .def("batch_norm", [](const c10::intrusive_ptr<Training>& self, const at::Tensor& from,
                                std::vector<std::optional<at::Tensor>> tensors, bool training, double momentum, double eps,
                                bool relu) { return self->batch_norm(from, tensors, training, momentum, eps, relu); })
          .def("convolution", [](const c10::intrusive_ptr<Training>& self, const at::Tensor& from, const at::Tensor& weight,
                                 std::optional<at::Tensor> bias, std::vector<std::int64_t> sizes,
                                 std::int64_t groups) { return self->convolution(from, weight, bias, sizes, groups); })
          .def("dropout",
               [](const c10::intrusive_ptr<Training>& /*self*/, const at::Tensor& from, double p) { return masked_dropout(from, p); })
          .def("note_use", [](const c10::intrusive_ptr<Training>& self) { self->note_use(); })
          .def("trains", [](const c10::intrusive_ptr<Training>& self, std::vector<at::Tensor> weights) { return self->trains(weights); })
          .def("steps_are_told", [](const c10::intrusive_ptr<Training>& self) { self->steps_are_told(); })
          .def("stepped", [](const c10::intrusive_ptr<Training>& self) { self->stepped(); })
          .def("searches_lines", [](const c10::intrusive_ptr<Training>& self) { self->searches_lines(); })
          .def("is_off", [](const c10::intrusive_ptr<Training>& self) { return self->is_off(); });
}

}  // namespace ipexrun::preload
