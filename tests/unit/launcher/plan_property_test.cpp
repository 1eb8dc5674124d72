// What must hold on every machine, tried on thousands of made-up ones. The generator is a fixed one, so a failure repeats.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

struct Case {
  Machine machine;
  Options options = made_up::options();
};

int pick(std::mt19937& random, int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); }

Case random_case(std::mt19937& random) {
  Case out;
  std::vector<int> sizes;
  const int nodes = pick(random, 1, 8);
  for (int i = 0; i < nodes; ++i) sizes.push_back(pick(random, 1, 12));
  out.machine = made_up::machine(sizes, pick(random, 1, 2));
  // CPU numbers in any order, holes included: nothing may depend on them.
  std::vector<int> numbers(static_cast<std::size_t>(out.machine.total_pus) * 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i);
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (Core& core : out.machine.cores)
    for (int& pu : core.pus) pu = numbers[static_cast<std::size_t>(pu)];
  if (pick(random, 0, 2) == 0) out.machine.quota_cpus = pick(random, 1, 400) / 10.0;
  out.options.use_logical_cores = pick(random, 0, 3) == 0;
  out.options.skip_cross_node_cores = pick(random, 0, 3) == 0;
  if (pick(random, 0, 3) == 0) out.options.strategy = "scatter";
  switch (pick(random, 0, 5)) {
    case 0:
      out.options.latency_mode = true;
      break;
    case 1:
      out.options.throughput_mode = true;
      break;
    case 2:
      out.options.ninstances = pick(random, 1, 12);
      break;
    case 3:
      out.options.ncores_per_instance = pick(random, 1, 12);
      break;
    case 4:
      out.options.ninstances = pick(random, 1, 6);
      out.options.ncores_per_instance = pick(random, 1, 6);
      break;
    default:
      break;
  }
  return out;
}

/// Free CPUs of a node, as the planner may use them.
std::map<int, std::size_t> units_by_node(const Case& one, const std::set<int>& used) {
  std::map<int, std::size_t> out;
  for (const Core& core : one.machine.cores)
    for (std::size_t pu = 0; pu < (one.options.use_logical_cores ? core.pus.size() : 1); ++pu)
      if (used.count(core.pus[pu]) == 0) ++out[core.node];
  return out;
}

/// Rounded down, but two threads from 1.5 CPUs on.
std::size_t threads_of(double quota) { return quota >= 1.5 && quota < 2 ? 2 : static_cast<std::size_t>(std::max(1.0, std::floor(quota))); }

TEST(PlanProperty, holds_on_thousands_of_machines) {
  std::mt19937 random(20260102);
  int planned = 0;
  for (int round = 0; round < 6000; ++round) {
    const Case one = random_case(random);
    const auto plan = make_plan(one.options, one.machine, made_up::context());
    const std::string where = "round " + std::to_string(round);
    if (!plan.ok()) {
      EXPECT_EQ(plan.error().code, kExitUsage) << where;
      const bool asked = one.options.ninstances > 0 || one.options.ncores_per_instance > 0;
      EXPECT_TRUE(asked) << where << ": only an explicit number may be impossible, not " << plan.error().line();
      continue;
    }
    ++planned;
    std::set<int> allowed;
    std::map<int, int> node_of;
    for (const Core& core : one.machine.cores)
      for (const int pu : core.pus) {
        allowed.insert(pu);
        node_of[pu] = core.node;
      }
    std::set<int> used;
    std::size_t sum = 0;
    for (const InstancePlan& instance : plan->instances) {
      ASSERT_FALSE(instance.cpus.empty()) << where;
      EXPECT_TRUE(std::is_sorted(instance.cpus.begin(), instance.cpus.end())) << where;
      std::set<int> nodes;
      for (const int cpu : instance.cpus) {
        EXPECT_EQ(allowed.count(cpu), 1u) << where << ": CPU " << cpu << " is not allowed";
        EXPECT_TRUE(used.insert(cpu).second) << where << ": CPU " << cpu << " is used twice";
        nodes.insert(node_of[cpu]);
      }
      sum += instance.cpus.size();
      EXPECT_EQ(std::vector<int>(nodes.begin(), nodes.end()), instance.numa_nodes) << where;
      EXPECT_EQ(instance.threads, static_cast<int>(instance.cpus.size())) << where;
      if (one.options.ncores_per_instance > 0) {
        EXPECT_EQ(instance.cpus.size(), static_cast<std::size_t>(one.options.ncores_per_instance)) << where;
      }
      if (one.options.skip_cross_node_cores) {
        EXPECT_EQ(nodes.size(), 1u) << where << ": --skip-cross-node-cores";
      }
    }
    if (one.options.ninstances > 0) {
      EXPECT_EQ(plan->instances.size(), static_cast<std::size_t>(one.options.ninstances)) << where;
    }
    const double quota = one.machine.quota_cpus;
    if (quota > 0) {
      EXPECT_LE(sum, threads_of(quota)) << where;
      EXPECT_EQ(plan->pin, quota >= static_cast<double>(allowed.size())) << where;
    }

    // An instance spans nodes only if its size did not fit into what the others leave free on some node.
    if (one.machine.quota_cpus == 0 && plan->instances.size() > 1) {
      for (const InstancePlan& instance : plan->instances) {
        if (instance.numa_nodes.size() < 2) continue;
        for (const auto& [node, free] : units_by_node(one, used)) EXPECT_LT(free, instance.cpus.size()) << where << " node " << node;
      }
    }
    if (round % 20 == 0) {
      EXPECT_EQ(plan_json(*plan), plan_json(*make_plan(one.options, one.machine, made_up::context()))) << where << ": not deterministic";
    }
  }
  EXPECT_GT(planned, 4000) << "most of the cases must be plannable, else little was tested";
}

}  // namespace
}  // namespace ipexrun::launcher
