#include "tuner/run/launch.h"

#include <algorithm>

#include "launcher/cli/cli.h"
#include "launcher/cli/option_table.h"
#include "launcher/plan/show.h"
#include "tuner/space/knobs.h"

namespace ipexrun::tuner {
namespace {

/// {name} replaced; what is no placeholder of the space stays.
std::string filled(std::string word, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    const std::string hole = "{" + name + "}";
    for (std::size_t at = 0; (at = word.find(hole, at)) != std::string::npos; at += value.size()) word.replace(at, hole.size(), value);
  }
  return word;
}

void add_option(const std::string& name, std::string value, std::vector<std::string>* out) {
  const launcher::OptionRow* row = launcher::find_option(name);
  if (row != nullptr && row->is_flag()) {
    if (value == "true" || value == "True" || value == "1") out->push_back("--" + name);
    return;
  }
  out->push_back("--" + name + "=" + value);
}

}  // namespace

LaunchWords words_of(const Space& space, const Point& point, const LaunchBase& base) {
  LaunchWords out;
  std::map<std::string, std::string> holes = {{"budget", text_of(Value(base.budget))}};
  for (const Parameter& one : space.parameters) {
    const auto found = point.find(one.name);
    if (found == point.end() || std::holds_alternative<std::monostate>(found->second)) {
      if (one.target == Target::kArg) holes[one.key] = "";
      continue;
    }
    const std::string value = text_of(found->second);
    if (one.target == Target::kOption) add_option(one.key, value, &out.options);
    if (one.target == Target::kEnv) out.env[one.key] = value;
    if (one.target == Target::kArg) holes[one.key] = value;
    if (one.target == Target::kKnob) {
      const auto effect = find_knob(one.key)->effect(found->second);
      if (!effect) continue;
      for (const auto& [name, text] : effect->options) add_option(name, text, &out.options);
      for (const auto& [name, text] : effect->env) out.env[name] = text;
    }
  }
  if (!base.cpus.empty()) out.options.push_back("--cores-list=" + launcher::cpu_list_text(base.cpus));
  if (base.no_python) out.options.emplace_back("--no-python");
  for (const std::string& word : base.program) out.program.push_back(filled(word, holes));
  return out;
}

Result<launcher::Options> options_of(const LaunchWords& words) {
  std::vector<std::string> args = words.options;
  if (!words.program.empty() && words.program.front() != "-m") args.emplace_back("--");
  args.insert(args.end(), words.program.begin(), words.program.end());
  Result<launcher::Options> out = launcher::parse_command_line(args);
  if (out.ok())
    for (const auto& [name, value] : words.env) out->env[name] = value;
  return out;
}

Feasibility LaunchPlanner::check(const LaunchWords& words) {
  Feasibility out;
  const Result<launcher::Options> options = options_of(words);
  if (!options.ok()) {
    out.why = options.error().what;
    out.code = options.error().code;
    return out;
  }
  const std::string looked_up =
      options->memory_allocator + "|" + options->omp_runtime + "|" + options->memory + "|" + (options->optimize ? "1" : "0");
  auto known = contexts_.find(looked_up);
  if (known == contexts_.end()) known = contexts_.emplace(looked_up, look_up_(*options, machine_)).first;
  if (!known->second.ok()) {
    out.why = known->second.error().what;
    out.code = known->second.error().code;
    return out;
  }
  const Result<LaunchPlan> plan = launcher::make_plan(*options, machine_, *known->second);
  if (!plan.ok()) {
    out.why = plan.error().what;
    out.code = plan.error().code;
    return out;
  }
  out.plan_key = plan_key(*plan);
  out.instances = static_cast<int>(plan->instances.size());
  return out;
}

std::string plan_key(const LaunchPlan& plan) {
  std::string out = plan.pin ? "pinned" : "free";
  for (const InstancePlan& one : plan.instances) {
    out += "\n" + launcher::cpu_list_text(one.cpus) + "|" + launcher::cpu_list_text(one.numa_nodes) + "|" +
           std::to_string(static_cast<int>(one.memory_policy)) + "|" + std::to_string(one.threads);
    for (const auto& [name, value] : one.env) out += "|" + name + "=" + value;
    for (const std::string& name : one.unset_env) out += "|-" + name;
    for (const std::string& word : one.argv) out += " " + launcher::shell_quoted(word);
  }
  return out;
}

std::vector<int> slice_of(const launcher::Machine& machine, int jobs, int index) {
  std::vector<int> out;
  const std::size_t cores = machine.cores.size();
  const auto n = static_cast<std::size_t>(jobs);
  const auto i = static_cast<std::size_t>(index);
  for (std::size_t at = cores * i / n; at < cores * (i + 1) / n; ++at)
    out.insert(out.end(), machine.cores[at].pus.begin(), machine.cores[at].pus.end());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ipexrun::tuner
