#include "launcher/run/library_search.h"

#include <string.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "launcher/run/elf_file.h"

namespace ipexrun::launcher {

namespace fs = std::filesystem;

std::vector<std::string> library_folders(const std::map<std::string, std::string>& env, const std::string& python) {
  std::vector<std::string> folders;
  const auto add = [&folders](const fs::path& folder) {
    const std::string text = folder.lexically_normal().string();
    if (folder.is_absolute() && std::find(folders.begin(), folders.end(), text) == folders.end()) folders.push_back(text);
  };
  const auto add_prefix_of = [&](const char* variable, const char* below) {
    const auto entry = env.find(variable);
    if (entry != env.end() && !entry->second.empty()) add(fs::path(entry->second) / below);
  };
  if (!python.empty()) add(fs::path(python).parent_path() / ".." / "lib");
  add_prefix_of("VIRTUAL_ENV", "lib");
  add_prefix_of("CONDA_PREFIX", "lib");
  add_prefix_of("HOME", ".local/lib");
  for (const char* folder : {"/usr/local/lib", "/usr/local/lib64"}) add(folder);
  for (const char* root : {"/usr/local/lib", "/usr/lib", "/lib"}) add(fs::path(root) / kMultiarch);
  for (const char* folder : {"/usr/lib64", "/lib64", "/usr/lib", "/lib"}) add(folder);
  return folders;
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
