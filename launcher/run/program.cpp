#include "launcher/run/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <filesystem>
#include <string_view>
#include <vector>

#include "launcher/run/elf_file.h"
#include "launcher/run/posix.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxInterpreters = 4;  // the kernel follows as many #! lines
constexpr int kMaxLinks = 40;        // and symbolic links

std::string absolute(const std::string& path) {
  std::error_code failure;
  const fs::path out = fs::absolute(path, failure);
  return failure ? path : out.string();
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t end = text.find(at); end != std::string::npos; end = text.find(at, begin)) {
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  out.push_back(text.substr(begin));
  return out;
}

enum class Kind { kMissing, kDirectory, kNotExecutable, kExecutable };

Kind kind_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno == EACCES ? Kind::kNotExecutable : Kind::kMissing;
  if (S_ISDIR(info.st_mode)) return Kind::kDirectory;
  return ::access(path.c_str(), X_OK) == 0 ? Kind::kExecutable : Kind::kNotExecutable;
}

/// The interpreter named in a #! line, "" when the file has none.
std::string interpreter_of(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, 256> head{};  // BINPRM_BUF_SIZE: the kernel looks no further
  if (!file.open()) return "";
  const ssize_t n = ::read(file.get(), head.data(), head.size());
  if (n < 3 || head[0] != '#' || head[1] != '!') return "";
  std::string_view line(head.data() + 2, static_cast<std::size_t>(n - 2));
  line = line.substr(0, line.find('\n'));
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  line.remove_prefix(begin);
  return std::string(line.substr(0, line.find_first_of(" \t\r")));
}

/// Owner of the file that this process runs: whoever may change that needs no preload to change what we start.
uid_t launcher_owner() {
  struct stat info {};
  return ::stat("/proc/self/exe", &info) == 0 ? info.st_uid : ::geteuid();
}

/// Why somebody else could replace what is at `path`, "" = nobody can. Of a symbolic link only the owner is asked: its mode means nothing.
std::string foreign_hand(const std::string& path, const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != ::geteuid() && info.st_uid != launcher_owner()) {
    return "'" + path + "' belongs to user " + std::to_string(info.st_uid);
  }
  if (S_ISLNK(info.st_mode)) return "";
  const bool sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;  // as /tmp: others cannot rename what they do not own
  if ((info.st_mode & S_IWOTH) != 0 && !sticky) return "'" + path + "' can be written by everybody";
  // Systems with one group a user create files writable by that group; it has no other member.
  if ((info.st_mode & S_IWGRP) != 0 && !sticky && info.st_gid != 0 && info.st_gid != ::getegid() && info.st_gid != info.st_uid) {
    return "'" + path + "' can be written by group " + std::to_string(info.st_gid);
  }
  return "";
}

/// The same for everything on the way to `path` (absolute): its folders, symbolic links, and the folders that these lead through.
std::string foreign_hand_on_the_way(const std::string& path) {
  std::deque<std::string> rest;
  for (const fs::path& part : fs::path(path).relative_path()) rest.push_back(part.string());
  std::string here;  // without "/" at its end; nothing in it is a link
  for (int links = 0; !rest.empty();) {
    const std::string part = rest.front();
    rest.pop_front();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      here.resize(here.empty() ? 0 : here.rfind('/'));
      continue;
    }
    const std::string next = here + "/" + part;
    struct stat info {};
    if (::lstat(next.c_str(), &info) != 0) return "'" + next + "': " + errno_text(errno);
    if (std::string why = foreign_hand(next, info); !why.empty()) return why;
    if (!S_ISLNK(info.st_mode)) {
      here = next;
      continue;
    }
    std::error_code failure;
    const fs::path target = fs::read_symlink(next, failure);
    if (failure || ++links > kMaxLinks) return "'" + next + "': " + errno_text(ELOOP);
    if (target.is_absolute()) here.clear();
    const fs::path parts = target.relative_path();
    rest.insert(rest.begin(), parts.begin(), parts.end());
  }
  return "";
}

}  // namespace

Result<std::string> resolve_program(const std::string& name, const std::string& search_path) {
  if (name.empty()) return Error{kExitNotFound, "program not found: ''", ""};
  if (name.find('/') != std::string::npos) {
    switch (kind_of(name)) {
      case Kind::kMissing:
        return Error{kExitNotFound, "program not found: '" + name + "'", ""};
      case Kind::kDirectory:
        return Error{kExitNotExecutable, "'" + name + "' is a directory", "name the program in it"};
      case Kind::kNotExecutable:
        return Error{kExitNotExecutable, "'" + name + "' is not executable", "chmod +x, or name its interpreter before it"};
      case Kind::kExecutable:
        return absolute(name);
    }
  }
  if (search_path.empty()) return Error{kExitNotFound, "program not found: '" + name + "'", "PATH is empty"};
  std::string refused;
  for (const std::string& folder : split(search_path, ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    const Kind kind = kind_of(path);
    if (kind == Kind::kExecutable) return absolute(folder.empty() ? name : path);
    if (kind == Kind::kNotExecutable && refused.empty()) refused = path;
  }
  if (!refused.empty()) return Error{kExitNotExecutable, "'" + refused + "' is not executable", ""};
  const bool here = kind_of(name) != Kind::kMissing;
  return Error{kExitNotFound, "program not found in PATH: '" + name + "'", here ? "a file of this folder is started as ./" + name : ""};
}

std::string find_python(const std::string& search_path) {
  for (const char* name : {"python", "python3"}) {
    if (auto path = resolve_program(name, search_path)) return std::move(path.value());
  }
  return "";
}

Status check_script(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return Error{errno == EACCES ? kExitNotExecutable : kExitNotFound, "program not found: '" + path + "': " + errno_text(errno), ""};
  }
  if (S_ISDIR(info.st_mode)) return Error{kExitNotExecutable, "'" + path + "' is a directory", "name the script in it"};
  if (::access(path.c_str(), R_OK) != 0) return Error{kExitNotExecutable, "cannot read '" + path + "': " + errno_text(errno), ""};
  return ok_status();
}

std::string preload_obstacle(const std::string& executable) {
  std::string path = executable;
  for (int i = 0; i < kMaxInterpreters; ++i) {
    const std::string interpreter = interpreter_of(path);
    if (interpreter.empty()) break;
    path = interpreter;
  }
  const auto elf = read_elf(path);
  if (!elf) return "";  // unreadable, or a format of binfmt_misc: the loader decides
  const std::string named = "'" + path + "' ";
  if (!elf->native) return named + "is a program for " + elf->machine;
  if (!elf->interpreted) return named + "is statically linked";
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "";
  if ((info.st_mode & S_ISUID) != 0 && info.st_uid != ::geteuid()) return named + "is set-user-ID";
  if ((info.st_mode & S_ISGID) != 0 && info.st_gid != ::getegid()) return named + "is set-group-ID";
  if (::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) return named + "has file capabilities";
  return "";
}

std::string preload_objection(const std::string& library) {
  if (library.empty() || library.front() != '/') return "'" + library + "' is not an absolute path";
  if (library.find_first_of(": \t\n") != std::string::npos) return "'" + library + "' has a colon or blank, which LD_PRELOAD cannot hold";
  const auto elf = read_elf(library);
  if (!elf) return "'" + library + "' cannot be read or is no library";
  if (!elf->native || !elf->shared_object) return "'" + library + "' is no library for this machine (" + elf->machine + ")";
  return foreign_hand_on_the_way(library);
}

}  // namespace ipexrun::launcher
