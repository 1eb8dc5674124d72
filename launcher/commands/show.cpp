// Commands that only print.
#include <filesystem>
#include <string>
#include <system_error>

#include "launcher/commands/commands.h"
#include "launcher/commands/common.h"
#include "launcher/machine/tree.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/show.h"
#include "launcher/run/context.h"
#include "launcher/run/print.h"

namespace ipexrun::launcher {

Result<int> print(const std::string& text) {
  const Status printed = print_text(text);
  return printed.ok() ? Result<int>(kExitOk) : Result<int>(printed.error());
}

Result<int> show_version(const char* version) {
  std::string plugins;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(find_lib_dir() + "/plugins", ignored))
    if (entry.path().extension() == ".so") plugins += (plugins.empty() ? "" : ", ") + entry.path().filename().string();
  if (plugins.empty()) plugins = "none (programs are launched, not optimized)";
  return print(std::string("ipexrun ") + version + "\nplugins: " + plugins + "\nhwloc API " + topology_library_version() + "\n");
}

Result<int> show_topology(const Options& options) {
  const Result<Machine> machine = machine_for(options);
  if (!machine.ok()) return machine.error();
  return print(options.json ? machine_json(*machine) : machine_text(*machine));
}

}  // namespace ipexrun::launcher
