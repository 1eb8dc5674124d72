#include "preload/xpu/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "configs/base/log.h"
#include "preload/xpu/backend.h"
#include "preload/xpu/place.h"
#include "preload/xpu/transfer.h"

namespace ipexrun::preload::xpu {
namespace {

struct Cost {
  long calls = 0;
  double seconds = 0;
  double bytes = 0;
};
std::mutex g_costs_mutex;
std::map<std::string, Cost>& costs() {
  static auto* all = new std::map<std::string, Cost>;
  return *all;
}

bool on_xpu(const at::Tensor& tensor) { return tensor.defined() && tensor.is_xpu(); }

/// One call on the CPU: the arguments' copies, and what has to come back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, bool in_float)
      : op_(op), in_float_(in_float), inputs_(arguments) {
    const std::string& name = op.schema().name();
    whole_storage_ = name.rfind("aten::as_strided", 0) == 0;
    // Their factors are those of the transpose where the operand is contiguous, and their gradients ask the operand on xpu whether it is.
    whole_storage_ = whole_storage_ || name == "aten::_linalg_det" || name == "aten::_linalg_slogdet";
    // Where nobody asks for gradients it leaves out the places that the gradient of a largest value reads.
    as_recorded_ = name == "aten::_sparse_mm_reduce_impl";
    keeps_statistics_ = name == "aten::native_batch_norm" || name == "aten::batch_norm_update_stats";
    find_device();
  }

  void run(torch::jit::Stack& results) {
    const auto& formals = op_.schema().arguments();
    bool takes_generator = false;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const c10::Argument& formal = formals[i];
      takes_generator |= is_generator(formal);
      results.push_back(argument(inputs_[i], formal));
    }
    const bool draws = op_.hasTag(at::Tag::nondeterministic_seeded);
    if (draws && !takes_generator) {
      borrow_default_generator(results);
    } else {
      op_.callBoxed(&results);
    }
    if (generator_.defined()) give_state_back();
    for (const auto& [xpu, cpu] : changed_) write_back(xpu, cpu.scalar_type() == xpu.scalar_type() ? cpu : cpu.to(xpu.scalar_type()));
    returned(results);
  }

  [[nodiscard]] double bytes() const { return bytes_; }

 private:
  static bool is_generator(const c10::Argument& formal) {
    const c10::Type* type = formal.type().get();
    if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType().get();
    return type->kind() == c10::TypeKind::GeneratorType;
  }
  static bool is_written(const c10::Argument& formal) { return formal.alias_info() != nullptr && formal.alias_info()->isWrite(); }
  /// Schemas of old do not say so.
  [[nodiscard]] bool is_statistic(const c10::Argument& formal) const {
    return keeps_statistics_ && (formal.name() == "running_mean" || formal.name() == "running_var");
  }

  void find_device() {
    std::optional<c10::Device> from_tensor, asked;
    const auto look = [&](const at::Tensor& tensor) {
      if (!from_tensor && on_xpu(tensor)) from_tensor = tensor.device();
    };
    for (const c10::IValue& value : inputs_) {
      if (value.isTensor()) {
        look(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
      } else if (value.isOptionalTensorList()) {
        for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
          if (tensor) look(*tensor);
      } else if (value.isDevice() && value.toDevice().is_xpu()) {
        asked = value.toDevice();
      }
    }
    device_ = from_tensor ? *from_tensor : asked ? *asked : c10::Device(c10::DeviceType::XPU);
    if (!device_.has_index()) device_.set_index(static_cast<c10::DeviceIndex>(::ipexrun::xpu::thread_place().device));
    // An output goes where the call says; torch checks elsewhere that arguments agree.
    if (asked) result_device_ = asked->has_index() ? *asked : device_;
  }

  at::Tensor copied(const at::Tensor& tensor) {
    if (!on_xpu(tensor)) return in_float_ && is_small_float(tensor) ? tensor.to(at::kFloat) : tensor;
    const auto known = copies_.find(tensor.unsafeGetTensorImpl());
    if (known != copies_.end()) return known->second;
    at::Tensor out = to_cpu(tensor, whole_storage_);
    if (in_float_ && is_small_float(out)) {
      small_ = out.scalar_type();
      out = out.to(at::kFloat);
    }
    if (out.layout() == at::kStrided) bytes_ += static_cast<double>(out.nbytes());
    if (as_recorded_ && tensor.requires_grad()) out.set_requires_grad(true);
    copies_[tensor.unsafeGetTensorImpl()] = out;
    return out;
  }
  static bool is_small_float(const at::Tensor& tensor) {
    return tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
  }

  at::Tensor copied_in(const at::Tensor& tensor, bool written) {
    at::Tensor out = copied(tensor);
    if (written && on_xpu(tensor)) changed_.emplace_back(tensor, out);
    return out;
  }

  c10::IValue argument(const c10::IValue& value, const c10::Argument& formal) {
    const bool written = is_written(formal) || is_statistic(formal);
    if (value.isTensor()) return copied_in(value.toTensor(), written);
    if (value.isTensorList()) {
      c10::List<at::Tensor> out;
      for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(copied_in(tensor, written));
      return out;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> out;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        out.push_back(tensor ? std::optional(copied_in(*tensor, written)) : std::nullopt);
      }
      return out;
    }
    if (value.isDevice() && value.toDevice().is_xpu()) return c10::Device(c10::DeviceType::CPU);
    if (is_generator(formal)) return generator(value);
    return value;
  }

