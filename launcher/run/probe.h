// Tries a library in a child before it is preloaded into the user's program.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ipexrun::launcher {

/// What a short-lived child did.
struct ProbeResult {
  bool ended = false;  ///< by itself, in time
  int exit_code = -1;  ///< 128 + n for signal n
  std::string output;  ///< stdout, at most 64 KiB
  std::string errors;  ///< stderr, likewise
};

/// Runs argv[0] (absolute path) with the caller's environment changed by `env`, stdin empty. A child that takes longer than
/// `timeout_ms` is killed; what it started and left in its process group is, in any case.
ProbeResult run_probe(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env, int timeout_ms);

/// Preloads `library` into a child that exercises malloc (malloc_exercise.h) and then loads `also_loaded` ("" = nothing): "" when that
/// works and the loader says nothing, else what went wrong. `is_allocator`: and malloc is no longer the C library's.
std::string probe_preload(const std::string& library, const std::string& also_loaded = "", bool is_allocator = false);

}  // namespace ipexrun::launcher
