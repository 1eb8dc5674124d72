#include "tuner/space/space_file.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "launcher/bench/metric.h"
#include "launcher/cli/option_table.h"
#include "launcher/plan/text.h"
#include "tuner/cli/settings_table.h"
#include "tuner/objective/measured.h"
#include "tuner/space/knobs.h"
#include "tuner/space/parameter_names.h"

namespace ipexrun::tuner {
namespace {

constexpr std::size_t kMostBytes = 1u << 20;

/// Where in the file: "FILE:3".
struct Place {
  std::string path;

  [[nodiscard]] Error error(const YAML::Node& at, const std::string& what, const std::string& hint = "") const {
    return Error{kExitUsage, path + ":" + std::to_string(at.Mark().line + 1) + ": " + what, hint};
  }
};

Error unknown_key(const Place& place, const YAML::Node& at, const std::string& what, const std::vector<std::string>& known) {
  const std::string near = launcher::nearest_word(at.Scalar(), known);
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "known are " : ", ") + one;
  return place.error(at, "unknown " + what + " '" + at.Scalar() + "'",
                     !near.empty()       ? "did you mean " + near + "?"
                     : known.size() > 12 ? ""
                                         : all);
}

Value value_of_node(const YAML::Node& node) {
  if (node.IsNull()) return std::monostate{};
  if (node.Tag() == "!") return node.Scalar();  // quoted: a text even if it looks like a number
  return parse_value(node.Scalar());
}

Result<std::vector<Value>> list_of(const Place& place, const std::string& name, const YAML::Node& node, const launcher::Machine& machine) {
  std::vector<Value> out;
  if (node.IsScalar() && node.Scalar().starts_with("all_")) {
    out = core_counts(node.Scalar(), machine);
    if (out.empty()) return place.error(node, name + ": unknown word '" + node.Scalar() + "'", "all_physical_cores or all_logical_cores");
  } else if (node.IsScalar() || node.IsNull()) {
    out.push_back(value_of_node(node));
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (!item.IsScalar() && !item.IsNull()) return place.error(item, name + " needs a list of plain values");
      out.push_back(value_of_node(item));
    }
  } else {
    return place.error(node, name + " needs a value or a list of values");
  }
  if (out.empty()) return place.error(node, name + " has an empty list of values");
  return out;
}

Result<Condition> condition_of(const Place& place, const YAML::Node& name, const YAML::Node& wanted, const launcher::Machine& machine) {
  Condition out;
  const Result<Parameter> named = name_parameter(name.Scalar());
  out.parameter = named.ok() ? named->name : name.Scalar();  // dashes and underscores alike
  if (wanted.IsScalar() && wanted.Scalar().find_first_of("<>!") == 0) {
    const std::string text = wanted.Scalar();
    const std::size_t length = text.size() > 1 && text[1] == '=' ? 2 : 1;
    const std::string op = text.substr(0, length);
    const std::size_t rest = text.find_first_not_of(' ', length);
    if (rest == std::string::npos || op == "!")
      return place.error(wanted, "the condition on " + out.parameter + " needs a value after '" + op + "'");
    out.op = op == "<"    ? Condition::Op::kLess
             : op == "<=" ? Condition::Op::kLessEqual
             : op == ">"  ? Condition::Op::kGreater
             : op == ">=" ? Condition::Op::kGreaterEqual
                          : Condition::Op::kNotIn;
    out.values = {parse_value(text.substr(rest))};
    if (out.op != Condition::Op::kNotIn && !number_of(out.values.front()))
      return place.error(wanted, "the condition on " + out.parameter + " compares with a number");
    return out;
  }
  auto values = list_of(place, "the condition on " + out.parameter, wanted, machine);
  if (!values.ok()) return values.error();
  out.values = std::move(*values);
  return out;
}

/// [low, high] of `int:` or `float:`.
Status read_range(const Place& place, const YAML::Node& node, const std::string& kind, Parameter* out) {
  const auto number = [&](const YAML::Node& item) -> std::optional<double> {
    if (!item.IsScalar()) return std::nullopt;
    const auto value = launcher::parse_number<double>(item.Scalar());
    return value && (kind == "float" || launcher::parse_number<std::int64_t>(item.Scalar())) ? value : std::nullopt;
  };
  if (!node.IsSequence() || node.size() != 2 || !number(node[0]) || !number(node[1]))
    return place.error(node, out->name + ": " + kind + " needs [low, high]" + (kind == "int" ? ", whole numbers" : ""));
  out->kind = kind == "int" ? Kind::kInt : Kind::kFloat;
  out->low = *number(node[0]);
  out->high = *number(node[1]);
  return ok_status();
}