  /// A CPU generator at the state of the xpu one.
  c10::IValue generator(const c10::IValue& value) {
    const auto given = value.isNone() ? std::optional<at::Generator>() : value.toOptional<at::Generator>();
    if (given && given->defined() && given->device().is_cpu()) return value;
    if ((!given || !given->defined()) && !on_device_) return c10::IValue();
    generator_ = given && given->defined() ? *given : default_generator(device_.index());
    stand_in_ = at::detail::createCPUGenerator();
    const std::lock_guard lock(generator_.mutex());
    stand_in_.set_state(generator_.get_state());
    return stand_in_;
  }
  void give_state_back() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(stand_in_.get_state());
  }

  /// Operators that draw without naming a generator take the CPU's default one: it has our state meanwhile.
  void borrow_default_generator(torch::jit::Stack& results) {
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    at::Generator ours = default_generator(device_.index());
    const at::Tensor kept = cpu.get_state();
    cpu.set_state(ours.get_state());
    try {
      op_.callBoxed(&results);
    } catch (...) {
      cpu.set_state(kept);
      throw;
    }
    ours.set_state(cpu.get_state());
    cpu.set_state(kept);
  }

  at::Tensor result(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cpu()) return tensor;
    at::Tensor out = small_ && tensor.scalar_type() == at::kFloat ? tensor.to(*small_) : tensor;
    if (out.layout() == at::kStrided) bytes_ += static_cast<double>(out.nbytes());
    return to_xpu(out, result_device_.value_or(device_));
  }

  void returned(torch::jit::Stack& results) {
    const auto& formals = op_.schema().arguments();
    const auto& outs = op_.schema().returns();
    for (std::size_t i = 0; i < results.size(); ++i) {
      c10::IValue& value = results[i];
      if (i < outs.size() && is_written(outs[i])) {
        // The argument itself comes back.
        for (std::size_t k = 0; k < formals.size(); ++k) {
          if (is_written(formals[k]) && *formals[k].alias_info() == *outs[i].alias_info()) {
            value = inputs_[k];
            break;
          }
        }
        continue;
      }
      if (value.isTensor()) {
        value = result(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> out;
        for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(result(tensor));
        value = out;
      }
    }
  }

  const c10::OperatorHandle& op_;
  bool in_float_;
  bool whole_storage_ = false;
  bool keeps_statistics_ = false;  ///< running means and variances are written
  bool as_recorded_ = false;       ///< copies are recorded for gradients where the arguments are
  bool on_device_ = true;
  const torch::jit::Stack& inputs_;
  c10::Device device_{c10::DeviceType::XPU, 0};
  std::optional<c10::Device> result_device_;
  std::map<c10::TensorImpl*, at::Tensor> copies_;
  std::vector<std::pair<at::Tensor, at::Tensor>> changed_;
  std::optional<at::ScalarType> small_;
  at::Generator generator_, stand_in_;
  double bytes_ = 0;
};

bool lacks_type(const char* what) {
  const std::string text(what);
  return text.find("not implemented for 'Half'") != std::string::npos || text.find("not implemented for 'BFloat16'") != std::string::npos;
}

}  // namespace

void no_kernel(const std::string& name, const char* why, const char* instead) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (!told.insert(name).second) return;
  // A compiler's words can be a page: its first line, and the first error.
  const std::string words(why);
  std::string line = words.substr(0, words.find('\n'));
  if (const std::size_t error = words.find("error: "); error != std::string::npos && error > line.size())
    line += ", " + words.substr(error, words.find('\n', error) - error);
  log::warn("xpu: " + name + ' ' + instead + ": " + line);
}

void finish_kernels() {
  for (const auto& unit : ::ipexrun::xpu::units())
    if (unit->device->measuring()) unit->device->synchronize();
}

void count_fallback(const std::string& name, double seconds, std::size_t bytes) {
  const std::lock_guard lock(g_costs_mutex);
  Cost& cost = costs()[name];
  ++cost.calls;
  cost.seconds += seconds;
  cost.bytes += static_cast<double>(bytes);
}

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  finish_kernels();
  const auto start = std::chrono::steady_clock::now();
  const std::size_t count = op.schema().arguments().size();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
  const torch::jit::Stack arguments(first, stack->end());
  torch::jit::Stack results;
  double bytes = 0;
  try {
    Call call(op, arguments, false);
    call.run(results);
    bytes = call.bytes();
  } catch (const c10::Error& problem) {
    if (!lacks_type(problem.what_without_backtrace())) throw;
    results.clear();
    Call call(op, arguments, true);
    call.run(results);
    bytes = call.bytes();
  }
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  for (c10::IValue& value : results) stack->push_back(std::move(value));
  std::string name = op.schema().name();
  if (!op.schema().overload_name().empty()) name += "." + op.schema().overload_name();
  count_fallback(name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), static_cast<std::size_t>(bytes));
}

std::string fallbacks_json() {
  const std::lock_guard lock(g_costs_mutex);
  std::vector<std::pair<std::string, Cost>> all(costs().begin(), costs().end());
  std::stable_sort(all.begin(), all.end(), [](const auto& left, const auto& right) { return left.second.seconds > right.second.seconds; });
  std::string out = "[";
  for (const auto& [name, cost] : all) {
    char numbers[120];
    std::snprintf(numbers, sizeof numbers, "\", \"calls\": %ld, \"seconds\": %.9f, \"bytes\": %.0f}", cost.calls, cost.seconds, cost.bytes);
    out += (out.size() > 1 ? ", {\"name\": \"" : "{\"name\": \"") + name + numbers;
  }
  return out + "]";
}

void forget_fallbacks() {
  const std::lock_guard lock(g_costs_mutex);
  costs().clear();
}

}  // namespace ipexrun::preload::xpu
