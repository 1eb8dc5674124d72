#include "preload/plugin/register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/dispatcher.h"

namespace ipexrun::preload {
namespace {

/// Overriding a kernel is what we do; torch would warn about each one on the user's stderr.
class NullWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

bool has_stock_kernel(const char* name, const char* overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
  if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return false;
  // Lines of the state read "CPU: registered at <file>:<line> :: ...", a replaced kernel "CPU (inactive): ...". Stock's own
  // generated registrations come from files RegisterCPU*.cpp and there is exactly one.
  const std::string state = op->dumpState();
  int at_cpu = 0;
  bool stock = false;
  for (std::size_t begin = 0; begin < state.size();) {
    const std::size_t end = std::min(state.find('\n', begin), state.size());
    const std::string_view line(state.data() + begin, end - begin);
    if (line.starts_with("CPU:") || line.starts_with("CPU (")) {
      ++at_cpu;
      stock = line.find("RegisterCPU") != std::string_view::npos;
    }
    begin = end + 1;
  }
  return at_cpu == 1 && stock;
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
  NullWarnings quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  std::string left;
#define IPEXRUN_OP(id, name, adapter, dtypes, weights)       \
  if (has_stock_kernel(name, "")) {                          \
    cpu_library().impl(name, TORCH_FN(adapter));             \
  } else {                                                   \
    left += left.empty() ? name : std::string(",") + (name); \
  }
#include "preload/plugin/ops.def"
#undef IPEXRUN_OP
  register_optimizers();
  return left;
}

}  // namespace ipexrun::preload
