#include "launcher/run/torch_probe.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/plan/environment.h"
#include "launcher/run/probe.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kTimeoutMs = 10000;  // a cold network file system
constexpr const char* kPluginHead = "libipexrun_plugin_torch";
constexpr const char* kXpuHead = "libipexrun_xpu_torch";

/// Only the standard library, and nothing of torch but the text of its version.py.
constexpr const char* kQuestion = R"PY(
import importlib.metadata as m, importlib.util as u, json, os, re, sys, sysconfig
out = {'executable': sys.executable, 'version': sys.version.split()[0], 'ext_suffix': sysconfig.get_config_var('EXT_SUFFIX') or '',
       'torch_root': '', 'torch_version': '', 'packages': {}}
spec = u.find_spec('torch')
if spec and spec.submodule_search_locations:
    out['torch_root'] = list(spec.submodule_search_locations)[0]
    try:
        text = open(os.path.join(out['torch_root'], 'version.py')).read()
        out['torch_version'] = (re.findall(r"__version__\s*=\s*['\"]([^'\"]+)", text) or [''])[0]
    except OSError:
        pass
for name in ('numpy', 'torchvision', 'transformers', 'tokenizers', 'diffusers', 'intel-extension-for-pytorch', 'intel-openmp', 'mkl'):
    try:
        out['packages'][name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(out))
)PY";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The folders of packages below `prefix`, for the Python called `version` ("python3.11"), or for any when it is "".
std::vector<fs::path> package_folders(const fs::path& prefix, const std::string& version) {
  std::vector<fs::path> out;
  std::error_code failure;
  for (const char* lib : {"lib", "lib64"}) {
    std::vector<std::string> names;
    if (!version.empty()) names.push_back(version);
    for (fs::directory_iterator it(prefix / lib, failure), end; version.empty() && !failure && it != end; it.increment(failure)) {
      const std::string name = it->path().filename().string();
      if (name.compare(0, 8, "python3.") == 0) names.push_back(name);
    }
    names.emplace_back("python3");  // Debian's
    for (const std::string& name : names) {
      for (const char* packages : {"site-packages", "dist-packages"}) out.push_back(prefix / lib / name / packages);
    }
  }
  return out;
}

/// Whether a virtual environment also sees the packages of the Python that it was made from.
bool sees_system_packages(const fs::path& prefix) {
  std::ifstream file(prefix / "pyvenv.cfg");
  for (std::string line; std::getline(file, line);) {
    if (line.find("include-system-site-packages") != std::string::npos) return line.find("true") != std::string::npos;
  }
  return false;
}

/// What *.pth files in a folder of packages add to it: folders, one a line, as module site reads them (lines of code are not run).
std::vector<fs::path> folders_of_pth(const fs::path& packages) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator it(packages, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path().extension() == ".pth" && it->path().filename().string().front() != '.') files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  std::vector<fs::path> out;
  for (const fs::path& one : files) {
    std::ifstream file(one);
    for (std::string line; std::getline(file, line);) {
      line.erase(line.find_last_not_of(" \t\r") + 1);
      if (line.empty() || line.front() == '#' || line.compare(0, 7, "import ") == 0 || line.compare(0, 7, "import\t") == 0) continue;
      out.push_back(packages / line);  // an absolute one stays what it is
    }
  }
  return out;
}

}  // namespace

std::string find_libtorch_cpu(const std::string& python, const std::map<std::string, std::string>& env) {
  std::error_code failure;
  const fs::path real = fs::canonical(python, failure);
  const std::string name = failure ? "" : real.filename().string();
  const std::string version = name.compare(0, 8, "python3.") == 0 ? name : "";
  const fs::path prefix = fs::path(python).parent_path().parent_path();
  const bool environment = fs::exists(prefix / "pyvenv.cfg", failure);

  std::vector<fs::path> folders;
  const std::string own = value_of(env, "PYTHONPATH");
  for (std::size_t at = 0; at < own.size();) {
    const std::size_t end = std::min(own.find(':', at), own.size());
    if (end > at) folders.emplace_back(own.substr(at, end - at));
    at = end + 1;
  }
  const auto add = [&folders](const std::vector<fs::path>& more) {
    for (const fs::path& packages : more) {
      folders.push_back(packages);
      const std::vector<fs::path> added = folders_of_pth(packages);
      folders.insert(folders.end(), added.begin(), added.end());
    }
  };
  if (environment) add(package_folders(prefix, version));
  if (!environment || sees_system_packages(prefix)) {
    if (value_of(env, "PYTHONNOUSERSITE").empty() && !value_of(env, "HOME").empty())
      add(package_folders(fs::path(value_of(env, "HOME")) / ".local", version));
    if (!environment) add(package_folders(prefix, version));
    if (!real.empty()) add(package_folders(real.parent_path().parent_path(), version));
    if (real.parent_path() == "/usr/bin") add(package_folders("/usr/local", version));
  }
  for (const fs::path& folder : folders) {
    const fs::path library = folder / "torch" / "lib" / "libtorch_cpu.so";
    if (fs::exists(library, failure)) return library.string();
  }
  return "";
}

PythonFacts ask_python(const std::string& python) {
  PythonFacts facts;
  const ProbeResult result = run_probe({python, "-c", kQuestion}, {}, kTimeoutMs);
  if (!result.ended || result.exit_code != 0) {
    facts.problem = result.ended ? "'" + python + "' ended with code " + std::to_string(result.exit_code) + ": " + first_line(result.errors)
                                 : "'" + python + "' gave no answer: " + first_line(result.errors);
    return facts;
  }
  const auto answer = nlohmann::json::parse(result.output, nullptr, false);
  if (!answer.is_object()) {
    facts.problem = "'" + python + "' answered '" + first_line(result.output) + "'";
    return facts;
  }
  facts.ok = true;
  facts.executable = answer.value("executable", "");
  facts.version = answer.value("version", "");
  facts.ext_suffix = answer.value("ext_suffix", "");
  facts.torch_root = answer.value("torch_root", "");
  facts.torch_version = answer.value("torch_version", "");
  facts.packages = answer.value("packages", std::map<std::string, std::string>{});
  return facts;
}

std::string minor_version(const std::string& version) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < version.size() && std::isdigit(static_cast<unsigned char>(version[at])) != 0) ++at;
    return at > begin;
  };
  if (!digits() || at >= version.size() || version[at] != '.') return "";
  ++at;
  return digits() ? version.substr(0, at) : "";
}

std::string plugin_file(const std::string& minor) {
  std::string name = minor;
  std::replace(name.begin(), name.end(), '.', '_');
  return kPluginHead + name + ".so";
}

std::string xpu_file(const std::string& minor) {
  std::string name = minor;
  std::replace(name.begin(), name.end(), '.', '_');
  return kXpuHead + name + ".so";
}

std::vector<std::string> plugin_versions(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code failure;
  const std::string head = kPluginHead;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    std::string name = it->path().stem().string();
    if (it->path().extension() != ".so" || name.compare(0, head.size(), head) != 0) continue;
    name.erase(0, head.size());
    std::replace(name.begin(), name.end(), '_', '.');
    if (minor_version(name) == name) out.push_back(name);
  }
  std::sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return std::make_pair(a.size(), a) < std::make_pair(b.size(), b);  // 2.9 before 2.11
  });
  return out;
}

}  // namespace ipexrun::launcher
