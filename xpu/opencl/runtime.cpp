#include "xpu/opencl/runtime.h"

#include <pthread.h>

#include <mutex>

#include "configs/contract/env.h"
#include "xpu/opencl/program_files.h"

namespace ipexrun::xpu {
namespace {

std::atomic<bool> g_forked{false};

}  // namespace

std::vector<std::unique_ptr<Unit>>& units() {
  static auto* all = new std::vector<std::unique_ptr<Unit>>;  // threads of drivers may outlive static destructors
  return *all;
}

bool in_forked_child() { return g_forked; }

bool start_runtime(std::string& reason) {
  static std::mutex mutex;
  static bool started = false;
  static std::string why;
  const std::lock_guard lock(mutex);
  if (!started) {
    started = true;
    const std::string which = env::get(env::Id::kXpu).value_or("gpu");
    if (which == "off") {
      why = "IPEXRUN_XPU=off";
    } else if (which != "gpu" && which != "any") {
      why = "IPEXRUN_XPU=" + which + " is none of gpu, any, off";
    } else {
      FindOptions options;
      options.any_type = which == "any";
      options.force_buffers = env::get(env::Id::kXpuMemory).value_or("svm") == "buffers";
      const std::string kernels = env::get(env::Id::kXpuKernels).value_or("");
      options.emulate_matrix = kernels == "matrix" ? 16 : kernels == "matrix8" ? 8 : 0;
      options.force_lanes = kernels == "lanes" || options.emulate_matrix != 0;
      options.cache_folder = cache_folder();
      options.ahead_folders = ahead_folders();
      options.programs_file = env::get(env::Id::kXpuPrograms).value_or("");
      for (std::unique_ptr<Device>& device : find_devices(options, why)) units().push_back(std::make_unique<Unit>(std::move(device)));
      if (!units().empty()) ::pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
    }
  }
  reason = why;
  return !units().empty();
}

Unit& unit(int index) {
  if (g_forked) {
    throw DeviceError(
        "Cannot re-initialize XPU in forked subprocess. To use XPU with multiprocessing, you must use the 'spawn' start method");
  }
  if (index < 0 || static_cast<std::size_t>(index) >= units().size()) {
    const std::size_t count = units().size();
    throw DeviceError("xpu:" + std::to_string(index) + " is not there: this process has " + std::to_string(count) + " xpu device" +
                      (count == 1 ? "" : "s"));
  }
  return *units()[static_cast<std::size_t>(index)];
}

}  // namespace ipexrun::xpu
