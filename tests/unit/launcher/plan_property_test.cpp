// What must hold on every machine, tried on thousands of made-up ones. The generator is a fixed one, so a failure repeats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

using Random = std::mt19937;

int pick(Random& random, int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); }
bool one_in(Random& random, int n) { return pick(random, 1, n) == 1; }

/// Nodes of any sizes, L3 domains inside them or across them, packages of several nodes or nodes of several packages, E-cores, threads
/// that are not all allowed, CPU numbers in any order with holes.
Machine random_machine(Random& random) {
  std::vector<int> sizes;
  const int nodes = pick(random, 1, one_in(random, 10) ? 16 : 6);
  for (int i = 0; i < nodes; ++i) sizes.push_back(pick(random, 1, 12));
  Machine out = made_up::machine(sizes, pick(random, 1, one_in(random, 8) ? 8 : 2));
  if (!one_in(random, 3)) out = made_up::with_l3(std::move(out), pick(random, 1, 8));
  if (one_in(random, 12))
    for (std::size_t i = 0; i < out.cores.size(); ++i) out.cores[i].l3 = static_cast<int>(i / 5);  // no respect for nodes
  out = made_up::with_packages(std::move(out), pick(random, 1, 4));
  if (one_in(random, 12))
    for (std::size_t i = 0; i < out.cores.size(); ++i) out.cores[i].package = static_cast<int>(i / 3);
  std::vector<int> numbers(static_cast<std::size_t>(out.total_pus) * 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i);
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (Core& core : out.cores) {
    for (int& pu : core.pus) pu = numbers[static_cast<std::size_t>(pu)];
    if (one_in(random, 6)) core.pus.resize(static_cast<std::size_t>(pick(random, 1, static_cast<int>(core.pus.size()))));
  }
  if (one_in(random, 5))
    for (Core& core : out.cores) core.efficient = one_in(random, 2);
  for (NumaNode& node : out.nodes) {
    if (one_in(random, 8)) node.memory_allowed = false;
    node.memory_bytes = one_in(random, 8) ? 0 : static_cast<std::uint64_t>(pick(random, 1, 64)) << 30;
  }
  if (one_in(random, 5)) out.nodes.push_back({nodes + 3, 1ull << 36, true, false});
  if (one_in(random, 3)) out.quota_cpus = pick(random, 1, 400) / 10.0;
  if (one_in(random, 4)) out.max_threads = pick(random, 1, 400);
  if (one_in(random, 3)) out.memory_limit_bytes = static_cast<std::uint64_t>(pick(random, 1, 128)) << 29;
  if (one_in(random, 3)) out.memory_available_bytes = static_cast<std::uint64_t>(pick(random, 1, 128)) << 29;
  if (one_in(random, 10)) out.memory_policy = "bind:0";
  return out;
}

/// Any options, contradictions included: cli.cpp refuses some of them, the planner must not fall over any.
Options random_options(Random& random, const Machine& machine) {
  Options out = made_up::options();
  out.use_logical_cores = one_in(random, 4);
  out.skip_cross_node_cores = one_in(random, 5);
  out.bind_numa_node = one_in(random, 8);
  out.use_e_cores = one_in(random, 3);
  if (one_in(random, 4)) out.strategy = "scatter";
  if (one_in(random, 3)) out.place = std::vector<std::string>{"core", "l3", "node", "socket"}[random() % 4];
  out.pin_asked = one_in(random, 6);
  out.pin = !one_in(random, 10);
  out.bind_memory = !one_in(random, 10);
  out.latency_mode = one_in(random, 8);
  out.throughput_mode = one_in(random, 8);
  if (one_in(random, 2)) out.ninstances = pick(random, 1, 12);
  if (one_in(random, 3)) out.ncores_per_instance = pick(random, 1, 12);
  if (one_in(random, 4)) {
    out.ninstances = 0;
    out.ninstances_auto = true;
  }
  if (one_in(random, 8))
    for (const Core& core : machine.cores)
      if (one_in(random, 2)) out.cores_list.push_back(core.pus[random() % core.pus.size()]);
  if (out.cores_list.empty() && one_in(random, 8)) out.nodes_list = {machine.cores[random() % machine.cores.size()].node};
  return out;
}

std::size_t threads_of(double quota) {
  if (quota >= 1.5 && quota < 2) return 2;
  return static_cast<std::size_t>(std::max(1.0, std::floor(quota + 1e-9)));
}

