#include "xpu/aot/targets.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "configs/contract/env.h"
#include "xpu/opencl/program_files.h"
#include "xpu/opencl/sources.h"

extern char** environ;

namespace ipexrun::xpu::aot {
namespace {

namespace fs = std::filesystem;

bool begins_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

/// The exit status; -1 when it could not be started. What it prints goes to the file `log`.
int run(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT: posix_spawn takes no const
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, argv[0], &files, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  int status = 0;
  if (failed != 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string first_error(const std::string& log) {
  std::istringstream lines(log);
  std::string line, first;
  while (std::getline(lines, line)) {
    if (line.find("error: ") != std::string::npos) return line;
    if (first.empty() && !line.empty()) first = line;
  }
  return first.empty() ? "ocloc failed without a word" : first;
}

/// The type that -DNAME= gives in the options; "".
std::string type_in(const std::string& options, const std::string& name) {
  const std::size_t at = (' ' + options).find(" -D" + name + '=');
  if (at == std::string::npos) return "";
  const std::size_t from = at + name.size() + 3;  // of options: one less than of what was searched
  return options.substr(from, options.find(' ', from) - from);
}

bool is_small(const std::string& type) {
  static const std::set<std::string> types = {"half", "bfloat", "short", "ushort", "char", "uchar", "bool"};
  return types.contains(type);
}

/// What a device with lanes asks for where a CPU asks for `program`, which is what lists hold (preload/xpu: grid.cpp, rows.cpp,
/// products.cpp).
std::vector<Program> for_lanes(const Program& program) {
  const auto with = [&](const std::string& more) { return Program{program.file, program.options + more}; };
  const std::string& options = program.options;
  const std::string each = " -DEACH=8";
  if (options.find("-DEACH=") != std::string::npos || options.find("-DLANES=") != std::string::npos ||
      options.find("-DBLOCK=") != std::string::npos)
    return {program};
  if (program.file == "gemm" && options.find("WIDE") == std::string::npos) return {program, with(" -DBLOCK=64")};
  if (program.file == "rows") return {program, with(" -DLANES=128"), with(" -DLANES=256")};
  if (program.file == "batch_norm" && is_small(type_in(options, "T"))) return {with(each)};
  if ((program.file == "copy" || program.file == "fill") && (is_small(type_in(options, "RAW")) || is_small(type_in(options, "TO"))))
    return {with(each)};
  if (program.file == "elementwise" && is_small(type_in(options, "OUT"))) {  // before the operands
    const std::size_t operands = options.find(" -DA=");
    if (operands != std::string::npos) return {Program{program.file, std::string(options).insert(operands, each)}};
  }
  return {program};
}

}  // namespace

Target target_named(const std::string& name) {
  Target out{name, name};
  if (name == kSpirv) {
    out.device = "pvc";
    out.spirv = true;
  } else if (begins_with(name, "pvc")) {
    out.matrix_lanes = 16;
  } else if (begins_with(name, "acm-") || begins_with(name, "dg2") || begins_with(name, "ats-m")) {
    out.matrix_lanes = 8;
    out.has_fp64 = false;
  } else {
    out.has_fp64 = false;  // most others emulate it or have none
  }
  return out;
}

std::vector<Program> programs_for(const Target& target, const std::vector<Program>& list) {
  std::set<Program> out;
  for (const Program& program : list) {
    if (program.file == "gemm_matrix") continue;  // its options are the device's: below
    if (!target.has_fp64 && program.options.find("double") != std::string::npos) continue;
    for (Program& one : target.lanes ? for_lanes(program) : std::vector<Program>{program}) out.insert(std::move(one));
  }
  if (target.matrix_lanes != 0)
    for (const char* type : {"half", "bfloat"})
      for (const char* results : {"", " -DO=float"})  // the latter: float32 programs that compute in 16 bits (docs/xpu.md)
        out.insert({"gemm_matrix", std::string("-DT=") + type + " -DMATRIX=" + std::to_string(target.matrix_lanes) + results});
  return {out.begin(), out.end()};
}

std::vector<Program> read_programs(const std::string& text) {
  std::set<Program> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.find(' ');
    out.insert({line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1)});
  }
  return {out.begin(), out.end()};
}

std::string find_ocloc() {
  std::istringstream folders(env::get_named("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && ::access((folder + "/ocloc").c_str(), X_OK) == 0) return folder + "/ocloc";
  return "";
}

bool knows_device(const std::string& ocloc, const std::string& name) {
  static const std::set<std::string> ours = {kSpirv, "acm-g10", "acm-g11", "acm-g12", "pvc"};  // what a device of ours asks for
  return ours.contains(name) || run({ocloc, "ids", name}, "/dev/null") == 0;
}

std::string compile(const std::string& ocloc, const Target& target, const Program& program, const std::string& drafts,
                    const std::string& path) {
  const std::string all = whole_options(program.options, target.has_fp64, true);
  const std::string name = program_name(program.file, all);
  const std::string source = drafts + '/' + name + ".cl", log = drafts + '/' + name + ".log";
  if (!write_file(source, kernel_source(program.file))) return kCannotWrite + source;
  std::vector<std::string> words = {ocloc,  "compile",           "-file",    source, "-device", target.device, "-output", name, "-out_dir",
                                    drafts, "-output_no_suffix", "-options", all};
  words.emplace_back(target.spirv ? "-spv_only" : "-exclude_ir");
  const int code = run(words, log);
  const fs::path made = target.spirv ? drafts + '/' + name + ".spv" : drafts + '/' + name;
  std::string problem;
  std::error_code failure;
  // ocloc has versions that answer 0 and make nothing.
  if (code != 0 || !fs::is_regular_file(made, failure)) {
    problem = first_error(read_file(log));
  } else {
    if (!write_program(path, read_file(made))) problem = kCannotWrite + path;
  }
  for (const char* ending : {".cl", ".log", ".spv", ".bin", ".gen", ""}) fs::remove(drafts + '/' + name + ending, failure);
  return problem;
}

}  // namespace ipexrun::xpu::aot
