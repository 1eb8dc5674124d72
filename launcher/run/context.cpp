#include "launcher/run/context.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/plan/environment.h"
#include "launcher/run/allocators.h"
#include "launcher/run/library_search.h"
#include "launcher/run/omp_runtime.h"
#include "launcher/run/posix.h"
#include "launcher/run/program.h"
#include "launcher/run/user_folders.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunDirHead = "ipexrun-";  // six letters of mkdtemp follow
constexpr const char* kRunDirMark = "made-by-ipexrun";
constexpr const char* kShimFile = "libipexrun_shim.so";
constexpr const char* kCrashFile = "libipexrun_crash.so";

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> out;
  for (const std::string& entry : env::all()) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return out;
}

bool preloads_allocator(const std::map<std::string, std::string>& variables) {
  const std::string preload = value_of(variables, "LD_PRELOAD");
  const auto& names = allocator_names();
  return std::any_of(names.begin(), names.end(), [&preload](const std::string& name) { return preload.find(name) != std::string::npos; });
}

/// Local time, as people look for their logs.
std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%S", &parts);
  return text.data();
}

/// Fills executable and python; the error says what is missing.
Status find_program(const Options& options, const std::string& search_path, PlanContext& context) {
  context.python = find_python(search_path);
  if (options.program_kind == ProgramKind::kExecutable) {
    auto found = resolve_program(options.program, search_path);
    if (!found) return found.error();
    // A script sees the path that is executed as its sys.argv[0] or $0: the one that was named, as from a shell.
    context.executable = options.program.find('/') != std::string::npos ? options.program : std::move(found.value());
    return ok_status();
  }
  if (context.python.empty()) {
    return Error{kExitNotFound, "program not found in PATH: 'python' or 'python3', which '" + options.program + "' needs",
                 search_path.empty() ? "PATH is empty" : ""};
  }
  context.executable = context.python;
  return options.program_kind == ProgramKind::kScript ? check_script(options.program) : ok_status();
}

/// A library of ours that is safe to preload, else why there is none.
void find_own_library(const std::string& lib_dir, const char* file, std::string& path, std::string& problem) {
  const std::string library = (fs::path(lib_dir) / file).string();
  if (lib_dir.empty()) {
    problem = no_lib_dir_text();
  } else if (::access(library.c_str(), F_OK) != 0) {
    problem = "'" + library + "' does not exist";
  } else if (std::string why = preload_objection(library); !why.empty()) {
    problem = std::move(why);
  } else {
    path = library;
  }
}

