#include "launcher/plan/instance_env.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "configs/contract/env.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// MALLOC_CONF of IPEX's launcher: big blocks in an arena of their own, purging in a thread, huge pages for jemalloc's own data.
constexpr const char* kJemallocConf = "oversize_threshold:1,background_thread:true,metadata_thp:auto";

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

/// Binding variables of the OpenMP runtimes; with our affinity they would be a second mechanism.
constexpr std::array<const char*, 3> kBindingVariables{"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};

bool binds(const std::string& value) { return !value.empty() && value != "false" && value != "FALSE" && value != "disabled"; }

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
  return options.ninstances > 0 || options.ncores_per_instance > 0 || !options.cores_list.empty() || !options.nodes_list.empty() ||
         options.latency_mode || options.throughput_mode || options.ninstances_auto || !options.place.empty();
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

void EnvDraft::add_libraries(bool pin) {
  if (context_.allocator_name == "jemalloc" && !context_.allocator_path.empty())
    set_default("allocator", "MALLOC_CONF", kJemallocConf, "fewer page faults with large tensors; memory is still given back");
  if (!context_.omp_runtime_path.empty()) {
    set_default("omp", "KMP_AFFINITY", "disabled", "the affinity is set once, before the program starts, and by nothing else");
    set_default("omp", "KMP_BLOCKTIME", "1", "waiting threads sleep after 1 ms instead of 200");
  }
  for (const char* name : kBindingVariables)
    if (pin && binds(user(name)))
      because("omp", std::string(name) + "=" + user(name),
              std::string(name) +
                  " of the environment binds threads as well; importing torch under it can leave one core to every later child (unset it)",
              true);
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
    if (entry == context_.shim) continue;
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
    because("omp", context_.omp_runtime_path.empty() ? "default" : "intel", context_.omp_reason);

  std::string problem = context_.shim.empty() ? context_.shim_problem : "";
  if (!context_.shim.empty() && !can_preload(context_.shim))
    problem = "its path '" + context_.shim + "' has a space or a colon, which LD_PRELOAD cannot hold";
  const bool shim = use != ShimUse::kNone && !context_.shim.empty() && problem.empty();
  if (options_.require_shim && !shim)
    return Error{kExitFailure, "--require-shim: the shim cannot be preloaded: " + problem, "ipexrun doctor says more"};
  shim_active_ = shim;
  if (shim) {
    ours.push_back(context_.shim);
    set(env::name(env::Id::kMode), use == ShimUse::kObserve ? "observe" : "optimize");
    set(env::name(env::Id::kLibDir), context_.lib_dir);
    set(env::name(env::Id::kInherit), options_.inherit);
    if (options_.require_shim) set(env::name(env::Id::kRequireShim), "1");
    if (options_.bench.enabled) set(env::name(env::Id::kBench), "1");
    because("preload", base_name(context_.shim),
            use == ShimUse::kObserve ? "observes module calls; every kernel stays stock" : "lets kernels of ours join the program's torch");
    if (options_.inherit != "all") because("preload", "inherit " + options_.inherit, "--inherit: which descendants keep the preload");
  } else if (use == ShimUse::kNone) {
    because("preload", "none", options_.command == Command::kXpu ? "ipexrun xpu launches only" : "--no-optimize: launch only");
  } else {
    because("preload", "none", "launch only: " + (problem.empty() ? "the shim is not there" : problem), true);
  }
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

void EnvDraft::add_dtype(const Machine& machine) {
  if (!shim_active_) return;
  std::string dtype = options_.dtype;
  const bool has_fp16 = (machine.isa & (kIsaAvx512Fp16 | kIsaAmxFp16)) != 0;
  if (dtype == "float16" && !machine.synthetic && !has_fp16) {
    because("dtype", "float32", "--dtype float16 acts as float32: this CPU has neither avx512_fp16 nor amx_fp16", true);
    dtype = "float32";
  } else if (dtype == "auto") {
    because("dtype", "auto", "bfloat16 inside an operation where the CPU has it, the accuracy check passes and it is measured faster");
  } else {
    because("dtype", dtype, "--dtype");
  }
  set(env::name(env::Id::kDtype), dtype);
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
              seen + (valid ? " is replaced: the options ask for " + cores : " is no number of threads"), true);
    }
  }
  return keep ? value : planned;
}

std::map<std::string, std::string> EnvDraft::for_instance(int index, std::size_t instances, int threads) const {
  std::map<std::string, std::string> out = env_;
  const std::string count = std::to_string(threads);
  if (options_.env.count("OMP_NUM_THREADS") == 0) out["OMP_NUM_THREADS"] = count;
  if (user("TORCHINDUCTOR_COMPILE_THREADS").empty()) out.emplace("TORCHINDUCTOR_COMPILE_THREADS", count);
  out[env::name(env::Id::kInstance)] = std::to_string(index);
  out[env::name(env::Id::kInstances)] = std::to_string(instances);
  return out;
}

}  // namespace ipexrun::launcher
