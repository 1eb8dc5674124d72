#include "launcher/option_table.h"

#include <algorithm>
#include <numeric>

#include "configs/contract/env.h"
#include "launcher/option_setters.h"

namespace ipexrun::launcher {
namespace {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders, used by this file only

constexpr int kMostInstances = 65536;
constexpr long kMostCalls = 1'000'000'000;
constexpr double kMostSeconds = 1e7;

void note(Options& options, std::string text) { options.notes.push_back(std::move(text)); }

OptionRow with_aliases(OptionRow row, std::vector<std::string> aliases) {
  row.aliases = std::move(aliases);
  return row;
}

OptionRow not_in_config(OptionRow row) {
  row.in_config = false;
  return row;
}

void add_instance_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kInstances;
  rows.push_back(number<int>(
      "ninstances", group, [](auto& o) -> auto& { return o.ninstances; }, 0, kMostInstances,
      "copies of PROGRAM to start, on equal slices of the cores (0: decide)"));
  rows.push_back(with_aliases(number<int>(
                                  "ncores-per-instance", group, [](auto& o) -> auto& { return o.ncores_per_instance; }, 0, kMostInstances,
                                  "cores of one instance; alone: as many instances as fit (0: decide)"),
                              {"ncore-per-instance"}));
  rows.push_back(with_aliases(
      number_list(
          "nodes-list", group, [](auto& o) -> auto& { return o.nodes_list; }, "use the cores of these NUMA nodes only, e.g. 0,2"),
      {"node-id"}));
  rows.push_back(with_aliases(number_list(
                                  "cores-list", group, [](auto& o) -> auto& { return o.cores_list; },
                                  "use these CPUs only (numbers of the operating system), e.g. 0-3,8"),
                              {"core-list"}));
  rows.push_back(with_aliases(flag(
                                  "use-logical-cores", group, [](auto& o) -> auto& { return o.use_logical_cores; },
                                  "use every hardware thread of a core, not only the first"),
                              {"use-logical-core"}));
  rows.push_back(flag(
      "use-e-cores", group, [](auto& o) -> auto& { return o.use_e_cores; }, "also use the E-cores of a hybrid CPU"));
  rows.push_back(flag(
      "latency-mode", group, [](auto& o) -> auto& { return o.latency_mode; }, "instances of 4 cores, as many as fit"));
  rows.push_back(with_aliases(flag(
                                  "throughput-mode", group, [](auto& o) -> auto& { return o.throughput_mode; }, "one instance a NUMA node"),
                              {"multi-instance"}));
  rows.push_back(with_aliases(
      number_list(
          "instance-idx", group, [](auto& o) -> auto& { return o.instance_idx; }, "start only these instances of the plan, e.g. 0,2"),
      {"rank"}));
  rows.push_back(word("strategy", group, [](auto& o) -> auto& { return o.strategy; }, "WORD",
                      "where fewer instances than fit are placed: close together, or scattered over the machine", {"close", "scatter"}));
  rows.push_back(with_aliases(flag(
                                  "skip-cross-node-cores", group, [](auto& o) -> auto& { return o.skip_cross_node_cores; },
                                  "leave cores unused rather than let an instance span two NUMA nodes"),
                              {"bind-numa-node"}));
}

void add_process_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kProcess;
  OptionRow dtype =
      word("dtype", group, [](auto& o) -> auto& { return o.dtype; }, "WORD",
           "arithmetic inside replaced operations; results keep the program's own dtype", {"auto", "float32", "bfloat16", "float16"});
  dtype.set = [inner = dtype.set](Options& options, const std::string& value) -> Status {
    options.dtype_given = true;
    return inner(options, value);
  };
  rows.push_back(std::move(dtype));
  rows.push_back(flag(
      "no-optimize", group, [](auto& o) -> auto& { return o.optimize; },
      "launch only: placement, variables and allocator, but no kernels of ours", false));
  rows.push_back(word("memory-allocator", group, [](auto& o) -> auto& { return o.memory_allocator; }, "WORD",
                      "malloc of the program; auto keeps its own, one that is named is probed first",
                      {"auto", "default", "jemalloc", "tcmalloc", "mimalloc"}));
  rows.push_back(word("omp-runtime", group, [](auto& o) -> auto& { return o.omp_runtime; }, "WORD",
                      "OpenMP runtime of the program; intel preloads libiomp5", {"auto", "default", "intel"}));
  OptionRow pack = word(
      "pack-memory", group, [](auto& o) -> auto& { return o.pack_memory; }, "BYTES", "upper bound of prepacked weight copies, e.g. 512M");
  pack.set = [](Options& options, const std::string& value) -> Status {
    if (!env::parse_bytes(value)) return bad_value("pack-memory", "bytes such as 512M or 2G", value);
    options.pack_memory = value;
    return ok_status();
  };
  rows.push_back(std::move(pack));
  rows.push_back(word("inherit", group, [](auto& o) -> auto& { return o.inherit; }, "WORD",
                      "which programs started by PROGRAM keep the preload", {"all", "python", "none"}));
  rows.push_back(flag(
      "require-shim", group, [](auto& o) -> auto& { return o.require_shim; }, "fail when the optimizations could not become active"));
  rows.push_back(flag(
      "no-pin", group, [](auto& o) -> auto& { return o.pin; }, "size the threads but leave the CPU affinity alone", false));
  rows.push_back(with_aliases(flag(
                                  "no-memory-bind", group, [](auto& o) -> auto& { return o.bind_memory; },
                                  "do not bind memory to the NUMA nodes of the cores", false),
                              {"disable-numactl"}));
}

