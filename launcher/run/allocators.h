// Which memory allocator and which OpenMP runtime are preloaded, and why.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"

namespace ipexrun::launcher {

/// A library that may be preloaded. An empty path means that nothing is.
struct LibraryChoice {
  std::string name;    ///< "jemalloc", "intel", ..., "default"
  std::string path;    ///< absolute, "" = nothing is preloaded
  std::string reason;  ///< for --explain, one sentence
};

/// The names that --memory-allocator takes besides auto and default, in the order of preference.
const std::vector<std::string>& allocator_names();

/// The Debian package that brings an allocator.
std::string allocator_package(const std::string& name);

/// The first library of allocator `name` in `folders` that may be preloaded and survives its probe; path "" and the reason when there
/// is none. Starts short-lived children. `omp_runtime`: library that must still load after the allocator took its thread-local storage.
LibraryChoice find_allocator(const std::string& name, const std::vector<std::string>& folders, const std::string& omp_runtime = "");

/// What --memory bounded or throughput makes of --memory-allocator auto: tcmalloc where it is installed and survives its probe, else the
/// program's own; docs/allocators.md has the measurements. Starts short-lived children.
LibraryChoice allocator_of_profile(const std::string& profile, const std::vector<std::string>& folders,
                                   const std::string& omp_runtime = "");

/// --memory-allocator: auto, default, a name or the absolute path of a library. Error (kExitUsage): one asked for is not there or
/// cannot be used.
Result<LibraryChoice> choose_allocator(const std::string& wanted, const std::vector<std::string>& folders,
                                       const std::string& omp_runtime = "");

/// --omp-runtime: auto and default keep the one the program brings; intel is libiomp5.so, llvm libomp.so; or the absolute path of one of
/// them or of a libgomp. Error (kExitUsage): not there, or it cannot be used.
Result<LibraryChoice> choose_omp_runtime(const std::string& wanted, const std::vector<std::string>& folders);

}  // namespace ipexrun::launcher
