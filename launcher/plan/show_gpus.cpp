#include "launcher/plan/show_gpus.h"

#include "launcher/plan/table.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {

std::string gpus_text(const Machine& machine) {
  if (machine.gpus.empty()) return "";
  Table rows = {{"GPU", "address", "NUMA node", "tiles", "memory", "driver", "name"}};
  std::string problems;
  for (const Gpu& gpu : machine.gpus) {
    rows.push_back({std::to_string(gpu.index), gpu.address, gpu.node < 0 ? "-" : std::to_string(gpu.node), std::to_string(gpu.tiles),
                    bytes_text(gpu.memory_bytes), dash_if_empty(gpu.driver), gpu.name});
    if (!gpu.problem.empty()) problems += "GPU " + std::to_string(gpu.index) + " cannot be used: " + gpu.problem + "\n";
  }
  return "\n" + aligned(rows) + problems;
}

nlohmann::ordered_json gpus_json(const Machine& machine) {
  auto out = nlohmann::ordered_json::array();
  for (const Gpu& gpu : machine.gpus)
    out.push_back({{"device", gpu.index},
                   {"address", gpu.address},
                   {"name", gpu.name},
                   {"driver", gpu.driver},
                   {"render_node", gpu.render_node},
                   {"node", gpu.node < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(gpu.node)},
                   {"tiles", gpu.tiles},
                   {"memory_bytes", gpu.memory_bytes},
                   {"integrated", gpu.integrated},
                   {"problem", gpu.problem}});
  return out;
}

std::string tiles_text(const std::vector<DevicePlan>& devices) {
  std::string out;
  for (const DevicePlan& one : devices) out += (out.empty() ? "" : ",") + std::to_string(one.device) + "." + std::to_string(one.tile);
  return out;
}

}  // namespace ipexrun::launcher