Result<Parameter> read_parameter(const Place& place, Parameter out, const YAML::Node& node, const launcher::Machine& machine) {
  out.place = place.path + ":" + std::to_string(node.Mark().line + 1);
  if (!node.IsMap()) {
    auto values = list_of(place, out.name, node, machine);
    if (!values.ok()) return values.error();
    out.values = std::move(*values);
  } else {
    static const std::vector<std::string> known = {"values", "int", "float", "log", "step", "points", "default", "when"};
    std::string kind;
    for (const auto& pair : node) {
      const std::string key = pair.first.Scalar();
      const YAML::Node value = pair.second;
      if (key == "values" || key == "int" || key == "float") {
        if (!kind.empty()) return place.error(pair.first, out.name + " has " + kind + " and " + key, "give one of values, int and float");
        kind = key;
      }
      if (key == "values") {
        auto values = list_of(place, out.name, value, machine);
        if (!values.ok()) return values.error();
        out.values = std::move(*values);
      } else if (key == "int" || key == "float") {
        if (Status read = read_range(place, value, key, &out); !read.ok()) return read.error();
      } else if (key == "log") {
        const std::string text = value.IsScalar() ? value.Scalar() : "";
        out.log = text == "true" || text == "True";
        if (!out.log && text != "false" && text != "False") return place.error(value, out.name + ": log needs true or false");
      } else if (key == "step" || key == "points") {
        const auto number = launcher::parse_number<double>(value.IsScalar() ? value.Scalar() : "");
        if (!number || !(*number > 0) || (key == "points" && (*number > 10000 || *number != static_cast<int>(*number))))
          return place.error(
              value, out.name + ": " + key + (key == "points" ? " needs a whole number from 1 to 10000" : " needs a number above 0"));
        if (key == "step") {
          out.step = *number;
        } else {
          out.points = static_cast<int>(*number);
        }
      } else if (key == "default") {
        if (!value.IsScalar() && !value.IsNull()) return place.error(value, out.name + ": default needs one value");
        out.fallback = value_of_node(value);
      } else if (key == "when") {
        if (!value.IsMap()) return place.error(value, out.name + ": when needs PARAMETER: value, a list of values, or \"> 1\"");
        for (const auto& one : value) {
          auto condition = condition_of(place, one.first, one.second, machine);
          if (!condition.ok()) return condition.error();
          out.when.push_back(std::move(*condition));
        }
      } else {
        return unknown_key(place, pair.first, "key of " + out.name, known);
      }
    }
    if (out.kind == Kind::kCategory && out.values.empty())
      return place.error(node, out.name + " has no values", "values: [...], int: [low, high] or float: [low, high]");
  }
  if (Status fits = check_values(out); !fits.ok()) return place.error(node, fits.error().what, fits.error().hint);
  return out;
}

Status read_space(const Place& place, const YAML::Node& node, const launcher::Machine& machine, SpaceFile* out) {
  if (!node.IsMap()) return place.error(node, "space needs launcher:, env: and args:, each with parameters");
  for (const auto& section : node) {
    const std::string key = section.first.Scalar();
    if (key != "launcher" && key != "env" && key != "args")
      return unknown_key(place, section.first, "section of space", {"launcher", "env", "args"});
    if (section.second.IsNull()) continue;
    if (!section.second.IsMap()) return place.error(section.second, "space." + key + " needs NAME: values");
    for (const auto& pair : section.second) {
      const std::string name = (key == "launcher" ? "" : key + ".") + pair.first.Scalar();
      Result<Parameter> named = name_parameter(name);
      if (!named.ok()) return place.error(pair.first, named.error().what, named.error().hint);
      Result<Parameter> read = read_parameter(place, std::move(*named), pair.second, machine);
      if (!read.ok()) return read.error();
      if (out->space.find(read->name) != nullptr) return place.error(pair.first, "'" + read->name + "' is given twice");
      out->space.parameters.push_back(std::move(*read));
    }
  }
  return ok_status();
}

