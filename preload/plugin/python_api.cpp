// Connects the Python side to the tier: the function table that python_entry.cpp hands over.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorImpl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <string>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "configs/contract/event_ring.h"
#include "preload/plugin/drift_switch.h"
#include "preload/plugin/phases.h"
#include "preload/plugin/python_entry.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"
#include "preload/plugin/warned.h"

namespace ipexrun::preload {
namespace {

std::int32_t thread_id() {
  static thread_local const std::int32_t id = ::gettid();
  return id;
}

void write_call(const IpexrunHookCall* call) {
  IpexrunEvent event{};
  event.kind = IPEXRUN_EVENT_CALL;
  event.flags = call->flags;
  event.start_ns = call->start_ns;
  event.duration_ns = call->duration_ns;
  event.thread = thread_id();
  event.value[0] = call->batch;
  events().write(event, call->class_name);
  phases_note_call(call->duration_ns, call->batch);
}

int force(const char* candidate) {
  try {
    return tier_force(candidate) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

int optimizing() {
  static const bool on = env::get(env::Id::kMode).value_or("optimize") == "optimize";
  return on ? 1 : 0;
}

std::size_t report(char* out, std::size_t bytes) {
  try {
    const std::string text = tier_report_json();
    if (text.size() < bytes) std::memcpy(out, text.c_str(), text.size() + 1);
    return text.size();
  } catch (const std::exception&) {
    return 0;
  }
}

double capture_wait_s() {
  const std::string mode = env::get(env::Id::kGraphMode).value_or("auto");
  if (mode == "dynamo" || mode == "trace") return 0;
  const std::string text = env::get(env::Id::kGraphWait).value_or("");
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && seconds >= 0) return seconds;
  // Where earlier processes left decisions about modules, one that is not tiny may be among them.
  constexpr double kKnownModules = 0.02;
  TierState* state = tier();
  if (state == nullptr) return 1;
  state->decisions.load(std::time(nullptr));
  return state->decisions.knows("module:") ? kKnownModules : 1;
}

int same_places(const std::uint64_t* tensors, const std::uint64_t* places, std::size_t count) {
  try {
    for (std::size_t i = 0; i < count; ++i) {
      const auto* tensor = reinterpret_cast<const c10::TensorImpl*>(static_cast<std::uintptr_t>(tensors[i]));
      if (reinterpret_cast<std::uintptr_t>(tensor->data()) != places[i]) return 0;
    }
    return 1;
  } catch (const std::exception&) {  // one that has become a tensor without memory
    return 0;
  }
}

std::size_t kept_warnings(void (*take)(const char* message, void* to), void* to) {
  const std::string messages = warned_end();
  std::size_t count = 0;
  for (std::size_t at = 0; at < messages.size(); at += std::strlen(messages.c_str() + at) + 1) {
    take(messages.c_str() + at, to);
    ++count;
  }
  return count;
}

IpexrunHookApi make_api() {
  IpexrunHookApi api{};
  api.abi = IPEXRUN_HOOK_ABI;
  api.size = sizeof api;
  // A process that does not own the event file (a child of the instance) has nobody to report to.
  api.bench = env::get_flag(env::Id::kBench) && events().active() ? 1 : 0;
  // Which form of a module answers is decided by timing.
  api.capture = optimizing() != 0 && env::get(env::Id::kGraphMode).value_or("auto") != "off" &&
                        env::get(env::Id::kSelect).value_or("on") != "off" && tier() != nullptr
                    ? 1
                    : 0;
  api.capture_wait_s = capture_wait_s();
  api.call = write_call;
  api.exploration_count = [] { return exploration_count(); };
  api.exploration_ns = [] { return exploration_ns(); };
  api.enabled = [] { return tier_enabled() ? 1 : 0; };
  api.grad_enabled = [] { return c10::GradMode::is_enabled() ? 1 : 0; };
  api.set_enabled = [](int on) { tier_set_enabled(on != 0); };
  api.force = force;
  api.force_here = [](const char* candidate) { return tier_force_here(candidate) ? 1 : 0; };
  api.optimizing = optimizing;
  api.report = report;
  api.higher_order_ops_pass = [] { drift_python_is_ready(); };
  api.end_drift_check = [] { drift_leave(); };
  api.in_drift_check = [] { return static_cast<int>(drift_is_open()); };
  api.in_compiled_code = [](int inside) { drift_in_compiled_code(inside != 0); };
  api.tell_depth = [](int (*depth)()) { drift_tell_depth(depth); };
  api.same_places = same_places;
  api.works_alone = [] { return at::get_num_threads() == 1 ? 1 : 0; };
  api.left_modules = [] { drift_left_modules(); };
  api.keep_warnings = [] { warned_begin(); };
  api.kept_warnings = kept_warnings;
  return api;
}

}  // namespace

void python_entry_start(const IpexrunStart& start) {
  try {
    static const IpexrunHookApi api = make_api();
    if (api.bench != 0) phases_start();
    python_entry_run(start.lib_dir, api);
  } catch (const std::exception& problem) {
    log::debug(std::string("python hook: left out: ") + problem.what());
  }
}

}  // namespace ipexrun::preload