void add_log_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kLogs;
  rows.push_back(with_aliases(
      word(
          "log-dir", group, [](auto& o) -> auto& { return o.log_dir; }, "DIR", "write each instance's output to a file of its own in DIR"),
      {"log-path"}));
  OptionRow prefix = word(
      "log-file-prefix", group, [](auto& o) -> auto& { return o.log_file_prefix; }, "NAME",
      "first part of the log files' names (default run)");
  prefix.set = [](Options& options, const std::string& value) -> Status {
    if (value.empty() || value.find('/') != std::string::npos)
      return bad_value("log-file-prefix", "a file name without '/'", value, "--log-dir names the folder");
    options.log_file_prefix = value;
    return ok_status();
  };
  rows.push_back(std::move(prefix));
}

void add_show_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kShow;
  rows.push_back(not_in_config(flag(
      "dry-run", group, [](auto& o) -> auto& { return o.dry_run; }, "print what would be started, and start nothing")));
  rows.push_back(not_in_config(flag(
      "json", group, [](auto& o) -> auto& { return o.json; }, "with --dry-run, topology, env or doctor: print JSON instead of a table")));
  rows.push_back(not_in_config(flag(
      "explain", group, [](auto& o) -> auto& { return o.explain; }, "say why each thing was chosen, then run")));
  rows.push_back(not_in_config(word(
      "topology", group, [](auto& o) -> auto& { return o.topology; }, "TEXT|FILE",
      "plan for a machine that is not there: \"node:2 core:28 pu:2\" or an hwloc XML file")));
  rows.push_back(not_in_config(word(
      "sysroot", group, [](auto& o) -> auto& { return o.sysroot; }, "DIR",
      "read limits (cgroups, /proc, /sys) below DIR instead of /, to plan only")));
  OptionRow config = row("config", group, "FILE", "read options from a YAML file; the command line beats it");
  config.in_config = false;
  config.set = [](Options&, const std::string& value) -> Status {
    if (value.empty()) return bad_value("config", "a file name", value);
    return ok_status();  // cli.cpp reads the file before it applies the command line
  };
  rows.push_back(std::move(config));
  rows.push_back(not_in_config(word(
      "save-config", group, [](auto& o) -> auto& { return o.save_config; }, "FILE", "write the options of this run to FILE")));
}

/// Every --bench-... option turns --bench on.
OptionRow bench(OptionRow row) {
  row.set = [inner = row.set](Options& options, const std::string& value) -> Status {
    Status done = inner(options, value);
    if (done.ok() && value != "false") options.bench.enabled = true;
    return done;
  };
  return row;
}

