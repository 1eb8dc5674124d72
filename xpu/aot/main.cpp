// ipexrun aot: builds the kernels of device xpu ahead of time (docs/xpu-aot.md). `ipexrun aot` becomes this program.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "xpu/aot/target_folder.h"
#include "xpu/aot/targets.h"
#include "xpu/opencl/device.h"
#include "xpu/opencl/program_files.h"

namespace ipexrun::xpu::aot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHere = "here";

struct Options {
  std::vector<std::string> devices;
  std::string programs, into;
  std::vector<std::string> remove;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool list = false;
};

/// Bytes of all files of a folder, and how many programs it has.
std::pair<std::uintmax_t, std::size_t> size_of(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::size_t count = 0;
  std::error_code failure;
  for (const fs::directory_entry& one : fs::directory_iterator(folder, failure)) {
    bytes += one.file_size(failure);
    count += one.path().extension() == ".bin" || one.path().extension() == ".spv";
  }
  return {bytes, count};
}

void print_sizes(const std::string& into) {
  std::error_code failure;
  bool any = false;
  for (const fs::directory_entry& one : fs::directory_iterator(into, failure)) {
    if (!is_target(one.path().string())) continue;
    any = true;
    const auto [bytes, count] = size_of(one.path());
    std::printf("%-24s %5zu programs %8.1f MB\n", one.path().filename().c_str(), count, static_cast<double>(bytes) * 1e-6);
  }
  if (!any) std::printf("nothing is built ahead of time in %s (ipexrun aot --device LIST; ipexrun aot --help)\n", into.c_str());
}