/// For a failure's message.
std::string options_text(const Options& o) {
  const auto flag = [](bool on, const char* name) { return on ? std::string(" --") + name : std::string(); };
  std::string out =
      "ninstances " + (o.ninstances_auto ? "auto" : std::to_string(o.ninstances)) + " ncores " + std::to_string(o.ncores_per_instance);
  if (!o.place.empty()) out += " --place " + o.place;
  if (!o.cores_list.empty()) out += " --cores-list " + cpu_list_text(o.cores_list);
  if (!o.nodes_list.empty()) out += " --nodes-list " + cpu_list_text(o.nodes_list);
  return out + flag(o.use_logical_cores, "use-logical-cores") + flag(o.skip_cross_node_cores, "skip-cross-node-cores") +
         flag(o.bind_numa_node, "bind-numa-node") + flag(o.use_e_cores, "use-e-cores") + flag(o.strategy == "scatter", "strategy scatter") +
         flag(o.pin_asked, "pin") + flag(!o.pin, "no-pin") + flag(o.latency_mode, "latency-mode") +
         flag(o.throughput_mode, "throughput-mode");
}

/// Says at the end of a round which one failed; a SCOPED_TRACE would make the text for each of thousands.
class FailureText {
 public:
  FailureText(int round, const Options& options, const Machine& machine) : round_(round), options_(options), machine_(machine) {}
  FailureText(const FailureText&) = delete;
  FailureText& operator=(const FailureText&) = delete;
  ~FailureText() {
    if (testing::Test::HasFailure())
      ADD_FAILURE() << "round " << round_ << ": " << options_text(options_) << "\n" << machine_text(machine_);
  }

 private:
  int round_;
  const Options& options_;
  const Machine& machine_;
};

/// A machine, a wish and the plan, with what the checks below need to know of them.
class Checked {
 public:
  Checked(const Machine& machine, const Options& options, const LaunchPlan& plan) : machine_(machine), options_(options), plan_(plan) {
    for (const Core& core : machine.cores)
      for (const int pu : core.pus) core_of_[pu] = &core;
    for (const InstancePlan& instance : plan.instances) used_.insert(instance.cpus.begin(), instance.cpus.end());
  }

  void disjoint_and_allowed() const {
    std::set<int> seen;
    for (const InstancePlan& instance : plan_.instances) {
      ASSERT_FALSE(instance.cpus.empty());
      EXPECT_TRUE(std::is_sorted(instance.cpus.begin(), instance.cpus.end()));
      std::set<int> nodes;
      for (const int cpu : instance.cpus) {
        ASSERT_EQ(core_of_.count(cpu), 1u) << "CPU " << cpu << " is not allowed";
        EXPECT_TRUE(seen.insert(cpu).second) << "CPU " << cpu << " is used twice";
        nodes.insert(core_of_.at(cpu)->node);
      }
      EXPECT_EQ(std::vector<int>(nodes.begin(), nodes.end()), instance.numa_nodes);
    }
  }

  void within_the_lists() const {
    for (const int cpu : used_) {
      if (!options_.cores_list.empty()) {
        EXPECT_NE(std::find(options_.cores_list.begin(), options_.cores_list.end(), cpu), options_.cores_list.end());
      }
      if (!options_.nodes_list.empty()) {
        EXPECT_EQ(core_of_.at(cpu)->node, options_.nodes_list.front());
      }
    }
  }

  void one_thread_a_core() const {
    if (options_.use_logical_cores) return;
    std::set<const Core*> cores;
    for (const int cpu : used_) {
      EXPECT_TRUE(cores.insert(core_of_.at(cpu)).second) << "two hardware threads of one core";
      if (options_.cores_list.empty()) {
        EXPECT_EQ(cpu, core_of_.at(cpu)->pus.front()) << "not the first CPU of its core";
      }
    }
  }

  void quota() const {
    if (machine_.quota_cpus <= 0) return;
    EXPECT_LE(used_.size(), threads_of(machine_.quota_cpus));
    const bool shared = machine_.quota_cpus < static_cast<double>(core_of_.size());
    const bool asked = options_.pin_asked || !options_.cores_list.empty();
    EXPECT_EQ(plan_.pin, options_.pin && (!shared || asked));
  }

