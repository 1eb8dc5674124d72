#include "launcher/plan/instance_env.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "configs/contract/env.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// MALLOC_CONF of IPEX's launcher without its leaking decay times; against none at all no difference was measured (docs/allocators.md).
constexpr const char* kJemallocConf = "oversize_threshold:1,background_thread:true,metadata_thp:auto";

/// --memory bounded: jemalloc's own way to give pages back soon; none of its words keeps memory for ever.
constexpr const char* kJemallocBounded = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
constexpr const char* kBoundedPrimitives = "64";

/// --memory throughput with the C library's malloc: the largest mmap threshold that it takes, and what may stay unused at the top.
constexpr const char* kMmapBytes = "33554432";
constexpr const char* kKeptBytes = "536870912";

/// CPUs of a quota below which no compiler runs beside the program.
constexpr double kQuotaForCompiler = 4;

/// oneDNN's name of what ATEN_CPU_CAPABILITY caps. IPEX's avx512_fp16 includes AMX, as oneDNN's AVX512_CORE_AMX includes fp16.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOnednnIsa{{{"default", "SSE41"},
                                                                                   {"avx2", "AVX2"},
                                                                                   {"avx2_vnni", "AVX2_VNNI"},
                                                                                   {"avx512", "AVX512_CORE"},
                                                                                   {"avx512_vnni", "AVX512_CORE_VNNI"},
                                                                                   {"avx512_bf16", "AVX512_CORE_BF16"},
                                                                                   {"amx", "AVX512_CORE_AMX"},
                                                                                   {"avx512_fp16", "AVX512_CORE_AMX"},
                                                                                   {"amx_fp16", "AVX512_CORE_AMX_FP16"}}};

/// Variables by which an OpenMP runtime binds threads, the main one included: every process that it starts later inherits the single
/// core that is left. OMP_PLACES alone does so too (GNU, Intel and LLVM alike; seen, see docs/openmp.md).
constexpr std::array<const char*, 4> kBindingVariables{"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};

/// Whether `value` of variable `name` binds threads.
bool binds(const std::string& name, const std::string& value) {
  std::string text = value;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name != "KMP_AFFINITY") return !text.empty() && text != "false";
  // The rest of its words (none, disabled, verbose, granularity=...) bind nothing by themselves.
  constexpr std::array<const char*, 6> kTypes{"compact", "scatter", "balanced", "explicit", "logical", "physical"};
  return std::any_of(kTypes.begin(), kTypes.end(), [&text](const char* type) { return text.find(type) != std::string::npos; });
}

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

bool is_allocator(const std::string& path) {
  const std::string name = base_name(path);
  return name.find("jemalloc") != std::string::npos || name.find("tcmalloc") != std::string::npos ||
         name.find("mimalloc") != std::string::npos;
}

/// LD_PRELOAD's own rule: spaces and colons both separate.
std::vector<std::string> preload_entries(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(": ", at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ":") + part;
  return out;
}

bool can_preload(const std::string& path) { return path.find_first_of(": ") == std::string::npos; }

bool layout_asked(const Options& options) {
  return (options.ninstances > 0 && !options.slices_are_ranks) || options.ncores_per_instance > 0 || !options.cores_list.empty() ||
         !options.nodes_list.empty() || options.latency_mode || options.throughput_mode || options.ninstances_auto ||
         !options.place.empty();
}

}  // namespace

std::string EnvDraft::user(const std::string& name) const {
  const auto found = context_.env.find(name);
  return found == context_.env.end() ? "" : found->second;
}

void EnvDraft::set_default(const std::string& subject, const std::string& name, const std::string& value, const std::string& why) {
  const std::string own = user(name);
  if (!own.empty()) {
    because(subject, name + "=" + own, "kept as the environment has it" + (own == value ? "" : " (otherwise " + value + ": " + why + ")"));
    return;
  }
  set(name, value);
  because(subject, name + "=" + value, why);
}

void EnvDraft::set_asked(const std::string& subject, const std::string& name, const std::string& value, const std::string& why) {
  const std::string own = user(name);
  set(name, value);
  const bool replaces = !own.empty() && own != value;
  because(subject, name + "=" + value, replaces ? name + "=" + value + " replaces " + own + " of the environment: " + why : why, replaces);
}

