#include "launcher/run/torch_probe.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launcher/run/probe.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kTimeoutMs = 10000;  // a cold network file system
constexpr const char* kPluginHead = "libipexrun_plugin_torch";

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

}  // namespace

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

std::vector<std::string> plugin_versions(const std::string& lib_dir) {
  std::vector<std::string> out;
  std::error_code failure;
  const std::string head = kPluginHead;
  for (fs::directory_iterator it(fs::path(lib_dir) / "plugins", failure), end; !failure && it != end; it.increment(failure)) {
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
