#include "launcher/bench/warnings.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/plan/text.h"

namespace ipexrun::launcher::bench {
namespace {

constexpr double kBusyShare = 0.25;     // load before the start, as a share of the usable cores
constexpr double kSlowFirst = 1.5;      // first round against the median of the others
constexpr double kOutlierShare = 0.02;  // of the calls
constexpr long kFewCalls = 30;
constexpr double kSignificant = 0.05;

void about_calls(const WarningInput& in, std::vector<std::string>& out) {
  const Measurement& calls = in.row->calls;
  const long n = static_cast<long>(calls.duration_ms.size());
  if (calls.seen > 0 && n == 0) {
    out.push_back(
        fmt::format("none of {} module calls could be measured: {} were used by selection to measure candidates, {} failed, {} "
                    "were warm-up; run more calls",
                    calls.seen, calls.explored, calls.failed, calls.warmup));
    return;
  }
  if (in.headline->source != Source::kModuleCalls) return;
  if (n < kFewCalls) out.push_back(fmt::format("only {} calls were measured: the spread is not known well; run more calls", n));
  if (calls.explored > n) {
    out.push_back(fmt::format("selection was measuring in {} of {} calls, they are not counted; a longer run shows the final speed better",
                              calls.explored, calls.seen));
  }
  const int outliers = count_outliers(calls.duration_ms);
  if (n >= kFewCalls && outliers > kOutlierShare * static_cast<double>(n)) {
    out.push_back(fmt::format("{} of {} calls are outliers: other work on the machine, or inputs of very different sizes", outliers, n));
  }
  if (in.row->lost > 0) {
    out.push_back(fmt::format("{} events were overwritten before they could be read: the calls are shorter than the launcher can follow",
                              in.row->lost));
  }
}

void about_pairs(const WarningInput& in, std::vector<std::string>& out) {
  for (const Comparison& one : *in.comparisons) {
    if (one.test.n > 0 && one.test.least_p > kSignificant && one.variant == "ipexrun") {
      out.push_back(fmt::format("{} pairs cannot reach p < 0.05 in the rank test (the least is {:.3g}); use --bench-pairs 6 or more",
                                one.ratios.size(), one.test.least_p));
    }
    if (one.ratios.size() < 3) continue;
    const std::vector<double> others(one.ratios.begin() + 1, one.ratios.end());
    const double share = one.ratios.front() / median(others);
    if (share > kSlowFirst || share < 1 / kSlowFirst) {
      out.push_back(
          fmt::format("the first pair ({}) is far from the others ({}): a cold file cache, or a first compilation; the median "
                      "leaves it out",
                      show_ratio(one.ratios.front()), show_ratio(median(others))));
    }
  }
}

}  // namespace

std::vector<std::string> collect_warnings(const WarningInput& in) {
  std::vector<std::string> out;
  // The load is the machine's, whatever part of it this run may use.
  const auto all = static_cast<std::size_t>(std::max<long>(in.machine->total_cores, static_cast<long>(in.machine->cores.size())));
  const double cores = static_cast<double>(all);
  if (in.load >= 0 && cores > 0 && in.load > kBusyShare * cores) {
    out.push_back(fmt::format("the machine was busy before the start: load average {} on {}; times are too long and vary",
                              show_number(in.load), count_text(all, "core")));
  }
  about_calls(in, out);
  if (in.options->bench.iters || in.options->bench.seconds) {
    const bool complete = std::all_of(in.runs.begin(), in.runs.end(), [](const OneRun* run) { return run->complete; });
    if (!complete && in.headline->source == Source::kModuleCalls) {
      out.emplace_back("the program ended before --bench-iters or --bench-seconds was reached: the report covers what there was");
    } else if (in.headline->source != Source::kModuleCalls) {
      out.emplace_back(
          "--bench-iters and --bench-seconds count module calls; this program made none that could be seen, so they had no effect");
    }
  }
  about_pairs(in, out);
  return out;
}

std::vector<std::string> collect_notes(const Options& options, const Headline& headline, const Row& row) {
  std::vector<std::string> out;
  if (headline.source == Source::kModuleCalls) {
    out.push_back(fmt::format("top-level calls of {}; left out: {} warm-up, {} exploring, {} failed", row.calls.module, row.calls.warmup,
                              row.calls.explored, row.calls.failed));
  } else if (headline.source == Source::kMetricLine) {
    out.push_back("no module calls were counted; the number is the program's own: '" + (row.metric ? row.metric->line : "") + "'");
    if (!options.bench.metric.empty()) out.back() = "--bench-metric found: '" + (row.metric ? row.metric->line : "") + "'";
  } else if (row.calls.seen == 0) {
    out.emplace_back("no module calls and no metric line were seen: the program was timed as a whole");
  }
  if (!options.bench.metric.empty() && headline.source != Source::kMetricLine) {
    out.push_back("--bench-metric '" + options.bench.metric + "' matched no line of every instance's output");
  }
  return out;
}

}  // namespace ipexrun::launcher::bench
