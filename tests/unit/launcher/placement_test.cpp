// Which CPUs an instance gets: the rules of docs/launcher.md, one sentence a test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

using made_up::context;
using made_up::has_reason;
using made_up::machine;
using made_up::options;
using testing::ElementsAre;
using testing::HasSubstr;

/// "0-3|4-7": the CPUs of each instance.
std::string cpus(const Result<LaunchPlan>& plan) {
  if (!plan.ok()) return "error: " + plan.error().line();
  std::string out;
  for (const InstancePlan& instance : plan->instances) out += (out.empty() ? "" : "|") + cpu_list_text(instance.cpus);
  return out;
}

Result<LaunchPlan> plan(const Options& wanted, const Machine& on) { return make_plan(wanted, on, context()); }

TEST(Placement, the_default_is_one_instance_on_all_physical_cores) {
  const auto made = plan(options(), machine({4, 4}, 2));
  EXPECT_EQ(cpus(made), "0-7");
  EXPECT_EQ(made->instances[0].threads, 8);
  EXPECT_TRUE(made->pin);
  EXPECT_EQ(made->instances[0].memory_policy, MemoryPolicy::kInherit) << "all nodes are used: nothing to bind to";
}

TEST(Placement, takes_the_first_cpu_of_each_core_in_either_numbering) {
  Machine adjacent = machine({2}, 2);
  adjacent.cores[0].pus = {0, 1};
  adjacent.cores[1].pus = {2, 3};
  EXPECT_EQ(cpus(plan(options(), adjacent)), "0,2");
}

TEST(Placement, equal_slices_for_ninstances) {
  Options wanted = options();
  wanted.ninstances = 2;
  EXPECT_EQ(cpus(plan(wanted, machine({4, 4}))), "0-3|4-7");
  wanted.ninstances = 3;
  const auto three = plan(wanted, machine({4, 4}));
  EXPECT_EQ(cpus(three), "0-1|2-3|4-5");
  EXPECT_TRUE(has_reason(*three, "cores", "no instance uses"));
}

TEST(Placement, as_many_instances_as_fit_for_ncores) {
  Options wanted = options();
  wanted.ncores_per_instance = 3;
  const auto made = plan(wanted, machine({4, 7}));
  EXPECT_EQ(cpus(made), "0-2|4-6|7-9") << "no instance spans the nodes";
}

TEST(Placement, both_given_takes_the_first_close_together) {
  Options wanted = options();
  wanted.ninstances = 2;
  wanted.ncores_per_instance = 2;
  EXPECT_EQ(cpus(plan(wanted, machine({4, 4}))), "0-1|2-3");
  wanted.strategy = "scatter";
  EXPECT_EQ(cpus(plan(wanted, machine({4, 4}))), "0-1|4-5");
}

TEST(Placement, spans_nodes_only_when_it_must_and_says_so) {
  Options wanted = options();
  wanted.ninstances = 3;
  const auto made = plan(wanted, machine({5, 5}));
  EXPECT_EQ(cpus(made), "0-2|3-4,8|5-7");
  EXPECT_TRUE(has_reason(*made, "instances", "instance 1 spans"));
  wanted.skip_cross_node_cores = true;
  const auto within = plan(wanted, machine({5, 5}));
  EXPECT_EQ(cpus(within), "0-1|2-3|5-6");
  EXPECT_FALSE(has_reason(*within, "instances", "spans"));
}

TEST(Placement, unequal_nodes_keep_their_instances_at_home) {
  Options wanted = options();
  wanted.ninstances = 3;
  const auto made = plan(wanted, machine({43, 43, 42}));
  EXPECT_EQ(cpus(made), "0-41|43-84|86-127");
}

TEST(Placement, latency_mode_gives_four_cores_an_instance) {
  Options wanted = options();
  wanted.latency_mode = true;
  EXPECT_EQ(cpus(plan(wanted, machine({8}))), "0-3|4-7");
  const auto small = plan(wanted, machine({2}));
  EXPECT_EQ(cpus(small), "0-1");
  EXPECT_TRUE(has_reason(*small, "instances", "wants 4 cores"));
  EXPECT_EQ(cpus(plan(wanted, machine({3, 3}))), "0-2|3-5") << "rather 3 cores at home than 4 across nodes";
}

TEST(Placement, throughput_mode_gives_one_instance_a_node_bound_to_it) {
  Options wanted = options();
  wanted.throughput_mode = true;
  const auto made = plan(wanted, machine({3, 2}));
  EXPECT_EQ(cpus(made), "0-2|3-4");
  EXPECT_EQ(made->instances[1].memory_policy, MemoryPolicy::kBind);
  EXPECT_THAT(made->instances[1].numa_nodes, ElementsAre(1));
  EXPECT_EQ(made->instances[0].env.at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(made->instances[1].env.at("OMP_NUM_THREADS"), "2");
}

TEST(Placement, logical_cores_keep_the_threads_of_a_core_together) {
  Options wanted = options();
  wanted.use_logical_cores = true;
  wanted.ninstances = 2;
  EXPECT_EQ(cpus(plan(wanted, machine({4}, 2))), "0-1,4-5|2-3,6-7");
}

TEST(Placement, cores_list_is_in_operating_system_numbers) {
  Options wanted = options();
  wanted.cores_list = {1, 3};
  EXPECT_EQ(cpus(plan(wanted, machine({4}))), "1,3");
  wanted.cores_list = {0, 1, 4};
  const auto made = plan(wanted, machine({4}, 2));
  EXPECT_EQ(cpus(made), "0-1") << "4 is the second thread of core 0";
  EXPECT_TRUE(has_reason(*made, "cores", "left out"));
  wanted.use_logical_cores = true;
  EXPECT_EQ(cpus(plan(wanted, machine({4}, 2))), "0-1,4");
}

TEST(Placement, a_list_outside_the_machine_names_what_is_allowed) {
  Options wanted = options();
  wanted.cores_list = {2, 9};
  const auto cores = plan(wanted, machine({4}));
  ASSERT_FALSE(cores.ok());
  EXPECT_EQ(cores.error().code, kExitUsage);
  EXPECT_THAT(cores.error().line(), HasSubstr("CPU 9"));
  EXPECT_THAT(cores.error().line(), HasSubstr("allowed: 0-3"));
  Options nodes = options();
  nodes.nodes_list = {0, 2};
  const auto refused = plan(nodes, machine({4, 4}));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().line(), HasSubstr("NUMA node 2"));
  EXPECT_THAT(refused.error().line(), HasSubstr("allowed: 0-1"));
}

