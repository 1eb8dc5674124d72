// `ipexrun env`: facts for a bug report, from one table for both forms of output.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/isa.h"
#include "configs/contract/env.h"
#include "launcher/machine/text_files.h"
#include "launcher/plan/machine.h"
#include "launcher/run/context.h"
#include "launcher/run/doctor.h"
#include "launcher/run/print.h"
#include "launcher/run/program.h"
#include "launcher/run/system_facts.h"
#include "launcher/run/torch_probe.h"
#include "launcher/run/user_folders.h"

namespace ipexrun::launcher {
namespace {

struct Section {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;

  void add(const std::string& key, const std::string& value) {
    if (!value.empty()) rows.emplace_back(key, value);
  }
};

/// Variables that change how torch, its libraries or we behave. No other variable is shown: a report must not carry secrets.
constexpr std::array kPrefixes{
    "IPEXRUN_",  "OMP_",     "GOMP_",  "KMP_",        "MKL_",          "DNNL_",          "ONEDNN_",         "ATEN_",
    "TORCH",     "PYTORCH",  "LD_",    "MALLOC_",     "_RJEM_MALLOC_", "TCMALLOC_",      "MIMALLOC_",       "GLIBC_TUNABLES",
    "OPENBLAS_", "NUMEXPR_", "PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX",  "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"};

Section variables() {
  Section section{"variables", {}};
  for (const std::string& entry : env::all()) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    for (const std::string prefix : kPrefixes) {
      if (entry.compare(0, prefix.size(), prefix) != 0) continue;
      section.rows.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
      break;
    }
  }
  return section;
}

/// This process's command line, words with blanks in quotes.
std::string command_line() {
  const std::string text = whole_file("/proc/self/cmdline").value_or("");
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool quoted = word.empty() || word.find_first_of(" \t'\"") != std::string::npos;
    out += (out.empty() ? "" : " ") + (quoted ? "'" + word + "'" : word);
    at = end + 1;
  }
  return out;
}

Section machine_section() {
  Section section{"machine", {}};
  const auto machine = read_machine();
  if (!machine) {
    section.add("problem", machine.error().line());
    return section;
  }
  section.add("cpu", machine->name);
  section.add("cores", fmt::format("{} allowed of {}, {} PUs, {} package{}", machine->cores.size(), machine->total_cores,
                                   machine->total_pus, machine->packages, machine->packages == 1 ? "" : "s"));
  section.add("numa nodes", std::to_string(machine->nodes.size()));
  section.add("quota", machine->quota_cpus > 0 ? fmt::format("{:.2f} CPUs", machine->quota_cpus) : "none");
  for (const std::string& note : machine->notes) section.add("restricted", note);
  section.add("isa of cpu", std::string(level_name(isa_of_cpu())));
  section.add("isa of process", std::string(level_name(isa_of_process())));
  return section;
}

Section system_section() {
  const SystemFacts facts = read_system_facts();
  Section section{"system", {}};
  section.add("os", facts.os);
  section.add("kernel", facts.kernel);
  section.add("glibc", facts.glibc);
  section.add("container", facts.container);
  section.add("seccomp", facts.seccomp);
  section.add("memory", facts.memory_total);
  section.add("memory available", facts.memory_free);
  section.add("load", facts.load);
  section.add("governor", facts.governor);
  section.add("huge pages", facts.huge_pages);
  section.add("numa balancing", facts.numa_balancing);
  section.add("swappiness", facts.swappiness);
  return section;
}

Section python_section(const std::string& lib_dir) {
  Section section{"python", {}};
  const std::string path = find_python(env::get_named("PATH").value_or(""));
  section.add("path", path.empty() ? "none in PATH" : path);
  if (!path.empty()) {
    const PythonFacts facts = ask_python(path);
    section.add("problem", facts.problem);
    section.add("executable", facts.executable);
    section.add("version", facts.version);
    section.add("torch", facts.torch_root.empty() ? "none" : facts.torch_version);
    section.add("torch folder", facts.torch_root);
    for (const auto& [name, version] : facts.packages) section.add(name, version);
  }
  section.add("plugins", fmt::format("{}", fmt::join(plugin_versions(lib_dir + "/plugins"), ", ")));
  std::map<std::string, std::string> variables;
  for (const char* name : {"HOME", "XDG_DATA_HOME", env::name(env::Id::kPluginDir)}) variables[name] = env::get_named(name).value_or("");
  section.add("plugins built here", fmt::format("{}", fmt::join(plugin_versions(user_plugin_dir(variables)), ", ")));
  return section;
}

}  // namespace

Result<int> run_env(const Options& options) {
  const std::string lib_dir = find_lib_dir();
  Section own{"ipexrun", {}};
  own.add("version", IPEXRUN_VERSION);
  own.add("compiler", __VERSION__);
  own.add("lib dir", lib_dir.empty() ? "none" : lib_dir);
  own.add("command", command_line());
  const std::vector<Section> sections{own, system_section(), machine_section(), python_section(lib_dir), variables()};

  std::string text;
  if (options.json) {
    nlohmann::ordered_json out;
    for (const Section& section : sections) {
      nlohmann::ordered_json& object = out[section.title] = nlohmann::ordered_json::object();
      for (const auto& [key, value] : section.rows) {
        // The one key that may come more than once ("restricted") stays one string.
        object[key] = object.contains(key) ? object[key].get<std::string>() + "; " + value : value;
      }
    }
    text = out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  } else {
    for (const Section& section : sections) {
      text += section.title + "\n";
      for (const auto& [key, value] : section.rows) text += fmt::format("  {:<18} {}\n", key, value);
    }
  }
  const Status printed = print_text(text);
  if (!printed.ok()) return printed.error();
  return static_cast<int>(kExitOk);
}

}  // namespace ipexrun::launcher