/// hyperparams.launcher of IPEX's hypertune: `hp` names what is tuned; what it does not name keeps ipexrun's default.
Status read_hyperparams(const Place& place, const YAML::Node& node, const launcher::Machine& machine, SpaceFile* out) {
  if (!node.IsMap()) return place.error(node, "hyperparams needs launcher:");
  std::vector<std::string> known;
  for (const Knob& one : knobs())
    if (one.ipex) known.emplace_back(one.name);
  for (const auto& part : node) {
    if (part.first.Scalar() != "launcher") return unknown_key(place, part.first, "part of hyperparams", {"launcher"});
    const YAML::Node& launcher = part.second;
    if (!launcher.IsMap() || !launcher["hp"])
      return place.error(part.first, "hyperparams.launcher needs hp: the list of what is tuned",
                         "hp: ['ncores_per_instance', 'ninstances']");
    for (const auto& pair : launcher)
      if (pair.first.Scalar() != "hp" && std::find(known.begin(), known.end(), pair.first.Scalar()) == known.end())
        return unknown_key(place, pair.first, "launcher hyperparameter", known);
    if (!launcher["hp"].IsSequence()) return place.error(launcher["hp"], "hp needs a list of names");
    for (const YAML::Node& item : launcher["hp"]) {
      const std::string name = item.IsScalar() ? item.Scalar() : "";
      const Knob* knob = find_knob(name);
      if (knob == nullptr || !knob->ipex) return unknown_key(place, item, "launcher hyperparameter", known);
      Parameter one;
      one.name = one.key = name;
      one.target = Target::kKnob;
      const YAML::Node given = launcher[name];
      if (given) {
        Result<Parameter> read = read_parameter(place, one, given, machine);
        if (!read.ok()) return read.error();
        one = std::move(*read);
      } else {
        one.values = knob->default_values(machine);
      }
      if (out->space.find(name) != nullptr) return place.error(item, "'" + name + "' is given twice");
      out->space.parameters.push_back(std::move(one));
    }
  }
  return ok_status();
}

Status read_tuning(const Place& place, const YAML::Node& node, SpaceFile* out) {
  if (!node.IsMap()) return place.error(node, "tuning needs KEY: value");
  std::vector<std::string> known;
  for (const SettingRow& row : settings_table())
    if (row.in_file) known.push_back(row.name);
  Settings scratch;  // checked here, where the line is known
  for (const auto& pair : node) {
    const SettingRow* row = find_setting(pair.first.Scalar());
    if (row == nullptr || !row->in_file) return unknown_key(place, pair.first, "key of tuning", known);
    if (!pair.second.IsScalar()) return place.error(pair.second, row->name + " needs one value");
    if (Status fits = row->set(scratch, pair.second.Scalar()); !fits.ok())
      return place.error(pair.second, fits.error().what, fits.error().hint);
    out->tuning.emplace_back(row->name, pair.second.Scalar());
  }
  return ok_status();
}

Result<Objective> read_objective(const Place& place, const YAML::Node& node) {
  if (node.IsScalar()) {
    auto parsed = parse_objective(node.Scalar());
    return parsed.ok() ? parsed : Result<Objective>(place.error(node, parsed.error().what, parsed.error().hint));
  }
  if (!node.IsMap())
    return place.error(
        node, "an objective is a word such as throughput, or {name: ..., printed: ... or regex: ... or bench: ..., higher_is_better: ...}");
  Objective out;
  bool sourced = false;
  bool direction = false;
  for (const auto& pair : node) {
    const std::string key = pair.first.Scalar();
    const YAML::Node value = pair.second;
    if (!value.IsScalar()) return place.error(value, key + " needs one value");
    const std::string text = value.Scalar();
    if (key == "name") {
      out.name = text;
    } else if (key == "printed" || key == "regex" || key == "bench") {
      if (sourced) return place.error(pair.first, "an objective has one of printed, regex and bench");
      sourced = true;
      out.source = key == "printed" ? Source::kPrinted : key == "regex" ? Source::kRegex : Source::kBench;
      out.key = text;
      if (key == "regex" && !launcher::bench::check_metric_regex(text).ok())
        return place.error(value, "'" + text + "' is no expression with one group");
      if (key == "bench") {
        if (auto known = parse_objective("bench:" + text); !known.ok()) return place.error(value, known.error().what, known.error().hint);
        if (!direction) out.higher_is_better = field_higher_is_better(text);
      }
    } else if (key == "higher_is_better") {
      if (text != "true" && text != "false" && text != "True" && text != "False")
        return place.error(value, "higher_is_better needs true or false");
      out.higher_is_better = text == "true" || text == "True";
      direction = true;
    } else if (key == "target_val" || key == "target") {
      out.target = launcher::parse_number<double>(text);
      if (!out.target) return place.error(value, key + " needs a number");
    } else if (key == "aggregate") {
      const auto how = parse_aggregate(text);
      if (!how) return place.error(value, "aggregate is sum, max, min or mean");
      out.aggregate = *how;
    } else {
      return unknown_key(place, pair.first, "key of an objective",
                         {"name", "printed", "regex", "bench", "higher_is_better", "target", "aggregate"});
    }
  }
  if (out.name.empty()) out.name = out.key;
  if (out.name.empty()) return place.error(node, "an objective needs a name");
  if (!sourced) out.key = out.name;
  if (out.source == Source::kRegex && !direction) return place.error(node, out.name + ": say higher_is_better: true or false");
  return out;
}

