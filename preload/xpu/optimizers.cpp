// torch's fused optimizers on xpu: all parameters in one launch (tables.h), or in one for each eight of them.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"
#include "preload/xpu/tables.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;
using List = std::vector<Tensor>;

constexpr std::size_t kEach = 8;  // tensors a launch without a table: LIST of optimizer.cl

template <typename Real>
struct Numbers {  // optimizer.cl
  Real lr, weight_decay, decay, eps, log_beta1, log_beta2, beta2, rest1, rest2, momentum, dampening;
  std::int32_t decoupled, amsgrad, maximize, nesterov, first, scaled, guarded, numbered;
};
struct Ends {
  std::int64_t groups[kEach], sizes[kEach];
};

/// Elements of the same place belong together: strides of dimensions of one element say nothing.
bool same_places(const Tensor& one, const Tensor& other) {
  if (one.sizes() != other.sizes()) return false;
  for (std::int64_t i = 0; i < one.dim(); ++i)
    if (one.size(i) != 1 && one.stride(i) != other.stride(i)) return false;
  return true;
}

/// Elements of the same place belong together in all lists: same sizes and strides, without holes, of one type.
bool fit_lists(const List& parameters, const std::vector<const List*>& others) {
  if (parameters.empty()) return false;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& one = parameters[i];
    if (!is_real(one) || one.scalar_type() != parameters[0].scalar_type() || one.device() != parameters[0].device() ||
        !one.is_non_overlapping_and_dense())
      return false;
    for (const List* list : others) {
      if (list->empty()) continue;
      if (list->size() != parameters.size()) return false;
      const Tensor& other = (*list)[i];
      if (!plain(other) || other.device() != one.device() || other.scalar_type() != one.scalar_type() || !same_places(one, other))
        return false;
    }
  }
  return true;
}
bool fit_steps(const List& steps, const List& parameters) {
  return steps.size() == parameters.size() && std::all_of(steps.begin(), steps.end(), [&](const Tensor& step) {
           return plain(step) && step.device() == parameters[0].device() && step.scalar_type() == at::kFloat && step.numel() == 1;
         });
}
/// Steps that stock counts on the CPU: their numbers travel in the table.
bool numbered_steps(const List& steps, const List& parameters) {
  return has_tables(parameters[0]) && steps.size() == parameters.size() && std::all_of(steps.begin(), steps.end(), [](const Tensor& step) {
           return step.defined() && step.is_cpu() && step.scalar_type() == at::kFloat && step.numel() == 1;
         });
}
bool fit_scale(const Tensor& scalar, const Tensor& like) {
  return !scalar.defined() ||
         (plain(scalar) && scalar.device() == like.device() && scalar.scalar_type() == at::kFloat && scalar.numel() == 1);
}

/// By list: parameters, gradients, three that are kept, counts of steps (optimizer.cl). An empty one stands for one that the kernel will
/// not touch.
using Lists = std::array<const List*, 6>;
const List kNone;

/// `counts`: steps that are on the CPU, or empty.
std::vector<Row> rows_of(const Lists& lists, const List& counts = kNone) {
  std::vector<Row> rows(lists[0]->size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].elements = (*lists[0])[i].numel();
    for (std::size_t k = 0; k < lists.size(); ++k)
      if (!lists[k]->empty()) rows[i].address[k] = reinterpret_cast<std::uint64_t>((*lists[k])[i].mutable_data_ptr());
    if (!counts.empty()) rows[i].number = std::bit_cast<std::uint32_t>(*counts[i].const_data_ptr<float>());
  }
  return rows;
}