/// Whether `folder` belongs to us alone or is a shared sticky one: another owner could read or swap what we put there.
bool usable_for_run_dir(const std::string& folder) {
  struct stat info {};
  if (folder.empty() || folder.front() != '/' || ::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  return (info.st_mode & (S_IWOTH | S_IWGRP)) == 0 || (info.st_mode & S_ISVTX) != 0;
}

/// Marks a run folder as in use for as long as this process lives. By a lock and not by a process number in the name: containers that
/// share /tmp number their processes independently. False when another launcher took the folder for a left-over before it was locked.
bool hold(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // stays open until the process ends
  if (fd < 0) return false;
  struct stat info {};
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;  // a file system without locks has no left-overs removed
  return ::stat(folder.c_str(), &info) == 0;
}

/// The name alone proves nothing: "ipexrun-models" may be the user's own. A folder with this file in it was made here.
bool mark(const std::string& folder) {
  return Fd(::open((folder + "/" + kRunDirMark).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)).open();
}

bool is_marked(int folder) {
  struct stat info {};
  return ::fstatat(folder, kRunDirMark, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid();
}

/// Removes run folders whose launcher was killed.
void remove_left_over(const std::string& place) {
  std::error_code failure;
  for (fs::directory_iterator it(place, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    struct stat info {};
    if (name.compare(0, std::strlen(kRunDirHead), kRunDirHead) != 0 || name.size() != std::strlen(kRunDirHead) + 6) continue;
    if (::lstat(it->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) continue;
    const Fd folder(::open(it->path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    std::error_code ignored;
    if (folder.open() && is_marked(folder.get()) && ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(it->path(), ignored);
  }
}

}  // namespace

std::string find_lib_dir() {
  std::error_code failure;
  if (const auto named = env::get(env::Id::kLibDir)) {
    const fs::path real = fs::canonical(*named, failure);
    return failure ? "" : real.string();
  }
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  if (failure) return "";
  const fs::path prefix = self.parent_path() / "..";
  for (const fs::path& lib : {prefix / "lib", prefix / "lib64", prefix / "lib" / kMultiarch}) {
    const fs::path folder = fs::canonical(lib / "ipexrun", failure);
    if (!failure) return folder.string();
  }
  return "";
}

std::string no_proc_text() {
  std::error_code failure;
  const bool readable = !fs::read_symlink("/proc/self/exe", failure).empty();
  return !readable ? "/proc/self/exe cannot be read (" + failure.message() + "): /proc is not mounted, or closed to this process" : "";
}

std::string no_lib_dir_text() {
  const auto named = env::get(env::Id::kLibDir);
  if (const std::string no_proc = no_proc_text(); !named && !no_proc.empty()) return no_proc;
  return named ? "the folder '" + *named + "' of IPEXRUN_LIB_DIR does not exist"
               : "no folder lib/ipexrun beside the folder of this launcher";
}

Result<PlanContext> make_context(const Options& options, const Machine& machine) {
  PlanContext context;
  context.env = environment();
  context.log_stamp = time_stamp();
  const std::string search_path = value_of(context.env, "PATH");
  // On a machine that is not there nothing is started, so what is missing here is no error.
  const bool planned = machine.synthetic || !options.topology.empty();

  if (Status found = find_program(options, search_path, context); !found && !planned) return found.error();
  context.lib_dir = find_lib_dir();
  if (std::error_code ignored; !planned && fs::is_directory(user_plugin_dir(context.env), ignored))
    context.plugin_dir = user_plugin_dir(context.env);
  find_own_library(context.lib_dir, kShimFile, context.shim, context.shim_problem);
  if (options.crash_report) find_own_library(context.lib_dir, kCrashFile, context.crash_library, context.crash_problem);

  // What is installed here says nothing about a machine that is not there.
  const OmpFound own = planned ? OmpFound{} : find_program_omp(context.executable, context.env);
  context.omp_family = omp_family_name(own.family);
  context.omp_reason = planned ? "the OpenMP runtime that the program brings" : own.reason;
  if (auto omp = choose_omp_runtime(options.omp_runtime, omp_library_folders(context.env, context.python)); !omp) {
    if (!planned) return omp.error();
  } else if (!omp->path.empty()) {
    context.omp_runtime_path = omp->path;
    context.omp_family = omp->name;
    context.omp_reason = omp->reason + (own.path.empty() ? "" : "; in the place of " + own.path);
  }
  context.allocator_name = "default";
  const std::string omp_library = context.omp_runtime_path.empty() ? own.path : context.omp_runtime_path;
  const std::vector<std::string> folders = library_folders(context.env, context.python);
  // An allocator that the user preloads is asked for as well.
  const bool free_to_choose = options.memory_allocator == "auto" && !planned && !preloads_allocator(context.env);
  auto allocator = options.memory != "default" && free_to_choose ? Result(allocator_of_profile(options.memory, folders, omp_library))
                                                                 : choose_allocator(options.memory_allocator, folders, omp_library);
  if (allocator) {
    context.allocator_name = allocator->name;
    context.allocator_path = allocator->path;
    context.allocator_reason = allocator->reason;
  } else if (!planned) {
    return allocator.error();
  }

  if (const std::string obstacle = preload_obstacle(context.executable); !obstacle.empty()) {
    // The loader would ignore the entries or complain about each, so none is made.
    context.shim.clear();
    context.shim_problem = obstacle + ": nothing can be preloaded into it";
    if (!context.omp_runtime_path.empty()) {
      context.omp_runtime_path.clear();
      context.omp_family = omp_family_name(own.family);
      context.omp_reason = context.shim_problem;
    }
    context.crash_library.clear();
    context.crash_problem = context.shim_problem;
    if (!context.allocator_path.empty()) {
      context.allocator_name = "default";
      context.allocator_path.clear();
      context.allocator_reason = context.shim_problem;
    }
  }
  return context;
}

Result<std::string> make_run_dir() {
  std::string refused;
  for (const auto& place : {env::get_named("XDG_RUNTIME_DIR"), env::get_named("TMPDIR"), std::optional<std::string>("/tmp")}) {
    if (!place) continue;
    if (!usable_for_run_dir(*place)) {
      refused += (refused.empty() ? "" : ", ") + *place + ": not a private or sticky folder";
      continue;
    }
    remove_left_over(*place);
    std::string name = *place + "/" + kRunDirHead + "XXXXXX";
    const bool made = ::mkdtemp(name.data()) != nullptr;  // mode 0700
    if (made && hold(name) && mark(name)) return name;
    refused += (refused.empty() ? "" : ", ") + *place + ": " + errno_text(errno);
    if (made) ::rmdir(name.c_str());
  }
  return Error{kExitFailure, "no folder for event files, so there will be no summary: " + refused, "set TMPDIR to a writable folder"};
}

void remove_run_dir(const std::string& path) {
  if (path.empty()) return;
  if (log::level() == log::Level::kDebug) {
    log::debug("event files are kept in '" + path + "'");
    return;
  }
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) log::info("cannot remove '" + path + "': " + failure.message());
}

}  // namespace ipexrun::launcher
