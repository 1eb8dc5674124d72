#include "launcher/run/plugin_build.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "configs/contract/env.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/text.h"
#include "launcher/run/posix.h"
#include "launcher/run/program.h"
#include "launcher/run/user_folders.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr double kBytesPerJob = 1.5e9;  // of a compiler that reads torch's headers
constexpr int kPauseMs = 200;
constexpr std::size_t kTailBytes = 4096;

std::string end_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<std::size_t>(file.tellg());
  std::string text(std::min(size, kTailBytes), '\0');
  file.seekg(static_cast<std::streamoff>(size - text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

/// "1:05 min", redrawn on a terminal; elsewhere one line when a step begins.
class Progress {
 public:
  Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void begin(const std::string& step) {
    clear();
    step_ = step;
    started_ = std::chrono::steady_clock::now();
    if (!terminal_) std::fputs(("ipexrun: " + step + "\n").c_str(), stderr);
  }

  void show(const std::string& how_far) {
    if (!terminal_) return;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_).count();
    std::fputs(fmt::format("\r\033[Kipexrun: {}{}{}, {} s", step_, how_far.empty() ? "" : ": ", how_far, seconds).c_str(), stderr);
    std::fflush(stderr);
    shown_ = true;
  }

  void clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
    shown_ = false;
  }

 private:
  bool terminal_;
  bool shown_ = false;
  std::string step_;
  std::chrono::steady_clock::time_point started_;
};

/// The caller's environment without what would reach into the build: our variables and preloads. In the caller's process group, so
/// that ctrl-C ends it too.
std::vector<std::string> build_environment(const std::string& python) {
  std::vector<std::string> out;
  for (const std::string& entry : env::all()) {
    if (!entry.starts_with("IPEXRUN_") && !entry.starts_with("LD_PRELOAD=")) out.push_back(entry);
  }
  out.push_back(std::string(env::name(env::Id::kPython)) + "=" + python);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// Runs a command with its output in `log`; its exit code, 128 + n for a signal, 127 when it could not be started.
int run_logged(std::vector<std::string> argv, std::vector<std::string> environment, const std::string& log, Progress& progress) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int failure = ::posix_spawn(&pid, argv[0].c_str(), &actions, nullptr, pointers(argv).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return kExitNotFound;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ended < 0 && errno != EINTR) return 0;  // the caller ignores SIGCHLD, so nobody knows: what was built decides
    progress.show(build_progress(end_of(log)));
    ::poll(nullptr, 0, kPauseMs);
  }
}

/// The first line of the log that says "error", for the one line of ours.
std::string first_error(const std::string& log) {
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    if (line.find("error:") != std::string::npos || line.starts_with("CMake Error")) return line.substr(0, 200);
  }
  return "";
}

std::string found(const std::map<std::string, std::string>& env, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.empty()) continue;
    if (auto path = resolve_program(name, value_of(env, "PATH"))) return *path;
  }
  return "";
}

/// The first word: CXX may hold options.
std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

Status move_file(const std::string& from, const std::string& to) {
  // A copy, as the two may lie on different file systems, and a rename: a program that starts meanwhile sees the old file or the new.
  const std::string temporary = to + ".tmp." + std::to_string(::getpid());
  std::error_code failure;
  fs::copy_file(from, temporary, fs::copy_options::overwrite_existing, failure);
  if (!failure) fs::permissions(temporary, fs::perms::owner_all, failure);
  if (!failure) fs::rename(temporary, to, failure);
  if (!failure) return ok_status();
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return Error{kExitFailure, "cannot write the plugin '" + to + "': " + failure.message(), ""};
}

}  // namespace

std::string find_sources(const std::string& lib_dir) {
  if (lib_dir.empty()) return "";
  std::error_code failure;
  // lib/ipexrun, or lib/<architecture>/ipexrun.
  for (const char* up : {"../../share/ipexrun/src", "../../../share/ipexrun/src"}) {
    const fs::path folder = fs::weakly_canonical(fs::path(lib_dir) / up, failure);
    if (!failure && fs::exists(folder / "preload/plugin/CMakeLists.txt", failure)) return folder.string();
  }
  return "";
}

std::vector<std::string> configure_command(const BuildTools& tools, const std::string& sources, const std::string& tree) {
  return {tools.cmake, "-S", sources, "-B", tree, "-G", tools.generator, "-DCMAKE_BUILD_TYPE=Release", "-DIPEXRUN_LAUNCHER=OFF"};
}

std::vector<std::string> build_command(const BuildTools& tools, const std::string& tree) {
  return {tools.cmake, "--build", tree, "--target", "ipexrun_plugin", "-j", std::to_string(tools.jobs)};
}

