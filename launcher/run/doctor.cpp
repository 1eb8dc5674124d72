#include "launcher/run/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launcher/plan/machine.h"
#include "launcher/run/checks.h"

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

}  // namespace

int run_doctor(const Options& options) {
  Machine machine;
  std::vector<Check> checks;
  if (auto read = read_machine()) {
    machine = std::move(read.value());
  } else {
    checks.push_back({CheckLevel::kFail, "machine", read.error().what, read.error().hint});
  }
  for (Check& check : all_checks(machine)) checks.push_back(std::move(check));
  const bool usable = std::none_of(checks.begin(), checks.end(), [](const Check& check) { return check.level == CheckLevel::kFail; });

  if (options.json) {
    nlohmann::ordered_json out;
    out["usable"] = usable;
    for (const Check& check : checks) {
      out["checks"].push_back({{"level", word(check.level)}, {"name", check.name}, {"seen", check.seen}, {"hint", check.hint}});
    }
    out["gain"] = gain_paragraph(machine);
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return usable ? kExitOk : kExitFailure;
  }
  for (const Check& check : checks) {
    fmt::print("{:<4}  {:<16}  {}{}\n", word(check.level), check.name, check.seen, check.hint.empty() ? "" : " (" + check.hint + ")");
  }
  fmt::print("\n{}\n{}\n", gain_paragraph(machine),
             usable ? "Programs can be run." : "Something has to be repaired first: see the lines that say fail.");
  return usable ? kExitOk : kExitFailure;
}

}  // namespace ipexrun::launcher