std::string EnvDraft::malloc_name() const {
  if (!context_.allocator_path.empty()) return context_.allocator_name;
  for (const std::string& entry : preload_entries(user("LD_PRELOAD"))) {
    for (const char* name : {"jemalloc", "tcmalloc", "mimalloc"})
      if (base_name(entry).find(name) != std::string::npos) return name;
  }
  return "default";
}

void EnvDraft::add_memory() {
  // docs/allocators.md has the measurements; what showed no effect is not set.
  const std::string profile = "--memory " + options_.memory;
  const std::string malloc = malloc_name();
  if (options_.memory == "bounded") {
    set_asked("allocator", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", kBoundedPrimitives,
              profile + ": each shape of input leaves compiled kernels in oneDNN's cache, which holds 1024 by default");
    if (malloc == "jemalloc")
      set_asked("allocator", "MALLOC_CONF", kJemallocBounded, profile + ": unused pages go back within a second instead of ten");
  } else if (options_.memory == "throughput") {
    set_asked("allocator", "THP_MEM_ALLOC_ENABLE", "1", profile + ": torch asks for huge pages for tensors of 2 MiB and more");
    if (malloc == "default") {
      set_asked("allocator", "MALLOC_TRIM_THRESHOLD_", kKeptBytes, profile + ": freed memory up to 512 MiB stays with the program");
      set_asked("allocator", "MALLOC_MMAP_THRESHOLD_", kMmapBytes, profile + ": tensors below 32 MiB re-use it instead of new pages");
    }
  }
}

void EnvDraft::settle_binding() {
  constexpr const char* kHarm = "importing torch under it can leave a single core to every later child, DataLoader workers included";
  // OMP_PROC_BIND=false switches OMP_PLACES and GOMP_CPU_AFFINITY off.
  const bool switched_off = !user("OMP_PROC_BIND").empty() && !binds("OMP_PROC_BIND", user("OMP_PROC_BIND"));
  for (const std::string name : kBindingVariables) {
    if (const auto asked = options_.env.find(name); asked != options_.env.end()) {
      if (binds(name, asked->second))
        because("omp", name + "=" + asked->second, name + " of the config binds threads as well: " + kHarm, true);
      continue;
    }
    const std::string own = user(name);
    if (!binds(name, own) || (switched_off && name != "KMP_AFFINITY")) continue;
    if (!options_.pin) {
      because("omp", name + "=" + own, name + " of the environment is kept, since --no-pin leaves binding to it; " + kHarm, true);
      continue;
    }
    unset_.push_back(name);
    because("omp", name + " unset",
            name + "=" + own + " of the environment is not passed on: " + kHarm + " (--no-pin or a config's env: keeps it)", true);
  }
  if (context_.omp_family == "intel" && user("KMP_AFFINITY") == "disabled")
    because("omp", "KMP_AFFINITY=disabled",
            "KMP_AFFINITY=disabled of the environment is kept; Intel's runtime can abort in a forked child under it (unset it)", true);
}

void EnvDraft::add_libraries() {
  if (context_.allocator_name == "jemalloc" && !context_.allocator_path.empty() && options_.memory != "bounded")
    set_default("allocator", "MALLOC_CONF", kJemallocConf, "as with IPEX's launcher; memory is given back in the background");
  settle_binding();
  const std::string cap = user(env::name(env::Id::kAtenCpuCapability));
  const auto level = std::find_if(kOnednnIsa.begin(), kOnednnIsa.end(), [&](const auto& pair) { return pair.first == cap; });
  if (level != kOnednnIsa.end())
    set_default("env", "ONEDNN_MAX_CPU_ISA", std::string(level->second), "ATEN_CPU_CAPABILITY=" + cap + " caps oneDNN's kernels too");
}

std::vector<std::string> EnvDraft::own_preload(bool allocator_wanted, std::vector<std::string>* dropped) const {
  // Entries of an ipexrun that runs us (nested launches) are not the user's own.
  const std::vector<std::string> outer = preload_entries(user(env::name(env::Id::kPreload)));
  std::vector<std::string> out;
  for (const std::string& entry : preload_entries(user("LD_PRELOAD"))) {
    if (std::find(outer.begin(), outer.end(), entry) != outer.end()) continue;
    if (entry == context_.shim || entry == context_.crash_library) continue;
    if (allocator_wanted && is_allocator(entry) && entry != context_.allocator_path) {
      dropped->push_back(entry);
      continue;
    }
    out.push_back(entry);
  }
  return out;
}

