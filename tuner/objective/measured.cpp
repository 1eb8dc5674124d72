#include "tuner/objective/measured.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "launcher/bench/metric.h"
#include "launcher/bench/report.h"
#include "launcher/plan/text.h"

namespace ipexrun::tuner {
namespace {

using Json = nlohmann::json;

constexpr const char* kToken = "@hypertune";
constexpr std::size_t kShownNames = 8;

/// A dictionary as Python prints or writes it, with plain values: quotes of both kinds, True, False, None, inf. As JSON text.
std::string json_of_python(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'' || c == '"') {
      std::string inside;
      std::size_t end = i + 1;
      for (; end < text.size() && text[end] != c; ++end) {
        if (text[end] == '\\' && end + 1 < text.size()) ++end;
        inside += text[end];
      }
      out += Json(inside).dump(-1, ' ', false, Json::error_handler_t::replace);
      i = end;
      continue;
    }
    bool replaced = false;
    for (const auto& [word, json] :
         {std::pair{"True", "true"}, {"False", "false"}, {"None", "null"}, {"-inf", "null"}, {"inf", "null"}, {"nan", "null"}}) {
      if (text.compare(i, std::string(word).size(), word) != 0) continue;
      out += json;
      i += std::string(word).size() - 1;
      replaced = true;
      break;
    }
    if (!replaced) out += c;
  }
  return out;
}

std::optional<double> first_number(const std::string& coloured) {
  const std::string line = launcher::bench::without_colours(coloured);
  const std::size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string::npos) return std::nullopt;
  const std::size_t last = line.find_last_not_of(" \t\r");
  std::string text = line.substr(first, last - first + 1);
  if (text.front() == '+') text.erase(0, 1);
  return launcher::parse_number<double>(text);
}

std::string names_text(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < kShownNames; ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShownNames ? out + ", ..." : out;
}

/// The last value of `name` that each instance printed; an instance without one gives nothing.
std::vector<double> printed_values(const RunOutput& run, const std::string& name, std::vector<std::string>* names,
                                   std::vector<std::string>* problems) {
  std::vector<double> out;
  for (const std::string& text : run.texts) {
    std::optional<double> last;
    for (const Printed& one : parse_printed(text, problems)) {
      if (one.objective.name == name) last = one.value;
      if (std::find(names->begin(), names->end(), one.objective.name) == names->end()) names->push_back(one.objective.name);
    }
    if (last) out.push_back(*last);
  }
  return out;
}

std::optional<double> last_match(const std::string& text, const std::regex& expression) {
  std::optional<double> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (line.size() > 4096) continue;
    line = launcher::bench::without_colours(line);
    if (!std::regex_search(line, found, expression)) continue;
    auto number = launcher::parse_number<double>(found[1].str());  // NaN too: an earlier line must not stand in for it
    if (!number) number = launcher::bench::number_shown(found[1].str());
    if (number) out = number;
  }
  return out;
}

/// For an error: how the output ends.
std::string last_line(const RunOutput& run) {
  std::string out;
  for (const std::string& text : run.texts) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.find_first_not_of(" \t\r") != std::string::npos) out = line;
    if (!out.empty()) break;
  }
  return out.empty() ? "the program printed nothing" : "its last line was '" + out.substr(0, 100) + "'";
}

