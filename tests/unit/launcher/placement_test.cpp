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
  EXPECT_THAT(cpus(plan(wanted, machine({4}))), HasSubstr("--ninstances 8 needs 8 cores, but only 4 are usable (ask for less; "));
  EXPECT_THAT(cpus(plan(wanted, machine({4}, 2))), HasSubstr("--use-logical-cores counts hardware threads"));
  Machine in_quota = machine({4}, 2);
  in_quota.quota_cpus = 2;
  EXPECT_THAT(cpus(plan(wanted, in_quota)), HasSubstr("only 2 are usable (CPU quota 2) (ask for less; "));
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

TEST(Placement, a_quota_from_one_and_a_half_to_two_is_two_threads) {
  Machine limited = machine({8});
  for (const auto& [quota, threads] : {std::pair{1.0, 1}, {1.25, 1}, {1.5, 2}, {1.99, 2}, {2.0, 2}, {2.99, 2}, {3.5, 3}}) {
    limited.quota_cpus = quota;
    EXPECT_EQ(plan(options(), limited)->instances[0].threads, threads) << quota;
  }
  limited = machine({1});
  limited.quota_cpus = 1.5;
  EXPECT_EQ(cpus(plan(options(), limited)), "0") << "one CPU is all there is";
}

TEST(Placement, pin_pins_under_a_quota_to_neighbours) {
  Machine limited = machine({3, 8});
  limited.quota_cpus = 6.2;
  Options wanted = options();
  wanted.pin_asked = true;
  const auto made = plan(wanted, limited);
  EXPECT_TRUE(made->pin);
  EXPECT_EQ(cpus(made), "3-8") << "the node that has six cores";
  EXPECT_TRUE(has_reason(*made, "cores", "--pin asks for it"));
}

TEST(Placement, instances_share_no_l3_while_that_costs_no_core) {
  Options wanted = options();
  wanted.ninstances = 5;
  wanted.ncores_per_instance = 3;
  const auto made = plan(wanted, made_up::with_l3(machine({16}), 8));
  EXPECT_EQ(cpus(made), "0-2|3-5|6-7,14|8-10|11-13") << "five fit, one of them from what the others leave";
  EXPECT_TRUE(has_reason(*made, "instances", "instance 2 uses cores of several L3 domains"));
  wanted.ninstances = 4;
  EXPECT_EQ(cpus(plan(wanted, made_up::with_l3(machine({16}), 8))), "0-2|3-5|8-10|11-13");
  wanted.ncores_per_instance = 6;
  wanted.ninstances = 2;
  EXPECT_EQ(cpus(plan(wanted, made_up::with_l3(machine({16}), 4))), "0-5|6-11") << "larger than any L3 domain: nothing to say";
  EXPECT_FALSE(has_reason(*plan(wanted, made_up::with_l3(machine({16}), 4)), "instances", "L3"));
}

TEST(Placement, place_alone_gives_one_instance_a_domain) {
  const Machine two_sockets = made_up::with_l3(made_up::with_packages(machine({4, 4, 4, 3}), 2), 2);
  Options wanted = options();
  wanted.place = "socket";
  EXPECT_EQ(cpus(plan(wanted, two_sockets)), "0-7|8-14");
  EXPECT_TRUE(has_reason(*plan(wanted, two_sockets), "instances", "unequal"));
  wanted.place = "node";
  EXPECT_EQ(cpus(plan(wanted, two_sockets)), "0-3|4-7|8-11|12-14");
  wanted.place = "l3";
  EXPECT_EQ(cpus(plan(wanted, two_sockets)), "0-1|2-3|4-5|6-7|8-9|10-11|12-13|14");
  wanted.place = "core";
  EXPECT_EQ(plan(wanted, two_sockets)->instances.size(), 15u);
}

