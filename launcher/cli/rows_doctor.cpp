// Options of `ipexrun doctor`.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

void add_doctor_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kDoctor;
  rows.push_back(not_in_config(flag(
      "build", group, [](auto& o) -> auto& { return o.build; },
      "where no plugin matches the torch: build one with this machine's compiler and cmake, for this user")));
  rows.push_back(not_in_config(word(
      "torch-python", group, [](auto& o) -> auto& { return o.torch_python; }, "PYTHON",
      "the interpreter whose torch is meant (default: python, else python3, of PATH)")));
}

}  // namespace ipexrun::launcher