/// One target: `make(program, path)` builds what is not there yet; "" or an error. The number of programs that failed.
Result<std::size_t> build(const std::string& target, const std::string& into, const std::vector<Program>& programs, const char* ending,
                          unsigned jobs, const std::function<std::string(const Program&)>& name_of,
                          const std::function<std::string(const Program&, const std::string&)>& make) {
  const std::string folder = into + '/' + target;
  Listing planned;
  for (const Program& program : programs)
    if (const std::string name = name_of(program); !name.empty()) planned.emplace(name, program.file + ' ' + program.options);
  if (Status opened = open_target(folder, planned); !opened.ok()) return opened.error();
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next{0}, built{0}, failed{0};
  std::atomic<bool> full{false};
  std::mutex says;
  std::vector<std::thread> workers;
  const auto work = [&] {
    for (std::size_t i = next++; i < programs.size() && !full; i = next++) {
      const std::string name = name_of(programs[i]);
      const std::string path = folder + '/' + name + ending;
      std::string problem = name.empty() ? "no kernels of that name" : "";
      if (problem.empty() && fs::exists(path)) continue;
      if (problem.empty()) problem = make(programs[i], path);
      ++(problem.empty() ? built : failed);
      if (problem.empty()) continue;
      // A disk that is full is full for all that follow.
      if (problem.starts_with(kCannotWrite) && full.exchange(true)) continue;
      const std::lock_guard lock(says);
      log::error("aot: " + target + ": " + programs[i].file + ' ' + programs[i].options + ": " + problem);
    }
  };
  for (unsigned i = 0; i < jobs; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  if (Status closed = close_target(folder, planned, ending); !closed.ok() && !full) return closed.error();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto [bytes, count] = size_of(folder);
  std::printf("%s: %zu programs, %.1f MB (%zu built in %.0f s, %zu failed) in %s\n", target.c_str(), count,
              static_cast<double>(bytes) * 1e-6, built.load(), seconds, failed.load(), folder.c_str());
  std::fflush(stdout);
  return failed.load();
}

/// The drivers of this machine build for themselves. The number of programs that failed.
Result<std::size_t> build_here(const Options& options, const std::vector<Program>& list) {
  FindOptions find;
  find.any_type = true;
  find.force_lanes = env::get(env::Id::kXpuKernels).value_or("") == "lanes";
  std::string reason;
  std::size_t failed = 0;
  const std::vector<std::unique_ptr<Device>> devices = find_devices(find, reason);
  for (const std::unique_ptr<Device>& device : devices) {
    const DeviceFacts& facts = device->facts();
    Target as_target{facts.name, "", facts.has_fp64, facts.matrix_lanes, false, facts.lanes};
    const auto make = [&](const Program& program, const std::string& path) -> std::string {
      try {
        const std::string binary = device->build_binary(program.file, program.options);
        return binary.empty() ? "the driver hands out no binary" : write_program(path, binary) ? "" : kCannotWrite + path;
      } catch (const DeviceError& problem) {
        const std::string words = problem.what();
        return words.substr(0, words.find('\n'));
      }
    };
    const Result<std::size_t> bad = build(
        target_of(facts), options.into, programs_for(as_target, list), ".bin", 1,
        [&](const Program& program) { return program_name(program.file, whole_options(program.options, facts.has_fp64, facts.lanes)); },
        make);
    if (!bad.ok()) return bad;
    failed += *bad;
    std::printf("  for %s, driver %s\n", facts.name.c_str(), facts.driver_version.c_str());
  }
  if (devices.empty()) return Error{kExitFailure, "here: " + reason, ""};
  return failed;
}

Result<std::size_t> build_with_ocloc(const std::string& name, const std::string& ocloc, const std::string& drafts, const Options& options,
                                     const std::vector<Program>& list) {
  const Target target = target_named(name);
  return build(
      name, options.into, programs_for(target, list), target.spirv ? ".spv" : ".bin", options.jobs,
      [&](const Program& program) { return program_name(program.file, whole_options(program.options, target.has_fp64, true)); },
      [&](const Program& program, const std::string& to) { return compile(ocloc, target, program, drafts, to); });
}

/// Every name is looked at before anything is made: it becomes a folder, whose older programs go away.
Status check_devices(const std::vector<std::string>& devices, const std::string& ocloc) {
  const std::string hint = "there are here, spirv, acm-g10, acm-g11, acm-g12, pvc and what else ocloc compile --help has for -device";
  for (const std::string& name : devices)
    if (!is_target_name(name)) return Error{kExitUsage, "--device '" + name + "' is no device", hint};
  for (const std::string& name : devices) {
    if (name == kHere) continue;
    if (ocloc.empty())
      return Error{kExitNotFound, name + ": no ocloc in PATH, Intel's compiler for kernels",
                   "Debian: intel-opencl-icd; Ubuntu: intel-ocloc"};
    if (!knows_device(ocloc, name)) return Error{kExitUsage, "--device '" + name + "' is no device that ocloc knows", hint};
  }
  return ok_status();
}

/// All of them, or none where one is no target.
Status remove_targets(const Options& options) {
  for (const std::string& name : options.remove)
    if (!is_target_name(name) || !is_target(options.into + '/' + name))
      return Error{kExitUsage, "--remove '" + name + "': no target that ipexrun aot made in " + options.into, "ipexrun aot --list"};
  for (const std::string& name : options.remove)
    if (Status removed = remove_target(options.into + '/' + name); !removed.ok()) return removed;
  return ok_status();
}

/// How many programs failed.
Result<std::size_t> build_all(const Options& options, const std::string& ocloc, const std::vector<Program>& list) {
  const Result<std::string> drafts = make_drafts(options.into);
  if (!drafts.ok()) return drafts.error();
  std::size_t failed = 0;
  Status problem = ok_status();
  for (const std::string& name : options.devices) {
    const Result<std::size_t> bad = name == kHere ? build_here(options, list) : build_with_ocloc(name, ocloc, *drafts, options, list);
    if (!bad.ok()) problem = bad.error();
    if (!bad.ok()) break;
    failed += *bad;
  }
  std::error_code failure;
  fs::remove_all(*drafts, failure);
  return problem.ok() ? Result<std::size_t>(failed) : Result<std::size_t>(problem.error());
}

Result<int> run(Options& options, const std::string& shipped_programs) {
  if (options.into.empty()) {
    const std::string cache = cache_folder();
    if (cache.empty())
      return Error{kExitUsage, "there is no cache folder (IPEXRUN_CACHE=off, or others can write to it)", "--into DIR names another"};
    options.into = cache + "/ahead";
  }
  const std::string ocloc = find_ocloc();
  if (Status known = check_devices(options.devices, ocloc); !known.ok()) return known.error();
  if (Status removed = remove_targets(options); !removed.ok()) return removed.error();
  std::size_t failed = 0;
  if (!options.devices.empty()) {
    const std::string path = options.programs.empty() ? shipped_programs : options.programs;
    const std::vector<Program> list = read_programs(read_file(path));
    if (list.empty()) return Error{kExitUsage, "no programs in " + path, ""};
    const Result<std::size_t> done = build_all(options, ocloc, list);
    if (!done.ok()) return done.error();
    failed = *done;
  }
  if (options.list || options.devices.empty()) print_sizes(options.into);
  return static_cast<int>(failed == 0 ? kExitOk : kExitFailure);
}

}  // namespace
}  // namespace ipexrun::xpu::aot

int main(int argc, char** argv) {
  using namespace ipexrun::xpu::aot;  // NOLINT(google-build-using-namespace): this is its main()
  Options options;
  CLI::App app(
      "Builds the kernels of device xpu ahead of time: what is built needs no compiler at run time. Without --device: what is there.",
      "ipexrun aot");
  app.add_option(
         "--device", options.devices,
         "acm-g10, acm-g11, pvc or another name that ocloc knows; spirv: for drivers that take it; here: this machine's drivers, PoCL too")
      ->delimiter(',');
  app.add_option("--programs", options.programs,
                 "FILE: these programs instead of those that ipexrun ships (IPEXRUN_XPU_PROGRAMS records such a file)");
  app.add_option("--into", options.into, "DIR: there instead of the cache folder; lib/ipexrun/xpu beside the library is looked at, too");
  app.add_option("--remove", options.remove, "targets to delete")->delimiter(',');
  app.add_option("--jobs", options.jobs, "compilers at once")->check(CLI::Range(1u, 1024u));
  app.add_flag("--list", options.list, "what is there, with sizes");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);
    ipexrun::log::error(std::string("aot: ") + problem.what());
    return 2;
  }
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  const auto code = run(options, (self.parent_path().parent_path() / IPEXRUN_LIB_FOLDER / "xpu" / "programs.txt").string());
  if (!code.ok()) ipexrun::log::error("aot: " + code.error().line());
  return code.ok() ? *code : code.error().code;
}