void add_bench_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kBench;
  rows.push_back(flag(
      "bench", group, [](auto& o) -> auto& { return o.bench.enabled; }, "measure throughput and latency, and report them"));
  rows.push_back(bench(number<int>(
      "bench-warmup", group, [](auto& o) -> auto& { return o.bench.warmup; }, 0, 1'000'000, "calls at the start that are left out")));
  rows.push_back(bench(number<long>(
      "bench-iters", group, [](auto& o) -> auto& { return o.bench.iters; }, 1L, kMostCalls, "calls to measure")));
  rows.push_back(bench(number<double>(
      "bench-seconds", group, [](auto& o) -> auto& { return o.bench.seconds; }, 0.001, kMostSeconds, "seconds to measure", "S")));
  OptionRow compare = row("bench-compare", group, "LIST", "also run stock (the plain program), or stock,launch, interleaved with this run");
  compare.set = [](Options& options, const std::string& value) -> Status {
    options.bench.compare.clear();
    for (std::size_t at = 0; at <= value.size();) {
      const std::size_t end = std::min(value.find(',', at), value.size());
      const std::string variant = value.substr(at, end - at);
      if (variant != "stock" && variant != "launch") return bad_value("bench-compare", "stock, launch or stock,launch", value);
      auto& list = options.bench.compare;
      if (std::find(list.begin(), list.end(), variant) == list.end()) list.push_back(variant);
      at = end + 1;
    }
    return ok_status();
  };
  compare.get = [](const Options& options) -> std::vector<std::string> {
    if (options.bench.compare.empty()) return {};
    return {std::accumulate(std::next(options.bench.compare.begin()), options.bench.compare.end(), options.bench.compare.front(),
                            [](const std::string& a, const std::string& b) { return a + "," + b; })};
  };
  rows.push_back(bench(std::move(compare)));
  rows.push_back(bench(number<int>(
      "bench-pairs", group, [](auto& o) -> auto& { return o.bench.pairs; }, 1, 1000, "rounds of --bench-compare")));
  OptionRow output = row("bench-output", group, "FILE", "write the report to FILE.json, .csv, .md or .html; may be repeated");
  output.set = [](Options& options, const std::string& value) -> Status {
    for (const char* suffix : {".json", ".csv", ".md", ".html"}) {
      if (!value.ends_with(suffix)) continue;
      options.bench.outputs.push_back(value);
      return ok_status();
    }
    return bad_value("bench-output", "a file name that ends in .json, .csv, .md or .html", value);
  };
  output.get = [](const Options& options) { return options.bench.outputs; };
  rows.push_back(bench(std::move(output)));
  rows.push_back(bench(word(
      "bench-metric", group, [](auto& o) -> auto& { return o.bench.metric; }, "REGEX",
      "a number that the program prints: a regular expression with one group")));
  rows.push_back(bench(flag(
      "bench-stop", group, [](auto& o) -> auto& { return o.bench.stop; }, "end the program once the measurement is complete")));
}

void add_compatible_rows(std::vector<OptionRow>& rows) {
  const auto allocator = [](const char* name, const char* which) {
    return compatible(
        name, "",
        [which](Options& options, const std::string&) -> Status {
          options.memory_allocator = which;
          return ok_status();
        },
        std::string("as --memory-allocator ") + which);
  };
  rows.push_back(allocator("enable-tcmalloc", "tcmalloc"));
  rows.push_back(allocator("enable-jemalloc", "jemalloc"));
  rows.push_back(allocator("use-default-allocator", "default"));
  rows.push_back(compatible(
      "disable-iomp", "",
      [](Options& options, const std::string&) -> Status {
        options.omp_runtime = "default";
        return ok_status();
      },
      "as --omp-runtime default"));
  rows.push_back(compatible(
      "disable-taskset", "",
      [](Options& options, const std::string&) -> Status {
        note(options, "--disable-taskset has no effect: affinity is set by a system call (--no-pin leaves it alone)");
        return ok_status();
      },
      "accepted, no effect: taskset is never used"));
  OptionRow manager = compatible(
      "multi-task-manager", "WORD",
      [](Options& options, const std::string& value) -> Status {
        const std::vector<std::string> known = {"auto", "none", "numactl", "taskset"};
        if (std::find(known.begin(), known.end(), value) == known.end())
          return bad_value("multi-task-manager", "one of auto, none, numactl, taskset", value);
        if (value == "none" || value == "taskset") options.bind_memory = false;
        note(options, "--multi-task-manager " + value + ": no external tool is used; CPUs are set by a system call, memory is " +
                          (options.bind_memory ? "bound where it helps" : "not bound"));
        return ok_status();
      },
      "numactl and auto: the default; taskset and none: as --no-memory-bind");
  manager.choices = {"auto", "none", "numactl", "taskset"};
  rows.push_back(std::move(manager));
  const auto accepted = [](const char* name, const char* text) {
    return compatible(
        name, "",
        [line = std::string("--") + name + ": " + text](Options& options, const std::string&) -> Status {
          note(options, line);
          return ok_status();
        },
        text);
  };
  rows.push_back(accepted("auto-ipex", "always on here, and the script is not rewritten (--no-optimize turns it off)"));
  rows.push_back(accepted("auto-ipex-verbose", "IPEXRUN_LOG=info says more"));
  rows.push_back(accepted("disable-ipex-graph-mode", "no effect: this version replaces single operations, not graphs"));
}

