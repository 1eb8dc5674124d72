#include "launcher/run/allocators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "configs/base/log.h"
#include "launcher/run/library_search.h"
#include "launcher/run/omp_runtime.h"
#include "launcher/run/probe.h"
#include "launcher/run/program.h"

namespace ipexrun::launcher {
namespace {

struct Allocator {
  const char* name;
  const char* package;
  std::vector<const char*> stems;  ///< of its library files, the smallest first
};

const std::vector<Allocator>& allocators() {
  static const std::vector<Allocator> table = {
      {"jemalloc", "libjemalloc2", {"jemalloc"}},
      {"tcmalloc", "libtcmalloc-minimal4", {"tcmalloc_minimal", "tcmalloc"}},
      {"mimalloc", "libmimalloc2.0", {"mimalloc"}},
  };
  return table;
}

/// The first of the stems' libraries that passes; `refusals` collects why others did not.
std::string first_usable(const std::vector<const char*>& stems, const std::vector<std::string>& folders, std::vector<std::string>& refusals,
                         const std::string& also_loaded = "") {
  for (const char* stem : stems) {
    for (const std::string& path : find_libraries(stem, folders)) {
      std::string why = preload_objection(path);
      if (why.empty()) why = probe_preload(path, also_loaded);
      if (why.empty()) return path;
      log::once(log::Level::kWarn, path, "'" + path + "' is not used: " + why);
      refusals.push_back(path + ": " + why);
    }
  }
  return "";
}

/// A library that was asked for by its path, looked at and tried.
Status check_given(const char* option, const std::string& path, const std::string& also_loaded = "") {
  std::string why = preload_objection(path);
  if (why.empty()) why = probe_preload(path, also_loaded, std::string(option) == "memory-allocator");
  if (why.empty()) return ok_status();
  return Error{kExitUsage, std::string("--") + option + " '" + path + "' cannot be used: " + why, "ipexrun doctor lists what is installed"};
}

bool is_path(const std::string& wanted) { return wanted.find('/') != std::string::npos; }

std::string where_text(const std::vector<std::string>& folders, const std::vector<std::string>& refusals) {
  if (!refusals.empty()) return fmt::format("found but not usable: {}", fmt::join(refusals, "; "));
  return fmt::format("looked in {}", fmt::join(folders, ", "));
}

/// The allocator that a library is by its name, else the name of its file.
std::string allocator_of_path(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  for (const Allocator& allocator : allocators()) {
    if (file.find(allocator.name) != std::string::npos) return allocator.name;
  }
  return file;
}

}  // namespace

const std::vector<std::string>& allocator_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Allocator& allocator : allocators()) out.emplace_back(allocator.name);
    return out;
  }();
  return names;
}

std::string allocator_package(const std::string& name) {
  for (const Allocator& allocator : allocators()) {
    if (allocator.name == name) return allocator.package;
  }
  return "";
}

LibraryChoice find_allocator(const std::string& name, const std::vector<std::string>& folders, const std::string& omp_runtime) {
  std::vector<std::string> refusals;
  for (const Allocator& allocator : allocators()) {
    if (allocator.name != name) continue;
    const std::string path = first_usable(allocator.stems, folders, refusals, omp_runtime);
    if (!path.empty()) return {name, path, ""};
  }
  return {"default", "", where_text(folders, refusals)};
}

LibraryChoice allocator_of_profile(const std::string& profile, const std::vector<std::string>& folders, const std::string& omp_runtime) {
  LibraryChoice found = find_allocator("tcmalloc", folders, omp_runtime);
  found.reason =
      found.path.empty()
          ? "--memory " + profile + " would take tcmalloc (Debian package " + allocator_package("tcmalloc") + "): " + found.reason
          : "--memory " + profile + ": tensors of varying sizes cost less time and memory; a program under it was tried first";
  return found;
}

Result<LibraryChoice> choose_allocator(const std::string& wanted, const std::vector<std::string>& folders, const std::string& omp_runtime) {
  if (wanted == "default") return LibraryChoice{"default", "", "asked for: the allocator that the program brings"};
  if (wanted == "auto") {
    // docs/decisions/0002-allocator.md
    return LibraryChoice{"default", "", "no preloaded allocator was faster on every measured model; see docs/decisions/0002-allocator.md"};
  }
  if (is_path(wanted)) {
    if (Status usable = check_given("memory-allocator", wanted, omp_runtime); !usable) return usable.error();
    return LibraryChoice{allocator_of_path(wanted), wanted, "asked for by its path; a program under it was tried first"};
  }
  const auto& names = allocator_names();
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    return Error{kExitUsage, "unknown allocator '" + wanted + "'",
                 fmt::format("one of auto, default, {}, or a path", fmt::join(names, ", "))};
  }
  LibraryChoice found = find_allocator(wanted, folders, omp_runtime);
  if (found.path.empty()) {
    return Error{kExitUsage, "allocator " + wanted + " is not installed",
                 "Debian package " + allocator_package(wanted) + "; " + found.reason};
  }
  found.reason = "asked for; a program under it was tried first";
  return found;
}

Result<LibraryChoice> choose_omp_runtime(const std::string& wanted, const std::vector<std::string>& folders) {
  if (wanted == "auto" || wanted == "default") return LibraryChoice{"default", "", ""};
  if (is_path(wanted)) {
    std::error_code failure;
    const std::filesystem::path real = std::filesystem::canonical(wanted, failure);
    const OmpFamily family = omp_family_of(failure ? wanted : real.string());
    if (!failure && family == OmpFamily::kNone) {
      return Error{kExitUsage, "--omp-runtime '" + wanted + "' is no OpenMP runtime that is known by its name",
                   "libgomp.so, libiomp5.so and libomp.so are"};
    }
    if (Status usable = check_given("omp-runtime", wanted); !usable) return usable.error();
    return LibraryChoice{omp_family_name(family), wanted, wanted + ", asked for by its path"};
  }
  struct Runtime {
    const char* name;
    const char* stem;
    const char* title;
    const char* package;
  };
  constexpr Runtime kRuntimes[] = {{"intel", "iomp5", "Intel's OpenMP runtime libiomp5.so", "pip package intel-openmp"},
                                   {"llvm", "omp", "LLVM's OpenMP runtime libomp.so", "Debian package libomp5"}};
  for (const Runtime& runtime : kRuntimes) {
    if (wanted != runtime.name) continue;
    std::vector<std::string> refusals;
    const std::string path = first_usable({runtime.stem}, folders, refusals);
    if (!path.empty()) return LibraryChoice{wanted, path, path + ", asked for"};
    return Error{kExitUsage, std::string(runtime.title) + " is not installed",
                 std::string(runtime.package) + "; " + where_text(folders, refusals)};
  }
  return Error{kExitUsage, "unknown OpenMP runtime '" + wanted + "'", "one of auto, default, intel, llvm, or a path"};
}

}  // namespace ipexrun::launcher
