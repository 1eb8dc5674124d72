#include "launcher/bench/training.h"

#include <fmt/format.h>

#include <vector>

#include "launcher/bench/measure.h"

namespace ipexrun::launcher::bench {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kStandsOut = 0.1;  ///< share of the time from which waiting for data is worth a line

double seconds(std::int64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

std::string share(double part, double whole) { return whole > 0 ? fmt::format("{:.0f}%", 100 * part / whole) : "-"; }

}  // namespace

std::optional<TrainingRow> training_row(const InstanceSamples& samples, const std::string& variant, const BenchOptions& options) {
  std::vector<const StepSample*> eligible;
  for (const StepSample& step : samples.steps) {
    if ((step.flags & IPEXRUN_CALL_EXPLORING) == 0) eligible.push_back(&step);
  }
  const long warmup = warmup_calls(options, static_cast<long>(eligible.size()));
  TrainingRow row;
  row.variant = variant;
  row.instance = samples.instance;
  row.steps = static_cast<long>(eligible.size()) - warmup;
  row.left_out = static_cast<long>(samples.steps.size()) - row.steps;
  if (row.steps < kLeastSteps) return std::nullopt;
  row.samples = 0;
  for (auto it = eligible.begin() + warmup; it != eligible.end(); ++it) {
    const StepSample& step = **it;
    row.seconds += seconds(static_cast<std::int64_t>(step.duration_ns));
    row.data_s += seconds(step.data_ns);
    row.forward_s += seconds(step.forward_ns);
    row.backward_s += seconds(step.backward_ns);
    row.optimizer_s += seconds(step.optimizer_ns);
    row.batches += static_cast<double>(step.batches);
    if (step.samples <= 0) row.samples = std::nullopt;
    if (row.samples) *row.samples += static_cast<double>(step.samples);
  }
  return row;
}

std::string TrainingRow::bottleneck() const {
  const double rest = seconds - data_s;
  if (batches > 0 && data_s > kStandsOut * seconds && rest > 0) {
    return fmt::format(
        "the loader gives {:.3g} batches/s; the model could take {:.3g} (more workers: DataLoader(num_workers=...), --loader-cores)",
        batches / seconds, batches / rest);
  }
  struct Part {
    const char* name;
    double taken_s;
  };
  const Part parts[] = {
      {"forward", forward_s}, {"backward", backward_s}, {"the optimizer", optimizer_s}, {"the program's own code between", other_s()}};
  const Part& most =
      *std::max_element(std::begin(parts), std::end(parts), [](const Part& a, const Part& b) { return a.taken_s < b.taken_s; });
  return seconds > 0 ? fmt::format("most of a step is {} ({})", most.name, share(most.taken_s, seconds)) : "";
}

Table training_table(const std::vector<TrainingRow>& rows) {
  Table table;
  table.header = {"variant", "instance", "steps", "left_out", "steps/s", "samples/s", "data", "forward", "backward", "optimizer", "other"};
  table.numeric = {false, true, true, true, true, true, true, true, true, true, true};
  for (const TrainingRow& row : rows) {
    table.lines.push_back({row.variant, std::to_string(row.instance), std::to_string(row.steps), std::to_string(row.left_out),
                           show_number(static_cast<double>(row.steps) / row.seconds),
                           row.samples ? show_number(*row.samples / row.seconds) : "-", share(row.data_s, row.seconds),
                           share(row.forward_s, row.seconds), share(row.backward_s, row.seconds), share(row.optimizer_s, row.seconds),
                           share(row.other_s(), row.seconds)});
  }
  return table;
}

std::string training_text(const std::vector<TrainingRow>& rows) {
  if (rows.empty()) return "";
  std::string out = "training steps\n" + text_table(training_table(rows));
  for (const TrainingRow& row : rows) out += fmt::format("  {}: {}\n", row.variant, row.bottleneck());
  return out;
}

}  // namespace ipexrun::launcher::bench
