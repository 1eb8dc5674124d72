#include "preload/plugin/register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "preload/plugin/adapters.h"
#include "preload/plugin/dispatcher.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {
namespace {

struct Kernels {
  int at_cpu = 0;
  bool cpu_is_stock = false;
  bool composite_is_stock = false;
};

/// Lines of the state read "CPU: registered at <file>:<line> :: ...", a replaced kernel "CPU (inactive): ...". Stock's own generated
/// registrations come from files RegisterCPU*.cpp and RegisterCompositeExplicitAutograd*.cpp.
Kernels kernels_of(const char* name, const char* overload) {
  Kernels found;
  const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
  if (!op) return found;
  const std::string state = op->dumpState();
  for (std::size_t begin = 0; begin < state.size();) {
    const std::size_t end = std::min(state.find('\n', begin), state.size());
    const std::string_view line(state.data() + begin, end - begin);
    if (line.starts_with("CPU:") || line.starts_with("CPU (")) {
      ++found.at_cpu;
      found.cpu_is_stock = line.find("RegisterCPU") != std::string_view::npos;
    } else if (line.starts_with("CompositeExplicitAutograd[alias]:")) {
      found.composite_is_stock = line.find("RegisterCompositeExplicitAutograd") != std::string_view::npos;
    }
    begin = end + 1;
  }
  return found;
}

bool stock_is_leaf(const char* name, const char* overload) { return has_stock_kernel(name, overload); }

bool stock_is_composite(const char* name, const char* overload) {
  const Kernels found = kernels_of(name, overload);
  return found.at_cpu == 0 && found.composite_is_stock;
}

}  // namespace

bool has_stock_kernel(const char* name, const char* overload) {
  const Kernels found = kernels_of(name, overload);
  return found.at_cpu == 1 && found.cpu_is_stock;
}

bool only_stock_answers(const c10::OperatorHandle& op) {
  constexpr std::string_view kAsked[] = {"CPU:",
                                         "CompositeExplicitAutograd[alias]:",
                                         "CompositeExplicitAutogradNonFunctional[alias]:",
                                         "AutogradCPU:",
                                         "CompositeImplicitAutograd[alias]:",
                                         "Autograd[alias]:",
                                         "AutocastCPU:",
                                         "ADInplaceOrView:"};
  const std::string state = op.dumpState();
  for (std::size_t begin = 0; begin < state.size();) {
    const std::size_t end = std::min(state.find('\n', begin), state.size());
    const std::string_view line(state.data() + begin, end - begin);
    const bool asked = std::any_of(std::begin(kAsked), std::end(kAsked), [&](std::string_view key) { return line.starts_with(key); });
    const auto from = [&](std::string_view file) { return line.find(file) != std::string_view::npos; };
    if (asked && !from("/aten/src/ATen/") && !from("/torch/csrc/") && !from("registered at ipexrun:")) return false;
    begin = end + 1;
  }
  return true;
}

torch::Library& cpu_library() {
  // Never destroyed: unregistering at exit would race with user threads that still run.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, "ipexrun", 0);
  return *library;
}

bool dispatcher_ready() {
  const auto op = c10::Dispatcher::singleton().findSchema({"aten::addmm", ""});
  return op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

std::string register_ops() {
  NoWarnings quiet;
  std::string left;
#define IPEXRUN_OP(id, name, overload, kind, adapter, dtypes, weight) \
  if (stock_is_##kind(name, overload)) {                              \
    cpu_library().impl(op_name(Op::id), TORCH_FN(adapter));           \
  } else {                                                            \
    left += std::string(left.empty() ? "" : ",") + op_name(Op::id);   \
  }
#include "preload/plugin/ops.def"
#undef IPEXRUN_OP
  register_optimizers();
  register_losses();
  register_random_masks();
  register_group_norms();
  register_fast_paths();
  return left;
}

void watch_optimizers() {
  NoWarnings quiet;
  register_optimizers();
}

}  // namespace ipexrun::preload
