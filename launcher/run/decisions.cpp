#include "launcher/run/decisions.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "configs/base/log.h"
#include "configs/contract/decision.h"
#include "configs/contract/env.h"
#include "configs/contract/event_ring.h"
#include "launcher/run/op_facts.h"

namespace ipexrun::launcher {
namespace {

/// Reasons of choices that rest on time or accuracy in this run or an earlier one.
const std::set<std::string> kMeasured = {
    "faster", "slower", "inaccurate", "rolled back", "remembered", "none of its graphs gained", "as a whole it was not faster"};

/// Under which the plugin makes and looks up decisions: it computes nothing of float32 in float16.
std::string dtype_inside(const std::string& asked) { return asked == "float16" ? "float32" : asked; }

/// Times and counts as somebody may have written them, 1.5e3 or 1e300.
std::int64_t whole(double number, double most) {
  return number >= 0 ? static_cast<std::int64_t>(std::min(number, most)) : 0;  // 0 for NaN
}

constexpr double kMostNs = 1e15;
constexpr double kMostSamples = 1e9;

/// Of the first instance; 0: not known before it runs.
int threads_of(const LaunchPlan& plan) {
  if (plan.instances.empty()) return 0;
  const auto asked = plan.instances.front().env.find("OMP_NUM_THREADS");
  if (asked == plan.instances.front().env.end()) return plan.instances.front().threads;
  int threads = 0;
  const auto [end, failure] = std::from_chars(asked->second.data(), asked->second.data() + asked->second.size(), threads);
  return failure == std::errc() && end == asked->second.data() + asked->second.size() ? threads : 0;
}

/// Sites differ by the number of threads, so that decisions of another one are asked for by no call. One line where none is left.
void say_if_for_other_threads(const std::string& text, int threads) {
  int theirs = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Decision decision;
    if (!parse_decision_line(line, &decision)) continue;
    if (decision.site.threads == threads) return;
    theirs = decision.site.threads;
  }
  if (threads > 0 && theirs > 0)
    log::once(log::Level::kWarn, "threads of decisions",
              "the config's decisions are for " + std::to_string(theirs) + (theirs == 1 ? " thread" : " threads") + ", instances have " +
                  std::to_string(threads) + ": what is faster is measured anew");
}

}  // namespace

std::string decisions_text(const Options& options) {
  std::string out;
  for (const std::string& text : options.decisions) {
    const nlohmann::json fields = nlohmann::json::parse(text);
    const auto number = [&](const char* key, double most = kMostNs) {
      const auto field = fields.find(key);
      return field != fields.end() && field->is_number() ? whole(field->get<double>(), most) : 0;
    };
    const auto word = [&](const char* key, const std::string& fallback) {
      const auto field = fields.find(key);
      return field != fields.end() && field->is_string() ? field->get<std::string>() : fallback;
    };
    Decision decision;
    if (!parse_site_key(word("site", ""), &decision.site)) continue;  // config_file.cpp let none of these in
    decision.choice = word("choice", "stock");
    decision.stock_ns = number("stock_ns");
    decision.choice_ns = number("choice_ns");
    decision.samples = static_cast<int>(number("samples", kMostSamples));
    decision.reason = "pinned";
    decision.dtype = dtype_inside(word("dtype", options.dtype));
    out += decision_line(decision) + '\n';
  }
  return out;
}

std::vector<std::string> decisions_found(const Options& options, const RunOutcome& outcome) {
  std::map<std::string, std::optional<SiteFact>> found;
  const auto note = [&found](const SiteFact& site) {
    SiteKey key;
    const bool measured = kMeasured.contains(site.reason.substr(0, site.reason.find(';')));
    if (!measured || !parse_site_key(site.key, &key)) return;
    const auto [known, fresh] = found.try_emplace(site.key, site);
    if (!fresh && known->second && known->second->choice != site.choice) known->second = std::nullopt;
  };
  for (const InstanceOutcome& instance : outcome.instances) {
    const auto snapshot =
        instance.events_path.empty() ? Result<EventSnapshot>(Error{kExitFailure, "", ""}) : read_events(instance.events_path);
    if (!snapshot) continue;
    const OpFacts facts = op_facts_of(snapshot->events);
    for (const SiteFact& site : facts.sites) note(site);
    for (const ModuleFact& module : facts.modules) note(module);
  }
  std::vector<std::string> out;
  // What was pinned was not measured, and stays.
  std::copy_if(options.decisions.begin(), options.decisions.end(), std::back_inserter(out), [&found](const std::string& pinned) {
    const auto fields = nlohmann::json::parse(pinned);
    return !found.contains(fields.value("site", ""));
  });
  for (const auto& [key, site] : found) {
    if (!site) continue;
    const nlohmann::ordered_json entry = {{"site", key},
                                          {"choice", site->choice},
                                          {"stock_ns", site->stock_ns},
                                          {"choice_ns", site->choice_ns},
                                          {"samples", site->samples},
                                          {"dtype", dtype_inside(options.dtype)}};
    out.push_back(entry.dump());
  }
  return out;
}

Status pin_decisions(const Options& options, const std::string& run_dir, LaunchPlan* plan) {
  if (options.decisions.empty() || !options.optimize) return ok_status();
  if (run_dir.empty()) return Error{kExitFailure, "the config's decisions cannot be handed to the program: there is no run folder", ""};
  const std::string path = run_dir + "/decisions";
  const std::string text = decisions_text(options);
  say_if_for_other_threads(text, threads_of(*plan));
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return Error{kExitFailure, "the config's decisions cannot be written to '" + path + "'", "set TMPDIR to a writable folder"};
  for (InstancePlan& instance : plan->instances) instance.env[env::name(env::Id::kDecisions)] = path;
  return ok_status();
}

}  // namespace ipexrun::launcher
