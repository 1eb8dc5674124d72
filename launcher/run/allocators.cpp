#include "launcher/run/allocators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "configs/base/log.h"
#include "launcher/run/library_search.h"
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
std::string first_usable(const std::vector<const char*>& stems, const std::vector<std::string>& folders,
                         std::vector<std::string>& refusals) {
  for (const char* stem : stems) {
    for (const std::string& path : find_libraries(stem, folders)) {
      std::string why = preload_objection(path);
      if (why.empty()) why = probe_preload(path);
      if (why.empty()) return path;
      log::once(log::Level::kWarn, path, "'" + path + "' is not used: " + why);
      refusals.push_back(path + ": " + why);
    }
  }
  return "";
}

std::string where_text(const std::vector<std::string>& folders, const std::vector<std::string>& refusals) {
  if (!refusals.empty()) return fmt::format("found but not usable: {}", fmt::join(refusals, "; "));
  return fmt::format("looked in {}", fmt::join(folders, ", "));
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

LibraryChoice find_allocator(const std::string& name, const std::vector<std::string>& folders) {
  std::vector<std::string> refusals;
  for (const Allocator& allocator : allocators()) {
    if (allocator.name != name) continue;
    const std::string path = first_usable(allocator.stems, folders, refusals);
    if (!path.empty()) return {name, path, ""};
  }
  return {"default", "", where_text(folders, refusals)};
}

Result<LibraryChoice> choose_allocator(const std::string& wanted, const std::vector<std::string>& folders) {
  if (wanted == "default") return LibraryChoice{"default", "", "asked for: the allocator that the program brings"};
  if (wanted == "auto") {
    // docs/decisions/0002-allocator.md
    return LibraryChoice{"default", "", "no preloaded allocator was faster on every measured model; see docs/decisions/0002-allocator.md"};
  }
  const auto& names = allocator_names();
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    return Error{kExitUsage, "unknown allocator '" + wanted + "'", fmt::format("one of auto, default, {}", fmt::join(names, ", "))};
  }
  LibraryChoice found = find_allocator(wanted, folders);
  if (found.path.empty()) {
    return Error{kExitUsage, "allocator " + wanted + " is not installed",
                 "Debian package " + allocator_package(wanted) + "; " + found.reason};
  }
  found.reason = "asked for; a program under it was tried first";
  return found;
}

Result<LibraryChoice> choose_omp_runtime(const std::string& wanted, const std::vector<std::string>& folders) {
  if (wanted == "auto" || wanted == "default") return LibraryChoice{"default", "", "the OpenMP runtime that the program brings"};
  if (wanted != "intel") return Error{kExitUsage, "unknown OpenMP runtime '" + wanted + "'", "one of auto, default, intel"};
  std::vector<std::string> refusals;
  const std::string path = first_usable({"iomp5"}, folders, refusals);
  if (path.empty()) {
    return Error{kExitUsage, "Intel's OpenMP runtime libiomp5.so is not installed",
                 "pip package intel-openmp; " + where_text(folders, refusals)};
  }
  return LibraryChoice{"intel", path, "asked for"};
}

}  // namespace ipexrun::launcher
