// hwloc's synthetic machines and our description of them. The live machine is looked at once, for what must hold anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/machine/process_facts.h"
#include "launcher/plan/machine.h"
#include "tests/unit/launcher/root_tree.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string text_of(const char* variable) { return variable == nullptr ? "(unset)" : variable; }

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

TEST(Machine_, variables_that_hwloc_reads_come_back_as_they_were) {
  SysTree tree;
  tree.core(0, {0});
  tree.finish();
  ::setenv("HWLOC_HIDE_ERRORS", "0", 1);
  ::setenv("HWLOC_FSROOT", "", 1);
  const Result<Machine> own = read_machine(tree.root());
  const std::string errors = text_of(::getenv("HWLOC_HIDE_ERRORS"));
  const std::string root = text_of(::getenv("HWLOC_FSROOT"));
  ::unsetenv("HWLOC_HIDE_ERRORS");
  ::unsetenv("HWLOC_FSROOT");
  EXPECT_EQ(errors, "0");
  EXPECT_EQ(root, "") << "empty is not unset";
  ASSERT_TRUE(own.ok()) << own.error().line();
  EXPECT_EQ(own->cores.size(), 1u) << "and ours held meanwhile";
  ASSERT_TRUE(read_machine(tree.root()).ok());
  EXPECT_EQ(::getenv("HWLOC_HIDE_ERRORS"), nullptr) << "nothing of ours stays";
  EXPECT_EQ(::getenv("HWLOC_FSROOT"), nullptr);
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

// Made-up machines, by the files that Linux shows.

std::vector<std::vector<int>> cores_of(const Machine& machine) {
  std::vector<std::vector<int>> out;
  for (const Core& core : machine.cores) out.push_back(core.pus);
  return out;
}

bool has_note(const Machine& machine, const std::string& part) {
  return std::any_of(machine.notes.begin(), machine.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST(MachineFiles, cores_caches_and_nodes) {
  SysTree tree;
  for (int core = 0; core < 4; ++core) tree.core(core / 2, {core, core + 4});
  tree.l3(0, {0, 1, 4, 5});
  tree.l3(1, {2, 3, 6, 7});
  tree.node(0, {0, 1, 4, 5}, 1 << 20);
  tree.node(1, {2, 3, 6, 7}, 2 << 20);
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  EXPECT_THAT(cores_of(machine), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_EQ(machine.packages, 2);
  EXPECT_EQ(machine.cores[1].l3, machine.cores[0].l3);
  EXPECT_NE(machine.cores[2].l3, machine.cores[0].l3);
  EXPECT_EQ(machine.nodes[1].memory_bytes, 2ull << 30);
  EXPECT_TRUE(machine.notes.empty()) << machine.notes.front();
}

TEST(MachineFiles, no_l3_cache_is_minus_one) {
  SysTree tree;
  tree.core(0, {0});
  tree.finish();
  EXPECT_EQ(read_machine(tree.root())->cores[0].l3, -1);
}

TEST(MachineFiles, two_l3_domains_of_one_node) {
  const Machine machine = machine_from_topology("node:1 l3:2 core:4 pu:2").value();
  EXPECT_EQ(machine.cores[3].l3, 0);
  EXPECT_EQ(machine.cores[4].l3, 1);
}

TEST(MachineFiles, switched_off_cpus_are_counted_and_said) {
  SysTree tree;
  tree.core(0, {0});
  tree.core(0, {1});
  tree.file("/sys/devices/system/cpu/present", "0-3\n");
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  EXPECT_EQ(machine.offline_cpus, 2);
  EXPECT_TRUE(has_note(machine, "2 CPUs switched off (2-3)"));
}

TEST(MachineFiles, intel_small_cores_are_known_by_their_counters) {
  SysTree tree;
  tree.core(0, {0, 1});
  for (const int cpu : {2, 3, 4}) tree.core(0, {cpu});
  tree.file("/sys/devices/cpu_core/cpus", "0-1\n");
  tree.file("/sys/devices/cpu_atom/cpus", "2-3\n");
  tree.file("/sys/devices/cpu_lowpower/cpus", "4\n");
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  EXPECT_FALSE(machine.cores[0].efficient);
  for (int core = 1; core < 4; ++core) EXPECT_TRUE(machine.cores[static_cast<std::size_t>(core)].efficient) << core;
}

TEST(MachineFiles, arm_little_cores_are_known_by_capacity_and_favoured_cores_are_no_kind) {
  const auto capacities = [](const std::vector<int>& values) {
    SysTree tree;
    for (int cpu = 0; cpu < static_cast<int>(values.size()); ++cpu) {
      tree.core(0, {cpu});
      tree.file(SysTree::cpu_folder(cpu) + "/cpu_capacity", std::to_string(values[static_cast<std::size_t>(cpu)]) + "\n");
    }
    tree.finish();
    std::vector<bool> out;
    const Machine machine = read_machine(tree.root()).value();
    for (const Core& core : machine.cores) out.push_back(core.efficient);
    return out;
  };
  EXPECT_THAT(capacities({446, 446, 1024, 1024}), ElementsAre(true, true, false, false));
  EXPECT_THAT(capacities({250, 870, 1024}), ElementsAre(true, false, false));
  EXPECT_THAT(capacities({1000, 1024, 1010}), ElementsAre(false, false, false));
}

TEST(MachineFiles, frequencies_alone_make_no_small_cores) {
  SysTree tree;
  for (const int cpu : {0, 1}) {
    tree.core(0, {cpu});
    tree.file(SysTree::cpu_folder(cpu) + "/cpufreq/cpuinfo_max_freq", cpu == 0 ? "5700000\n" : "4000000\n");
  }
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  for (const Core& core : machine.cores) EXPECT_FALSE(core.efficient);
}

TEST(MachineFiles, nodes_without_cores_and_without_memory) {
  SysTree tree;
  tree.core(0, {0});
  tree.core(0, {1});
  tree.node(0, {0}, 1 << 20);
  tree.node(1, {1}, 0);       // CPUs without memory
  tree.node(2, {}, 4 << 20);  // memory without CPUs: an expander
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  ASSERT_EQ(machine.nodes.size(), 3u);
  EXPECT_TRUE(machine.nodes[0].has_cores && machine.nodes[1].has_cores);
  EXPECT_FALSE(machine.nodes[2].has_cores);
  EXPECT_FALSE(machine.nodes[1].memory_allowed);
  EXPECT_TRUE(machine.nodes[2].memory_allowed);
  EXPECT_EQ(machine.cores[1].node, 1);
  EXPECT_TRUE(has_note(machine, "NUMA node 1 has no memory"));
}

TEST(MachineFiles, cpus_that_no_node_claims_are_said) {
  SysTree tree;
  for (const int cpu : {0, 1, 2}) tree.core(0, {cpu});
  tree.node(0, {0}, 1 << 20);
  tree.node(1, {1}, 1 << 20);
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  ASSERT_EQ(machine.cores.size(), 3u);
  for (const Core& core : machine.cores)
    EXPECT_TRUE(std::any_of(machine.nodes.begin(), machine.nodes.end(), [&](const NumaNode& node) { return node.os_index == core.node; }));
  EXPECT_TRUE(has_note(machine, "CPU 2 belongs to no NUMA node"));
}

TEST(MachineFiles, a_core_whose_first_thread_is_not_allowed_keeps_the_others) {
  SysTree tree;
  tree.core(0, {0, 2});
  tree.core(0, {1, 3});
  tree.file("/proc/self/status", "Cpus_allowed_list:\t1-2\n");
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  EXPECT_THAT(cores_of(machine), ElementsAre(ElementsAre(2), ElementsAre(1)));
  EXPECT_EQ(machine.total_pus, 4);
}

TEST(MachineFiles, says_whether_affinity_or_cpuset_left_cpus_out) {
  const auto note_for = [](const std::string& allowed, const std::string& cpuset) {
    SysTree tree;
    for (const int cpu : {0, 1, 2, 3}) tree.core(0, {cpu});
    tree.file("/proc/self/status", "Cpus_allowed_list:\t" + allowed + "\n");
    tree.file("/proc/self/cgroup", "0::/pod\n");
    tree.file("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    tree.file("/sys/fs/cgroup/pod/cpuset.cpus.effective", cpuset + "\n");
    tree.finish();
    return read_machine(tree.root())->notes.at(0);
  };
  EXPECT_EQ(note_for("0-1", "0-3"), "2 of 4 CPUs are allowed (affinity)");
  EXPECT_EQ(note_for("0-1", "0-1"), "2 of 4 CPUs are allowed (cpuset)");
  EXPECT_EQ(note_for("1", "0-1"), "1 of 4 CPUs are allowed (affinity and cpuset)");
}

TEST(MachineFiles, no_allowed_cpu_is_an_error) {
  SysTree tree;
  tree.core(0, {0});
  tree.file("/proc/self/status", "Cpus_allowed_list:\t7\n");
  tree.finish();
  ASSERT_FALSE(read_machine(tree.root()).ok());
}

TEST(MachineFiles, what_the_process_was_told_is_kept) {
  SysTree tree;
  tree.core(0, {0});
  tree.core(0, {1});
  ProcessFacts facts;
  facts.affinity = std::vector<int>{1};
  facts.memory_policy = "bind:0";
  facts.isa = kLevelAmx;
  facts.amx_refused = true;
  tree.file("/ipexrun/process.txt", process_facts_text(facts));
  tree.file("/proc/meminfo", "MemTotal:       1048576 kB\nMemAvailable:   524288 kB\n");
  tree.finish();
  const Machine machine = read_machine(tree.root()).value();
  EXPECT_THAT(cores_of(machine), ElementsAre(ElementsAre(1)));
  EXPECT_EQ(machine.memory_policy, "bind:0");
  EXPECT_TRUE(has_note(machine, "memory policy (bind:0)"));
  EXPECT_EQ(machine.isa, kLevelAmx);
  EXPECT_TRUE(machine.amx_refused);
  EXPECT_TRUE(has_note(machine, "AMX"));
  EXPECT_EQ(machine.memory_limit_bytes, 1ull << 30);
  EXPECT_EQ(machine.memory_available_bytes, 1ull << 29);
}

TEST(MachineFiles, few_threads_are_a_note_and_many_are_not) {
  SysTree tree;
  tree.core(0, {0});
  tree.file("/proc/self/cgroup", "0::/\n");
  tree.file("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  tree.file("/sys/fs/cgroup/pids.max", "7\n");
  tree.finish();
  EXPECT_EQ(read_machine(tree.root())->max_threads, 7);
  EXPECT_TRUE(has_note(read_machine(tree.root()).value(), "at most 7 more threads may be made (/sys/fs/cgroup/pids.max)"));
  tree.file("/sys/fs/cgroup/pids.max", "500\n");
  EXPECT_EQ(read_machine(tree.root())->max_threads, 500);
  EXPECT_TRUE(read_machine(tree.root())->notes.empty());
}

TEST(MachineFiles, without_sys_cores_come_from_cpuinfo) {
  SysTree tree;
  std::string text;
  for (int cpu = 0; cpu < 8; ++cpu)
    text += "processor\t: " + std::to_string(cpu) + "\nmodel name\t: Example CPU\nphysical id\t: " + std::to_string(cpu / 2 % 2 * 3) +
            "\ncore id\t\t: " + std::to_string(cpu % 2) + "\nflags\t\t: fpu\n\n";
  tree.file("/proc/cpuinfo", text);
  tree.file("/proc/meminfo", "MemTotal:       1024 kB\n");
  tree.file("/proc/self/status", "Cpus_allowed_list:\t0-6\n");
  const Machine machine = read_machine(tree.root()).value();
  EXPECT_THAT(cores_of(machine), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3)));
  EXPECT_EQ(machine.packages, 2);
  EXPECT_EQ(machine.cores[2].package, 1);
  EXPECT_EQ(machine.name, "Example CPU");
  EXPECT_EQ(machine.nodes[0].memory_bytes, 1ull << 20);
  EXPECT_TRUE(has_note(machine, "/sys is not there"));
  EXPECT_FALSE(has_note(machine, "names no cores"));
}

TEST(MachineFiles, without_sys_and_core_numbers_each_cpu_is_one) {
  SysTree tree;
  tree.file("/proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 50\n\nprocessor\t: 1\n\nSerial\t\t: 0000\n");
  const Machine machine = read_machine(tree.root()).value();
  EXPECT_EQ(machine.cores.size(), 2u);
  EXPECT_TRUE(has_note(machine, "names no cores: each CPU counts as one"));
}

TEST(Machine_, more_than_1024_cpus) {
  SysTree tree;
  tree.file("/proc/self/status", "Cpus_allowed_list:\t0-1499,2047\n");
  const Machine machine = machine_from_topology("node:16 core:64 pu:2", tree.root()).value();
  EXPECT_EQ(machine.total_pus, 2048);
  EXPECT_EQ(machine.cores.size(), 751u);
  EXPECT_THAT(machine.cores.back().pus, ElementsAre(2047));
}

}  // namespace
}  // namespace ipexrun::launcher