Status EnvDraft::add_preload(ShimUse use, bool with_libraries) {
  const bool allocator_asked = options_.memory_allocator != "auto";
  std::vector<std::string> dropped;
  std::vector<std::string> entries = own_preload(with_libraries && allocator_asked, &dropped);
  for (const std::string& entry : dropped)
    because("allocator", base_name(entry),
            base_name(entry) + " is taken out of LD_PRELOAD: --memory-allocator " + options_.memory_allocator + " was asked for", true);
  std::vector<std::string> ours;
  const auto own_allocator = std::find_if(entries.begin(), entries.end(), is_allocator);
  if (with_libraries && own_allocator != entries.end()) {
    because("allocator", base_name(*own_allocator), "already in LD_PRELOAD");
  } else if (with_libraries && !context_.allocator_path.empty() && can_preload(context_.allocator_path)) {
    ours.push_back(context_.allocator_path);
    because("allocator", context_.allocator_name, context_.allocator_reason);
  } else if (with_libraries) {
    because("allocator", "default", context_.allocator_reason.empty() ? "malloc of the C library" : context_.allocator_reason);
  }
  if (with_libraries && !context_.omp_runtime_path.empty() && can_preload(context_.omp_runtime_path))
    ours.push_back(context_.omp_runtime_path);
  if (with_libraries && !context_.omp_reason.empty())
    because("omp", context_.omp_family.empty() ? "default" : context_.omp_family, context_.omp_reason);

  std::string problem = context_.shim.empty() ? context_.shim_problem : "";
  if (!context_.shim.empty() && !can_preload(context_.shim))
    problem = "its path '" + context_.shim + "' has a space or a colon, which LD_PRELOAD cannot hold";
  const bool shim = use != ShimUse::kNone && !context_.shim.empty() && problem.empty();
  if (options_.require_shim && !shim)
    return Error{kExitFailure, "--require-shim: the shim cannot be preloaded: " + problem, "ipexrun doctor says more"};
  shim_active_ = shim;
  if (shim) {
    ours.push_back(context_.shim);
    if (use == ShimUse::kOptimize && user(env::name(env::Id::kMode)) == "observe") use = ShimUse::kObserve;
    set(env::name(env::Id::kMode), use == ShimUse::kObserve ? "observe" : "optimize");
    set(env::name(env::Id::kLibDir), context_.lib_dir);
    if (!context_.plugin_dir.empty()) set(env::name(env::Id::kPluginDir), context_.plugin_dir);
    set(env::name(env::Id::kInherit), options_.inherit);
    if (options_.require_shim) set(env::name(env::Id::kRequireShim), "1");
    if (options_.bench.enabled) set(env::name(env::Id::kBench), "1");
    because("preload", base_name(context_.shim),
            options_.command == Command::kXpu ? "brings the device xpu to a torch that has none; every CPU kernel stays stock"
            : use == ShimUse::kObserve        ? "observes module calls; every kernel stays stock"
                                              : "lets kernels of ours join the program's torch");
    if (options_.inherit != "all")
      because("preload", "inherit " + options_.inherit,
              source("inherit", env::Id::kInherit, options_.inherit) + ": which descendants keep the preload");
  } else if (use == ShimUse::kNone) {
    because("preload", "none",
            options_.command == Command::kXpu ? "--opencl off or --no-optimize: launch only" : "--no-optimize: launch only");
  } else {
    because("preload", "none", "launch only: " + (problem.empty() ? "the shim is not there" : problem), true);
  }
  if (options_.crash_report) add_crash_report(ours);
  if (!options_.pack_memory.empty()) {
    const std::string name = env::name(env::Id::kPackMemory);
    const std::string own = user(name);
    if (!own.empty() && own != options_.pack_memory)
      because("env", name + "=" + options_.pack_memory, "--pack-memory replaces " + own + " of the environment", true);
    set(name, options_.pack_memory);
  }
  if (ours.empty() && dropped.empty() && user(env::name(env::Id::kPreload)).empty()) return ok_status();
  entries.insert(entries.end(), ours.begin(), ours.end());
  set("LD_PRELOAD", joined(entries));
  set(env::name(env::Id::kPreload), joined(ours));
  return ok_status();
}