/// Launches `name` once (only so where there are `counts`: rows_of()), or for each eight tensors where the device follows no addresses in
/// memory.
bool launch_lists(const char* name, const Lists& lists, const std::vector<Argument>& rest, const List& counts = kNone) {
  const List& parameters = *lists[0];
  ::ipexrun::xpu::Device& device = *unit_of(parameters[0]).device;
  if (has_tables(parameters[0]) &&
      launch_table(parameters[0], device.kernel("optimizer", real_options(parameters[0]) + " -DIN_TABLE", name), rows_of(lists, counts),
                   rest))
    return true;
  if (!counts.empty()) return false;
  Kernel& kernel = device.kernel("optimizer", real_options(parameters[0]), name);
  const std::int64_t each = each_item(parameters[0], sizeof(float)), of_group = group_of(parameters[0]) * each;  // common.cl's EACH
  for (std::size_t first = 0; first < parameters.size(); first += kEach) {
    Ends ends{};
    std::int64_t groups = 0;
    for (std::size_t k = 0; k < kEach; ++k) {
      ends.sizes[k] = first + k < parameters.size() ? parameters[first + k].numel() : 0;
      ends.groups[k] = groups += (ends.sizes[k] + of_group - 1) / of_group;
    }
    if (groups == 0) continue;
    std::vector<Argument> arguments;
    for (const List* list : lists)
      for (std::size_t k = 0; k < kEach; ++k) {
        const List& from = list->empty() ? parameters : *list;
        arguments.push_back(Argument::memory(from[std::min(first + k, parameters.size() - 1)].mutable_data_ptr()));
      }
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    arguments.push_back(Argument::value(ends));
    launch_linear(parameters[0], kernel, arguments, groups * of_group, each);
  }
  return true;
}

struct Settings {
  double lr = 0, weight_decay = 0, eps = 0, beta1 = 0, beta2 = 0, momentum = 0, dampening = 0;
  bool decoupled = false, amsgrad = false, maximize = false, nesterov = false, first = false;
};
template <typename Real>
Argument numbers_of(const Settings& s, bool scaled, bool guarded, bool numbered = false) {
  const auto real = [](double value) { return static_cast<Real>(value); };
  return Argument::value(Numbers<Real>{real(s.lr), real(s.weight_decay), real(1 - s.lr * s.weight_decay), real(s.eps),
                                       real(std::log(s.beta1)), real(std::log(s.beta2)), real(s.beta2), real(1 - s.beta1),
                                       real(1 - s.beta2), real(s.momentum), real(s.dampening), s.decoupled, s.amsgrad, s.maximize,
                                       s.nesterov, s.first, scaled, guarded, numbered});
}
/// grad_scale, found_inf, numbers.
std::vector<Argument> rest_of(const Tensor& like, const Settings& settings, const Tensor& scale, const Tensor& found,
                              bool numbered = false) {
  return {read(scale.defined() ? scale : like), read(found.defined() ? found : like),
          wide(like) ? numbers_of<double>(settings, scale.defined(), found.defined(), numbered)
                     : numbers_of<float>(settings, scale.defined(), found.defined(), numbered)};
}

double rate(const c10::IValue& value) { return value.isTensor() ? value.toTensor().item<double>() : value.toDouble(); }

/// (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, grad_scale,
/// found_inf)
bool adam(Given given, Results&, bool decoupled) {
  const List parameters = given[0].toTensorVector(), grads = given[1].toTensorVector(), means = given[2].toTensorVector(),
             squares = given[3].toTensorVector(), steps = given[5].toTensorVector();
  List most = given[4].toTensorVector();
  const bool amsgrad = given[11].toBool();
  if (!amsgrad) most.clear();
  const Tensor scale = optional_tensor(given[13]), found = optional_tensor(given[14]);
  if (!fit_lists(parameters, {&grads, &means, &squares, &most}) || grads.empty() || means.empty() || squares.empty() ||
      (amsgrad && most.empty()))
    return false;
  const bool numbered = numbered_steps(steps, parameters);
  if ((!numbered && !fit_steps(steps, parameters)) || !fit_scale(scale, parameters[0]) || !fit_scale(found, parameters[0])) return false;
  Settings s;
  s.lr = rate(given[6]);
  s.beta1 = given[7].toDouble();
  s.beta2 = given[8].toDouble();
  s.weight_decay = given[9].toDouble();
  s.eps = given[10].toDouble();
  s.amsgrad = amsgrad;
  s.maximize = given[12].toBool();
  s.decoupled = decoupled;
  return launch_lists("adam", {&parameters, &grads, &means, &squares, &most, numbered ? &kNone : &steps},
                      rest_of(parameters[0], s, scale, found, numbered), numbered ? steps : kNone);
}
bool plain_adam(Given given, Results& results) { return adam(given, results, false); }
bool adamw(Given given, Results& results) { return adam(given, results, true); }