  void threads() const {
    long needed = 0;
    bool at_least_one = true;
    for (const InstancePlan& instance : plan_.instances) {
      EXPECT_GE(instance.threads, 1);
      EXPECT_LE(instance.threads, static_cast<int>(instance.cpus.size()));
      at_least_one = at_least_one && instance.threads > 1;
      needed += instance.threads + 16;
    }
    if (machine_.max_threads == 0) {
      for (const InstancePlan& instance : plan_.instances) EXPECT_EQ(instance.threads, static_cast<int>(instance.cpus.size()));
    } else if (at_least_one) {
      EXPECT_LE(needed, machine_.max_threads);
    }
  }

  void memory() const {
    for (const InstancePlan& instance : plan_.instances) {
      if (instance.memory_policy != MemoryPolicy::kBind) continue;
      EXPECT_TRUE(plan_.pin && options_.bind_memory && machine_.memory_policy.empty());
      for (const NumaNode& node : machine_.nodes)
        if (std::binary_search(instance.numa_nodes.begin(), instance.numa_nodes.end(), node.os_index)) {
          EXPECT_TRUE(node.memory_allowed);
        }
    }
  }

  void the_numbers_asked_for() const {
    if (options_.latency_mode || options_.throughput_mode) return;
    if (options_.ninstances > 0) {
      EXPECT_EQ(plan_.instances.size(), static_cast<std::size_t>(options_.ninstances));
    }
    for (const InstancePlan& instance : plan_.instances) {
      if (options_.ncores_per_instance > 0) {
        EXPECT_EQ(instance.cpus.size(), static_cast<std::size_t>(options_.ncores_per_instance));
      }
      if (options_.ninstances > 0 && !options_.bind_numa_node) {
        EXPECT_EQ(instance.cpus.size(), plan_.instances.front().cpus.size()) << "equal slices";
      }
    }
  }

  void inside_its_domain() const {
    if (options_.throughput_mode) return;
    for (const InstancePlan& instance : plan_.instances) {
      const Core& first = *core_of_.at(instance.cpus.front());
      for (const int cpu : instance.cpus) {
        const Core& core = *core_of_.at(cpu);
        if (options_.place == "core") {
          EXPECT_EQ(&core, &first);
        }
        if (options_.place == "l3") {
          EXPECT_TRUE(core.l3 == first.l3 && core.node == first.node);
        }
        if (options_.place == "socket") {
          EXPECT_EQ(core.package, first.package);
        }
        if (options_.place == "node" || options_.skip_cross_node_cores || options_.bind_numa_node) {
          EXPECT_EQ(core.node, first.node);
        }
      }
    }
  }

  /// An instance of several domains is a last resort: what is left over in each single one is too little for it.
  void no_needless_straddling() const {
    if (plan_.instances.size() < 2 || machine_.quota_cpus > 0 || options_.ninstances_auto || !options_.cores_list.empty()) return;
    if (options_.place == "socket" || (options_.bind_numa_node && options_.ninstances > 0)) return;
    std::map<std::pair<int, int>, std::size_t> free_node;
    std::map<std::tuple<int, int, int>, std::size_t> free_l3;
    std::map<std::tuple<int, int, int>, std::size_t> all_l3;
    for (const Core& core : machine_.cores) {
      if (!options_.nodes_list.empty() && core.node != options_.nodes_list.front()) continue;
      if (core.efficient && !options_.use_e_cores) continue;
      for (std::size_t pu = 0; pu < (options_.use_logical_cores ? core.pus.size() : 1); ++pu) {
        ++all_l3[{core.node, core.package, core.l3}];
        if (used_.count(core.pus[pu]) != 0) continue;
        ++free_node[{core.node, 0}];
        ++free_l3[{core.node, core.package, core.l3}];
      }
    }
    for (const InstancePlan& instance : plan_.instances) {
      std::set<int> l3;
      for (const int cpu : instance.cpus) l3.insert(core_of_.at(cpu)->l3);
      if (instance.numa_nodes.size() > 1) {
        for (const auto& [node, free] : free_node) EXPECT_LT(free, instance.cpus.size()) << "room on node " << node.first;
      }
      if (l3.size() > 1) {
        for (const auto& [domain, free] : free_l3) EXPECT_LT(free, instance.cpus.size()) << "room in L3 domain " << std::get<2>(domain);
      }
    }
  }

  /// What a person is told is said in whole sentences and never twice.
  void reasons() const {
    std::set<std::string> said;
    for (const Reason& reason : plan_.reasons) {
      EXPECT_FALSE(reason.text.empty());
      EXPECT_EQ(reason.text.find("  "), std::string::npos) << reason.text;
      EXPECT_TRUE(said.insert(reason.subject + reason.value + reason.text).second) << "said twice: " << reason.text;
    }
    const bool spans =
        std::any_of(plan_.instances.begin(), plan_.instances.end(), [](const auto& one) { return one.numa_nodes.size() > 1; });
    EXPECT_EQ(made_up::has_reason(plan_, "instances", "spans nodes"), spans && plan_.pin);
  }

