#include "tuner/space/parameter_names.h"

#include <algorithm>

#include "launcher/cli/option_table.h"
#include "launcher/plan/text.h"
#include "tuner/space/knobs.h"
#include "tuner/space/space_file.h"

namespace ipexrun::tuner {
namespace {

using launcher::OptionGroup;
using launcher::OptionRow;

/// Options that say how a program is launched; logs, reports and measuring are the tuner's own.
bool tunable(const OptionRow& row) {
  return row.in_config && (row.group == OptionGroup::kInstances || row.group == OptionGroup::kProcess) && row.name != "instance-idx";
}

Status check_value(const Parameter& p, const Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return ok_status();
  if (p.target == Target::kOption) {
    const OptionRow* row = launcher::find_option(p.key);
    launcher::Options scratch;
    Status fits = row->set(scratch, text_of(value));
    return fits;
  }
  if (p.target == Target::kKnob && !find_knob(p.key)->effect(value)) {
    std::string wanted;
    for (const std::string& one : find_knob(p.key)->choices) wanted += (wanted.empty() ? "one of " : ", ") + one;
    return Error{kExitUsage, p.name + " does not take '" + text_of(value) + "'", wanted.empty() ? "whole numbers from 1, or -1" : wanted};
  }
  return ok_status();
}

Parameter choice(const std::string& name, std::vector<Value> values) {
  Parameter out = *name_parameter(name);
  out.values = std::move(values);
  return out;
}

/// 1, 2, 4, ... and `most`.
std::vector<Value> doublings(std::size_t most) {
  std::vector<Value> out;
  for (std::size_t n = 1; n < most; n *= 2) out.emplace_back(static_cast<std::int64_t>(n));
  out.emplace_back(static_cast<std::int64_t>(std::max<std::size_t>(1, most)));
  return out;
}

std::vector<Value> split_values(const std::string& text) {
  std::vector<Value> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    out.push_back(parse_value(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

}  // namespace

Result<Parameter> name_parameter(const std::string& name) {
  Parameter out;
  out.name = name;
  if (name.starts_with("env.") || name.starts_with("args.")) {
    out.target = name.starts_with("env.") ? Target::kEnv : Target::kArg;
    out.key = name.substr(name.find('.') + 1);
    if (out.key.empty() || out.key.find('=') != std::string::npos) return Error{kExitUsage, "'" + name + "' names nothing", ""};
    return out;
  }
  std::vector<std::string> known;
  for (const Knob& knob : knobs()) {
    if (knob.ipex) continue;
    std::string dashes = name;
    std::replace(dashes.begin(), dashes.end(), '_', '-');
    if (dashes == knob.name) {
      out.target = Target::kKnob;
      out.name = out.key = knob.name;
      return out;
    }
    known.emplace_back(knob.name);
  }
  const OptionRow* row = launcher::find_option(name);
  if (row != nullptr && tunable(*row)) {
    out.name = out.key = row->name;
    return out;
  }
  if (row != nullptr)
    return Error{kExitUsage, "'" + name + "' is no option that a trial can have", "what is measured and where logs go is hypertune's"};
  for (const OptionRow& one : launcher::option_table())
    if (tunable(one)) known.push_back(one.name);
  const std::string near = launcher::nearest_word(name, known);
  return Error{
      kExitUsage, "unknown parameter '" + name + "'",
      near.empty() ? "parameters are long options of ipexrun, env.NAME, args.NAME, omp-wait-policy and thp" : "did you mean " + near + "?"};
}

Status check_values(const Parameter& p) {
  if (p.kind == Kind::kCategory) {
    for (const Value& value : p.values)
      if (Status fits = check_value(p, value); !fits.ok()) return fits;
  } else {
    if (Status right = check_range(p); !right.ok()) return right;
    for (const double share : {0.0, 0.999999})
      if (Status fits = check_value(p, value_at(p, share)); !fits.ok()) return fits;
  }
  return p.fallback ? check_value(p, *p.fallback) : ok_status();
}

Space default_space(const std::string& objective, const launcher::Machine& machine, const std::vector<std::string>& allocators) {
  Space out;
  const std::size_t cores = std::max<std::size_t>(1, machine.cores.size());
  const bool smt = std::any_of(machine.cores.begin(), machine.cores.end(), [](const launcher::Core& core) { return core.pus.size() > 1; });
  if (objective == "throughput") {
    if (cores > 1) out.parameters.push_back(choice("ninstances", doublings(cores)));
  } else if (cores > 1) {
    out.parameters.push_back(choice("ncores-per-instance", doublings(cores)));
    out.parameters.push_back(choice("ninstances", {std::int64_t{1}}));
  }
  std::vector<Value> mallocs = {std::string("default")};
  mallocs.insert(mallocs.end(), allocators.begin(), allocators.end());
  if (mallocs.size() > 1) out.parameters.push_back(choice("memory-allocator", mallocs));
  out.parameters.push_back(choice("omp-wait-policy", {std::string("default"), std::string("active"), std::string("passive")}));
  out.parameters.push_back(choice("thp", {std::string("off"), std::string("on")}));
  if (smt) out.parameters.push_back(choice("use-logical-cores", {std::string("false"), std::string("true")}));
  return out;
}

Result<Parameter> parse_set(const std::string& name, const std::string& text, const launcher::Machine& machine) {
  Result<Parameter> out = name_parameter(name);
  if (!out.ok()) return out;
  const std::size_t dots = text.find("..");
  const std::string flag = text.ends_with("*") ? text.substr(0, text.size() - 1) : text;
  const auto low = dots == std::string::npos ? std::nullopt : launcher::parse_number<double>(flag.substr(0, dots));
  const auto high = dots == std::string::npos ? std::nullopt : launcher::parse_number<double>(flag.substr(dots + 2));
  if (low && high) {
    // By what they are, not by their points: 1e-5..1e-2 has none.
    const bool whole =
        launcher::parse_number<std::int64_t>(flag.substr(0, dots)) && launcher::parse_number<std::int64_t>(flag.substr(dots + 2));
    out->kind = whole ? Kind::kInt : Kind::kFloat;
    out->low = *low;
    out->high = *high;
    out->log = flag != text;
  } else if (text.starts_with("all_")) {
    out->values = core_counts(text, machine);
    if (out->values.empty())
      return Error{kExitUsage, "--set " + name + ": unknown word '" + text + "'", "all_physical_cores or all_logical_cores"};
  } else {
    out->values = split_values(text);
  }
  if (Status fits = check_values(*out); !fits.ok()) return fits.error();
  return out;
}

}  // namespace ipexrun::tuner
