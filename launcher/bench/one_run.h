// One run of one variant and what it measured, and several runs of it put together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/op_report.h"
#include "launcher/bench/report.h"
#include "launcher/bench/samples.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher::bench {

struct OneInstance {
  InstanceOutcome outcome;
  std::vector<Measurement> modules;
  std::optional<Metric> metric;
  std::string cpus;
  int cores = 0;
  int threads = 0;
  InstanceSamples facts;  ///< without the calls, which are in `modules` by now
};

struct OneRun {
  std::string variant;
  int exit_code = 0;
  int stop_signal = 0;
  bool complete = true;  ///< --bench-iters or --bench-seconds was reached, if asked for
  std::vector<OneInstance> instances;
  std::string summary;               ///< summary_text() of this run, for the terminal
  std::vector<OpReport> op_reports;  ///< with --report, of the variant "ipexrun"
  std::string output;                ///< stdout of instance 0, at most 16 MiB; for the comparison of outputs
};

/// What all runs of a report are judged by. One choice for all variants, or their ratio means nothing.
struct Headline {
  Source source = Source::kWholeProgram;
  std::string module;          ///< module calls: the class that takes most of the time
  bool by_throughput = false;  ///< samples (or calls) a second instead of p50: variants with several instances
  bool by_samples = true;      ///< by_throughput: samples a second (else calls a second: a batch size is unknown)
  bool lower_is_better = true;
  std::string text;  ///< "p50 of BertModel", "the program's own number", "wall time"
};

/// Runs `plan` once and reads everything that its instances left. An Error means that nothing ran. --require-shim is applied to the
/// variants that have the shim at work: its failure becomes the run's exit code and is said in `summary`.
Result<OneRun> run_once(const LaunchPlan& plan, const std::string& variant, const Options& options, Runner& runner,
                        const std::string& run_dir, bool quiet);

/// A metric that was asked for (--bench-metric) beats module calls, those beat a metric line, that beats the wall time; each only
/// where every successful run has it.
Headline choose_headline(const std::vector<OneRun>& runs, const BenchOptions& options);

/// The number by which a run is judged; nullopt when the run does not have it.
std::optional<double> headline_value(const OneRun& run, const Headline& headline);

/// The headline values of two runs of one round. The p50 of two runs that made the same number of calls is taken over the calls that
/// both measured: inputs may grow or shrink in the course of a program, and exploring leaves out calls of one side only.
struct ValuePair {
  double base = 0;
  double ours = 0;
};
std::optional<ValuePair> headline_pair(const OneRun& base, const OneRun& ours, const Headline& headline);

/// Rows of one variant from all its runs: all instances together, then each instance when there are several.
std::vector<Row> rows_of(const std::vector<const OneRun*>& runs, const Headline& headline);

/// One row a module class, all instances together; empty when there is at most one class.
std::vector<Row> module_rows(const std::vector<const OneRun*>& runs);

}  // namespace ipexrun::launcher::bench