 private:
  const Machine& machine_;
  const Options& options_;
  const LaunchPlan& plan_;
  std::map<int, const Core*> core_of_;
  std::set<int> used_;
};

bool numbers_asked(const Options& options) { return options.ninstances > 0 || options.ncores_per_instance > 0; }

// Under sanitizers, where a plan takes ten times as long, the first machines do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShare = 5;
#else
constexpr int kShare = 1;
#endif

TEST(PlanProperty, holds_on_thousands_of_machines) {
  Random random(20260102);
  int planned = 0;
  for (int round = 0; round < 5000 / kShare && !testing::Test::HasFailure(); ++round) {
    const Machine machine = random_machine(random);
    const Options options = random_options(random, machine);
    const FailureText text(round, options, machine);
    const auto plan = make_plan(options, machine, made_up::context());
    if (!plan.ok()) {
      EXPECT_EQ(plan.error().code, kExitUsage);
      EXPECT_TRUE(numbers_asked(options)) << "only an explicit number may be impossible, not " << plan.error().line();
      EXPECT_EQ(plan.error().line().find('\n'), std::string::npos);
      continue;
    }
    ++planned;
    ASSERT_FALSE(plan->instances.empty());
    const Checked checked(machine, options, *plan);
    checked.disjoint_and_allowed();
    checked.within_the_lists();
    checked.one_thread_a_core();
    checked.quota();
    checked.threads();
    checked.memory();
    checked.the_numbers_asked_for();
    checked.inside_its_domain();
    checked.no_needless_straddling();
    checked.reasons();
    if (round % 20 == 0) {
      EXPECT_EQ(plan_json(*plan), plan_json(*make_plan(options, machine, made_up::context()))) << "not deterministic";
    }
  }
  EXPECT_GT(planned, 3000 / kShare) << "most of the cases must be plannable, else little was tested";
}

TEST(PlanProperty, auto_always_plans_and_uses_every_core_that_memory_and_threads_allow) {
  Random random(7);
  for (int round = 0; round < 2000 / kShare && !testing::Test::HasFailure(); ++round) {
    const Machine machine = random_machine(random);
    Options options = made_up::options();
    options.ninstances_auto = true;
    options.use_e_cores = true;
    options.use_logical_cores = one_in(random, 3);
    const FailureText text(round, options, machine);
    const auto plan = make_plan(options, machine, made_up::context());
    ASSERT_TRUE(plan.ok()) << plan.error().line();
    const Checked checked(machine, options, *plan);
    checked.disjoint_and_allowed();
    checked.quota();
    checked.reasons();
    std::size_t used = 0;
    for (const InstancePlan& instance : plan->instances) used += instance.cpus.size();
    EXPECT_FALSE(made_up::has_reason(*plan, "cores", "no instance uses"));
    const std::uint64_t bytes = machine.memory_available_bytes > 0 ? machine.memory_available_bytes : machine.memory_limit_bytes;
    if (bytes > 0) {
      EXPECT_LE(plan->instances.size(), std::max<std::uint64_t>(1, bytes >> 31));
    }
    long needed = 0;
    for (const InstancePlan& instance : plan->instances) needed += static_cast<long>(instance.cpus.size()) + 16;
    if (machine.max_threads > 0 && plan->instances.size() > 1) {
      EXPECT_LE(needed, machine.max_threads);
    }
  }
}

TEST(PlanProperty, a_default_plan_exists_for_every_machine) {
  Random random(11);
  for (int round = 0; round < 1500 / kShare; ++round) {
    const Machine machine = random_machine(random);
    for (const char* place : {"", "core", "l3", "node", "socket"}) {
      Options options = made_up::options();
      options.place = place;
      EXPECT_TRUE(make_plan(options, machine, made_up::context()).ok()) << round << " " << place;
    }
    for (const bool latency : {false, true}) {
      Options options = made_up::options();
      (latency ? options.latency_mode : options.throughput_mode) = true;
      EXPECT_TRUE(make_plan(options, machine, made_up::context()).ok()) << round;
    }
  }
}

}  // namespace
}  // namespace ipexrun::launcher
