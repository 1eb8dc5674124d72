// Options of --bench and --report.
#include <algorithm>
#include <numeric>

#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

namespace {

constexpr long kMostCalls = 1'000'000'000;
constexpr double kMostSeconds = 1e7;

/// Every --bench-... option turns --bench on.
OptionRow bench(OptionRow row) {
  row.set = [inner = row.set](Options& options, const std::string& value) -> Status {
    Status done = inner(options, value);
    if (done.ok() && value != "false") options.bench.enabled = true;
    return done;
  };
  return row;
}

}  // namespace

void add_bench_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kBench;
  rows.push_back(flag(
      "bench", group, [](auto& o) -> auto& { return o.bench.enabled; }, "measure throughput and latency, and report them"));
  rows.push_back(bench(number<int>(
      "bench-warmup", group, [](auto& o) -> auto& { return o.bench.warmup; }, 0, 1'000'000, "calls at the start that are left out")));
  rows.push_back(bench(number<long>(
      "bench-iters", group, [](auto& o) -> auto& { return o.bench.iters; }, 1L, kMostCalls, "calls to measure")));
  rows.push_back(bench(number<double>(
      "bench-seconds", group, [](auto& o) -> auto& { return o.bench.seconds; }, 0.001, kMostSeconds, "seconds to measure", "S")));
  OptionRow compare = row("bench-compare", group, "LIST", "also run stock (the plain program), or stock,launch, interleaved with this run");
  compare.set = [](Options& options, const std::string& value) -> Status {
    options.bench.compare.clear();
    for (std::size_t at = 0; at <= value.size();) {
      const std::size_t end = std::min(value.find(',', at), value.size());
      const std::string variant = value.substr(at, end - at);
      if (variant != "stock" && variant != "launch") return bad_value("bench-compare", "stock, launch or stock,launch", value);
      auto& list = options.bench.compare;
      if (std::find(list.begin(), list.end(), variant) == list.end()) list.push_back(variant);
      at = end + 1;
    }
    return ok_status();
  };
  compare.get = [](const Options& options) -> std::vector<std::string> {
    if (options.bench.compare.empty()) return {};
    return {std::accumulate(std::next(options.bench.compare.begin()), options.bench.compare.end(), options.bench.compare.front(),
                            [](const std::string& a, const std::string& b) { return a + "," + b; })};
  };
  rows.push_back(bench(std::move(compare)));
  rows.push_back(bench(number<int>(
      "bench-pairs", group, [](auto& o) -> auto& { return o.bench.pairs; }, 1, 1000, "rounds of --bench-compare")));
  OptionRow output = row("bench-output", group, "FILE", "write the report to FILE.json, .csv, .md or .html; may be repeated");
  output.set = [](Options& options, const std::string& value) -> Status {
    for (const char* suffix : {".json", ".csv", ".md", ".html"}) {
      if (!value.ends_with(suffix)) continue;
      options.bench.outputs.push_back(value);
      return ok_status();
    }
    return bad_value("bench-output", "a file name that ends in .json, .csv, .md or .html", value);
  };
  output.get = [](const Options& options) { return options.bench.outputs; };
  rows.push_back(bench(std::move(output)));
  rows.push_back(bench(word(
      "bench-metric", group, [](auto& o) -> auto& { return o.bench.metric; }, "REGEX",
      "a number that the program prints: a regular expression with one group")));
  rows.push_back(bench(flag(
      "bench-stop", group, [](auto& o) -> auto& { return o.bench.stop; }, "end the program once the measurement is complete")));

  rows.push_back(flag(
      "report", group, [](auto& o) -> auto& { return o.report; },
      "after the run, show what was done with each operator: calls, taken, time saved, and the kinds of call that save most"));
  OptionRow report = row("report-output", group, "FILE", "write that report, complete, to FILE.json");
  report.set = [](Options& options, const std::string& value) -> Status {
    if (!value.ends_with(".json")) return bad_value("report-output", "a file name that ends in .json", value);
    options.report_output = value;
    options.report = true;
    return ok_status();
  };
  report.get = [](const Options& options) {
    return options.report_output.empty() ? std::vector<std::string>{} : std::vector<std::string>{options.report_output};
  };
  rows.push_back(std::move(report));
}

}  // namespace ipexrun::launcher
