// `ipexrun doctor --build`: a plugin for a torch that the installation has none for, built from the sources that were installed with it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/run/torch_probe.h"

namespace ipexrun::launcher {

/// The folder with the sources: share/ipexrun/src of the installation that `lib_dir` belongs to; "" = not installed.
std::string find_sources(const std::string& lib_dir);

/// The two commands, made from what was found.
struct BuildTools {
  std::string cmake;
  std::string generator;  ///< "Ninja" or "Unix Makefiles"
  int jobs = 1;
};
std::vector<std::string> configure_command(const BuildTools& tools, const std::string& sources, const std::string& tree);
std::vector<std::string> build_command(const BuildTools& tools, const std::string& tree);

/// cmake, a generator and a compiler in PATH of `env`; the error names what is missing. `jobs`: processors to be used at most.
Result<BuildTools> find_build_tools(const std::map<std::string, std::string>& env, int jobs);

/// How many files may be compiled at once: a processor and 1.5 GB each, at least one.
int build_jobs(std::size_t cores, double quota_cpus, std::uint64_t memory_available_bytes);

/// How far a build is, from its output so far: "12 of 34" of Ninja's "[12/34]", "35%" of make's "[ 35%]"; "" = it does not say.
std::string build_progress(const std::string& output);

/// Builds the plugin for the torch of `python` and puts it into `plugin_dir` (user_plugin_dir()); its path. Shows progress on stderr. The
/// log of a build that fails is kept beside that folder, and named in the error (kExitFailure).
Result<std::string> build_plugin(const PythonFacts& python, const std::string& lib_dir, const std::string& plugin_dir, int jobs);

}  // namespace ipexrun::launcher
