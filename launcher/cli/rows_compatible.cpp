// Names of IPEX's launcher and of run_cpu that mean something else here, or nothing.
#include <algorithm>

#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

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
      "multi-instance", "",
      [](Options& options, const std::string&) -> Status {
        options.multi_instance = true;
        return ok_status();
      },
      "as --throughput-mode, unless another option says how many instances"));
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
  rows.push_back(compatible(
      "disable-ipex-graph-mode", "",
      [](Options& options, const std::string&) -> Status {
        options.graph_mode = "off";
        note(options, "--disable-ipex-graph-mode: as --graph-mode off");
        return ok_status();
      },
      "as --graph-mode off"));
}

}  // namespace ipexrun::launcher