TEST(Placement, nodes_list_restricts_and_binds) {
  Options wanted = options();
  wanted.nodes_list = {1};
  const auto made = plan(wanted, machine({4, 4}));
  EXPECT_EQ(cpus(made), "4-7");
  EXPECT_EQ(made->instances[0].memory_policy, MemoryPolicy::kBind);
}

TEST(Placement, asking_for_more_than_there_is_fails_with_the_numbers) {
  Options wanted = options();
  wanted.ninstances = 8;
  EXPECT_THAT(cpus(plan(wanted, machine({4}))), HasSubstr("--ninstances 8 needs 8 cores, but only 4 are usable"));
  wanted.ninstances = 2;
  wanted.ncores_per_instance = 3;
  EXPECT_THAT(cpus(plan(wanted, machine({4}))), HasSubstr("--ninstances 2 with --ncores-per-instance 3 needs 6 cores"));
  wanted.ninstances = 0;
  wanted.ncores_per_instance = 5;
  EXPECT_THAT(cpus(plan(wanted, machine({4}))), HasSubstr("--ncores-per-instance 5 needs 5 cores"));
}

TEST(Placement, a_quota_is_rounded_down_and_not_pinned) {
  Machine limited = machine({8, 8}, 2);
  limited.quota_cpus = 7.65;
  const auto made = plan(options(), limited);
  EXPECT_EQ(made->instances[0].threads, 7);
  EXPECT_FALSE(made->pin);
  EXPECT_EQ(made->instances[0].memory_policy, MemoryPolicy::kInherit);
  EXPECT_TRUE(has_reason(*made, "cores", "7.65"));
  limited.quota_cpus = 0.5;
  EXPECT_EQ(plan(options(), limited)->instances[0].threads, 1);
}

TEST(Placement, a_quota_as_large_as_the_cpuset_pins) {
  Machine limited = machine({4});
  limited.quota_cpus = 4;
  const auto made = plan(options(), limited);
  EXPECT_TRUE(made->pin);
  EXPECT_EQ(cpus(made), "0-3");
}

TEST(Placement, named_cores_are_pinned_under_a_quota_too) {
  Machine limited = machine({8});
  limited.quota_cpus = 2;
  Options wanted = options();
  wanted.cores_list = {4, 5, 6};
  const auto made = plan(wanted, limited);
  EXPECT_TRUE(made->pin);
  EXPECT_EQ(cpus(made), "4-5");
}

TEST(Placement, e_cores_are_left_out_unless_asked_for_or_alone) {
  Machine hybrid = machine({4});
  hybrid.cores[2].efficient = hybrid.cores[3].efficient = true;
  EXPECT_EQ(cpus(plan(options(), hybrid)), "0-1");
  Options wanted = options();
  wanted.use_e_cores = true;
  EXPECT_EQ(cpus(plan(wanted, hybrid)), "0-3");
  for (Core& core : hybrid.cores) core.efficient = true;
  EXPECT_EQ(cpus(plan(options(), hybrid)), "0-3");
}

TEST(Placement, instance_idx_keeps_index_and_place) {
  Options wanted = options();
  wanted.ninstances = 4;
  wanted.instance_idx = {2};
  const auto made = plan(wanted, machine({4}));
  EXPECT_EQ(cpus(made), "2");
  EXPECT_EQ(made->instances[0].index, 2);
  EXPECT_EQ(made->instances[0].env.at("IPEXRUN_INSTANCES"), "4");
  wanted.instance_idx = {4};
  EXPECT_THAT(cpus(plan(wanted, machine({4}))), HasSubstr("--instance-idx 4: the plan has 4 instances"));
}

TEST(Placement, memory_that_is_not_allowed_is_not_bound_to) {
  Machine half = machine({4, 4});
  half.nodes[1].memory_allowed = false;
  Options wanted = options();
  wanted.throughput_mode = true;
  const auto made = plan(wanted, half);
  EXPECT_EQ(made->instances[1].memory_policy, MemoryPolicy::kInherit);
  EXPECT_TRUE(has_reason(*made, "memory", "Mems_allowed"));
}

TEST(Placement, no_pin_sizes_only) {
  Options wanted = options();
  wanted.pin = false;
  const auto made = plan(wanted, machine({4, 4}));
  EXPECT_FALSE(made->pin);
  EXPECT_EQ(made->instances[0].threads, 8);
}

}  // namespace
}  // namespace ipexrun::launcher
