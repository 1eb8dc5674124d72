#include "launcher/run/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "configs/base/isa.h"
#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/plan/machine.h"
#include "launcher/run/checks.h"
#include "launcher/run/context.h"
#include "launcher/run/gain.h"
#include "launcher/run/plugin_build.h"
#include "launcher/run/print.h"
#include "launcher/run/program.h"
#include "launcher/run/torch_probe.h"
#include "launcher/run/user_folders.h"

namespace ipexrun::launcher {
namespace {

const char* word(CheckLevel level) {
  switch (level) {
    case CheckLevel::kOk:
      return "ok";
    case CheckLevel::kWarn:
      return "warn";
    case CheckLevel::kFail:
      return "fail";
  }
  return "";
}

/// The interpreter that is meant.
Result<std::string> python_of(const Options& options) {
  const std::string search_path = env::get_named("PATH").value_or("");
  if (options.torch_python.empty()) return find_python(search_path);
  return resolve_program(options.torch_python, search_path);
}

/// --build: a line on stderr says what was done.
Status build(const std::string& python, const Machine& machine) {
  if (python.empty())
    return Error{kExitFailure, "no python or python3 in PATH, so there is no torch to build a plugin for", "--torch-python PYTHON"};
  const PythonFacts facts = ask_python(python);
  if (!facts.ok) return Error{kExitFailure, "no plugin is built: " + facts.problem, ""};
  const std::string minor = minor_version(facts.torch_version);
  if (minor.empty())
    return Error{kExitFailure, "no plugin is built: '" + python + "' has no torch",
                 "--torch-python PYTHON names an interpreter that has one"};
  const std::string lib_dir = find_lib_dir();
  const std::vector<std::string> installed = plugin_versions(lib_dir + "/plugins");
  if (std::find(installed.begin(), installed.end(), minor) != installed.end()) {
    log::warn("nothing to build: a plugin for torch " + minor + " is installed");
    return ok_status();
  }
  std::map<std::string, std::string> variables;
  for (const char* name : {"HOME", "XDG_DATA_HOME", env::name(env::Id::kPluginDir)}) variables[name] = env::get_named(name).value_or("");
  const int jobs = build_jobs(machine.cores.size(), machine.quota_cpus, machine.memory_available_bytes);
  const Result<std::string> built = build_plugin(facts, lib_dir, user_plugin_dir(variables), jobs);
  if (!built.ok()) return built.error();
  log::warn("built " + *built);
  return ok_status();
}

}  // namespace

Result<int> run_doctor(const Options& options) {
  const Result<std::string> python = python_of(options);
  if (!python.ok()) return python.error();
  Machine machine;
  std::vector<Check> checks;
  if (auto read = read_machine()) {
    machine = std::move(read.value());
  } else {
    checks.push_back({CheckLevel::kFail, "machine", read.error().what, read.error().hint});
  }
  if (options.build) {
    if (Status built = build(*python, machine); !built.ok()) return built.error();
  }
  Examined examined = examine(machine, *python);
  for (Check& check : examined.checks) checks.push_back(std::move(check));
  const bool usable = std::none_of(checks.begin(), checks.end(), [](const Check& check) { return check.level == CheckLevel::kFail; });
  const std::string gain = gain_paragraph(isa_of_process(), machine);

  std::string text;
  if (options.json) {
    nlohmann::ordered_json out;
    out["usable"] = usable;
    for (const Check& check : checks) {
      out["checks"].push_back({{"level", word(check.level)}, {"name", check.name}, {"seen", check.seen}, {"hint", check.hint}});
    }
    out["facts"] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : examined.facts) out["facts"][name] = value;
    out["gain"] = gain;
    text = out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  } else {
    for (const Check& check : checks) {
      const std::string hint = check.hint.empty() ? "" : " (" + check.hint + ")";
      text += fmt::format("{:<4}  {:<16}  {}{}\n", word(check.level), check.name, check.seen, hint);
    }
    text += fmt::format("\n{}\n{}\n", gain,
                        usable ? "Programs can be run." : "Something has to be repaired first: see the lines that say fail.");
  }
  const Status printed = print_text(text);
  if (!printed.ok()) return printed.error();
  return static_cast<int>(usable ? kExitOk : kExitFailure);
}

}  // namespace ipexrun::launcher