Status read_root(const Place& place, const YAML::Node& root, const launcher::Machine& machine, SpaceFile* out) {
  if (!root.IsMap()) return place.error(root, "a file for hypertune needs tuning:, space: and the like");
  static const std::vector<std::string> known = {"tuning", "output_dir", "hyperparams", "space", "objectives", "constraints"};
  std::set<std::string> seen;
  for (const auto& pair : root) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "";
    const YAML::Node value = pair.second;
    if (!seen.insert(key).second) return place.error(pair.first, "'" + key + "' is given twice");
    if (value.IsNull() && key != "output_dir") continue;
    Status done = ok_status();
    if (key == "tuning") {
      done = read_tuning(place, value, out);
    } else if (key == "space" || key == "hyperparams") {
      if (out->has_space) return place.error(pair.first, "space and hyperparams are two forms of the same: give one");
      out->has_space = true;
      out->old_form = key == "hyperparams";
      done = out->old_form ? read_hyperparams(place, value, machine, out) : read_space(place, value, machine, out);
    } else if (key == "output_dir" || key == "output-dir") {
      if (!value.IsScalar() || value.Scalar().empty()) return place.error(pair.first, "output_dir needs a folder");
      out->output_dir = value.Scalar();
    } else if (key == "objectives") {
      if (!value.IsSequence()) return place.error(value, "objectives needs a list");
      for (const YAML::Node& item : value) {
        auto objective = read_objective(place, item);
        if (!objective.ok()) return objective.error();
        if (Status added = add_objective(std::move(*objective), &out->objectives); !added.ok())
          return place.error(item, added.error().what, added.error().hint);
      }
    } else if (key == "constraints") {
      if (!value.IsSequence()) return place.error(value, "constraints needs a list such as [\"p99_ms < 20\"]");
      for (const YAML::Node& item : value) {
        auto constraint = parse_constraint(item.IsScalar() ? item.Scalar() : "");
        if (!constraint.ok()) return place.error(item, constraint.error().what, constraint.error().hint);
        out->constraints.push_back(*constraint);
      }
    } else {
      return unknown_key(place, pair.first, "key", known);
    }
    if (!done.ok()) return done.error();
  }
  return ok_status();
}

}  // namespace

Result<SpaceFile> parse_space_file(const std::string& text, const std::string& path, const launcher::Machine& machine) {
  SpaceFile out;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return out;
    if (Status read = read_root(Place{path}, root, machine, &out); !read.ok()) return read.error();
  } catch (const YAML::Exception& failure) {
    return Error{kExitUsage, path + ":" + std::to_string(failure.mark.line + 1) + ": not valid YAML: " + failure.msg, ""};
  }
  return out;
}

Result<SpaceFile> read_space_file(const std::string& path, const launcher::Machine& machine) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Error{kExitUsage, "cannot read '" + path + "': " + std::strerror(errno), ""};
  if (!S_ISREG(info.st_mode) || static_cast<std::size_t>(info.st_size) > kMostBytes)
    return Error{kExitUsage, "'" + path + "' is no file of at most " + std::to_string(kMostBytes) + " bytes", ""};
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Error{kExitUsage, "cannot read '" + path + "'", "is it readable by this user?"};
  return parse_space_file(text.str(), path, machine);
}

}  // namespace ipexrun::tuner