TEST(Placement, place_with_numbers_keeps_instances_inside) {
  const Machine one = made_up::with_l3(machine({12}), 4);
  Options wanted = options();
  wanted.place = "l3";
  wanted.ncores_per_instance = 3;
  EXPECT_EQ(cpus(plan(wanted, one)), "0-2|4-6|8-10");
  wanted.ninstances = 4;
  EXPECT_THAT(cpus(plan(wanted, one)), HasSubstr("only 3 instances of 3 cores fit within single L3 domains (the largest has 4 usable)"));
  wanted.ncores_per_instance = 0;
  EXPECT_EQ(cpus(plan(wanted, one)), "0-1|2-3|4-5|6-7") << "equal slices";
  wanted.ninstances = 2;
  EXPECT_EQ(cpus(plan(wanted, one)), "0-3|4-7");
  wanted.strategy = "scatter";
  EXPECT_EQ(cpus(plan(wanted, one)), "0-3|4-7") << "domains in turn";
  wanted.ninstances = 0;
  wanted.ncores_per_instance = 5;
  EXPECT_THAT(cpus(plan(wanted, one)), HasSubstr("no instance of 5 cores fits"));
}

TEST(Placement, scatter_goes_round_sockets_then_nodes_then_l3) {
  const Machine big = made_up::with_l3(made_up::with_packages(machine({8, 8, 8, 8}), 2), 4);
  Options wanted = options();
  wanted.strategy = "scatter";
  wanted.ncores_per_instance = 2;
  wanted.ninstances = 2;
  EXPECT_EQ(cpus(plan(wanted, big)), "0-1|16-17");
  wanted.ninstances = 4;
  EXPECT_EQ(cpus(plan(wanted, big)), "0-1|8-9|16-17|24-25");
  wanted.ninstances = 5;
  EXPECT_EQ(cpus(plan(wanted, big)), "0-1|4-5|8-9|16-17|24-25");
}

TEST(Placement, bind_numa_node_shares_instances_over_nodes) {
  Options wanted = options();
  wanted.bind_numa_node = true;
  wanted.ninstances = 3;
  EXPECT_EQ(cpus(plan(wanted, machine({43, 43, 42}))), "0-42|43-85|86-127");
  EXPECT_EQ(cpus(plan(wanted, machine({8, 4}))), "0-3|4-7|8-11");
  wanted.ninstances = 1;
  EXPECT_EQ(cpus(plan(wanted, machine({4, 8}))), "4-11");
  wanted.ninstances = 13;
  EXPECT_THAT(cpus(plan(wanted, machine({4, 8}))), HasSubstr("--ninstances 13 needs 13 cores, but only 12 are usable"));
  wanted.ninstances = 0;
  wanted.ncores_per_instance = 3;
  EXPECT_EQ(cpus(plan(wanted, machine({4, 8}))), "0-2|4-6|7-9");
}

TEST(Placement, auto_gives_two_cores_an_instance_within_l3_domains) {
  Options wanted = options();
  wanted.ninstances_auto = true;
  EXPECT_EQ(cpus(plan(wanted, made_up::with_l3(machine({6}), 3))), "0-2|3-5");
  EXPECT_EQ(cpus(plan(wanted, machine({7}))), "0-2|3-4|5-6");
  EXPECT_EQ(cpus(plan(wanted, machine({3}))), "0-2");
  EXPECT_EQ(cpus(plan(wanted, machine({1}))), "0");
  EXPECT_EQ(cpus(plan(wanted, made_up::with_l3(machine({4}), 1))), "0-1|2-3") << "L3 domains of one core do not count";
  wanted.use_logical_cores = true;
  EXPECT_EQ(cpus(plan(wanted, machine({4}, 2))), "0-1,4-5|2-3,6-7") << "cores, with all their threads";
}

TEST(Placement, auto_respects_memory) {
  Options wanted = options();
  wanted.ninstances_auto = true;
  Machine small = machine({16});
  small.memory_limit_bytes = 9ull << 30;
  const auto made = plan(wanted, small);
  EXPECT_EQ(cpus(made), "0-3|4-7|8-11|12-15");
  EXPECT_TRUE(has_reason(*made, "instances", "the cores allow 8 instances, but the 9 GiB of memory that may be used hold 4"));
  small.memory_available_bytes = 1ull << 30;
  EXPECT_EQ(cpus(plan(wanted, small)), "0-15");
  Machine one_node = machine({16});
  one_node.nodes[0].memory_bytes = 6ull << 30;
  EXPECT_EQ(plan(wanted, one_node)->instances.size(), 3u) << "no limit is known: the memory of the nodes counts";
  Machine nodes = machine({8, 8});
  nodes.nodes[1].memory_bytes = 4ull << 30;
  EXPECT_EQ(cpus(plan(wanted, nodes)), "0-1|2-3|4-5|6-7|8-11|12-15") << "the second node holds two";
  nodes.nodes[1].memory_bytes = 1ull << 30;
  EXPECT_EQ(plan(wanted, nodes)->instances.size(), 1u) << "one instance bound to that node would not fit";
}

