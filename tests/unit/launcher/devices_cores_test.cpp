// Which cores an instance of `ipexrun xpu` gets: those near its GPUs, and on any machine none twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <set>

#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "tests/unit/launcher/devices_made_up.h"

namespace ipexrun::launcher {
namespace {

using made_up::cores;
using made_up::error_of;
using made_up::four_cards;
using made_up::gpu;
using made_up::plan_of;
using made_up::with;
using made_up::xpu;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DevicesCores, cards_at_one_socket_leave_the_other_ones_cores) {
  const Machine machine = with(made_up::machine({4, 4}), {gpu("0000:ab:00.0", 1, 1), gpu("0000:ac:00.0", 1, 1)});
  Options options = xpu();
  options.one_per_device = true;
  const auto plan = plan_of(options, machine);
  EXPECT_THAT(cores(*plan), ElementsAre("4-5", "6-7"));
  EXPECT_TRUE(made_up::has_reason(*plan, "cores", "usable cores of NUMA node 0 that no instance uses"));
}

TEST(DevicesCores, the_other_nodes_of_a_socket_belong_to_its_gpu) {
  Machine machine = made_up::machine({4, 4, 4, 4});
  for (Core& core : machine.cores) core.package = core.node / 2;
  machine = with(machine, {gpu("0000:1a:00.0", 1, 2)});
  EXPECT_THAT(cores(*plan_of(xpu(), machine)), ElementsAre("0-7"));
  Options options = xpu();
  options.one_per_tile = true;
  EXPECT_THAT(cores(*plan_of(options, machine)), ElementsAre("0-1,4-5", "2-3,6-7"));
}

TEST(DevicesCores, cores_that_were_listed_are_all_used_by_one_instance) {
  const Machine machine = with(made_up::machine({4, 4}), {gpu("0000:ab:00.0", 1, 1)});
  Options options = xpu();
  options.nodes_list = {0, 1};
  EXPECT_THAT(cores(*plan_of(options, machine)), ElementsAre("0-7"));
  options.nodes_list = {0};
  const auto far = plan_of(options, machine);
  EXPECT_THAT(cores(*far), ElementsAre("0-3"));
  EXPECT_TRUE(made_up::has_reason(*far, "cores", "not near"));
}

TEST(DevicesCores, a_fixed_number_of_cores_is_taken_near_first) {
  const Machine machine = with(made_up::machine({4, 4}), {gpu("0000:ab:00.0", 1, 1)});
  Options options = xpu();
  options.ncores_per_instance = 2;
  EXPECT_THAT(cores(*plan_of(options, machine)), ElementsAre("4-5"));
  options.ncores_per_instance = 6;
  EXPECT_THAT(cores(*plan_of(options, machine)), ElementsAre("0-1,4-7"));
  options.ncores_per_instance = 9;
  EXPECT_THAT(error_of(plan_of(options, machine)), HasSubstr("need 9 cores, but only 8 are usable"));
}

TEST(DevicesCores, fewer_cores_than_instances_is_refused) {
  Options options = xpu();
  options.one_per_tile = true;
  EXPECT_THAT(error_of(plan_of(options, with(made_up::machine({3}), {gpu("0000:ab:00.0", 0, 4)}))),
              HasSubstr("4 instances need at least 4 cores, but only 3 are usable"));
  // A GPU's node with too few of them borrows from the others.
  const auto plan = plan_of(options, with(made_up::machine({1, 3}), {gpu("0000:ab:00.0", 0, 4)}));
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(cores(*plan), ElementsAre("0", "1", "2", "3"));
}

TEST(DevicesCores, nobody_takes_more_cores_than_were_asked_for) {
  Options options = xpu();
  options.one_per_tile = true;
  options.ncores_per_instance = 3;
  // Three tiles at node 0, two at node 1: a third of node 0 is too little, but node 1 has more than its two need.
  const auto plan = plan_of(options, with(made_up::machine({8, 8}), {gpu("0000:1a:00.0", 0, 1), gpu("0000:2a:00.0", 0, 2),
                                                                     gpu("0000:9a:00.0", 1, 1), gpu("0000:aa:00.0", 1, 1)}));
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(cores(*plan), ElementsAre("0-1,6", "2-3,7", "4-5,11", "8-10", "12-14"));
  EXPECT_TRUE(made_up::has_reason(*plan, "cores", "1 usable cores of NUMA node 1 that no instance uses"));
  options.ncores_per_instance = 1;
  const auto few = plan_of(options, four_cards());
  EXPECT_TRUE(made_up::has_reason(*few, "cores", "8 usable cores of NUMA node 0-1 that no instance uses"));
  options.ncores_per_instance = 3;
  EXPECT_THAT(error_of(plan_of(options, four_cards())), HasSubstr("need 24 cores, but only 16 are usable"));
}

TEST(DevicesCores, what_is_short_is_taken_near_before_far) {
  Options options = xpu();
  options.one_per_tile = true;
  options.ncores_per_instance = 3;
  const auto plan = plan_of(options, with(made_up::machine({4, 8}), {gpu("0000:9a:00.0", 1, 2)}));
  EXPECT_THAT(cores(*plan), ElementsAre("4-6", "8-10")) << "equal halves of the node";
  options.ncores_per_instance = 5;
  EXPECT_THAT(cores(*plan_of(options, with(made_up::machine({4, 9}), {gpu("0000:9a:00.0", 1, 2)}))), ElementsAre("4-7,12", "0,8-11"));
}

TEST(DevicesCores, a_node_with_fewer_cores_than_instances_borrows_from_the_richest) {
  Options options = xpu();
  options.one_per_tile = true;
  const auto plan = plan_of(options, with(made_up::machine({1, 3}), {gpu("0000:1a:00.0", 0, 2), gpu("0000:9a:00.0", 1, 1)}));
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(cores(*plan), ElementsAre("0", "3", "1-2"));
}

TEST(DevicesCores, instances_share_no_core_with_hardware_threads) {
  Options options = xpu();
  options.one_per_tile = true;
  options.use_logical_cores = true;
  const auto plan = plan_of(options, with(made_up::machine({3}, 2), {gpu("0000:ab:00.0", 0, 2)}));
  EXPECT_THAT(cores(*plan), ElementsAre("0,3", "1,4"));
  options.ncores_per_instance = 3;
  EXPECT_THAT(error_of(plan_of(options, with(made_up::machine({3}, 2), {gpu("0000:ab:00.0", 0, 2)}))),
              HasSubstr("2 instances with --ncores-per-instance 3 share no core, and 3 usable cores with 6 CPUs are enough for 1"));
  const auto part = plan_of(options, with(made_up::machine({4}, 2), {gpu("0000:ab:00.0", 0, 2)}));
  EXPECT_THAT(cores(*part), ElementsAre("0-1,4", "2-3,6"));
  EXPECT_TRUE(made_up::has_reason(*part, "cores", "2 CPUs hardware threads of used cores that no instance uses"));
  options.ncores_per_instance = 0;
  EXPECT_THAT(error_of(plan_of(options, with(made_up::machine({1}, 2), {gpu("0000:ab:00.0", 0, 2)}))),
              HasSubstr("2 instances need at least 2 cores, but only 1 is usable"));
}

// ---- any machine ----

TEST(DevicesCores, instances_are_disjoint_in_tiles_and_cores_on_random_machines) {
  std::mt19937 random(20261121);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (int round = 0; round < 2000; ++round) {
    std::vector<int> nodes(static_cast<std::size_t>(up_to(4)));
    for (int& node : nodes) node = up_to(12);
    std::vector<Gpu> gpus(static_cast<std::size_t>(up_to(6)));
    for (std::size_t i = 0; i < gpus.size(); ++i)
      gpus[i] = gpu("0000:" + std::to_string(10 + i) + ":00.0", up_to(static_cast<int>(nodes.size()) + 1) - 2, up_to(2));
    const Machine machine = with(made_up::machine(nodes, up_to(2)), gpus);
    Options options = xpu();
    const int kind = up_to(4);
    if (kind == 1) options.one_per_tile = true;
    if (kind == 2) options.one_per_device = true;
    if (kind == 3) options.ninstances = up_to(8);
    options.use_logical_cores = up_to(2) == 1;
    if (up_to(3) == 1) options.device_hierarchy = "composite";
    if (up_to(3) == 1) options.ncores_per_instance = up_to(6);
    const auto plan = plan_of(options, machine);
    if (!plan.ok()) {
      EXPECT_EQ(plan.error().code, kExitUsage) << plan.error().line();
      std::smatch said;  // no refusal contradicts itself
      const std::string line = plan.error().line();
      if (std::regex_search(line, said, std::regex("need (?:at least )?(\\d+) \\w+, but only (\\d+) (?:is|are) usable"))) {
        EXPECT_GT(std::stoi(said[1]), std::stoi(said[2])) << line;
      }
      continue;
    }
    std::set<int> cpus;
    std::set<std::pair<int, int>> tiles;
    std::set<std::string> seen;
    for (const InstancePlan& one : plan->instances) {
      EXPECT_FALSE(one.cpus.empty());
      EXPECT_FALSE(one.devices.empty());
      for (const int cpu : one.cpus) EXPECT_TRUE(cpus.insert(cpu).second) << "CPU " << cpu << " given out twice, round " << round;
      for (const DevicePlan& device : one.devices)
        EXPECT_TRUE(tiles.insert({device.device, device.tile}).second) << "tile given out twice, round " << round;
      const bool several = plan->instances.size() > 1;
      EXPECT_TRUE(!several || seen.insert(one.env.at("ZE_AFFINITY_MASK")).second) << "round " << round;
    }
    EXPECT_EQ(plan_json(*plan), plan_json(*plan_of(options, machine)));
  }
}

}  // namespace
}  // namespace ipexrun::launcher
