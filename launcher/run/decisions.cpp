#include "launcher/run/decisions.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "configs/contract/decision.h"
#include "configs/contract/env.h"

namespace ipexrun::launcher {

std::string decisions_text(const Options& options) {
  std::string out;
  for (const std::string& text : options.decisions) {
    const nlohmann::json fields = nlohmann::json::parse(text);
    const auto number = [&](const char* key) {
      const auto field = fields.find(key);
      return field != fields.end() && field->is_number() ? field->get<std::int64_t>() : 0;
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
    decision.samples = static_cast<int>(number("samples"));
    decision.reason = "pinned";
    decision.dtype = word("dtype", options.dtype);
    out += decision_line(decision) + '\n';
  }
  return out;
}

Status pin_decisions(const Options& options, const std::string& run_dir, LaunchPlan* plan) {
  if (options.decisions.empty() || !options.optimize) return ok_status();
  if (run_dir.empty()) return Error{kExitFailure, "the config's decisions cannot be handed to the program: there is no run folder", ""};
  const std::string path = run_dir + "/decisions";
  std::ofstream file(path);
  file << decisions_text(options);
  file.close();
  if (!file) return Error{kExitFailure, "the config's decisions cannot be written to '" + path + "'", "set TMPDIR to a writable folder"};
  for (InstancePlan& instance : plan->instances) instance.env[env::name(env::Id::kDecisions)] = path;
  return ok_status();
}

}  // namespace ipexrun::launcher
