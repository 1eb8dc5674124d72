#include "launcher/run/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "configs/base/isa.h"
#include "configs/contract/env.h"
#include "configs/contract/event.h"
#include "launcher/plan/text.h"
#include "launcher/run/allocators.h"
#include "launcher/run/context.h"
#include "launcher/run/gain.h"
#include "launcher/run/library_search.h"
#include "launcher/run/omp_runtime.h"
#include "launcher/run/program.h"
#include "launcher/run/system_facts.h"
#include "launcher/run/torch_probe.h"
#include "launcher/run/trial.h"
#include "launcher/run/user_folders.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShimFile = "libipexrun_shim.so";

/// The checks share what the earlier ones found.
class Examination {
 public:
  Examination(const Machine& machine, std::string python) : machine_(machine), python_(std::move(python)) {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONPATH", "XDG_CACHE_HOME",
                             "XDG_DATA_HOME", env::name(env::Id::kCache), env::name(env::Id::kPluginDir)})
      variables_[name] = env::get_named(name).value_or("");
    plugin_dir_ = user_plugin_dir(variables_);
  }

  Examined run() {
    libraries();
    if (auto made = make_run_dir()) {
      run_dir_ = made.value();
      add(CheckLevel::kOk, "run folder", fs::path(run_dir_).parent_path().string());
    } else {
      add(CheckLevel::kWarn, "run folder", made.error().what, made.error().hint);
    }
    cache();
    start();
    python();
    allocators();
    cpu();
    system();
    std::error_code ignored;
    if (!run_dir_.empty()) fs::remove_all(run_dir_, ignored);
    return std::move(out_);
  }

 private:
  void add(CheckLevel level, const char* name, std::string seen, std::string hint = "") {
    out_.checks.push_back({level, name, std::move(seen), std::move(hint)});
  }

  void libraries() {
    lib_dir_ = find_lib_dir();
    if (lib_dir_.empty()) {
      add(CheckLevel::kFail, "libraries", no_lib_dir_text(),
          no_proc_text().empty() ? "install again, or set IPEXRUN_LIB_DIR" : "mount -t proc proc /proc");
      return;
    }
    add(CheckLevel::kOk, "libraries", lib_dir_);
    if (const std::string problem = env::problem_of_environment(); !problem.empty())
      add(CheckLevel::kFail, "variables", problem, "unset it: no program is started with it");
    if (env::get_flag(env::Id::kDisable))
      add(CheckLevel::kWarn, "switched off", "IPEXRUN_DISABLE is set: programs run as if ipexrun were not there", "unset it");
  }

  void fact(const char* name, std::string value) { out_.facts.emplace_back(name, std::move(value)); }

  void cache() {
    const std::string folder = cache_dir(variables_);
    if (folder.empty()) {
      const bool off = variables_[env::name(env::Id::kCache)] == "off";
      return add(off ? CheckLevel::kOk : CheckLevel::kWarn, "cache", off ? "off" : "none: HOME and XDG_CACHE_HOME are unset",
                 "decisions are not remembered: each process measures anew");
    }
    const FolderState state = folder_state(folder);
    add(state.usable ? CheckLevel::kOk : CheckLevel::kWarn, "cache", state.text,
        state.usable ? "" : "decisions are not remembered: chown, chmod 700, or IPEXRUN_CACHE");
  }

  /// A run of this launcher's --version under the shim shows in one go: preload, affinity and memory policy.
  void start() {
    if (lib_dir_.empty() || run_dir_.empty()) return;
    const std::string shim = lib_dir_ + "/" + kShimFile;
    std::error_code failure;
    if (!fs::exists(shim, failure))
      return add(CheckLevel::kFail, "shim", "'" + shim + "' does not exist", "install again: programs run without optimization");
    if (const std::string why = preload_objection(shim); !why.empty()) {
      return add(CheckLevel::kFail, "shim", "not safe to preload: " + why, "install it where only you or root can write");
    }
    const fs::path self = fs::read_symlink("/proc/self/exe", failure);
    const Trial trial = try_run({self.string(), "--version"}, lib_dir_, plugin_dir_, machine_, run_dir_);
    if (!trial.ran) return add(CheckLevel::kFail, "start", trial.problem);
    shim_loads_ = trial.exit_code == 0 && trial.header.shim_state >= IPEXRUN_SHIM_LOADED;
    if (shim_loads_) {
      add(CheckLevel::kOk, "shim", "loads into a program");
    } else {
      add(CheckLevel::kFail, "shim", fmt::format("does not load into a program (exit code {})", trial.exit_code),
          "run IPEXRUN_LOG=debug ipexrun true");
    }
    const std::string note = trial.header.bind_note;
    const bool cpus_bound = note.find("sched_setaffinity") == std::string::npos;
    add(cpus_bound ? CheckLevel::kOk : CheckLevel::kWarn, "pinning", cpus_bound ? "a child sees the cores that were set" : note,
        cpus_bound ? "" : "instances run where the system puts them");
    if (const std::size_t at = note.find("set_mempolicy"); at != std::string::npos) {
      add(CheckLevel::kWarn, "memory binding", note.substr(at), "in a container: --cap-add SYS_NICE or a seccomp profile that allows it");
    } else {
      add(CheckLevel::kOk, "memory binding", "allowed");
    }
  }

  void python() {
    if (python_.empty()) return add(CheckLevel::kWarn, "python", "no python or python3 in PATH", "only other programs can be run");
    const PythonFacts facts = ask_python(python_);
    if (!facts.ok) return add(CheckLevel::kWarn, "python", facts.problem);
    add(CheckLevel::kOk, "python", fmt::format("{} {}", python_, facts.version));
    fact("python", python_);
    fact("python_version", facts.version);

    const std::vector<std::string> plugins = plugin_versions(lib_dir_ + "/plugins");
    const std::vector<std::string> own = plugin_dir_.empty() ? plugins : plugin_versions(plugin_dir_);
    std::string have = plugins.empty() ? "no plugin is installed" : fmt::format("plugins for torch {}", fmt::join(plugins, ", "));
    if (!plugin_dir_.empty() && !own.empty()) have += fmt::format("; built here: {}", fmt::join(own, ", "));
    if (facts.torch_root.empty())
      return add(CheckLevel::kWarn, "torch", "this python has no torch; " + have,
                 "activate the environment that has it, or name its interpreter: --torch-python PYTHON");
    fact("torch_version", facts.torch_version);
    fact("torch_root", facts.torch_root);
    add(CheckLevel::kOk, "torch", facts.torch_version + " at " + facts.torch_root);
    const std::string minor = minor_version(facts.torch_version);
    const auto among = [&minor](const std::vector<std::string>& list) { return std::find(list.begin(), list.end(), minor) != list.end(); };
    if (!among(plugins) && !among(own)) {
      return add(CheckLevel::kWarn, "plugin", fmt::format("none for torch {}: {}", facts.torch_version, have),
                 "stock PyTorch will run; ipexrun doctor --build makes one");
    }
    built_here_ = !among(plugins);
    const std::string path = (among(plugins) ? lib_dir_ + "/plugins" : plugin_dir_) + "/" + plugin_file(minor);
    fact("plugin", path);
    if (shim_loads_) plugin(path, facts);
    device_xpu(minor);
    hook(facts);
  }

  /// Device xpu over OpenCL (docs/xpu.md): whether it was built, and which drivers there are. No driver is opened.
  void device_xpu(const std::string& minor) {
    const std::string file = xpu_file(minor);
    std::error_code failure;  // a folder that may not be searched is no error here: HOME of another user in a container
    const bool built =
        fs::exists(lib_dir_ + "/plugins/" + file, failure) || (!plugin_dir_.empty() && fs::exists(plugin_dir_ + "/" + file, failure));
    fact("xpu", built ? "built" : "left out");
    if (!built) {
      return add(CheckLevel::kOk, "device xpu",
                 "left out: built without OpenCL headers (Debian: ocl-icd-opencl-dev, opencl-headers), or for a torch other than 2.13");
    }
    std::vector<std::string> drivers;
    for (const fs::directory_entry& entry : fs::directory_iterator("/etc/OpenCL/vendors", failure))
      if (entry.path().extension() == ".icd") drivers.push_back(entry.path().stem());
    std::sort(drivers.begin(), drivers.end());
    add(CheckLevel::kOk, "device xpu",
        drivers.empty() ? "built; no OpenCL driver in /etc/OpenCL/vendors"
                        : fmt::format("built; OpenCL drivers: {}", fmt::join(drivers, ", ")));
  }

  /// What a program that imports torch finds. A plugin that is there and does not start is a broken installation.
  void plugin(const std::string& path, const PythonFacts& facts) {
    const Trial trial = try_run({python_, "-c", "import torch"}, lib_dir_, plugin_dir_, machine_, run_dir_);
    const bool active = trial.ran && trial.header.shim_state == IPEXRUN_SHIM_ACTIVE;
    fact("plugin_active", active ? "yes" : "no");
    if (active) {
      fact("plugin_isa", trial.isa());
      return add(CheckLevel::kOk, "plugin",
                 fmt::format("{}: active in a program that imports torch {}, up to {}", path, facts.torch_version, trial.isa()));
    }
    const std::string why = !trial.problem.empty()         ? trial.problem
                            : !trial.shim_reason().empty() ? trial.shim_reason()
                            : trial.exit_code != 0         ? fmt::format("'import torch' ended with code {}", trial.exit_code)
                                                           : "it was never started";
    const bool import_fails = trial.ran && trial.exit_code != 0;
    add(import_fails ? CheckLevel::kWarn : CheckLevel::kFail, "plugin", fmt::format("{}: not active: {}", path, why),
        import_fails  ? "repair this torch first"
        : built_here_ ? "stock PyTorch would run; ipexrun doctor --build builds it anew"
                      : "stock PyTorch would run; install ipexrun again");
  }

  void hook(const PythonFacts& facts) {
    const fs::path folder = fs::path(lib_dir_) / "python";
    std::error_code failure;
    const bool there = fs::exists(folder / "entry.py", failure) && fs::exists(folder / ("_ipexrun_hook" + facts.ext_suffix), failure);
    add(there ? CheckLevel::kOk : CheckLevel::kWarn, "python hook",
        there ? "built for this python" : "not built for this python (" + facts.ext_suffix + ")",
        there ? "" : "--bench times programs as a whole instead of module calls");
  }

  void allocators() {
    const auto folders = library_folders(variables_, python_);
    const bool no_proc = !no_proc_text().empty();
    for (const std::string& name : allocator_names()) {
      const LibraryChoice choice = find_allocator(name, folders);
      add(CheckLevel::kOk, "allocator",
          !choice.path.empty() ? name + ": " + choice.path
          : no_proc            ? name + ": none can be tried without /proc"
                               : name + ": not installed (package " + allocator_package(name) + ")");
    }
    if (!python_.empty()) add(CheckLevel::kOk, "OpenMP", find_program_omp(python_, variables_).reason);
    for (const char* name : {"intel", "llvm"}) {
      const auto choice = choose_omp_runtime(name, omp_library_folders(variables_, python_));
      add(CheckLevel::kOk, "OpenMP", std::string(name) + ": " + (choice ? choice->path : "not installed"));
    }
  }

  void cpu() {
    const IsaSet has = isa_of_cpu();
    const IsaSet may = isa_of_process();
    add(has == may ? CheckLevel::kOk : CheckLevel::kWarn, "instruction sets",
        fmt::format("CPU {}, this process {}", level_name(has), level_name(may)),
        has == may ? "" : "capped by ATEN_CPU_CAPABILITY, IPEXRUN_MAX_ISA or a refused AMX permission");
    fact("cpu_isa", std::string(level_name(has)));
    fact("process_isa", std::string(level_name(may)));
    fact("bf16", bf16_of(may));
    if (isa_has(has, kIsaAmxBf16)) {
      const bool granted = request_amx_permission();
      add(granted ? CheckLevel::kOk : CheckLevel::kWarn, "AMX", granted ? "permitted to this process" : "the kernel refused the permission",
          granted ? "" : "needs Linux 5.16 or newer and a seccomp profile that allows arch_prctl");
    }
    add(CheckLevel::kOk, "bf16", bf16_text(may));
    add(CheckLevel::kOk, "memory policy", machine_.memory_policy.empty() ? "the default one" : machine_.memory_policy + ", kept as it is");
    if (machine_.quota_cpus > 0) {
      const bool small = machine_.quota_cpus < static_cast<double>(machine_.cores.size());
      add(small ? CheckLevel::kWarn : CheckLevel::kOk, "quota",
          fmt::format("{:.2f} CPUs, {} allowed", machine_.quota_cpus, count_text(machine_.cores.size(), "core")),
          small ? "instances are sized by the quota" : "");
    } else {
      add(CheckLevel::kOk, "quota", "none");
    }
  }

  void system() {
    const SystemFacts facts = read_system_facts();
    if (facts.governor.empty()) {
      add(CheckLevel::kOk, "governor", "not visible (virtual machine, or set by firmware)");
    } else {
      const bool good = facts.governor == "performance" || facts.governor == "schedutil";
      add(good ? CheckLevel::kOk : CheckLevel::kWarn, "governor", facts.governor,
          good ? "" : "for steady timings: cpupower frequency-set -g performance");
    }
    if (!facts.huge_pages.empty()) {
      add(CheckLevel::kOk, "huge pages", facts.huge_pages, facts.huge_pages == "never" ? "madvise lets allocators use them" : "");
    }
    if (!facts.numa_balancing.empty() && facts.numa_balancing != "0" && machine_.nodes.size() > 1) {
      add(CheckLevel::kWarn, "NUMA balancing", "on", "sysctl kernel.numa_balancing=0: bound instances gain nothing from moved pages");
    }
  }

  const Machine& machine_;
  Examined out_;
  std::string python_;
  std::map<std::string, std::string> variables_;
  std::string plugin_dir_;
  std::string lib_dir_;
  std::string run_dir_;
  bool shim_loads_ = false;
  bool built_here_ = false;  ///< the plugin is this user's own
};

}  // namespace

Examined examine(const Machine& machine, const std::string& python) { return Examination(machine, python).run(); }

}  // namespace ipexrun::launcher
