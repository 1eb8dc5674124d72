// Options that say how an instance runs, and where its output goes.
#include "configs/contract/env.h"
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

namespace {

/// One of the choices, or the absolute path of a library.
template <typename Access>
OptionRow word_or_library(const std::string& name, OptionGroup group, Access access, const std::string& help,
                          const std::vector<std::string>& choices) {
  OptionRow row = word(name, group, access, "WORD|FILE", help, choices);
  row.set = [access, name, inner = row.set](Options& options, const std::string& value) -> Status {
    if (value.find('/') == std::string::npos) return inner(options, value);
    if (value.front() != '/') return bad_value(name, "an absolute path or a name", value);
    access(options) = value;
    return ok_status();
  };
  return row;
}

/// A variable says the same where the option is not given.
OptionRow said_by(env::Id variable, OptionRow row) {
  row.variable = variable;
  return row;
}

}  // namespace

void add_process_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kProcess;
  rows.push_back(said_by(env::Id::kDtype, word("dtype", group, [](auto& o) -> auto& { return o.dtype; }, "WORD",
                                               "arithmetic inside replaced operations; results keep the program's own dtype",
                                               {"auto", "float32", "bfloat16", "float16"})));
  rows.push_back(
      said_by(env::Id::kGraphMode,
              word("graph-mode", group, [](auto& o) -> auto& { return o.graph_mode; }, "WORD",
                   "capture modules that are called again and again, in inference and in training: where it wins; dynamo: all, at once, "
                   "without a race; trace: by a TorchScript trace of one of the program's own calls (inference), where that wins; off",
                   {"auto", "dynamo", "trace", "off"})));
  rows.push_back(said_by(
      env::Id::kInductor,
      word("inductor", group, [](auto& o) -> auto& { return o.inductor; }, "WORD",
           "parts of captured graphs that torch's Inductor compiles beside the program, at low priority, where a module was used for "
           "long, g++ is there and that wins; kept: only what earlier runs compiled; off",
           {"auto", "kept", "off"})));
  rows.push_back(
      said_by(env::Id::kSelect,
              word("select", group, [](auto& o) -> auto& { return o.select; }, "WORD",
                   "how much measuring of kernels and captured forms may cost: at most an eighth of the time in operators and half of "
                   "what it saves; thorough: four times as much; off: no timing decides, stock answers",
                   {"fast", "thorough", "off"})));
  rows.push_back(flag(
      "split-sgd", group, [](auto& o) -> auto& { return o.split_sgd; },
      "training: weights of linear layers and convolutions that torch.optim.SGD steps become bfloat16, with their low halves beside the "
      "optimizer; saves memory, and the program sees bfloat16 parameters (docs/training.md)"));
  rows.push_back(flag(
      "no-optimize", group, [](auto& o) -> auto& { return o.optimize; },
      "launch only: placement, variables and allocator, but no kernels of ours", false));
  rows.push_back(word_or_library("memory-allocator", group, [](auto& o) -> auto& { return o.memory_allocator; },
                                 "malloc of the program; auto keeps its own, another one is probed first",
                                 {"auto", "default", "jemalloc", "tcmalloc", "mimalloc"}));
  rows.push_back(word("memory", group, [](auto& o) -> auto& { return o.memory; }, "WORD",
                      "memory profile: bounded limits what caches and malloc keep, throughput spends memory on speed",
                      {"default", "bounded", "throughput"}));
  rows.push_back(word_or_library("omp-runtime", group, [](auto& o) -> auto& { return o.omp_runtime; },
                                 "OpenMP runtime of the program; intel preloads libiomp5, llvm libomp",
                                 {"auto", "default", "intel", "llvm"}));
  OptionRow pack = word(
      "pack-memory", group, [](auto& o) -> auto& { return o.pack_memory; }, "BYTES", "upper bound of prepacked weight copies, e.g. 512M");
  pack.set = [](Options& options, const std::string& value) -> Status {
    if (!env::parse_bytes(value)) return bad_value("pack-memory", "bytes such as 512M or 2G", value);
    options.pack_memory = value;
    return ok_status();
  };
  rows.push_back(std::move(pack));
  rows.push_back(said_by(env::Id::kInherit, word("inherit", group, [](auto& o) -> auto& { return o.inherit; }, "WORD",
                                                 "which programs started by PROGRAM keep the preload", {"all", "python", "none"})));
  rows.push_back(flag(
      "require-shim", group, [](auto& o) -> auto& { return o.require_shim; }, "fail when the optimizations could not become active"));
  rows.push_back(flag(
      "crash-report", group, [](auto& o) -> auto& { return o.crash_report; },
      "a process that crashes writes its stack to stderr, and whether ipexrun's code was on it"));
  rows.push_back(flag(
      "pin", group, [](auto& o) -> auto& { return o.pin_asked; },
      "pin even where a CPU quota says that others share the CPUs, and each rank of one core to its own"));
  rows.push_back(flag(
      "no-pin", group, [](auto& o) -> auto& { return o.pin; }, "size the threads but leave the CPU affinity alone", false));
  rows.push_back(with_aliases(flag(
                                  "no-memory-bind", group, [](auto& o) -> auto& { return o.bind_memory; },
                                  "do not bind memory to the NUMA nodes of the cores", false),
                              {"disable-numactl"}));
}

}  // namespace ipexrun::launcher
