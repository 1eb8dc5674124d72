#include "launcher/bench/one_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "launcher/plan/show.h"
#include "launcher/run/summary.h"

namespace ipexrun::launcher::bench {
namespace {

constexpr std::size_t kMostOutput = std::size_t{16} << 20;

/// The last kMostOutput bytes of a file; "" when it cannot be read.
std::string read_end(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (path.empty() || !file) return "";
  const auto size = static_cast<std::size_t>(file.tellg());
  std::string text(std::min(size, kMostOutput), '\0');
  file.seekg(static_cast<std::streamoff>(size - text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

const Measurement* module_of(const OneInstance& instance, const std::string& name) {
  for (const Measurement& one : instance.modules) {
    if (one.module == name) return &one;
  }
  return nullptr;
}

std::optional<double> rate(const Measurement& calls, bool samples) {
  if (calls.busy_seconds <= 0) return std::nullopt;
  if (!samples) return static_cast<double>(calls.duration_ms.size()) / calls.busy_seconds;
  const auto total = calls.samples();
  return total ? std::optional(*total / calls.busy_seconds) : std::nullopt;
}

/// a + b where both are known.
void add(std::optional<double>& sum, const std::optional<double>& value) {
  sum = sum && value ? std::optional(*sum + *value) : std::nullopt;
}

/// Rates of instances that run at the same time add up; times do not.
std::optional<Metric> metric_of_all(const std::vector<Metric>& parts) {
  if (parts.empty()) return std::nullopt;
  Metric out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) out.value += parts[i].value;
  if (!out.higher_is_better) out.value /= static_cast<double>(parts.size());
  return out;
}

std::optional<Metric> metric_of(const OneRun& run) {
  std::vector<Metric> parts;
  for (const OneInstance& one : run.instances) {
    if (!one.metric) return std::nullopt;
    parts.push_back(*one.metric);
  }
  return metric_of_all(parts);
}

/// All runs of the instance at position `index` as one row.
Row instance_row(const std::vector<const OneRun*>& runs, std::size_t index, const Headline& headline) {
  Row row;
  std::vector<double> walls;
  std::vector<double> cpu;
  std::vector<double> metrics;
  for (const OneRun* run : runs) {
    if (index >= run->instances.size()) continue;
    const OneInstance& one = run->instances[index];
    row.variant = run->variant;
    row.instance = one.outcome.index;
    if (const Measurement* calls = module_of(one, headline.module)) {
      if (row.calls.module.empty()) {
        row.calls = *calls;
      } else {
        row.calls.merge(*calls);
      }
    }
    if (one.metric) {
      row.metric = one.metric;
      metrics.push_back(one.metric->value);
    }
    walls.push_back(one.outcome.wall_seconds);
    cpu.push_back(one.outcome.user_seconds + one.outcome.system_seconds);
    row.max_rss_bytes = std::max(row.max_rss_bytes, static_cast<double>(one.outcome.max_rss_bytes));
    row.cpus = one.cpus;
    row.cores = one.cores;
    row.threads = one.threads;
    row.lost += one.facts.lost;
    if (one.facts.has_totals) {
      row.ops_taken = row.ops_taken.value_or(0) + one.facts.ops_taken;
      row.ops_declined = row.ops_declined.value_or(0) + one.facts.ops_declined;
    }
  }
  row.source = headline.source;
  if (row.metric) row.metric->value = median(metrics);
  row.wall_seconds = median(walls);
  row.cpu_seconds = median(cpu);
  row.samples_per_second = rate(row.calls, true);
  row.calls_per_second = rate(row.calls, false);
  return row;
}

Row sum_row(const std::vector<Row>& instances) {
  Row out = instances.front();
  if (instances.size() == 1) {
    out.instance = -1;
    return out;
  }
  out.instance = -1;
  std::vector<Metric> metrics;
  if (out.metric) metrics.push_back(*out.metric);
  for (std::size_t i = 1; i < instances.size(); ++i) {
    const Row& one = instances[i];
    out.calls.merge(one.calls);
    if (out.calls.module.empty()) out.calls.module = one.calls.module;
    add(out.samples_per_second, one.samples_per_second);
    add(out.calls_per_second, one.calls_per_second);
    if (one.metric) metrics.push_back(*one.metric);
    out.wall_seconds = std::max(out.wall_seconds, one.wall_seconds);
    out.cpu_seconds += one.cpu_seconds;
    out.max_rss_bytes += one.max_rss_bytes;
    out.cpus += "; " + one.cpus;
    out.cores += one.cores;
    out.threads += one.threads;
    out.lost += one.lost;
    if (one.ops_taken) out.ops_taken = out.ops_taken.value_or(0) + *one.ops_taken;
    if (one.ops_declined) out.ops_declined = out.ops_declined.value_or(0) + *one.ops_declined;
  }
  out.metric = metrics.size() == instances.size() ? metric_of_all(metrics) : std::nullopt;
  return out;
}

}  // namespace

Result<OneRun> run_once(const LaunchPlan& plan, const std::string& variant, const Options& all, Runner& runner, const std::string& run_dir,
                        bool quiet) {
  const BenchOptions& options = all.bench;
  std::vector<int> indices;
  std::vector<std::string> paths;
  for (const InstancePlan& one : plan.instances) {
    indices.push_back(one.index);
    paths.push_back(events_path_in(run_dir, one.index));
  }
  Collector collector(indices, paths);
  bool full = false;
  RunSettings settings;
  settings.run_dir = run_dir;
  settings.capture_output = !run_dir.empty();
  settings.quiet = quiet;
  settings.tick = [&] {
    collector.poll();
    if (!options.stop) return true;
    full = std::all_of(collector.instances().begin(), collector.instances().end(),
                       [&](const InstanceSamples& one) { return window_full(one, options); });
    return !full;
  };
  Result<RunOutcome> outcome = runner.run(plan, settings);
  if (!outcome) return outcome.error();
  collector.poll(true);
  OneRun out;
  out.variant = variant;
  out.exit_code = outcome->exit_code;
  out.stop_signal = outcome->stop_signal;
  out.summary = summary_text(all, plan, *outcome);
  if (all.report && variant == "ipexrun") out.op_reports = read_op_reports(*outcome);
  if (const Status verdict = require_shim_verdict(plan, *outcome); !verdict) {
    out.summary += "ipexrun: " + verdict.error().line() + '\n';
    if (out.exit_code == kExitOk) out.exit_code = verdict.error().code;
  }
  for (std::size_t i = 0; i < outcome->instances.size() && i < plan.instances.size(); ++i) {
    OneInstance one;
    one.outcome = outcome->instances[i];
    one.modules = measure(collector.instances()[i], options);
    one.facts = collector.instances()[i];
    one.facts.calls.clear();
    const std::string text = read_end(one.outcome.output_path);
    one.metric = find_metric(text, options.metric);
    if (i == 0) out.output = text;
    const InstancePlan& planned = plan.instances[i];
    one.threads = planned.threads;
    if (plan.pin && !planned.cpus.empty()) {
      one.cpus = cpu_list_text(planned.cpus);
      one.cores = static_cast<int>(planned.cpus.size());
    }
    if (options.iters || options.seconds) out.complete = out.complete && window_full(collector.instances()[i], options);
    out.instances.push_back(std::move(one));
  }
  return out;
}

Headline choose_headline(const std::vector<OneRun>& runs, const BenchOptions& options) {
  Headline out;
  std::vector<Measurement> all;
  bool several = false;
  for (const OneRun& run : runs) {
    several = several || run.instances.size() > 1;
    for (const OneInstance& one : run.instances) all.insert(all.end(), one.modules.begin(), one.modules.end());
  }
  out.module = dominant_module(all);
  bool calls = !out.module.empty();
  bool samples = calls;
  bool metrics = true;
  for (const OneRun& run : runs) {
    if (run.exit_code != 0) continue;
    metrics = metrics && metric_of(run);
    for (const OneInstance& one : run.instances) {
      const Measurement* found = module_of(one, out.module);
      calls = calls && found != nullptr && !found->duration_ms.empty();
      samples = samples && found != nullptr && found->samples();
    }
  }
  if (calls && (options.metric.empty() || !metrics)) {
    out.source = Source::kModuleCalls;
    out.by_throughput = several;
    out.by_samples = samples;
    out.lower_is_better = !several;
    out.text = fmt::format("{} of {}", !several ? "p50" : samples ? "samples/s" : "calls/s", out.module);
  } else if (metrics && !runs.empty() && metric_of(runs.front())) {
    out.source = Source::kMetricLine;
    out.lower_is_better = !metric_of(runs.front())->higher_is_better;
    out.text = "the program's own number";
  } else {
    out.text = several ? "wall time by instances" : "wall time";
  }
  return out;
}

std::optional<double> headline_value(const OneRun& run, const Headline& headline) {
  if (headline.source == Source::kMetricLine) {
    const auto metric = metric_of(run);
    return metric ? std::optional(metric->value) : std::nullopt;
  }
  if (headline.source == Source::kWholeProgram) {
    double longest = 0;
    for (const OneInstance& one : run.instances) longest = std::max(longest, one.outcome.wall_seconds);
    // Each instance does the whole job: n of them in the time of one are n times as fast.
    return longest > 0 ? std::optional(longest / static_cast<double>(run.instances.size())) : std::nullopt;
  }
  std::optional<double> sum = 0;
  for (const OneInstance& one : run.instances) {
    const Measurement* calls = module_of(one, headline.module);
    if (calls == nullptr || calls->duration_ms.empty()) return std::nullopt;
    if (!headline.by_throughput) return median(calls->duration_ms);
    add(sum, rate(*calls, headline.by_samples));
  }
  return sum;
}

std::optional<ValuePair> headline_pair(const OneRun& base, const OneRun& ours, const Headline& headline) {
  if (headline.source == Source::kModuleCalls && !headline.by_throughput && !base.instances.empty() && !ours.instances.empty()) {
    const Measurement* a = module_of(base.instances.front(), headline.module);
    const Measurement* b = module_of(ours.instances.front(), headline.module);
    if (a != nullptr && b != nullptr && a->seen == b->seen) {
      std::vector<double> of_a;
      std::vector<double> of_b;
      for (std::size_t i = 0, j = 0; i < a->position.size() && j < b->position.size();) {
        if (a->position[i] == b->position[j]) {
          of_a.push_back(a->duration_ms[i++]);
          of_b.push_back(b->duration_ms[j++]);
        } else {
          ++(a->position[i] < b->position[j] ? i : j);
        }
      }
      if (!of_a.empty()) return ValuePair{median(of_a), median(of_b)};
    }
  }
  const auto a = headline_value(base, headline);
  const auto b = headline_value(ours, headline);
  return a && b ? std::optional(ValuePair{*a, *b}) : std::nullopt;
}

std::vector<Row> rows_of(const std::vector<const OneRun*>& runs, const Headline& headline) {
  std::size_t instances = 0;
  for (const OneRun* run : runs) instances = std::max(instances, run->instances.size());
  std::vector<Row> rows;
  for (std::size_t i = 0; i < instances; ++i) rows.push_back(instance_row(runs, i, headline));
  if (rows.empty()) return rows;
  Row all = sum_row(rows);
  if (rows.size() == 1) return {all};
  rows.insert(rows.begin(), std::move(all));
  return rows;
}

std::vector<Row> module_rows(const std::vector<const OneRun*>& runs) {
  std::vector<std::string> names;
  for (const OneRun* run : runs) {
    for (const OneInstance& one : run->instances) {
      for (const Measurement& calls : one.modules) {
        if (std::find(names.begin(), names.end(), calls.module) == names.end()) names.push_back(calls.module);
      }
    }
  }
  if (names.size() < 2) return {};
  std::vector<Row> out;
  for (const std::string& name : names) {
    Headline headline;
    headline.source = Source::kModuleCalls;
    headline.module = name;
    out.push_back(rows_of(runs, headline).front());
  }
  std::sort(out.begin(), out.end(), [](const Row& a, const Row& b) { return a.calls.total_ms > b.calls.total_ms; });
  return out;
}

}  // namespace ipexrun::launcher::bench
