// Options of `ipexrun xpu`: which GPUs and tiles, and how they are given to instances.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

void add_xpu_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kXpu;
  rows.push_back(number_list(
      "devices", group, [](auto& o) -> auto& { return o.devices; },
      "use these GPUs only, numbered as ipexrun topology has them, e.g. 0,1"));
  rows.push_back(number_list(
      "tiles", group, [](auto& o) -> auto& { return o.tiles; }, "use these tiles of each GPU only, e.g. 0"));
  rows.push_back(flag(
      "one-per-tile", group, [](auto& o) -> auto& { return o.one_per_tile; }, "one instance a tile, each seeing its own alone"));
  rows.push_back(flag(
      "one-per-device", group, [](auto& o) -> auto& { return o.one_per_device; }, "one instance a GPU, each seeing its own alone"));
  rows.push_back(word("device-hierarchy", group, [](auto& o) -> auto& { return o.device_hierarchy; }, "WORD",
                      "how a GPU of several tiles appears: flat (tiles are devices), composite (GPUs are), or combined",
                      {"flat", "composite", "combined"}));
  rows.push_back(
      word("opencl", group, [](auto& o) -> auto& { return o.opencl; }, "WORD",
           "device xpu for a torch that has none, over OpenCL: gpu (default), any (CPU devices too; no Intel GPU is looked for), "
           "or off (launch only)",
           {"gpu", "any", "off"}));
  rows.push_back(
      word("redirect", group, [](auto& o) -> auto& { return o.redirect; }, "WORD",
           "cuda: a program written for device cuda runs on xpu, unedited: its torch.device, device=, torch.cuda and .cuda() mean xpu",
           {"cuda"}));
  rows.push_back(refused("convert-fp64-to-fp32", "", "the program would have to be rewritten, so it is not offered",
                         "OverrideDefaultFP64Settings=1 IGC_EnableDPEmulation=1 have the driver emulate float64"));
}

}  // namespace ipexrun::launcher
