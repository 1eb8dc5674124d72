#include "launcher/run/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "configs/base/log.h"
#include "configs/contract/event_ring.h"
#include "launcher/run/crash_note.h"
#include "launcher/run/crash_verdict.h"
#include "launcher/run/omp_watch.h"
#include "launcher/run/op_facts.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kMaxNotes = 4;    // lines of its own that the plugin left for a person
constexpr std::size_t kMaxChoices = 3;  // candidates named in the line
constexpr std::size_t kMaxLastLines = 8;

/// What an event file says, reduced to what the line needs.
struct Facts {
  IpexrunEventHeader header{};
  std::string process;  ///< "torch 2.13.0+cpu, amx, 2 threads"
  OpFacts ops;
  std::vector<std::string> notes;
};

std::optional<Facts> facts_of(const std::string& path) {
  if (path.empty()) return std::nullopt;
  auto snapshot = read_events(path);
  if (!snapshot) return std::nullopt;
  Facts facts;
  facts.header = snapshot->header;
  for (const IpexrunEvent& event : snapshot->events) {
    const std::string text = event.text;
    if (event.kind == IPEXRUN_EVENT_PROCESS) facts.process = text;
    if (event.kind == IPEXRUN_EVENT_NOTE && std::find(facts.notes.begin(), facts.notes.end(), text) == facts.notes.end())
      facts.notes.push_back(text);
  }
  facts.ops = op_facts_of(snapshot->events);
  return facts;
}

/// A field of the header as text, whatever a foreign hand left in it.
template <std::size_t n>
std::string field(const char (&text)[n]) {
  return std::string(text, ::strnlen(text, n));
}

/// "36 of 48 linear calls on own_bf16, onednn_f32_packed, saves 41% of their time; packs 43 MB"
std::string gain_text(const OpFacts& ops) {
  if (ops.calls() == 0) return "the main process called no op that ipexrun has kernels for";
  const std::string drift = ops.drift && !ops.drift->text().empty() ? "; " + ops.drift->text() : "";
  if (ops.taken() == 0) return "stock kernels kept for all " + calls_by_kind(ops.ops, true) + drift;

  double stock_ns = 0;
  double saved_ns = 0;
  std::map<std::string, std::int64_t> by_choice;
  for (const SiteFact& site : ops.sites) {
    if (site.taken > 0) by_choice[site.choice] += site.taken;
    stock_ns += static_cast<double>(site.taken) * static_cast<double>(site.stock_ns);
    saved_ns += site.saved_ns();
  }
  std::vector<std::pair<std::string, std::int64_t>> choices(by_choice.begin(), by_choice.end());
  std::sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string names;
  for (std::size_t i = 0; i < choices.size() && i < kMaxChoices; ++i) {
    if (!choices[i].first.empty()) names += (names.empty() ? " on " : ", ") + choices[i].first;
  }
  std::string out = calls_by_kind(ops.ops) + (names.empty() ? " replaced" : names);
  // Candidates that are forced or asked for by --dtype may have no time to compare with.
  if (stock_ns > 0)
    out += fmt::format(", {} {:.0f}% of their time", saved_ns >= 0 ? "saves" : "costs", 100 * std::abs(saved_ns) / stock_ns);
  if (ops.pack_bytes > 0) out += "; packs " + bytes_text(ops.pack_bytes);
  return out + drift;
}

std::string place_text(const IpexrunEventHeader& header, const InstancePlan* plan) {
  std::string out;
  const std::string mask = field(header.mask_at_start);
  const std::string mems = field(header.mems_at_start);
  if (!mask.empty()) out += "cores " + mask;
  if (!mems.empty()) out += (out.empty() ? "node " : ", node ") + mems;
  if (plan != nullptr && plan->threads > 0) {
    out += fmt::format("{}{} thread{}", out.empty() ? "" : ", ", plan->threads, plan->threads == 1 ? "" : "s");
  }
  return out;
}

/// The plugin names its threads in the process record; the plan has them already.
std::string without_threads(const std::string& process) {
  const std::size_t comma = process.rfind(", ");
  return comma != std::string::npos && process.find("thread", comma) != std::string::npos ? process.substr(0, comma) : process;
}

/// What befell it: ends by signals, restarts, lost output.
std::string events_text(const RunOutcome& outcome, const InstanceOutcome& instance) {
  std::vector<std::string> lines;
  if (instance.restarts > 0)
    lines.push_back(
        fmt::format("instance {} was started again {} time{}", instance.index, instance.restarts, instance.restarts == 1 ? "" : "s"));
  if (instance.output_lost_bytes > 0)
    lines.push_back(fmt::format("instance {}: {} bytes of its output are missing in '{}'", instance.index, instance.output_lost_bytes,
                                instance.output_path));
  // An end that was asked for (ctrl-C, the failure of another instance) is no news.
  if (instance.signal != 0 && !instance.stopped_by_us && outcome.stop_signal == 0) {
    const auto crash = crash_lines(instance, last_lines(instance.output_path, kMaxLastLines), outcome.surroundings);
    lines.insert(lines.end(), crash.begin(), crash.end());
  }
  std::string out;
  for (const std::string& line : lines) out += "ipexrun: " + line + "\n";
  return out;
}

const InstancePlan* plan_of(const LaunchPlan& plan, int index) {
  const auto found =
      std::find_if(plan.instances.begin(), plan.instances.end(), [index](const InstancePlan& one) { return one.index == index; });
  return found == plan.instances.end() ? nullptr : &*found;
}

