#include "tuner/objective/objective.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "launcher/bench/metric.h"
#include "launcher/cli/option_table.h"
#include "launcher/plan/text.h"
#include "tuner/objective/measured.h"
#include "tuner/space/value.h"

namespace ipexrun::tuner {
namespace {

constexpr const char* kWords[] = {"auto", "sum", "max", "min", "mean"};
constexpr const char* kUnnamed = "value";  // an expression

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

bool Constraint::holds(double value) const {
  if (op == "<") return value < bound;
  if (op == "<=") return value <= bound;
  return op == ">" ? value > bound : value >= bound;
}

double Constraint::excess(double value) const {
  if (holds(value)) return 0;
  return bound == 0 ? std::numeric_limits<double>::infinity() : std::abs(value - bound) / std::abs(bound);
}

std::string Constraint::text() const { return metric + " " + op + " " + tuner::text_of(Value(bound)); }

Result<Constraint> parse_constraint(const std::string& text) {
  const std::size_t at = text.find_first_of("<>");
  Constraint out;
  if (at != std::string::npos) {
    const std::size_t length = at + 1 < text.size() && text[at + 1] == '=' ? 2 : 1;
    out.metric = trimmed(text.substr(0, at));
    out.op = text.substr(at, length);
    const auto bound = launcher::parse_number<double>(trimmed(text.substr(at + length)));
    if (bound && std::isfinite(*bound) && !out.metric.empty()) {
      out.bound = *bound;
      return out;
    }
  }
  return Error{kExitUsage, "'" + text + "' is no constraint", "such as \"p99_ms < 20\": a name, one of < <= > >=, a number"};
}

std::optional<Aggregate> parse_aggregate(const std::string& word) {
  for (int i = 0; i < 5; ++i)
    if (word == kWords[i]) return static_cast<Aggregate>(i);
  return std::nullopt;
}

std::string text_of(Aggregate aggregate) { return kWords[static_cast<int>(aggregate)]; }

double aggregated(const std::vector<double>& values, Aggregate how, bool higher_is_better) {
  if (how == Aggregate::kAuto) how = higher_is_better ? Aggregate::kSum : Aggregate::kMax;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (how == Aggregate::kMax) return *std::max_element(values.begin(), values.end());
  if (how == Aggregate::kMin) return *std::min_element(values.begin(), values.end());
  return how == Aggregate::kSum ? sum : sum / static_cast<double>(values.size());
}

Status add_objective(Objective objective, std::vector<Objective>* out) {
  const auto taken = [out](const std::string& name) {
    return std::any_of(out->begin(), out->end(), [&](const Objective& one) { return one.name == name; });
  };
  if (objective.source == Source::kRegex && objective.name == kUnnamed)
    for (int n = 2; taken(objective.name); ++n) objective.name = kUnnamed + std::to_string(n);
  if (taken(objective.name)) return Error{kExitUsage, "the objective '" + objective.name + "' is given twice", ""};
  out->push_back(std::move(objective));
  return ok_status();
}

std::string objective_names(const std::vector<Objective>& objectives) {
  std::string out;
  for (const Objective& one : objectives) out += (out.empty() ? "" : ", ") + one.name;
  return out;
}

std::string objectives_text(const std::vector<Objective>& objectives) {
  static constexpr const char* kFrom[] = {"printed", "bench", "regex"};
  std::string out;
  for (const Objective& one : objectives) {
    std::string more;
    const auto add = [&](const std::string& text) { more += (more.empty() ? " (" : ", ") + text; };
    if (one.source != Source::kPrinted) add(one.higher_is_better ? "higher is better" : "lower is better");  // else the program says it
    if (!one.key.empty() && one.key != one.name) add(std::string(kFrom[static_cast<int>(one.source)]) + " " + one.key);
    if (one.aggregate != Aggregate::kAuto) add(text_of(one.aggregate));
    out += (out.empty() ? "" : ", ") + one.name + more + (more.empty() ? "" : ")");
  }
  return out;
}

bool field_higher_is_better(const std::string& field) { return field.ends_with("_per_s") || field == "metric" || field == "busy"; }

Result<Objective> parse_objective(const std::string& text) {
  Objective out;
  std::string rest = text;
  std::optional<bool> higher;
  if (rest.starts_with("max:") || rest.starts_with("min:")) {
    higher = rest.starts_with("max:");
    rest = rest.substr(4);
  }
  out.name = rest;
  out.source = Source::kBench;
  if (rest == "throughput") {
    out.higher_is_better = true;
  } else if (rest == "latency") {
  } else if (rest == "wall") {
    out.key = "wall_s";
  } else if (rest == "memory") {
    out.key = "max_rss_mib";
  } else if (rest.starts_with("bench:")) {
    out.name = out.key = rest.substr(6);
    out.higher_is_better = field_higher_is_better(out.key);
    const std::vector<std::string> known = bench_fields();
    if (std::find(known.begin(), known.end(), out.key) == known.end()) {
      const std::string near = launcher::nearest_word(out.key, known);
      return Error{kExitUsage, "the report of --bench has no number '" + out.key + "'",
                   near.empty() ? "docs/bench.md lists them" : "did you mean " + near + "?"};
    }
  } else if (rest.starts_with("printed:")) {
    out.source = Source::kPrinted;
    out.name = out.key = rest.substr(8);
  } else if (rest.starts_with("regex:")) {
    out.source = Source::kRegex;
    out.key = rest.substr(6);
    out.name = kUnnamed;
    if (!higher) return Error{kExitUsage, "--objective " + text + " does not say which way is better", "max:" + text + " or min:" + text};
    if (Status valid = launcher::bench::check_metric_regex(out.key); !valid.ok())
      return Error{kExitUsage, "--objective: '" + out.key + "' is no expression with one group", "regex:'score: ([0-9.]+)'"};
  } else {
    const std::string near = launcher::nearest_word(rest, {"throughput", "latency", "wall", "memory"});
    return Error{kExitUsage, "--objective does not know '" + text + "'",
                 near.empty() ? "throughput, latency, wall, memory, bench:FIELD, printed:NAME or max:regex:EXPRESSION"
                              : "did you mean " + near + "?"};
  }
  if (out.name.empty()) return Error{kExitUsage, "--objective " + text + " names nothing", ""};
  if (higher) out.higher_is_better = *higher;
  return out;
}

}  // namespace ipexrun::tuner
