#include "launcher/run/trial.h"

#include <string.h>

#include <chrono>

#include "configs/contract/env.h"
#include "configs/contract/event_ring.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher {
namespace {

constexpr auto kLongest = std::chrono::minutes(2);  // torch from a cold network file system

}  // namespace

std::string Trial::isa() const {
  const std::size_t first = process.find(", ");
  if (first == std::string::npos) return "";
  return process.substr(first + 2, process.find(", ", first + 2) - first - 2);
}

std::string Trial::shim_reason() const { return {header.shim_reason, ::strnlen(header.shim_reason, sizeof header.shim_reason)}; }

Trial try_run(const std::vector<std::string>& argv, const std::string& lib_dir, const std::string& plugin_dir, const Machine& machine,
              const std::string& run_dir) {
  LaunchPlan plan;
  InstancePlan instance;
  instance.argv = argv;
  instance.executable = argv.front();
  const std::string shim = lib_dir + "/libipexrun_shim.so";
  instance.env = {{"LD_PRELOAD", shim},
                  {env::name(env::Id::kPreload), shim},
                  {env::name(env::Id::kLibDir), lib_dir},
                  {env::name(env::Id::kPluginDir), plugin_dir},
                  {env::name(env::Id::kMode), "observe"},
                  {env::name(env::Id::kCache), "off"},
                  {env::name(env::Id::kDisable), ""},
                  {env::name(env::Id::kLog), "error"}};
  if (!machine.cores.empty()) {
    instance.cpus = {machine.cores.front().pus.front()};
    instance.numa_nodes = {machine.cores.front().node};
    instance.memory_policy = MemoryPolicy::kBind;
  }
  plan.instances.push_back(instance);
  RunSettings settings;
  settings.run_dir = run_dir;
  settings.quiet = true;
  settings.progress_after_ms = -1;
  const auto begin = std::chrono::steady_clock::now();
  bool in_time = true;
  settings.tick = [&] { return in_time = std::chrono::steady_clock::now() - begin < kLongest; };
  Trial trial;
  const auto outcome = posix_runner().run(plan, settings);
  if (!outcome) {
    trial.problem = outcome.error().line();
    return trial;
  }
  trial.exit_code = outcome->exit_code;
  const auto events = read_events(events_path_in(run_dir, 0));
  trial.ran = events.ok() && in_time;
  if (events) {
    trial.header = events->header;
    for (const IpexrunEvent& event : events->events) {
      if (event.kind == IPEXRUN_EVENT_PROCESS) trial.process = event.text;
    }
  } else {
    trial.problem = events.error().line();
  }
  if (!in_time) trial.problem = "it did not end within two minutes";
  return trial;
}

}  // namespace ipexrun::launcher