void EnvDraft::add_xpu() {
  if (!shim_active_ || !options_.optimize || options_.opencl == "off") return;
  set(env::name(env::Id::kXpuStart), "1");
  if (options_.report) set(env::name(env::Id::kXpuReport), "1");
  because("dtype", options_.dtype,
          options_.dtype == "auto"
              ? "bfloat16 inside products and convolutions on xpu where the device has units for it, the accuracy check "
                "passes and it is measured faster"
              : source("dtype", env::Id::kDtype, options_.dtype) + ": inside products and convolutions on xpu");
  set(env::name(env::Id::kDtype), options_.dtype);
  add_select();
  if (!options_.redirect.empty()) {
    set(env::name(env::Id::kXpuRedirect), options_.redirect);
    because("redirect", options_.redirect, "--redirect: what the program calls " + options_.redirect + " is xpu");
  }
  const std::string name = env::name(env::Id::kXpu);
  const std::string own = user(name);
  const bool asked = is_given("opencl");
  if (own.empty() || asked) set(name, options_.opencl);
  because(
      "opencl", own.empty() || asked ? options_.opencl : own,
      options_.opencl == "any" ? "device xpu is any OpenCL device; no Intel GPU is looked for" : "device xpu for a torch that has none");
}

void EnvDraft::add_crash_report(std::vector<std::string>& ours) {
  std::string problem = context_.crash_library.empty() ? context_.crash_problem : "";
  if (problem.empty() && !can_preload(context_.crash_library))
    problem = "its path '" + context_.crash_library + "' has a space or a colon, which LD_PRELOAD cannot hold";
  if (!problem.empty()) {
    because("preload", "no crash report", "--crash-report has no effect: " + problem, true);
    return;
  }
  // After the shim: its pthread_create wants to see who called.
  ours.push_back(context_.crash_library);
  set(env::name(env::Id::kCrashReport), "1");
  set(env::name(env::Id::kLibDir), context_.lib_dir);
  because("preload", base_name(context_.crash_library), "--crash-report: a process that crashes writes its stack");
}

void EnvDraft::add_dtype(const Machine& machine) {
  if (!shim_active_) return;
  std::string dtype = options_.dtype;
  const std::string said = source("dtype", env::Id::kDtype, dtype);
  const bool has_fp16 = (machine.isa & (kIsaAvx512Fp16 | kIsaAmxFp16)) != 0;
  const bool has_bf16 = (machine.isa & (kIsaAvx512Bf16 | kIsaAmxBf16)) != 0;
  if (dtype == "float16" && !machine.synthetic && !has_fp16) {
    because("dtype", "float32", said + " acts as float32: this CPU has neither avx512_fp16 nor amx_fp16", true);
    dtype = "float32";
  } else if (dtype == "bfloat16" && !machine.synthetic && !has_bf16) {
    because("dtype", "bfloat16",
            said + " is emulated, and slower than float32: this CPU has neither avx512_bf16 nor amx_bf16 (--dtype auto or float32)", true);
  } else if (dtype == "auto") {
    because("dtype", "auto", "bfloat16 inside an operation where the CPU has it, the accuracy check passes and it is measured faster");
  } else {
    because("dtype", dtype, said);
  }
  set(env::name(env::Id::kDtype), dtype);
}

bool EnvDraft::is_given(const std::string& option) const {
  return std::find(options_.given.begin(), options_.given.end(), option) != options_.given.end();
}

std::string EnvDraft::source(const std::string& option, env::Id variable, const std::string& value) const {
  const auto& names = options_.from_env;
  const bool environment = std::find(names.begin(), names.end(), option) != names.end();
  return environment ? std::string(env::name(variable)) + "=" + value + " of the environment" : "--" + option + " " + value;
}

void EnvDraft::set_option(const std::string& option, env::Id variable, const std::string& value) {
  const std::string name = env::name(variable);
  const std::string own = user(name);
  set(name, value);
  const bool replaces = !own.empty() && own != value;
  because(option, value, source(option, variable, value) + (replaces ? " replaces " + name + "=" + own + " of the environment" : ""),
          replaces);
}

void EnvDraft::add_graph_mode() {
  if (!shim_active_ || (options_.graph_mode == "auto" && !is_given("graph-mode"))) return;
  set_option("graph-mode", env::Id::kGraphMode, options_.graph_mode);
}

