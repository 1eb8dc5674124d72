// Shared by the files that register kernels.
#pragma once

#include <c10/util/Exception.h>

namespace c10 {
class OperatorHandle;
}
namespace torch {
class Library;
}

namespace ipexrun::preload {

/// Whether stock's generated kernel, and nobody else's, stands at the CPU key of aten::name.overload.
bool has_stock_kernel(const char* name, const char* overload);

/// Whether every kernel that a call on CPU tensors may meet is torch's own or ours: others may be the user's code. Some 20 us.
bool only_stock_answers(const c10::OperatorHandle& op);

/// While it lives torch does not warn on the user's stderr that a kernel is overridden.
class NoWarnings {
 private:
  class Null final : public c10::WarningHandler {
   public:
    void process(const c10::Warning& /*warning*/) override {}
  };
  Null null_;
  c10::WarningUtils::WarningHandlerGuard guard_{&null_};
};

/// Our registrations at the CPU key of aten.
torch::Library& cpu_library();

}  // namespace ipexrun::preload
