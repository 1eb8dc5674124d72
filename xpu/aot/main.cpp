// ipexrun aot: builds the kernels of device xpu ahead of time (docs/xpu-aot.md). `ipexrun aot` becomes this program.
#include <sys/stat.h>
#include <unistd.h>

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
#include "xpu/aot/targets.h"
#include "xpu/opencl/device.h"
#include "xpu/opencl/program_files.h"

namespace ipexrun::xpu::aot {
namespace {

namespace fs = std::filesystem;

constexpr int kNotFound = 127;

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
  for (const fs::directory_entry& one : fs::directory_iterator(into, failure)) {
    if (!one.is_directory() || one.path().filename().string().front() == '.') continue;
    const auto [bytes, count] = size_of(one.path());
    std::printf("%-24s %5zu programs %8.1f MB\n", one.path().filename().c_str(), count, static_cast<double>(bytes) * 1e-6);
  }
}

/// The list of a target, for people and for the next build; what is not on it is of older kernels and goes away.
void write_list(const std::string& folder, const std::vector<Program>& programs, const std::function<std::string(const Program&)>& name_of,
                const char* ending) {
  std::string text = "# What lies here: name, file of xpu/kernels, options. Made by ipexrun aot.\n";
  std::set<std::string> names;
  for (const Program& program : programs) {
    const std::string name = name_of(program);
    if (!fs::exists(folder + '/' + name + ending)) continue;
    names.insert(name + ending);
    text += name + ' ' + program.file + ' ' + program.options + '\n';
  }
  std::error_code failure;
  for (const fs::directory_entry& one : fs::directory_iterator(folder, failure))
    if (one.path().extension() == ending && !names.contains(one.path().filename())) fs::remove(one.path(), failure);
  write_file(folder + "/programs.txt", text);
}

/// One target: `make(program, path)` builds what is not there yet; "" or an error. The number of programs that failed.
std::size_t build(const std::string& target, const std::string& into, const std::vector<Program>& programs, const char* ending,
                  unsigned jobs, const std::function<std::string(const Program&)>& name_of,
                  const std::function<std::string(const Program&, const std::string&)>& make) {
  const std::string folder = into + '/' + target;
  std::error_code failure;
  fs::create_directories(folder, failure);
  ::chmod(folder.c_str(), 0755);
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next{0}, built{0}, failed{0};
  std::mutex says;
  std::vector<std::thread> workers;
  const auto work = [&] {
    for (std::size_t i = next++; i < programs.size(); i = next++) {
      const std::string name = name_of(programs[i]);
      const std::string path = folder + '/' + name + ending;
      std::string problem = name.empty() ? "no kernels of that name" : "";
      if (problem.empty() && fs::exists(path)) continue;
      if (problem.empty()) problem = make(programs[i], path);
      ++(problem.empty() ? built : failed);
      if (problem.empty()) continue;
      const std::lock_guard lock(says);
      log::error(target + ": " + programs[i].file + ' ' + programs[i].options + ": " + problem);
    }
  };
  for (unsigned i = 0; i < jobs; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  write_list(folder, programs, name_of, ending);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto [bytes, count] = size_of(folder);
  std::printf("%s: %zu programs, %.1f MB (%zu built in %.0f s, %zu failed) in %s\n", target.c_str(), count,
              static_cast<double>(bytes) * 1e-6, built.load(), seconds, failed.load(), folder.c_str());
  std::fflush(stdout);
  return failed;
}

/// The drivers of this machine build for themselves. The number of programs that failed, or -1: there is no device.
long build_here(const Options& options, const std::vector<Program>& list) {
  FindOptions find;
  find.any_type = true;
  find.force_lanes = env::get(env::Id::kXpuKernels).value_or("") == "lanes";
  std::string reason;
  long failed = 0;
  const std::vector<std::unique_ptr<Device>> devices = find_devices(find, reason);
  for (const std::unique_ptr<Device>& device : devices) {
    const DeviceFacts& facts = device->facts();
    Target as_target{facts.name, "", facts.has_fp64, facts.matrix_lanes, false, facts.lanes};
    const auto make = [&](const Program& program, const std::string& path) -> std::string {
      try {
        const std::string binary = device->build_binary(program.file, program.options);
        return binary.empty() ? "the driver hands out no binary" : write_program(path, binary) ? "" : "cannot write " + path;
      } catch (const DeviceError& problem) {
        const std::string words = problem.what();
        return words.substr(0, words.find('\n'));
      }
    };
    failed += static_cast<long>(build(
        target_of(facts), options.into, programs_for(as_target, list), ".bin", 1,
        [&](const Program& program) { return program_name(program.file, whole_options(program.options, facts.has_fp64, facts.lanes)); },
        make));
    std::printf("  for %s, driver %s\n", facts.name.c_str(), facts.driver_version.c_str());
  }
  if (devices.empty()) log::error("aot: here: " + reason);
  return devices.empty() ? -1 : failed;
}

int run(Options& options, const std::string& shipped_programs) {
  if (options.into.empty()) {
    const std::string cache = cache_folder();
    if (cache.empty()) {
      log::error("aot: there is no cache folder (IPEXRUN_CACHE=off, or others can write to it); --into DIR names another");
      return 2;
    }
    options.into = cache + "/ahead";
  }
  for (const std::string& name : options.remove) {
    std::error_code failure;
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos ||
        fs::remove_all(options.into + '/' + name, failure) == 0)
      log::error("aot: --remove " + name + ": there is none in " + options.into);
  }
  const std::string path = options.programs.empty() ? shipped_programs : options.programs;
  std::vector<Program> list = read_programs(read_file(path));
  if (!options.devices.empty() && list.empty()) {
    log::error("aot: no programs in " + path);
    return 2;
  }
  if (!options.devices.empty()) {
    std::error_code failure;
    fs::create_directories(options.into, failure);
    ::chmod(options.into.c_str(), 0755);
  }
  std::size_t failed = 0;
  for (const std::string& name : options.devices) {
    if (name == "here") {
      const long bad = build_here(options, list);
      if (bad < 0) return 1;
      failed += static_cast<std::size_t>(bad);
      continue;
    }
    const std::string ocloc = find_ocloc();
    if (ocloc.empty()) {
      log::error("aot: " + name + ": no ocloc in PATH, Intel's compiler for kernels (Debian: intel-opencl-icd; Ubuntu: intel-ocloc)");
      return kNotFound;
    }
    const Target target = target_named(name);
    const std::string drafts = options.into + "/.drafts-" + std::to_string(::getpid());
    fs::create_directories(drafts);
    failed += build(
        name, options.into, programs_for(target, list), target.spirv ? ".spv" : ".bin", options.jobs,
        [&](const Program& program) { return program_name(program.file, whole_options(program.options, target.has_fp64, true)); },
        [&](const Program& program, const std::string& to) { return compile(ocloc, target, program, drafts, to); });
    std::error_code failure;
    fs::remove_all(drafts, failure);
  }
  if (options.list || options.devices.empty()) print_sizes(options.into);
  return failed == 0 ? 0 : 1;
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
  return run(options, (self.parent_path().parent_path() / IPEXRUN_LIB_FOLDER / "xpu" / "programs.txt").string());
}