/// A compiler beside the program would take its share of a small quota, which being nice does not prevent.
void EnvDraft::add_inductor(const Machine& machine) {
  if (!shim_active_) return;
  const std::string name = env::name(env::Id::kInductor);
  if (options_.inductor != "auto" || is_given("inductor")) {
    set_option("inductor", env::Id::kInductor, options_.inductor);
  } else if (machine.quota_cpus > 0 && machine.quota_cpus < kQuotaForCompiler && user(name).empty()) {
    because("inductor", "kept",
            "a CPU quota of " + decimal_text(machine.quota_cpus) + ": no compiler runs beside the program (--inductor)");
    set(name, "kept");
  }
}

void EnvDraft::add_select() {
  if (!shim_active_ || (options_.select == "fast" && !is_given("select"))) return;
  set_option("select", env::Id::kSelect, options_.select);
}

void EnvDraft::add_split_sgd() {
  if (!options_.split_sgd || options_.command == Command::kXpu) return;
  if (!shim_active_ || !options_.optimize)
    return because("split-sgd", "off", "--split-sgd needs the optimizations, which are not active here", true);
  because("split-sgd", "on", "--split-sgd: parameters that torch.optim.SGD steps are bfloat16 after its first step");
  set(env::name(env::Id::kSplitSgd), "1");
}

void EnvDraft::add_logs() {
  // As IPEX's launcher and run_cpu have it, by python -u.
  if (!options_.log_dir.empty())
    set_default("logs", "PYTHONUNBUFFERED", "1",
                "Python keeps what is printed into a pipe: the log would be behind, and end too early where a program is killed");
}

void EnvDraft::add_config_env() {
  for (const auto& [name, value] : options_.env) {
    const std::string own = user(name);
    if (name == "LD_PRELOAD" && env_.count(name) != 0) {
      set(name, value + ":" + env_[name]);  // ours stay: without them the rest of the plan does not hold
    } else {
      set(name, value);
    }
    const bool replaces = !own.empty() && own != value;
    because("env", name + "=" + value, replaces ? "the config replaces " + name + "=" + own + " of the environment" : "from the config",
            replaces);
  }
}

int EnvDraft::threads_for(std::size_t cpus) {
  const int planned = static_cast<int>(cpus);
  const std::string own = options_.env.count("OMP_NUM_THREADS") != 0 ? options_.env.at("OMP_NUM_THREADS") : user("OMP_NUM_THREADS");
  if (own.empty()) return planned;
  int value = 0;  // a list "4,2" gives the sizes of nested levels; the first one counts
  const auto [end, failure] = std::from_chars(own.data(), own.data() + own.size(), value);
  const bool valid = failure == std::errc() && value > 0 && (end == own.data() + own.size() || *end == ',');
  const bool from_config = options_.env.count("OMP_NUM_THREADS") != 0;
  const bool keep = valid && (from_config || !layout_asked(options_));
  if (!threads_said_ && (keep ? value != planned : value != planned || !valid)) {
    threads_said_ = true;
    const std::string seen = "OMP_NUM_THREADS=" + own;
    const std::string cores = count_text(cpus, "CPU");
    if (keep) {
      because("threads", std::to_string(value), seen + " of the " + (from_config ? "config" : "environment") + " is kept, for " + cores,
              !from_config);
    } else {
      because("threads", std::to_string(planned),
              seen + (valid ? " is replaced: the options ask for " + cores
                            : " is no number of threads: " + count_text(cpus, "thread") + (cpus == 1 ? " is used" : " are used")),
              true);
    }
  }
  kept_threads_ = keep ? own : "";
  return keep ? value : planned;
}

std::map<std::string, std::string> EnvDraft::for_instance(int index, std::size_t instances, int threads) const {
  std::map<std::string, std::string> out = env_;
  const std::string count = std::to_string(threads);
  out["OMP_NUM_THREADS"] = kept_threads_.empty() ? count : kept_threads_;
  if (user("TORCHINDUCTOR_COMPILE_THREADS").empty()) out.emplace("TORCHINDUCTOR_COMPILE_THREADS", count);
  out[env::name(env::Id::kInstance)] = std::to_string(index);
  out[env::name(env::Id::kInstances)] = std::to_string(instances);
  return out;
}

}  // namespace ipexrun::launcher
