// --bench from end to end: check, run (once or interleaved), analyse, print, write.
#include "launcher/bench/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "launcher/bench/compare.h"
#include "launcher/bench/environment.h"
#include "launcher/bench/op_report.h"
#include "launcher/bench/output.h"
#include "launcher/bench/training.h"
#include "launcher/bench/warnings.h"
#include "launcher/run/system_facts.h"

namespace ipexrun::launcher {
namespace {

using namespace bench;  // NOLINT(google-build-using-namespace): this file is the table of contents of that namespace

/// Progress of a comparison; silent where nobody watches.
class Progress {
 public:
  explicit Progress(std::size_t steps) : steps_(steps), terminal_(steps > 1 && ::isatty(STDERR_FILENO) == 1) {}
  void show(const Step& step) {
    if (!terminal_) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    const std::string left =
        done_ == 0 ? "" : fmt::format(", about {:.0f} s left", seconds / static_cast<double>(done_) * static_cast<double>(steps_ - done_));
    clear();
    std::fputs(fmt::format("ipexrun: bench: run {} of {} ({}){}", done_ + 1, steps_, step.variant, left).c_str(), stderr);
    std::fflush(stderr);
    shown_ = true;
    ++done_;
  }
  void clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
    shown_ = false;
  }

 private:
  std::size_t steps_;
  std::size_t done_ = 0;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

struct Session {
  std::vector<std::string> variants;  ///< the baseline first, "ipexrun" last
  std::vector<OneRun> runs;
  std::vector<int> rounds;  ///< of runs[i]
  LaunchPlan plan;          ///< of "ipexrun"
  std::vector<std::string> problems;

