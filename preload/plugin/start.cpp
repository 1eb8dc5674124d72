// The plugin's only export. Runs with torch initialised, on a thread of the program, before any kernel of ours can be called.
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstdio>
#include <exception>
#include <string>

#include "configs/base/isa.h"
#include "configs/base/log.h"
#include "preload/plugin/adapters.h"
#include "preload/plugin/drift_check.h"
#include "preload/plugin/graph/builder.h"
#include "preload/plugin/graph/remembered.h"
#include "preload/plugin/graph/scripted_pass.h"
#include "preload/plugin/kept_pages.h"
#include "preload/plugin/python_entry.h"
#include "preload/plugin/register.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"
#include "preload/plugin/training_class.h"
#include "preload/plugin_abi.h"

namespace ipexrun::preload {
namespace {

enum StartResult : int { kActive = 0, kRefused = 1, kNotYet = 2 };

StartResult refuse(const IpexrunStart& start, const std::string& why) {
  if (start.reason != nullptr && start.reason_bytes > 0) std::snprintf(start.reason, start.reason_bytes, "%s", why.c_str());
  return kRefused;
}

StartResult start_tier(const IpexrunStart& start) {
  if (start.abi != IPEXRUN_PLUGIN_ABI || start.size < offsetof(IpexrunStart, flags)) {
    return refuse(start, "the shim speaks ABI " + std::to_string(start.abi) + ", this plugin " + std::to_string(IPEXRUN_PLUGIN_ABI) +
                             " (install both from one build)");
  }
  const auto major = static_cast<unsigned>(start.torch_version >> 56);
  const auto minor = static_cast<unsigned>(start.torch_version >> 48 & 0xff);
  if (major != TORCH_VERSION_MAJOR || minor != TORCH_VERSION_MINOR) {
    return refuse(start, "the plugin was built for torch " + std::to_string(TORCH_VERSION_MAJOR) + '.' +
                             std::to_string(TORCH_VERSION_MINOR) + ", the program has " + std::to_string(major) + '.' +
                             std::to_string(minor));
  }
  if (!dispatcher_ready()) return kNotYet;
  if (tier() != nullptr) return kActive;
  const bool has_flags = start.size >= offsetof(IpexrunStart, flags) + sizeof start.flags;
  const bool graphs_only = has_flags && (start.flags & IPEXRUN_START_GRAPHS_ONLY) != 0;
  TierState& state = tier_create(read_tier_options(start.torch_version));
  if (graphs_only) {
    watch_optimizers();
    graph::register_classes();
    register_training_class();
    graph::register_remembered();
    return kActive;
  }
  if (state.options.optimize) {
    adapters::find_operators();
    register_drift_fallback();
    const std::string left = register_ops();
    graph::register_classes();
    register_training_class();
    graph::register_remembered();
    if (state.options.select.timing) {
      graph::register_scripted_pass();
      watch_fresh_pages();
    }
    if (!left.empty()) log::info("left alone, another library replaced their kernels before: " + left);
  }
  write_process_event("torch " TORCH_VERSION ", " + std::string(level_name(state.options.isa)) + ", " +
                      std::to_string(at::get_num_threads()) + " threads");
  python_entry_start(start);
  return kActive;
}

}  // namespace
}  // namespace ipexrun::preload

extern "C" __attribute__((visibility("default"))) int ipexrun_plugin_start(const IpexrunStart* start) {
  try {
    return ipexrun::preload::start_tier(*start);
  } catch (const std::exception& problem) {
    return ipexrun::preload::refuse(*start, std::string("the plugin could not start: ") + problem.what());
  }
}
