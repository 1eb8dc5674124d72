#include "launcher/run/omp_runtime.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>

#include "launcher/plan/environment.h"
#include "launcher/run/elf_file.h"
#include "launcher/run/library_search.h"
#include "launcher/run/program.h"
#include "launcher/run/torch_probe.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostLibraries = 1000;  // a program linked with more is not followed further

std::vector<std::string> split(const std::string& text, const char* separators) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// `folder` with $ORIGIN replaced by the folder of the library that names it.
std::string with_origin(std::string folder, const std::string& library) {
  const std::string origin = fs::path(library).parent_path().string();
  for (const char* word : {"${ORIGIN}", "$ORIGIN"}) {
    for (std::size_t at = folder.find(word); at != std::string::npos; at = folder.find(word, at + origin.size()))
      folder.replace(at, std::string(word).size(), origin);
  }
  return folder;
}

std::string find_needed(const std::string& name, const std::string& wanted_by, const ElfLinks& links,
                        const std::vector<std::string>& environment, const std::vector<std::string>& system_folders) {
  std::vector<std::string> folders = environment;
  std::vector<std::string> own;
  for (const std::string& folder : links.search) own.push_back(with_origin(folder, wanted_by));
  folders.insert(links.search_first ? folders.begin() : folders.end(), own.begin(), own.end());
  folders.insert(folders.end(), system_folders.begin(), system_folders.end());
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / name;
    const auto elf = read_elf(path.string());
    if (elf && elf->native) return path.lexically_normal().string();
  }
  return "";
}

bool is_python(const std::string& path) { return fs::path(path).filename().string().compare(0, 6, "python") == 0; }

/// The Python that runs `program`: itself, or the one in a script's first line ("#!/venv/bin/python", "#!/usr/bin/env python3"); "" for
/// anything else.
std::string python_of(const std::string& program, const std::string& search_path) {
  if (is_python(program)) return program;
  char head[512] = {};
  std::ifstream file(program, std::ios::binary);
  file.read(head, sizeof head - 1);
  const std::string line(head, static_cast<std::size_t>(file.gcount()));
  if (line.compare(0, 2, "#!") != 0) return "";
  const std::vector<std::string> words = split(line.substr(2, line.find('\n') - 2), " \t\r");
  if (words.empty()) return "";
  if (is_python(words.front())) return words.front();
  if (words.size() < 2 || fs::path(words.front()).filename() != "env" || !is_python(words.back())) return "";
  auto found = resolve_program(words.back(), search_path);
  return found ? found.value() : "";
}

}  // namespace

OmpFamily omp_family_of(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  const auto is = [&name](const std::string& stem) {
    // What follows the stem ends it: libgomp.so.1, libgomp-a34b3233.so.1, libomp-14.so.5; but not libompi or libomptarget.
    return name.compare(0, stem.size(), stem) == 0 && name.size() > stem.size() && (name[stem.size()] == '.' || name[stem.size()] == '-') &&
           name.find(".so") != std::string::npos;
  };
  if (is("libgomp")) return OmpFamily::kGnu;
  if (is("libiomp5")) return OmpFamily::kIntel;
  return is("libomp") ? OmpFamily::kLlvm : OmpFamily::kNone;
}

std::string omp_family_name(OmpFamily family) {
  switch (family) {
    case OmpFamily::kGnu:
      return "gnu";
    case OmpFamily::kIntel:
      return "intel";
    case OmpFamily::kLlvm:
      return "llvm";
    case OmpFamily::kNone:
      break;
  }
  return "";
}

std::vector<std::string> system_library_folders() {
  std::vector<std::string> out;
  for (const char* root : {"/lib", "/usr/lib", "/usr/local/lib"}) out.push_back((fs::path(root) / kMultiarch).string());
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"}) out.emplace_back(folder);
  return out;
}

OmpFound follow_to_omp(const std::string& start, const std::map<std::string, std::string>& env,
                       const std::vector<std::string>& system_folders) {
  const std::vector<std::string> environment = split(value_of(env, "LD_LIBRARY_PATH"), ":;");
  std::deque<std::string> queue{start};
  std::set<std::string> names;
  while (!queue.empty() && names.size() < kMostLibraries) {
    const std::string library = queue.front();
    queue.pop_front();
    const auto links = read_elf_links(library);
    if (!links) continue;
    for (const std::string& name : links->needed) {
      if (!names.insert(name).second) continue;
      const std::string path = find_needed(name, library, *links, environment, system_folders);
      if (path.empty()) continue;
      std::error_code failure;
      const fs::path real = fs::canonical(path, failure);
      const OmpFamily family = omp_family_of(failure ? path : real.string());
      const OmpFamily as_named = omp_family_of(name);
      if (family != OmpFamily::kNone || as_named != OmpFamily::kNone) {
        return {family != OmpFamily::kNone ? family : as_named, path, path + ", wanted by " + fs::path(library).filename().string()};
      }
      queue.push_back(path);
    }
  }
  return {OmpFamily::kNone, "", "the one that the program brings: " + start + " is linked with none"};
}

OmpFound find_program_omp(const std::string& program, const std::map<std::string, std::string>& env) {
  for (const std::string& entry : split(value_of(env, "LD_PRELOAD"), ": ")) {
    const OmpFamily family = omp_family_of(entry);
    if (family != OmpFamily::kNone) return {family, entry, entry + ", which LD_PRELOAD of the environment names"};
  }
  const std::string python = python_of(program, value_of(env, "PATH"));
  if (python.empty()) return follow_to_omp(program, env, system_library_folders());
  const std::string torch = find_libtorch_cpu(python, env);
  if (torch.empty())
    return {OmpFamily::kNone, "", "the one that the program brings: no torch was found where packages of " + python + " are"};
  return follow_to_omp(torch, env, system_library_folders());
}

}  // namespace ipexrun::launcher
