#include "launcher/run/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/plan/machine.h"
#include "launcher/run/checks.h"
#include "launcher/run/print.h"

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

Result<int> run_doctor(const Options& options) {
  Machine machine;
  std::vector<Check> checks;
  if (auto read = read_machine()) {
    machine = std::move(read.value());
  } else {
    checks.push_back({CheckLevel::kFail, "machine", read.error().what, read.error().hint});
  }
  for (Check& check : all_checks(machine)) checks.push_back(std::move(check));
  const bool usable = std::none_of(checks.begin(), checks.end(), [](const Check& check) { return check.level == CheckLevel::kFail; });

  std::string text;
  if (options.json) {
    nlohmann::ordered_json out;
    out["usable"] = usable;
    for (const Check& check : checks) {
      out["checks"].push_back({{"level", word(check.level)}, {"name", check.name}, {"seen", check.seen}, {"hint", check.hint}});
    }
    out["gain"] = gain_paragraph(machine);
    text = out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  } else {
    for (const Check& check : checks) {
      const std::string hint = check.hint.empty() ? "" : " (" + check.hint + ")";
      text += fmt::format("{:<4}  {:<16}  {}{}\n", word(check.level), check.name, check.seen, hint);
    }
    text += fmt::format("\n{}\n{}\n", gain_paragraph(machine),
                        usable ? "Programs can be run." : "Something has to be repaired first: see the lines that say fail.");
  }
  const Status printed = print_text(text);
  if (!printed.ok()) return printed.error();
  return static_cast<int>(usable ? kExitOk : kExitFailure);
}

}  // namespace ipexrun::launcher
