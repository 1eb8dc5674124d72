#include "xpu/aot/target_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "configs/base/log.h"
#include "xpu/opencl/program_files.h"

namespace ipexrun::xpu::aot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHead = "# What lies here: name, file of xpu/kernels, options. Made by ipexrun aot.";
constexpr const char* kList = "/programs.txt";
constexpr std::size_t kNameDigits = 16;

/// By lstat: a link leads to what somebody else may own.
bool is_real(const std::string& path, mode_t kind) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && (found.st_mode & S_IFMT) == kind;
}

bool is_program_name(const std::string& name) {
  return name.size() == kNameDigits &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f'); });
}

Listing read_list(const std::string& folder) {
  Listing out;
  std::istringstream lines(read_file(folder + kList));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.find(' ');
    // Anything else would be a path that we did not write.
    if (space != std::string::npos && is_program_name(line.substr(0, space))) out.emplace(line.substr(0, space), line.substr(space + 1));
  }
  return out;
}

Status write_list(const std::string& folder, const Listing& list) {
  std::string text = std::string(kHead) + '\n';
  for (const auto& [name, what] : list) text += name + ' ' + what + '\n';
  if (write_file(folder + kList, text)) return ok_status();
  return Error{kExitFailure, "cannot write '" + folder + kList + "': " + std::strerror(errno), "--into DIR names another folder"};
}

/// The program, and drafts of it that a killed build left (program_files.h: path.PID).
void remove_program(const std::string& folder, const std::string& name) {
  std::error_code failure;
  std::vector<fs::path> mine;
  for (const fs::directory_entry& one : fs::directory_iterator(folder, failure))
    for (const char* ending : {".bin", ".spv"}) {
      const std::string file = one.path().filename().string();
      const std::string whole = name + ending;
      const bool draft = file.size() > whole.size() + 1 && file.starts_with(whole + '.') &&
                         file.find_first_not_of("0123456789", whole.size() + 1) == std::string::npos;
      if ((file == whole || draft) && is_real(one.path().string(), S_IFREG)) mine.push_back(one.path());
    }
  for (const fs::path& path : mine) fs::remove(path, failure);
}

/// Error where it cannot be. A folder that is there already keeps its mode: it is not ours to open it to others.
Status make_folder(const std::string& folder) {
  std::error_code failure;
  const bool made = fs::create_directories(folder, failure);
  if (!failure && !fs::is_directory(folder, failure)) failure = std::make_error_code(std::errc::not_a_directory);
  if (failure) return Error{kExitFailure, "cannot make '" + folder + "': " + failure.message(), "--into DIR names another folder"};
  if (made) ::chmod(folder.c_str(), 0755);  // whatever the umask: folders that others can write to are not looked at
  return ok_status();
}

}  // namespace

bool is_target_name(const std::string& name) {
  return !name.empty() && std::isalnum(static_cast<unsigned char>(name.front())) != 0 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

bool is_target(const std::string& folder) {
  return is_real(folder, S_IFDIR) && is_real(folder + kList, S_IFREG) && read_file(folder + kList).starts_with(std::string(kHead) + '\n');
}

Status open_target(const std::string& folder, const Listing& planned) {
  std::error_code failure;
  const bool there = fs::symlink_status(folder, failure).type() != fs::file_type::not_found;
  if (there && !is_target(folder) && !(is_real(folder, S_IFDIR) && fs::is_empty(folder, failure)))
    return Error{kExitUsage, "'" + folder + "' has no list of ipexrun aot (programs.txt): it is left as it is",
                 "--into DIR names another folder"};
  if (Status made = make_folder(folder); !made.ok()) return made;
  Listing list = read_list(folder);
  list.insert(planned.begin(), planned.end());
  return write_list(folder, list);
}

Status close_target(const std::string& folder, const Listing& planned, const std::string& ending) {
  Listing there;
  for (const auto& [name, what] : read_list(folder)) {
    if (!planned.contains(name)) {
      remove_program(folder, name);
    } else if (is_real(folder + '/' + name + ending, S_IFREG)) {
      there.emplace(name, what);
    }
  }
  return write_list(folder, there);
}

Status remove_target(const std::string& folder) {
  for (const auto& [name, what] : read_list(folder)) remove_program(folder, name);
  std::error_code failure;
  fs::remove(folder + kList, failure);
  if (failure) return Error{kExitFailure, "cannot remove '" + folder + kList + "': " + failure.message(), ""};
  if (::rmdir(folder.c_str()) == 0) return ok_status();
  if (errno != ENOTEMPTY && errno != EEXIST) return Error{kExitFailure, "cannot remove '" + folder + "': " + std::strerror(errno), ""};
  log::warn("aot: '" + folder + "' has files that ipexrun aot did not make; they stay");
  return ok_status();
}

Result<std::string> make_drafts(const std::string& folder) {
  if (Status made = make_folder(folder); !made.ok()) return made.error();
  std::string name = folder + "/.drafts-XXXXXX";
  if (::mkdtemp(name.data()) != nullptr) return name;
  return Error{kExitFailure, "cannot write to '" + folder + "': " + std::strerror(errno), "--into DIR names another folder"};
}

}  // namespace ipexrun::xpu::aot
