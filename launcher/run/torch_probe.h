// Which torch an interpreter has, found out without importing it: milliseconds instead of seconds, and nothing of it is run.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ipexrun::launcher {

struct PythonFacts {
  bool ok = false;                              ///< the interpreter answered
  std::string problem;                          ///< why not
  std::string executable;                       ///< as the interpreter sees itself (behind a shim of pyenv or the like)
  std::string version;                          ///< "3.11.2"
  std::string ext_suffix;                       ///< of its extension modules, ".cpython-311-x86_64-linux-gnu.so"
  std::string torch_root;                       ///< folder of the package, "" = no torch
  std::string torch_version;                    ///< "2.13.0+cpu"
  std::map<std::string, std::string> packages;  ///< versions of packages that often matter in a bug report
};

/// Asks `python` (absolute path). Starts one child of at most 10 s.
PythonFacts ask_python(const std::string& python);

/// libtorch_cpu.so of the torch that `python` (absolute path) would import under `env`, found by looking at folders alone; "" when there
/// is none where packages usually are. Milliseconds, no child.
std::string find_libtorch_cpu(const std::string& python, const std::map<std::string, std::string>& env);

/// "2.13" of "2.13.0+cpu"; "" when the text starts with no such numbers.
std::string minor_version(const std::string& version);

/// File name of the plugin for a torch minor version.
std::string plugin_file(const std::string& minor);
/// The same for the library of device xpu.
std::string xpu_file(const std::string& minor);

/// Torch minor versions that have a plugin in `folder`, ascending.
std::vector<std::string> plugin_versions(const std::string& folder);

}  // namespace ipexrun::launcher
