// Stands in for the plugin: the real python_entry.cpp with a function table that only remembers. Loaded with ctypes by the tests,
// at the moments a plugin starts: while torch is half imported, before it, after it, on another thread.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "preload/plugin/python_entry.h"

namespace {

struct Call {
  std::string name;
  IpexrunHookCall call;
};

std::mutex mutex;
std::vector<Call>& calls() {
  static auto* list = new std::vector<Call>;  // leaked: calls may still come while the process ends
  return *list;
}
std::atomic<std::uint64_t> explored{0};
std::atomic<int> on{1};
std::atomic<bool> remember{true};
std::atomic<std::uint64_t> counted{0};

/// c10::GradMode::is_enabled(), without torch's headers: libc10 is there by the time that modules are called.
int grad_enabled() {
  using IsEnabled = bool (*)();
  static const auto is_enabled =
      reinterpret_cast<IsEnabled>(dlsym(dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD), "_ZN3c108GradMode10is_enabledEv"));
  return is_enabled() ? 1 : 0;
}

void take(const IpexrunHookCall* call) {
  counted.fetch_add(1, std::memory_order_relaxed);
  if (!remember.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex);
  calls().push_back({call->class_name, *call});
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void fake_start(const char* lib_dir, int bench) {
  static IpexrunHookApi api{};
  api.abi = IPEXRUN_HOOK_ABI;
  api.size = sizeof api;
  api.bench = bench;
  api.call = take;
  api.exploration_count = [] { return explored.load(); };
  api.exploration_ns = [] { return std::uint64_t{0}; };
  api.enabled = [] { return on.load(); };
  api.grad_enabled = grad_enabled;
  api.set_enabled = [](int value) { on = value; };
  api.force = [](const char* name) { return std::strcmp(name, "known") == 0 ? 1 : 0; };
  api.force_here = api.force;
  api.optimizing = [] { return 1; };
  api.report = [](char* out, std::size_t bytes) {
    const std::string text = R"({"taken": 3, "long": ")" + std::string(10000, 'x') + "\"}";
    if (text.size() < bytes) std::memcpy(out, text.c_str(), text.size() + 1);
    return text.size();
  };
  api.same_places = [](const std::uint64_t*, const std::uint64_t* places, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (places[i] != 7 + i) return 0;
    }
    return 1;
  };
  api.higher_order_ops_pass = [] {};
  api.tell_depth = [](int (*)()) {};
  api.works_alone = [] { return 0; };
  api.left_modules = [] {};
  api.end_drift_check = [] {};
  api.in_drift_check = [] { return 1; };
  api.in_compiled_code = [](int) {};
  ipexrun::preload::python_entry_run(lib_dir, api);
}

/// "class batch flags duration_ns\n" a call, then forgets them. Returns the bytes needed.
EXPORT std::size_t fake_calls(char* out, std::size_t size) {
  const std::lock_guard lock(mutex);
  std::string text;
  for (const Call& c : calls()) {
    text +=
        c.name + ' ' + std::to_string(c.call.batch) + ' ' + std::to_string(c.call.flags) + ' ' + std::to_string(c.call.duration_ns) + '\n';
  }
  if (text.size() < size) {
    std::memcpy(out, text.c_str(), text.size() + 1);
    calls().clear();
  }
  return text.size();
}

EXPORT void fake_explore() { ++explored; }
EXPORT void fake_remember(int yes) { remember = yes != 0; }
EXPORT std::uint64_t fake_count() { return counted.load(); }
