// hwloc's synthetic machines and our description of them. The live machine is looked at once, for what must hold anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launcher/plan/machine.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Machine_, a_synthetic_machine_has_nodes_cores_and_threads) {
  const Machine machine = machine_from_topology("node:2 core:2 pu:2").value();
  EXPECT_TRUE(machine.synthetic);
  ASSERT_EQ(machine.cores.size(), 4u);
  EXPECT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.cores[2].node, 1);
  EXPECT_THAT(machine.cores[2].pus, ElementsAre(4, 5));
  EXPECT_EQ(machine.total_cores, 4);
  EXPECT_EQ(machine.total_pus, 8);
  EXPECT_EQ(machine.quota_cpus, 0);
}

TEST(Machine_, pu_numbers_come_from_the_topology) {
  const Machine machine = machine_from_topology("core:2 pu:2(indexes=0,2,1,3)").value();
  EXPECT_THAT(machine.cores[0].pus, ElementsAre(0, 2));
  EXPECT_THAT(machine.cores[1].pus, ElementsAre(1, 3));
}

TEST(Machine_, l3_domains_and_memory_come_from_the_topology) {
  const Machine machine = machine_from_topology("pack:2 node:1(memory=8GB) l3:2 core:2 pu:1").value();
  EXPECT_EQ(machine.cores[1].l3, 0);
  EXPECT_EQ(machine.cores[2].l3, 1);
  EXPECT_EQ(machine.cores[7].l3, 3);
  EXPECT_GT(machine.nodes[1].memory_bytes, 7ull << 30);
  EXPECT_TRUE(machine.nodes[1].has_cores);
  const Machine bare = machine_from_topology("node:2 core:2 pu:1").value();
  EXPECT_EQ(bare.cores[0].l3, -1);
  EXPECT_EQ(bare.nodes[0].memory_bytes, 0u) << "the text names no memory, so none is known";
}

TEST(Machine_, without_cores_each_pu_is_one) { EXPECT_EQ(machine_from_topology("node:1 pu:4")->cores.size(), 4u); }

TEST(Machine_, bad_topologies_are_usage_errors) {
  for (const char* text : {"nonsense:x", "/no/such/machine.xml", "/", "node:"}) {
    const auto machine = machine_from_topology(text);
    ASSERT_FALSE(machine.ok()) << text;
    EXPECT_EQ(machine.error().code, kExitUsage);
    EXPECT_THAT(machine.error().line(), HasSubstr(text));
  }
}

TEST(Machine_, a_file_that_is_no_topology_is_refused) {
  const std::string path = testing::TempDir() + "ipexrun_no_topology.xml";
  std::ofstream(path) << "<?xml version=\"1.0\"?><html/>";
  const auto machine = machine_from_topology(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(machine.ok());
  EXPECT_EQ(machine.error().code, kExitUsage);
}

TEST(Machine_, limits_of_a_sysroot_restrict_it) {
  std::string root = testing::TempDir() + "ipexrun_sysroot_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  std::filesystem::create_directories(root + "/proc/self");
  std::filesystem::create_directories(root + "/sys/fs/cgroup/pod");
  std::ofstream(root + "/proc/self/status") << "Cpus_allowed_list:\t2-5\nMems_allowed_list:\t1\n";
  std::ofstream(root + "/proc/self/cgroup") << "0::/pod\n";
  std::ofstream(root + "/proc/self/mountinfo") << "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  std::ofstream(root + "/sys/fs/cgroup/pod/cpu.max") << "250000 100000\n";
  const Machine machine = machine_from_topology("node:2 core:4 pu:1", root).value();
  std::filesystem::remove_all(root);
  EXPECT_EQ(machine.cores.size(), 4u);
  EXPECT_FALSE(machine.nodes[0].memory_allowed);
  EXPECT_TRUE(machine.nodes[1].memory_allowed);
  EXPECT_DOUBLE_EQ(machine.quota_cpus, 2.5);
  EXPECT_EQ(machine.notes.size(), 3u);
}

TEST(Machine_, the_live_machine_has_at_least_one_core_on_a_known_node) {
  const auto machine = read_machine();
  ASSERT_TRUE(machine.ok()) << machine.error().line();
  ASSERT_FALSE(machine->cores.empty());
  EXPECT_FALSE(machine->synthetic);
  for (const Core& core : machine->cores) {
    EXPECT_FALSE(core.pus.empty());
    EXPECT_TRUE(std::any_of(machine->nodes.begin(), machine->nodes.end(), [&](const NumaNode& n) { return n.os_index == core.node; }));
  }
}

}  // namespace
}  // namespace ipexrun::launcher
