#include "launcher/run/library_search.h"

#include <string.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "launcher/run/elf_file.h"

namespace ipexrun::launcher {

namespace fs = std::filesystem;

namespace {

/// Absolute folders, each once, in the order in which they were added.
class Folders {
 public:
  void add(const fs::path& folder) {
    const std::string text = folder.lexically_normal().string();
    if (folder.is_absolute() && std::find(folders_.begin(), folders_.end(), text) == folders_.end()) folders_.push_back(text);
  }
  std::vector<std::string> take() { return std::move(folders_); }

 private:
  std::vector<std::string> folders_;
};

/// Folders below `parent` whose names begin with `head`, the highest version first.
std::vector<fs::path> versions_of(const fs::path& parent, const std::string& head) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator it(parent, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (name.compare(0, head.size(), head) == 0) names.push_back(name);
  }
  // strverscmp knows that 16 is newer than 9.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) > 0; });
  std::vector<fs::path> out;
  for (const std::string& name : names) out.push_back(parent / name);
  return out;
}

}  // namespace

std::vector<std::string> library_folders(const std::map<std::string, std::string>& env, const std::string& python,
                                         const std::string& root) {
  Folders folders;
  const auto value = [&env](const char* variable) {
    const auto entry = env.find(variable);
    return entry == env.end() ? std::string() : entry->second;
  };
  // pip unpacks the libraries of a wheel such as intel-openmp below <prefix>/lib.
  if (!python.empty()) {
    for (const char* lib : {"lib", "lib64"}) folders.add(fs::path(python).parent_path().parent_path() / lib);
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (!value(variable).empty()) folders.add(fs::path(value(variable)) / "lib");
  }
  const std::string own = value("LD_LIBRARY_PATH");
  for (std::size_t at = 0; at < own.size();) {
    const std::size_t end = std::min(own.find_first_of(":;", at), own.size());
    if (end > at) folders.add(own.substr(at, end - at));
    at = end + 1;
  }
  if (!value("HOME").empty()) folders.add(fs::path(value("HOME")) / ".local/lib");
  const fs::path top = root.empty() ? fs::path("/") : fs::path(root);
  for (const char* folder : {"usr/local/lib", "usr/local/lib64"}) folders.add(top / folder);
  for (const char* folder : {"usr/local/lib", "usr/lib", "lib"}) folders.add(top / folder / kMultiarch);
  for (const char* folder : {"usr/lib64", "lib64", "usr/lib", "lib"}) folders.add(top / folder);
  return folders.take();
}

std::vector<std::string> omp_library_folders(const std::map<std::string, std::string>& env, const std::string& python,
                                             const std::string& root) {
  Folders folders;
  for (const std::string& folder : library_folders(env, python, root)) folders.add(folder);
  const fs::path top = root.empty() ? fs::path("/") : fs::path(root);
  for (const fs::path& version : versions_of(top / "opt/intel/oneapi/compiler", "")) {
    folders.add(version / "lib");
    folders.add(version / "linux/compiler/lib/intel64_lin");
  }
  folders.add(top / "opt/intel/lib/intel64");
  for (const fs::path& version : versions_of(top / "usr/lib", "llvm-")) folders.add(version / "lib");
  return folders.take();
}

std::vector<std::string> find_libraries(const std::string& stem, const std::vector<std::string>& folders) {
  const std::string plain = "lib" + stem + ".so";
  std::vector<std::string> out;
  std::set<std::string> seen;  // real paths: /lib is often a link to /usr/lib
  for (const std::string& folder : folders) {
    std::error_code failure;
    std::vector<std::string> names;
    for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
      const std::string name = it->path().filename().string();
      const bool versioned = name.size() > plain.size() + 1 && name.compare(0, plain.size(), plain) == 0 && name[plain.size()] == '.' &&
                             name.find_first_not_of("0123456789.", plain.size()) == std::string::npos;
      if (name == plain || versioned) names.push_back(name);
    }
    // strverscmp knows that .so.10 is newer than .so.2.
    std::sort(names.begin(), names.end(),
              [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) > 0; });
    for (const std::string& name : names) {
      const std::string path = (fs::path(folder) / name).string();
      const auto elf = read_elf(path);
      if (!elf || !elf->native || !elf->shared_object) continue;
      const fs::path real = fs::canonical(path, failure);
      if (!failure && seen.insert(real.string()).second) out.push_back(path);
    }
  }
  return out;
}

}  // namespace ipexrun::launcher
