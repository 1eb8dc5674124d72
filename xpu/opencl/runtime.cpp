#include "xpu/opencl/runtime.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>

#include "configs/contract/env.h"

namespace ipexrun::xpu {
namespace {

std::atomic<bool> g_forked{false};

/// The folder for built programs, made where it is missing; "" when there is none to be had.
std::string cache_folder() {
  std::string base = env::get(env::Id::kCache).value_or("");
  if (base == "off") return "";
  if (base.empty()) {
    const std::string xdg = env::get_named("XDG_CACHE_HOME").value_or("");
    const std::string home = env::get_named("HOME").value_or("");
    if (xdg.empty() && home.empty()) return "";
    base = (xdg.empty() ? home + "/.cache" : xdg);
    ::mkdir(base.c_str(), 0700);
    base += "/ipexrun";
  }
  ::mkdir(base.c_str(), 0700);
  const std::string folder = base + "/xpu";
  ::mkdir(folder.c_str(), 0700);
  struct stat found {};
  // Programs found there are run: only a folder of our own that nobody else can write to.
  if (::stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0)
    return "";
  return folder;
}

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
      options.force_lanes = env::get(env::Id::kXpuKernels).value_or("") == "lanes";
      options.cache_folder = cache_folder();
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