Result<BuildTools> find_build_tools(const std::map<std::string, std::string>& env, int jobs) {
  BuildTools tools;
  tools.jobs = jobs;
  tools.cmake = found(env, {"cmake"});
  const bool ninja = !found(env, {"ninja"}).empty();
  const bool make = !found(env, {"make", "gmake"}).empty();
  tools.generator = ninja ? "Ninja" : "Unix Makefiles";
  std::string missing;
  const auto need = [&missing](bool there, const char* what) { missing += there ? "" : (missing.empty() ? "" : ", ") + std::string(what); };
  need(!tools.cmake.empty(), "cmake");
  need(ninja || make, "ninja or make");
  need(!found(env, {first_word(value_of(env, "CXX")), "c++", "g++", "clang++"}).empty(), "a C++ compiler");
  need(!found(env, {first_word(value_of(env, "CC")), "cc", "gcc", "clang"}).empty(), "a C compiler");
  if (!missing.empty())
    return Error{kExitFailure, "a plugin cannot be built here: not in PATH: " + missing,
                 "Debian and Ubuntu: apt-get install g++ cmake ninja-build"};
  return tools;
}

int build_jobs(std::size_t cores, double quota_cpus, std::uint64_t memory_available_bytes) {
  double jobs = static_cast<double>(cores);
  if (quota_cpus > 0) jobs = std::min(jobs, quota_cpus);
  if (memory_available_bytes > 0) jobs = std::min(jobs, static_cast<double>(memory_available_bytes) / kBytesPerJob);
  return std::max(1, static_cast<int>(jobs));
}

std::string build_progress(const std::string& output) {
  for (std::size_t open = output.rfind('['); open != std::string::npos;
       open = open == 0 ? std::string::npos : output.rfind('[', open - 1)) {
    const std::size_t close = output.find(']', open);
    if (close == std::string::npos || (open > 0 && output[open - 1] != '\n')) continue;
    std::string inside = output.substr(open + 1, close - open - 1);
    inside.erase(0, inside.find_first_not_of(' ') == std::string::npos ? inside.size() : inside.find_first_not_of(' '));
    if (inside.ends_with('%') && parse_number<int>(inside.substr(0, inside.size() - 1))) return inside;
    const std::size_t slash = inside.find('/');
    if (slash != std::string::npos && parse_number<int>(inside.substr(0, slash)) && parse_number<int>(inside.substr(slash + 1)))
      return inside.substr(0, slash) + " of " + inside.substr(slash + 1);
  }
  return "";
}

Result<std::string> build_plugin(const PythonFacts& python, const std::string& lib_dir, const std::string& plugin_dir, int jobs) {
  const std::string sources = find_sources(lib_dir);
  if (sources.empty())
    return Error{kExitFailure,
                 "a plugin cannot be built: its sources are not installed: there is no share/ipexrun/src beside '" + lib_dir + "'",
                 "install ipexrun again, or build it with IPEXRUN_PYTHON=" + python.executable};
  std::map<std::string, std::string> variables;
  for (const char* name : {"PATH", "CXX", "CC"}) variables[name] = env::get_named(name).value_or("");
  const Result<BuildTools> tools = find_build_tools(variables, jobs);
  if (!tools.ok()) return tools.error();
  if (plugin_dir.empty()) return Error{kExitFailure, "there is no place for a plugin: HOME and XDG_DATA_HOME are unset", "set one of them"};
  if (Status made = make_private_folder(plugin_dir); !made.ok()) return made.error();

  const Fd lock(::open(plugin_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Error{kExitFailure, "another ipexrun doctor --build is at work in '" + plugin_dir + "'", "wait for it"};
  const std::string file = plugin_file(minor_version(python.torch_version));
  const std::string tree = plugin_dir + "/build";  // private, unlike most temporary folders, and as large as needed
  const std::string log = plugin_dir + "/build.log";
  std::error_code ignored;
  fs::remove_all(tree, ignored);
  fs::remove(log, ignored);

  Progress progress;
  const std::string what = "the plugin for torch " + python.torch_version;
  progress.begin("preparing " + what + " (log: " + log + ")");
  const std::vector<std::string> environment = build_environment(python.executable);
  int code = run_logged(configure_command(*tools, sources, tree), environment, log, progress);
  if (code == 0) {
    progress.begin(fmt::format("building {} with {} job{}; this takes minutes", what, tools->jobs, tools->jobs == 1 ? "" : "s"));
    code = run_logged(build_command(*tools, tree), environment, log, progress);
  }
  progress.clear();
  const std::string built = tree + "/lib/ipexrun/plugins/" + file;
  if (code == 0 && !fs::exists(built, ignored)) code = kExitFailure;  // find_torch.cmake saw no torch, or another one
  if (code != 0) {
    fs::remove_all(tree, ignored);
    const std::string why = first_error(log);
    return Error{kExitFailure, fmt::format("{} could not be built (exit code {}){}", what, code, why.empty() ? "" : ": " + why),
                 "all of it is in '" + log + "'"};
  }
  const std::string path = plugin_dir + "/" + file;
  Status moved = move_file(built, path);
  fs::remove_all(tree, ignored);
  if (!moved.ok()) return moved.error();
  fs::remove(log, ignored);
  return path;
}

}  // namespace ipexrun::launcher