/// (self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, grad_scale, found_inf)
bool sgd(Given given, Results&) {
  const List parameters = given[0].toTensorVector(), grads = given[1].toTensorVector();
  List kept = given[2].toTensorVector();
  Settings s;
  s.weight_decay = given[3].toDouble();
  s.momentum = given[4].toDouble();
  if (s.momentum == 0) kept.clear();
  const Tensor scale = optional_tensor(given[10]), found = optional_tensor(given[11]);
  if (!fit_lists(parameters, {&grads, &kept}) || grads.empty() || (s.momentum != 0 && kept.empty()) || !fit_scale(scale, parameters[0]) ||
      !fit_scale(found, parameters[0]))
    return false;
  s.lr = rate(given[5]);
  s.beta1 = s.dampening = given[6].toDouble();
  s.nesterov = given[7].toBool();
  s.maximize = given[8].toBool();
  s.first = given[9].toBool();
  return launch_lists("sgd", {&parameters, &grads, &kept, &kNone, &kNone, &kNone}, rest_of(parameters[0], s, scale, found));
}

/// (self, grads, state_sums, steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf)
bool adagrad(Given given, Results&) {
  const List parameters = given[0].toTensorVector(), grads = given[1].toTensorVector(), sums = given[2].toTensorVector(),
             steps = given[3].toTensorVector();
  const Tensor scale = optional_tensor(given[9]), found = optional_tensor(given[10]);
  if (!fit_lists(parameters, {&grads, &sums}) || grads.empty() || sums.empty()) return false;
  const bool numbered = numbered_steps(steps, parameters);
  if ((!numbered && !fit_steps(steps, parameters)) || !fit_scale(scale, parameters[0]) || !fit_scale(found, parameters[0])) return false;
  Settings s;
  s.lr = rate(given[4]);
  s.dampening = given[5].toDouble();
  s.weight_decay = given[6].toDouble();
  s.eps = given[7].toDouble();
  s.maximize = given[8].toBool();
  return launch_lists("adagrad", {&parameters, &grads, &sums, &kNone, &kNone, numbered ? &kNone : &steps},
                      rest_of(parameters[0], s, scale, found, numbered), numbered ? steps : kNone);
}

/// (self, found_inf, inv_scale)
bool unscale(Given given, Results&) {
  const List grads = given[0].toTensorVector();
  const Tensor found = given[1].toTensor(), scale = given[2].toTensor();
  if (!fit_lists(grads, {}) || !has_tables(grads[0]) || !fit_scale(found, grads[0]) || !fit_scale(scale, grads[0])) return false;
  return launch_table(grads[0], unit_of(grads[0]).device->kernel("optimizer", real_options(grads[0]) + " -DIN_TABLE", "unscale"),
                      rows_of({&grads, &kNone, &kNone, &kNone, &kNone, &kNone}), {read(scale), write(found)});
}

/// (scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval) -> scale
bool update_scale(Given given, Results& results) {
  const Tensor scale = given[0].toTensor(), tracker = given[1].toTensor(), found = given[2].toTensor();
  if (!plain(scale) || !fit_scale(scale, scale) || !fit_scale(found, scale) || !plain(tracker) || tracker.scalar_type() != at::kInt ||
      tracker.numel() != 1 || tracker.device() != scale.device())
    return false;
  launch_linear(scale, unit_of(scale).device->kernel("optimizer", real_options(scale), "update_scale"),
                {write(scale), write(tracker), read(found), Argument::value(static_cast<float>(given[3].toDouble())),
                 Argument::value(static_cast<float>(given[4].toDouble())), Argument::value(static_cast<std::int32_t>(given[5].toInt()))},
                1);
  results = {scale};
  return true;
}

