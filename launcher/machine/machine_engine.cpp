#include "launcher/machine/machine_engine.h"

#include <charconv>
#include <fstream>

#include "launcher/machine/text_files.h"
#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

constexpr int kMostSteps = 32;  // more shells than that between an engine and its rank are a loop or a joke

struct StatusFile {
  bool read = false;
  int parent = 0;
  std::optional<std::vector<int>> cpus;
};

StatusFile read_status(const std::string& path) {
  StatusFile out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t tab = line.find(":\t");
    if (tab == std::string::npos) continue;
    out.read = true;
    const std::string key = line.substr(0, tab);
    const std::string value = line.substr(tab + 2);
    if (key == "PPid") std::from_chars(value.data(), value.data() + value.size(), out.parent);
    if (key != "Cpus_allowed_list") continue;
    if (auto list = parse_cpu_list(value); list.ok()) out.cpus = *list;
  }
  return out;
}

/// NAME=value strings with a NUL before and after each; nullopt = not readable (a process of somebody else).
std::optional<std::string> read_environ(const std::string& path) {
  const std::optional<std::string> text = whole_file(path);
  if (!text) return std::nullopt;
  return std::string(1, '\0') + *text;
}

std::optional<std::string> variable(const std::string& environ, const std::string& name) {
  const std::string key = std::string(1, '\0') + name + "=";
  const std::size_t at = environ.find(key);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + key.size();
  return environ.substr(begin, environ.find('\0', begin) - begin);
}

}  // namespace

EngineProcess read_engine_process(const std::string& sysroot, const std::string& marker) {
  EngineProcess out;
  const std::string proc = sysroot + "/proc/";
  StatusFile status = read_status(proc + "self/status");
  out.cpus_of_rank = status.cpus;
  for (int step = 0; step < kMostSteps && status.parent > 0; ++step) {
    const std::string folder = proc + std::to_string(status.parent);
    status = read_status(folder + "/status");
    if (!status.read) return out;
    const auto environ = read_environ(folder + "/environ");
    if (environ && variable(*environ, marker)) continue;
    out.found = true;
    out.cpus_allowed = status.cpus;
    out.environment_known = environ.has_value();
    if (environ) out.own_omp_threads = variable(*environ, "OMP_NUM_THREADS").value_or("");
    return out;
  }
  return out;
}

}  // namespace ipexrun::launcher