/// Of TorchScript and compiled graphs, which are no captured modules: "graph of Net answered 58 of 60 calls (2.1x) and 1 more graph"; "":
/// none.
std::string graphs_text(const std::vector<RegionFact>& graphs) {
  const auto taken = std::count_if(graphs.begin(), graphs.end(), [](const RegionFact& graph) { return graph.taken > 0; });
  if (taken == 0) return "";
  const RegionFact& first = graphs.front();
  std::string out = fmt::format("graph of {} answered {} of {} calls", first.where, first.taken, first.calls);
  if (first.speed > 0) out += fmt::format(" ({:.1f}x)", first.speed);
  return out + (taken > 1 ? fmt::format(" and {} more graph{}", taken - 1, taken == 2 ? "" : "s") : "");
}

bool answered_by_ours(const ModuleFact& module) { return module.choice == "captured" || module.choice == "fused"; }

std::string line_of(const Options& options, const LaunchPlan& plan, const InstanceOutcome& instance, const Facts& facts) {
  const InstancePlan* planned = plan_of(plan, instance.index);
  std::string out = place_text(facts.header, planned);
  const auto join = [&out](const std::string& separator, const std::string& text) { out += (out.empty() ? "" : separator) + text; };
  switch (facts.header.shim_state) {
    case IPEXRUN_SHIM_TORCH_SEEN:
      join("; ", "torch was loaded but the plugin never started: stock PyTorch ran (docs/limits.md)");
      break;
    case IPEXRUN_SHIM_REFUSED:
      join("; ", "stock PyTorch ran: " + field(facts.header.shim_reason));
      break;
    case IPEXRUN_SHIM_ACTIVE:
      if (!facts.process.empty()) join(", ", planned != nullptr && planned->threads > 0 ? without_threads(facts.process) : facts.process);
      if (const auto& modules = facts.ops.modules; options.optimize && std::any_of(modules.begin(), modules.end(), answered_by_ours))
        join("; ", modules_text(facts.ops.modules));
      else if (const std::string graphs = graphs_text(facts.ops.regions); options.optimize && !graphs.empty())
        join("; ", graphs);
      join("; ", options.optimize ? gain_text(facts.ops) : "launch only, stock kernels");
      break;
    default:
      break;
  }
  return out;
}

/// One line for the instances that had the same OpenMP runtimes side by side.
std::string omp_lines(const LaunchPlan& plan, const RunOutcome& outcome) {
  std::map<std::string, std::string> instances_by_text;
  for (const InstanceOutcome& instance : outcome.instances) {
    const InstancePlan* planned = plan_of(plan, instance.index);
    if (planned != nullptr && planned->threads == 1) continue;  // none of them has others to keep
    std::string preload;
    if (planned != nullptr && planned->env.contains("LD_PRELOAD")) preload = planned->env.at("LD_PRELOAD");
    const std::vector<std::string> rivals = omp_rivals(instance.omp_runtimes, preload);
    if (rivals.size() < 2) continue;
    std::string& list = instances_by_text[fmt::format("{}", fmt::join(rivals, ", "))];
    list += (list.empty() ? "" : ", ") + std::to_string(instance.index);
  }
  std::string out;
  for (const auto& [libraries, list] : instances_by_text) {
    out += "ipexrun: instance " + list + ": more than one OpenMP runtime in a process: " + libraries +
           "; each keeps threads of its own on the same cores, so taking turns costs time (OMP_WAIT_POLICY=passive helps: "
           "docs/openmp.md)\n";
  }
  return out;
}

}  // namespace

std::string summary_text(const Options& options, const LaunchPlan& plan, const RunOutcome& outcome) {
  if (log::level() < log::Level::kWarn) return "";
  std::string out;
  for (const InstanceOutcome& instance : outcome.instances) {
    const std::string head = "ipexrun: " + (plan.who.empty() ? "instance " + std::to_string(instance.index) : plan.who) + ": ";
    const auto facts = facts_of(instance.events_path);
    if (facts && facts->header.shim_state > IPEXRUN_SHIM_LOADED) {
      out += head + line_of(options, plan, instance, *facts) + "\n";
      for (std::size_t i = 0; i < facts->notes.size() && i < kMaxNotes; ++i) out += head + facts->notes[i] + "\n";
    }
    out += events_text(outcome, instance);
    if (const std::string crash = facts ? crash_verdict(instance.index, facts->header) : ""; !crash.empty())
      out += "ipexrun: " + crash + "\n";
  }
  return out + omp_lines(plan, outcome);
}

Status require_shim_verdict(const LaunchPlan& plan, const RunOutcome& outcome) {
  if (!plan.require_shim) return ok_status();
  for (const InstanceOutcome& instance : outcome.instances) {
    const auto facts = facts_of(instance.events_path);
    const std::string who = "--require-shim: instance " + std::to_string(instance.index) + ": ";
    if (!facts)
      return Error{kExitFailure, who + "it cannot be known whether the shim was active: no event file", "set TMPDIR to a writable folder"};
    switch (facts->header.shim_state) {
      case IPEXRUN_SHIM_ACTIVE:
        break;
      case IPEXRUN_SHIM_REFUSED:
        return Error{kExitFailure, who + "the shim stayed out: " + field(facts->header.shim_reason), ""};
      case IPEXRUN_SHIM_TORCH_SEEN:
        return Error{kExitFailure, who + "torch was loaded but the plugin never started", "see docs/limits.md"};
      case IPEXRUN_SHIM_LOADED:
        return Error{kExitFailure, who + "the program never loaded torch", ""};
      default:
        return Error{kExitFailure, who + "the shim was not loaded into the program", "ipexrun doctor says what is wrong"};
    }
  }
  return ok_status();
}

}  // namespace ipexrun::launcher