/// One step of Lamb over parameters of one type; false: nothing was done (lamb.py does it by torch._foreach_*). Contiguity as for torch's
/// fused optimizers. `step` counts from 1.
bool lamb(at::TensorList given, at::TensorList grads, at::TensorList means, at::TensorList squares, std::int64_t step, double lr,
          double beta1, double beta2, double eps, double weight_decay, bool maximize) {
  const List parameters = given.vec(), g = grads.vec(), m = means.vec(), v = squares.vec();
  if (!fit_lists(parameters, {&g, &m, &v}) || g.empty() || m.empty() || v.empty() || !has_tables(parameters[0])) return false;
  Settings s;
  s.lr = lr;
  s.beta1 = beta1;
  s.beta2 = beta2;
  s.eps = eps;
  s.weight_decay = weight_decay;
  s.maximize = maximize;
  s.momentum = -std::expm1(static_cast<double>(step) * std::log(beta1));
  s.dampening = std::sqrt(-std::expm1(static_cast<double>(step) * std::log(beta2)));
  const Tensor& like = parameters[0];
  const std::vector<Row> rows = rows_of({&parameters, &g, &m, &v, &kNone, &kNone});
  std::int64_t chunks = 0;
  for (const Row& row : rows) chunks += (row.elements + kChunk - 1) / kChunk;
  const Tensor sums = at::empty({chunks, 2}, like.options().dtype(wide(like) ? at::kDouble : at::kFloat));
  const std::vector<Argument> rest{write(sums), wide(like) ? numbers_of<double>(s, false, false) : numbers_of<float>(s, false, false)};
  for (const char* name : {"lamb_norms", "lamb_apply"})
    if (!launch_table(like, unit_of(like).device->kernel("optimizer", real_options(like) + " -DIN_TABLE", name), rows, rest)) return false;
  return true;
}

/// What xpu_optimizers.py asks before a step of stock's runs fused: fit_lists() must say yes then, or the step would run on the CPU.
bool are_dense(at::TensorList tensors) {
  return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& one) {
    return plain(one) && (one.scalar_type() == at::kFloat || one.scalar_type() == at::kDouble) && is_real(one) &&
           one.scalar_type() == tensors[0].scalar_type() && one.device() == tensors[0].device() && one.is_non_overlapping_and_dense() &&
           has_tables(one);
  });
}
bool lie_alike(at::TensorList tensors, at::TensorList like) {
  if (tensors.size() != like.size()) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!plain(tensors[i]) || tensors[i].device() != like[i].device() || tensors[i].scalar_type() != like[i].scalar_type() ||
        !same_places(tensors[i], like[i]))
      return false;
  return true;
}

}  // namespace

void register_optimizers() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  for (const char* name : {"_fused_adam_", "_fused_adam_.tensor_lr"}) aten->impl(name, as_kernel<&plain_adam>());
  for (const char* name : {"_fused_adamw_", "_fused_adamw_.tensor_lr"}) aten->impl(name, as_kernel<&adamw>());
  for (const char* name : {"_fused_sgd_", "_fused_sgd_.tensor_lr"}) aten->impl(name, as_kernel<&sgd>());
  for (const char* name : {"_fused_adagrad_", "_fused_adagrad_.tensor_lr"}) aten->impl(name, as_kernel<&adagrad>());
  static auto* own = new torch::Library(torch::Library::FRAGMENT, "ipexrun_xpu", std::nullopt, __FILE__, __LINE__);
  own->def(
      "lamb_(Tensor(a!)[] parameters, Tensor[] grads, Tensor(b!)[] means, Tensor(c!)[] squares, int step, float lr, float beta1, float "
      "beta2, "
      "float eps, float weight_decay, bool maximize) -> bool",
      &lamb);
  own->def("are_dense(Tensor[] tensors) -> bool", &are_dense);
  own->def("lie_alike(Tensor[] tensors, Tensor[] like) -> bool", &lie_alike);
  aten->impl("_amp_foreach_non_finite_check_and_unscale_", as_kernel<&unscale>());
  aten->impl("_amp_update_scale_", as_kernel<&update_scale>());
}

}  // namespace ipexrun::preload::xpu
