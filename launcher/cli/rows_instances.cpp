// Options that say which cores and how many instances.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

namespace {

constexpr int kMostInstances = 65536;

/// A number, or the word auto.
OptionRow ninstances_row() {
  OptionRow out = number<int>(
      "ninstances", OptionGroup::kInstances, [](auto& o) -> auto& { return o.ninstances; }, 0, kMostInstances,
      "copies of PROGRAM to start, on equal slices of the cores; auto: as many as do the most work in sum (0: one)", "N|auto");
  out.set = [inner = out.set](Options& options, const std::string& value) -> Status {
    options.ninstances_auto = value == "auto";
    if (inner(options, options.ninstances_auto ? "0" : value).ok()) return ok_status();
    return bad_value("ninstances", "auto or a whole number from 0 to " + std::to_string(kMostInstances), value);
  };
  out.get = [inner = out.get](const Options& options) {
    return options.ninstances_auto ? std::vector<std::string>{"auto"} : inner(options);
  };
  return out;
}

OptionRow loader_cores_row() {
  OptionRow out = number<int>(
      "loader-cores", OptionGroup::kInstances, [](auto& o) -> auto& { return o.loader_cores; }, 0, kMostInstances,
      "cores of each instance kept for workers of DataLoaders, away from the cores that compute; auto: one of eight, from four on (0: "
      "none)",
      "N|auto");
  out.set = [inner = out.set](Options& options, const std::string& value) -> Status {
    if (value == "auto") {
      options.loader_cores = kLoaderCoresAuto;
      return ok_status();
    }
    if (inner(options, value).ok()) return ok_status();
    return bad_value("loader-cores", "auto or a whole number from 0 to " + std::to_string(kMostInstances), value);
  };
  out.get = [inner = out.get](const Options& options) {
    return options.loader_cores == kLoaderCoresAuto ? std::vector<std::string>{"auto"} : inner(options);
  };
  return out;
}

/// -1 stands for all of them, as in IPEX's launcher and in run_cpu.
OptionRow instance_idx_row() {
  OptionRow out = number_list(
      "instance-idx", OptionGroup::kInstances, [](auto& o) -> auto& { return o.instance_idx; },
      "start only these instances of the plan, e.g. 0,2 (-1: all)");
  out.set = [inner = out.set](Options& options, const std::string& value) -> Status {
    if (value != "-1") return inner(options, value);
    options.instance_idx.clear();
    return ok_status();
  };
  return out;
}

}  // namespace

void add_instance_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kInstances;
  rows.push_back(ninstances_row());
  rows.push_back(with_aliases(number<int>(
                                  "ncores-per-instance", group, [](auto& o) -> auto& { return o.ncores_per_instance; }, 0, kMostInstances,
                                  "cores of one instance; alone: as many instances as fit (0: decide)"),
                              {"ncore-per-instance"}));
  rows.push_back(loader_cores_row());
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
  rows.push_back(flag(
      "throughput-mode", group, [](auto& o) -> auto& { return o.throughput_mode; }, "one instance a NUMA node"));
  rows.push_back(with_aliases(instance_idx_row(), {"rank"}));
  rows.push_back(word("strategy", group, [](auto& o) -> auto& { return o.strategy; }, "WORD",
                      "where fewer instances than fit are placed: close together, or scattered over the machine", {"close", "scatter"}));
  rows.push_back(word("place", group, [](auto& o) -> auto& { return o.place; }, "WORD",
                      "keep each instance within one core, L3 cache domain, NUMA node or socket; alone: one instance on each",
                      {"core", "l3", "node", "socket"}));
  rows.push_back(flag(
      "skip-cross-node-cores", group, [](auto& o) -> auto& { return o.skip_cross_node_cores; },
      "leave cores unused rather than let an instance span two NUMA nodes"));
  rows.push_back(flag(
      "bind-numa-node", group, [](auto& o) -> auto& { return o.bind_numa_node; },
      "share the instances over the NUMA nodes; each node's instances divide its own cores"));
}

}  // namespace ipexrun::launcher
