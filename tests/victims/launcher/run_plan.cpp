// Carries out a plan given on the command line, so that the runner can be tested without the planner's decisions.
//
//   run_plan [--cpus 0]... [--node N] [--log-dir DIR] [--run-dir DIR] [--capture] [--quiet] [--grace-ms N] [--stop-after-ms N]
//            [--max-restarts N] [--restart-pause-ms N] [--timeout-ms N] [--progress-after-ms N] -- PROGRAM args
// One instance for each --cpus (a list of OS CPU numbers, or "-" for unpinned); PROGRAM is an absolute path.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "configs/base/log.h"
#include "launcher/run/runner.h"
#include "launcher/run/warden.h"

namespace {

std::vector<int> numbers(const std::string& text) {
  std::vector<int> out;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) out.push_back(std::atoi(item.c_str()));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ipexrun;
  const launcher::Warden warden = launcher::split_off_warden();
  LaunchPlan plan;
  launcher::RunSettings settings;
  settings.warden = &warden;
  std::vector<std::string> cpus;
  std::vector<int> nodes;
  std::string log_dir;
  int stop_after_ms = 0;
  int i = 1;
  for (; i < argc && std::string(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--cpus") {
      cpus.push_back(value());
    } else if (word == "--node") {
      nodes = numbers(value());
    } else if (word == "--log-dir") {
      log_dir = value();
    } else if (word == "--run-dir") {
      settings.run_dir = value();
    } else if (word == "--capture") {
      settings.capture_output = true;
    } else if (word == "--quiet") {
      settings.quiet = true;
    } else if (word == "--grace-ms") {
      settings.grace_ms = std::atoi(value().c_str());
    } else if (word == "--max-restarts") {
      settings.max_restarts = std::atoi(value().c_str());
    } else if (word == "--restart-pause-ms") {
      settings.restart_pause_ms = std::atoi(value().c_str());
    } else if (word == "--progress-after-ms") {
      settings.progress_after_ms = std::atoi(value().c_str());
    } else if (word == "--timeout-ms") {
      const int limit_ms = std::atoi(value().c_str());
      settings.time_limit = launcher::TimeLimit{std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms), limit_ms / 1000.0};
    } else if (word == "--stop-after-ms") {
      stop_after_ms = std::atoi(value().c_str());
    } else {
      std::fprintf(stderr, "run_plan: what is %s?\n", word.c_str());
      return 2;
    }
  }
  if (cpus.empty()) cpus.emplace_back("-");
  for (std::size_t k = 0; k < cpus.size(); ++k) {
    InstancePlan instance;
    instance.index = static_cast<int>(k);
    if (cpus[k] != "-") instance.cpus = numbers(cpus[k]);
    if (!nodes.empty()) {
      instance.numa_nodes = nodes;
      instance.memory_policy = MemoryPolicy::kBind;
    }
    for (int a = i + 1; a < argc; ++a) instance.argv.emplace_back(argv[a]);
    if (!instance.argv.empty()) instance.executable = instance.argv.front();
    instance.env["INSTANCE"] = std::to_string(k);
    if (!log_dir.empty()) instance.log_path = log_dir + "/run_" + std::to_string(k) + ".log";
    plan.instances.push_back(instance);
  }
  int ticks = 0;
  if (stop_after_ms > 0) {
    settings.tick_ms = stop_after_ms;
    settings.tick = [&ticks] { return ++ticks < 2; };
  }
  const auto outcome = launcher::posix_runner().run(plan, settings);
  if (!outcome) {
    log::error(outcome.error().line());
    return outcome.error().code;
  }
  for (const launcher::InstanceOutcome& instance : outcome.value().instances) {
    log::info("outcome " + std::to_string(instance.index) + " code " + std::to_string(instance.exit_code) + " stopped " +
              std::to_string(static_cast<int>(instance.stopped_by_us)) + " restarts " + std::to_string(instance.restarts) + " rss " +
              std::to_string(instance.max_rss_bytes) + " output " + instance.output_path);
  }
  return outcome.value().exit_code;
}