  [[nodiscard]] std::vector<const OneRun*> of(const std::string& variant, bool good_only) const {
    std::vector<const OneRun*> out;
    for (const OneRun& run : runs) {
      if (run.variant == variant && (!good_only || run.exit_code == 0)) out.push_back(&run);
    }
    return out;
  }
};

/// stock, launch, ipexrun: in this order in every table, whatever the order on the command line.
std::vector<std::string> variants_of(const BenchOptions& options) {
  std::vector<std::string> out;
  for (const char* name : {"stock", "launch"}) {
    if (std::find(options.compare.begin(), options.compare.end(), name) != options.compare.end()) out.emplace_back(name);
  }
  out.emplace_back("ipexrun");
  return out;
}

Result<Session> run_all(const Options& options, const PlanForVariant& plan_for, Runner& runner, const std::string& run_dir) {
  Session out;
  out.variants = variants_of(options.bench);
  std::vector<LaunchPlan> plans;
  for (const std::string& variant : out.variants) {
    auto plan = plan_for(variant);
    if (!plan) return plan.error();
    plans.push_back(std::move(*plan));
  }
  out.plan = plans.back();
  const auto schedule = abba_schedule(out.variants, out.variants.size() == 1 ? 1 : options.bench.pairs);
  Progress progress(schedule.size());
  bool shown = false;  // the program's own output is passed through once, from the first ipexrun run
  for (const Step& step : schedule) {
    progress.show(step);
    const bool quiet = step.variant != "ipexrun" || shown;
    if (!quiet) progress.clear();
    const auto index = static_cast<std::size_t>(std::find(out.variants.begin(), out.variants.end(), step.variant) - out.variants.begin());
    auto run = run_once(plans[index], step.variant, options, runner, run_dir, quiet);
    if (!run) {
      progress.clear();
      if (out.runs.empty()) return run.error();
      out.problems.push_back(
          fmt::format("the {} run of round {} could not be started: {}", step.variant, step.round + 1, run.error().line()));
      break;
    }
    shown = shown || !quiet;
    out.runs.push_back(std::move(*run));
    out.rounds.push_back(step.round);
    const OneRun& last = out.runs.back();
    if (last.stop_signal != 0) break;
    if (last.exit_code != 0 && out.variants.size() > 1) {
      out.problems.push_back(fmt::format("the {} run of round {} ended with exit code {}: the comparison stops there", step.variant,
                                         step.round + 1, last.exit_code));
      break;
    }
  }
  progress.clear();
  return out;
}

Report make_report(const Options& options, const Machine& machine, const Session& session, double load) {
  Report report;
  const Headline headline = choose_headline(session.runs, options.bench);
  report.headline = headline.text;
  if (!session.plan.instances.empty()) report.command = shell_quoted(session.plan.instances.front().argv);
  for (const std::string& variant : session.variants) {
    const bool any_good = !session.of(variant, true).empty();
    const std::vector<Row> rows = rows_of(session.of(variant, any_good), headline);
    report.rows.insert(report.rows.end(), rows.begin(), rows.end());
  }
  const auto ours = session.of("ipexrun", false);
  report.modules = module_rows(ours);
  for (const std::string& variant : session.variants) {
    const auto runs = session.of(variant, false);
    if (runs.empty()) continue;
    for (const OneInstance& one : runs.back()->instances) {
      if (auto row = training_row(one.facts, variant, options.bench)) report.training.push_back(std::move(*row));
    }
  }
  std::string process;
  for (const OneRun* run : ours) {
    for (const OneInstance& one : run->instances) {
      if (process.empty()) process = one.facts.process;
    }
  }
  report.environment = read_environment(options, machine, session.plan, process);
  report.comparisons = compare(session.variants, session.runs, session.rounds, headline);
  report.warnings = session.problems;
  const auto row =
      std::find_if(report.rows.begin(), report.rows.end(), [](const Row& r) { return r.variant == "ipexrun" && r.instance < 0; });
  if (row != report.rows.end()) {
    report.notes = collect_notes(options, headline, *row);
    const auto more = collect_warnings({&options, &machine, load, ours, &*row, &headline, &report.comparisons});
    report.warnings.insert(report.warnings.end(), more.begin(), more.end());
  }
  const auto stock = session.of("stock", true);
  const auto good = session.of("ipexrun", true);
  if (!stock.empty() && !good.empty()) {
    const std::string verdict = compare_outputs(stock.front()->output, good.front()->output);
    if (!verdict.empty()) (verdict.rfind("the outputs differ", 0) == 0 ? report.warnings : report.notes).push_back(verdict);
  }
  return report;
}

int exit_code_of(const Session& session) {
  for (const OneRun* run : session.of("ipexrun", false)) {
    if (run->exit_code != 0) return run->exit_code;
  }
  // Without any run of ours the comparison ended before it began: the failure is that of the variant that ran.
  return session.of("ipexrun", false).empty() && !session.runs.empty() ? session.runs.back().exit_code : kExitOk;
}

}  // namespace

Result<int> run_bench(const Options& options, const Machine& machine, const PlanForVariant& plan_for, Runner& runner,
                      const std::string& run_dir) {
  if (!options.bench.metric.empty()) {
    if (Status valid = check_metric_regex(options.bench.metric); !valid) return valid.error();
  }
  if (Status writable = check_outputs(options.bench.outputs); !writable) return writable.error();
  if (Status writable = check_op_report_output(options.report_output); !writable) return writable.error();
  const std::string load_text = read_system_facts(options.sysroot).load;
  const double load = load_text.empty() ? -1 : std::strtod(load_text.c_str(), nullptr);
  auto session = run_all(options, plan_for, runner, run_dir);
  if (!session) return session.error();
  const auto ours = session->of("ipexrun", false);
  if (!ours.empty()) std::fputs(ours.back()->summary.c_str(), stderr);
  const Report report = make_report(options, machine, *session, load);
  print_prefixed(report_text(report));
  const int code = exit_code_of(*session);
  Status written = write_outputs(report, options.bench.outputs);
  if (options.report && !ours.empty()) {
    Status shown = show_op_reports(options, ours.back()->op_reports);
    if (written.ok()) written = std::move(shown);
  }
  if (!written) {
    if (code == kExitOk) return written.error();
    return Error{code, written.error().what, written.error().hint};  // a program that failed by itself keeps its code
  }
  return code;
}

}  // namespace ipexrun::launcher
