// Known options that this version refuses, each with what to do instead.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

void add_later_rows(std::vector<OptionRow>& rows) {
  rows.push_back(refused("benchmark", "", "its allocator profile never gives memory back, so it is not offered",
                         "--bench measures a program; MALLOC_CONF is passed through", OptionGroup::kCompatible));
  rows.push_back(refused("verify", "", "comparing a whole run with stock comes with a later version",
                         "--bench-compare stock compares the speed of the two"));
}

}  // namespace ipexrun::launcher
