// GPUs for `ipexrun topology`, and the tiles of an instance.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/contract/plan.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// A table, and a line for each GPU that cannot be used; "" where there is none.
std::string gpus_text(const Machine& machine);
nlohmann::ordered_json gpus_json(const Machine& machine);

/// "0.0,0.1".
std::string tiles_text(const std::vector<DevicePlan>& devices);

}  // namespace ipexrun::launcher