TEST(Placement, auto_respects_the_limit_of_threads) {
  Options wanted = options();
  wanted.ninstances_auto = true;
  Machine limited = machine({16});
  limited.max_threads = 80;
  const auto made = plan(wanted, limited);
  EXPECT_EQ(made->instances.size(), 4u) << "4 x (4 + 16)";
  EXPECT_TRUE(has_reason(*made, "instances", "only 80 more threads"));
  EXPECT_FALSE(made_up::has_warning(*made, "threads"));
}

TEST(Placement, auto_with_a_size_counts_what_memory_holds) {
  Options wanted = options();
  wanted.ninstances_auto = true;
  wanted.ncores_per_instance = 4;
  Machine small = machine({16});
  EXPECT_EQ(plan(wanted, small)->instances.size(), 4u);
  small.memory_limit_bytes = 5ull << 30;
  EXPECT_EQ(cpus(plan(wanted, small)), "0-3|4-7");
}

TEST(Placement, threads_shrink_when_so_many_cannot_be_made) {
  Options wanted = options();
  wanted.ninstances = 2;
  Machine limited = machine({16});
  limited.max_threads = 40;
  const auto made = plan(wanted, limited);
  EXPECT_EQ(made->instances[1].threads, 4) << "2 x (4 + 16)";
  EXPECT_EQ(made->instances[1].env.at("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(cpus(made), "0-7|8-15");
  EXPECT_TRUE(made_up::has_warning(*made, "only 40 more threads"));
  limited.max_threads = 1;
  EXPECT_TRUE(made_up::has_warning(*plan(wanted, limited), "only 1 more thread may be made here"));
  Options one = options();
  EXPECT_TRUE(made_up::has_warning(*plan(one, limited), "1 instance gets at most 1 thread"));
  limited.max_threads = 10;
  EXPECT_EQ(plan(wanted, limited)->instances[0].threads, 1);
  EXPECT_TRUE(made_up::has_warning(*plan(wanted, limited), "may be refused"));
  limited.max_threads = 0;
  EXPECT_EQ(plan(wanted, limited)->instances[0].threads, 8);
}

TEST(Placement, a_memory_policy_of_the_caller_stays) {
  Options wanted = options();
  wanted.throughput_mode = true;
  Machine policed = machine({4, 4});
  policed.memory_policy = "interleave:0-1";
  const auto made = plan(wanted, policed);
  EXPECT_EQ(made->instances[0].memory_policy, MemoryPolicy::kInherit);
  EXPECT_TRUE(has_reason(*made, "memory", "(interleave:0-1) stays"));
}

TEST(Placement, a_node_without_memory_is_not_bound_to) {
  Options wanted = options();
  wanted.throughput_mode = true;
  Machine odd = machine({4, 4});
  odd.nodes[1].memory_bytes = 0;
  const auto made = plan(wanted, odd);
  EXPECT_EQ(made->instances[0].memory_policy, MemoryPolicy::kBind);
  EXPECT_EQ(made->instances[1].memory_policy, MemoryPolicy::kInherit);
  odd.nodes[0].memory_bytes = 0;  // then nothing is known of memory at all
  EXPECT_EQ(plan(wanted, odd)->instances[1].memory_policy, MemoryPolicy::kBind);
}

TEST(Placement, p_and_e_cores_do_not_mix_while_that_costs_nothing) {
  Machine hybrid = made_up::with_l3(machine({8}), 8);
  for (std::size_t i = 3; i < 8; ++i) hybrid.cores[i].efficient = true;
  Options wanted = options();
  wanted.use_e_cores = true;
  wanted.ncores_per_instance = 2;
  EXPECT_EQ(cpus(plan(wanted, hybrid)), "0-1|2,7|3-4|5-6");
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