std::optional<double> field(const RunOutput& run, const std::string& name) {
  const auto found = run.bench.find(name);
  return found == run.bench.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::vector<std::string> bench_fields() {
  std::vector<std::string> out = {"runs_per_s"};
  const launcher::bench::Row row;
  for (const launcher::bench::Field& one : launcher::bench::fields()) {
    const std::string name = one.name;
    for (const char* text : {"variant", "instance", "measured", "module", "metric_line", "cpus"})
      if (name == text) goto next;
    out.push_back(name);
  next:;
  }
  return out;
}

std::vector<Printed> parse_printed(const std::string& text, std::vector<std::string>* problems) {
  std::vector<Printed> out;
  std::istringstream lines(text);
  std::string line;
  bool have = static_cast<bool>(std::getline(lines, line));
  while (have) {
    const std::size_t at = line.find(kToken);
    if (at == std::string::npos) {
      have = static_cast<bool>(std::getline(lines, line));
      continue;
    }
    const std::string head = line.substr(0, 160);
    const std::size_t open = line.find('{', at);
    const std::size_t close = line.rfind('}');
    const bool whole = open != std::string::npos && close != std::string::npos && close > open;
    const Json fields = whole ? Json::parse(json_of_python(line.substr(open, close - open + 1)), nullptr, false) : Json();
    have = static_cast<bool>(std::getline(lines, line));
    if (!fields.is_object() || !fields.contains("name") || !fields["name"].is_string() || fields["name"].get<std::string>().empty()) {
      problems->push_back("'" + head + "' is no objective: @hypertune {'name': 'latency', 'higher_is_better': False, 'target_val': 10}");
      continue;
    }
    Printed one;
    one.objective.name = one.objective.key = fields["name"].get<std::string>();
    if (fields.contains("higher_is_better") && fields["higher_is_better"].is_boolean())
      one.objective.higher_is_better = fields["higher_is_better"].get<bool>();
    if (fields.contains("target_val") && fields["target_val"].is_number()) one.objective.target = fields["target_val"].get<double>();
    const auto value = have ? first_number(line) : std::nullopt;
    if (!value) {
      problems->push_back("after '" + head + "' stands " + (have ? "'" + line.substr(0, 60) + "'" : std::string("nothing")) +
                          " where a number belongs");
      continue;
    }
    one.value = *value;
    out.push_back(std::move(one));
    have = static_cast<bool>(std::getline(lines, line));
  }
  return out;
}

bool read_bench_report(const std::string& json, RunOutput* out) {
  const Json report = Json::parse(json, nullptr, false);
  if (!report.is_object() || !report.contains("rows") || !report["rows"].is_array()) return false;
  int instances = 0;
  const Json* all = nullptr;
  for (const Json& row : report["rows"]) {
    if (!row.is_object() || row.value("variant", "") != "ipexrun") continue;
    if (row.value("instance", "") == "all") {
      all = &row;
    } else {
      ++instances;
    }
  }
  if (all == nullptr) return false;
  for (const auto& [name, value] : all->items())
    if (value.is_number()) out->bench[name] = value.get<double>();
  if (all->contains("missing") && (*all)["missing"].is_object())
    for (const auto& [name, why] : (*all)["missing"].items())
      if (why.is_string()) out->missing[name] = why.get<std::string>();
  if (out->bench.count("wall_s") != 0 && out->bench["wall_s"] > 0) out->bench["runs_per_s"] = std::max(1, instances) / out->bench["wall_s"];
  return true;
}

Result<double> value_of(const Objective& objective, const RunOutput& run) {
  std::vector<std::string> names;
  std::vector<std::string> problems;
  std::vector<double> values;
  if (objective.source == Source::kBench) {
    if (const auto value = field(run, objective.key)) return *value;
    const auto why = run.missing.find(objective.key);
    return Error{kExitFailure, objective.name + " (" + objective.key + " of --bench) was not measured",
                 why != run.missing.end() ? why->second : "the run left no report"};
  }
  if (objective.source == Source::kRegex) {
    try {
      const std::regex expression(objective.key, std::regex::ECMAScript | std::regex::icase);
      for (const std::string& text : run.texts)
        if (const auto value = last_match(text, expression)) values.push_back(*value);
    } catch (const std::regex_error& failure) {
      return Error{kExitUsage, "the expression '" + objective.key + "' cannot be used: " + failure.what(), ""};
    }
    if (values.empty()) return Error{kExitFailure, "no line matches '" + objective.key + "'", last_line(run)};
  } else {
    values = printed_values(run, objective.key, &names, &problems);
    if (values.empty()) {
      const std::string hint = !problems.empty() ? problems.front() : !names.empty() ? "it printed " + names_text(names) : last_line(run);
      return Error{kExitFailure, "the program printed no objective '" + objective.key + "'", hint};
    }
  }
  if (values.size() < run.texts.size())
    return Error{
        kExitFailure,
        objective.name + " was printed by " + std::to_string(values.size()) + " of " + std::to_string(run.texts.size()) + " instances", ""};
  // The largest or smallest of several could leave it out.
  const auto broken = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
  return broken != values.end() ? *broken : aggregated(values, objective.aggregate, objective.higher_is_better);
}

std::map<std::string, double> all_numbers(const RunOutput& run) {
  std::vector<std::string> ignored;
  std::map<std::string, std::pair<bool, std::vector<double>>> printed;  // direction; the last value of each instance
  for (const std::string& text : run.texts) {
    std::map<std::string, Printed> last;
    for (Printed& one : parse_printed(text, &ignored)) last[one.objective.name] = std::move(one);
    for (const auto& [name, one] : last) {
      printed.try_emplace(name, one.objective.higher_is_better, std::vector<double>{});
      printed[name].second.push_back(one.value);
    }
  }
  std::map<std::string, double> out = run.bench;
  for (const auto& [name, values] : printed)
    if (values.second.size() == run.texts.size()) out[name] = aggregated(values.second, Aggregate::kAuto, values.first);
  return out;
}

Result<std::vector<Objective>> resolve_objectives(const std::vector<Objective>& asked, bool asked_by_user, const RunOutput& run) {
  std::vector<std::string> problems;
  std::vector<Objective> printed;
  for (const std::string& text : run.texts)
    for (const Printed& one : parse_printed(text, &problems))
      if (std::none_of(printed.begin(), printed.end(), [&](const Objective& o) { return o.name == one.objective.name; }))
        printed.push_back(one.objective);
  if (!asked_by_user && !printed.empty()) return printed;
  if (!asked_by_user && asked.empty())
    return Error{kExitFailure, "the objective never appeared: no line of the output says @hypertune {'name': ...} with a number below it",
                 problems.empty() ? last_line(run) : problems.front()};
  std::vector<Objective> out;
  for (Objective one : asked) {
    if (needs_resolving(one)) {
      const bool throughput = one.higher_is_better;
      std::optional<launcher::bench::Metric> metric;
      for (const std::string& text : run.texts)
        if (!metric) metric = launcher::bench::find_metric(text, "");
      if (field(run, throughput ? "calls_per_s" : "p50_ms")) {
        one.key = !throughput ? "p50_ms" : field(run, "samples_per_s") ? "samples_per_s" : "calls_per_s";
      } else if (field(run, "metric") && metric && metric->higher_is_better == throughput) {
        one.key = "metric";
      } else if (field(run, "wall_s")) {
        one.key = throughput ? "runs_per_s" : "wall_s";
      } else {
        return Error{kExitFailure, "the first run left no report of --bench, so " + one.name + " is not known", last_line(run)};
      }
    } else if (one.source == Source::kPrinted) {
      for (const Objective& said : printed) {
        if (said.name != one.key) continue;
        one.higher_is_better = said.higher_is_better;
        if (!one.target) one.target = said.target;
      }
    }
    out.push_back(std::move(one));
  }
  return out;
}

std::string unit_of(const Objective& objective) {
  if (objective.source != Source::kBench) return "";
  for (const launcher::bench::Field& one : launcher::bench::fields())
    if (objective.key == one.name) return one.unit;
  return objective.key == "runs_per_s" ? "1/s" : "";
}

}  // namespace ipexrun::tuner