void add_later_rows(std::vector<OptionRow>& rows) {
  rows.push_back(refused("benchmark", "", "its allocator profile never gives memory back, so it is not offered",
                         "--bench measures a program; MALLOC_CONF is passed through", OptionGroup::kCompatible));
  const char* distributed = "runs on several hosts or ranks come with a later version";
  const char* hint = "start ipexrun under torchrun, mpirun or srun on each host meanwhile";
  rows.push_back(refused("nnodes", "N", distributed, hint));
  rows.push_back(with_aliases(refused("nprocs-per-node", "N", distributed, hint), {"nproc-per-node"}));
  rows.push_back(refused("hostfile", "FILE", distributed, hint));
  rows.push_back(refused("master-addr", "ADDRESS", distributed, hint));
  rows.push_back(refused("master-port", "PORT", distributed, hint));
  rows.push_back(refused("extra-mpi-params", "TEXT", distributed, hint));
  rows.push_back(refused("ccl-worker-count", "N", distributed, hint));
  rows.push_back(refused("logical-cores-for-ccl", "", distributed, hint));
  rows.push_back(refused("distributed", "", distributed, hint));
  rows.push_back(refused("verify", "", "comparing a whole run with stock comes with a later version",
                         "--bench-compare stock compares the speed of the two"));
  rows.push_back(refused("crash-report", "", "stack traces of a crash come with a later version", ""));
}

std::string dashes(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

/// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> previous(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::vector<std::size_t> current(b.size() + 1);
    current[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j)
      current[j + 1] = std::min({previous[j + 1] + 1, current[j] + 1, previous[j] + (a[i] == b[j] ? 0 : 1)});
    previous = std::move(current);
  }
  return previous.back();
}

}  // namespace

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> rows;
    add_instance_rows(rows);
    add_process_rows(rows);
    add_log_rows(rows);
    add_show_rows(rows);
    add_bench_rows(rows);
    add_compatible_rows(rows);
    add_later_rows(rows);
    return rows;
  }();
  return table;
}

std::string_view group_title(OptionGroup group) {
  switch (group) {
    case OptionGroup::kInstances:
      return "Instances and cores";
    case OptionGroup::kProcess:
      return "How the program runs";
    case OptionGroup::kLogs:
      return "Logs";
    case OptionGroup::kShow:
      return "Plans and settings";
    case OptionGroup::kBench:
      return "Benchmark";
    case OptionGroup::kCompatible:
      return "Names of other launchers";
    case OptionGroup::kLater:
      return "Known, with a later version";
  }
  return "";
}

const OptionRow* find_option(std::string_view long_name) {
  const std::string wanted = dashes(long_name);
  for (const OptionRow& row : option_table())
    if (row.name == wanted || std::find(row.aliases.begin(), row.aliases.end(), wanted) != row.aliases.end()) return &row;
  return nullptr;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(dashes(word), candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::vector<std::string> option_names() {
  std::vector<std::string> out = {"help", "version", "module", "no-python"};
  for (const OptionRow& row : option_table()) {
    out.push_back(row.name);
    out.insert(out.end(), row.aliases.begin(), row.aliases.end());
  }
  return out;
}

}  // namespace ipexrun::launcher
