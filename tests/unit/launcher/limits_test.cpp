// A quota hides in many places: cgroup v1 or v2, the process's own group or any above it, a container's view of the mount.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "launcher/machine/machine_limits.h"
#include "launcher/machine/process_facts.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;

class Limits_ : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "ipexrun_limits_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).find_last_of('/')));
    std::ofstream(root_ + path) << text;
  }
  void v2(const std::string& group, const std::string& mount_root = "/") const {
    file("/proc/self/cgroup", "0::" + group + "\n");
    file("/proc/self/mountinfo",
         "24 1 8:1 / / rw - ext4 /dev/sda rw\n41 31 0:38 " + mount_root + " /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  }
  void v1(const std::string& group, const std::string& mount_root = "/") const {
    file("/proc/self/cgroup", "9:name=systemd:/\n4:cpuacct,cpu:" + group + "\n3:cpuset:/\n");
    file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n32 31 0:29 " + mount_root +
                                     " /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n");
  }
  [[nodiscard]] Limits read() const { return read_limits(root_, read_process_facts(root_)); }

  std::string root_;
};

TEST_F(Limits_, an_empty_tree_limits_nothing) {
  const Limits limits = read();
  EXPECT_EQ(limits.quota_cpus, 0);
  EXPECT_FALSE(limits.cpus_allowed.has_value());
  EXPECT_FALSE(limits.mems_allowed.has_value());
}

TEST_F(Limits_, reads_allowed_cpus_and_memory_nodes) {
  file("/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t1\n");
  EXPECT_THAT(*read().cpus_allowed, ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*read().mems_allowed, ElementsAre(1));
}

TEST_F(Limits_, reads_a_v2_quota_of_the_own_group) {
  v2("/pod");
  file("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 1.5);
  EXPECT_EQ(read().quota_from, "/sys/fs/cgroup/pod/cpu.max");
}

TEST_F(Limits_, an_ancestor_of_the_v2_group_counts_too) {
  v2("/slice/pod/container");
  file("/sys/fs/cgroup/slice/pod/container/cpu.max", "max 100000\n");
  file("/sys/fs/cgroup/slice/pod/cpu.max", "765000 100000\n");
  file("/sys/fs/cgroup/slice/cpu.max", "1600000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 7.65);
}

TEST_F(Limits_, max_is_no_quota) {
  v2("/pod");
  file("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(read().quota_cpus, 0);
}

TEST_F(Limits_, reads_a_v1_quota_and_its_ancestors) {
  v1("/a/b");
  file("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "400000\n");
  file("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  file("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n");
  file("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "50000\n");
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 2);
}

TEST_F(Limits_, a_container_that_sees_only_its_own_v1_group_finds_it_at_the_mount) {
  v1("/docker/ab12", "/docker/ab12");
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "800000\n");
  file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 8);
}

TEST_F(Limits_, a_group_outside_of_the_mount_is_looked_for_at_its_top) {
  v2("/elsewhere", "/docker/ab12");
  file("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 3);
}

TEST_F(Limits_, v1_and_v2_together_take_the_smaller_one) {
  v1("/a");
  std::ofstream(root_ + "/proc/self/cgroup", std::ios::app) << "0::/b\n";
  std::ofstream(root_ + "/proc/self/mountinfo", std::ios::app) << "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  file("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "400000\n");
  file("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  file("/sys/fs/cgroup/unified/b/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 2.5);
}

TEST_F(Limits_, a_mount_point_with_a_space_is_found) {
  file("/proc/self/cgroup", "0::/\n");
  file("/proc/self/mountinfo", "41 31 0:38 / /my\\040cgroup rw - cgroup2 cgroup2 rw\n");
  file("/my cgroup/cpu.max", "100000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 1);
}

TEST_F(Limits_, broken_files_limit_nothing) {
  v2("/pod");
  for (const char* text : {"", "\n", "abc 100000\n", "100000 0\n", "100000 x\n", "-5 100000\n", "nan 1\n", "0 100000\n"}) {
    file("/sys/fs/cgroup/pod/cpu.max", text);
    EXPECT_EQ(read().quota_cpus, 0) << text;
  }
  file("/proc/self/mountinfo", "garbage\n- - -\n 1 2 3 - cgroup2\n");
  file("/proc/self/cgroup", "x\n::\n0:\n0::relative\n");
  file("/proc/self/status", "Cpus_allowed_list:\tzero\n");
  EXPECT_EQ(read().quota_cpus, 0);
  EXPECT_FALSE(read().cpus_allowed.has_value());
}

// What a process in a cgroup namespace sees.

TEST_F(Limits_, a_mount_from_above_the_namespace_shows_the_group_by_its_processes) {
  file("/proc/self/status", "Pid:\t812\nNSpid:\t812\t7\n");
  file("/proc/self/cgroup", "0::/\n");
  file("/proc/self/mountinfo", "41 31 0:38 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  file("/sys/fs/cgroup/pods/other/cpu.max", "100000 100000\n");
  file("/sys/fs/cgroup/pods/other/cgroup.procs", "812\n");  // the number of another pid namespace
  file("/sys/fs/cgroup/pods/ours/cpu.max", "500000 100000\n");
  file("/sys/fs/cgroup/pods/ours/cgroup.procs", "1\n7\n");
  file("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 5);
  file("/sys/fs/cgroup/pods/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 3);
}

TEST_F(Limits_, a_group_beside_the_namespace_is_found_below_its_mount) {
  file("/proc/self/cgroup", "0::/../sibling\n");
  file("/proc/self/mountinfo", "41 31 0:38 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  file("/sys/fs/cgroup/sibling/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 2);
}

TEST_F(Limits_, a_group_outside_of_the_namespace_takes_what_is_mounted) {
  v2("/../..", "/");
  file("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 4);
}

TEST_F(Limits_, of_several_mounts_those_count_that_show_the_group) {
  file("/proc/self/cgroup", "0::/docker/ab\n");
  file("/proc/self/mountinfo",
       "40 31 0:38 /docker/other /other rw - cgroup2 cgroup2 rw\n41 31 0:38 /docker/ab /inner rw - cgroup2 cgroup2 rw\n"
       "42 31 0:38 / /host rw - cgroup2 cgroup2 rw\n");
  file("/other/cpu.max", "100000 100000\n");
  file("/inner/cpu.max", "700000 100000\n");
  file("/host/docker/cpu.max", "600000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 6);
  EXPECT_EQ(read().quota_from, "/host/docker/cpu.max");
}

TEST_F(Limits_, a_root_that_only_begins_like_the_path_is_another_group) {
  file("/proc/self/cgroup", "0::/docker/ab12\n");
  file("/proc/self/mountinfo", "40 31 0:38 /docker/ab /one rw - cgroup2 cgroup2 rw\n41 31 0:38 / /all rw - cgroup2 cgroup2 rw\n");
  file("/one/12/cpu.max", "100000 100000\n");
  file("/one/cpu.max", "100000 100000\n");
  file("/all/docker/ab12/cpu.max", "900000 100000\n");
  EXPECT_DOUBLE_EQ(read().quota_cpus, 9);
}

TEST_F(Limits_, named_hierarchies_and_weights_limit_nothing) {
  file("/proc/self/cgroup", "9:name=cpu:/a\n4:cpu,cpuacct:/a\n");
  file("/proc/self/mountinfo",
       "31 23 0:28 / /named rw - cgroup cgroup rw,name=cpu\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  file("/named/a/cpu.cfs_quota_us", "100000\n");
  file("/named/a/cpu.cfs_period_us", "100000\n");
  file("/sys/fs/cgroup/cpu/a/cpu.shares", "2\n");
  file("/sys/fs/cgroup/cpu/a/cpu.weight", "1\n");
  EXPECT_EQ(read().quota_cpus, 0);
}

// Threads.

TEST_F(Limits_, pids_max_of_any_ancestor_leaves_so_many_threads) {
  v2("/slice/pod");
  file("/sys/fs/cgroup/slice/pod/pids.max", "max\n");
  file("/sys/fs/cgroup/slice/pod/pids.current", "3\n");
  EXPECT_FALSE(read().threads.has_value());
  file("/sys/fs/cgroup/slice/pids.max", "100\n");
  file("/sys/fs/cgroup/slice/pids.current", "90\n");
  ASSERT_TRUE(read().threads.has_value());
  EXPECT_EQ(read().threads->value, 10);
  EXPECT_EQ(read().threads->from, "/sys/fs/cgroup/slice/pids.max");
  file("/sys/fs/cgroup/slice/pids.current", "120\n");  // the limit was lowered after they were made
  EXPECT_EQ(read().threads->value, 1);
  file("/sys/fs/cgroup/slice/pids.max", "4194304\n");
  EXPECT_FALSE(read().threads.has_value());
}

TEST_F(Limits_, a_v1_pids_controller_counts) {
  file("/proc/self/cgroup", "8:pids:/a\n");
  file("/proc/self/mountinfo", "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n");
  file("/sys/fs/cgroup/pids/a/pids.max", "40\n");
  file("/sys/fs/cgroup/pids/a/pids.current", "15\n");
  EXPECT_EQ(read().threads->value, 25);
}

TEST_F(Limits_, ulimit_u_counts_what_the_user_runs_already) {
  file("/proc/self/limits",
       "Limit                     Soft Limit           Hard Limit           Units     \n"
       "Max processes             500                  1000                 processes \n");
  EXPECT_FALSE(read().threads.has_value()) << "how many there are is not known";
  file("/ipexrun/process.txt", "any_number_of_tasks: no\nuser_tasks: 420\n");
  EXPECT_EQ(read().threads->value, 80);
  EXPECT_EQ(read().threads->from, "ulimit -u");
  file("/ipexrun/process.txt", "any_number_of_tasks: no\nuser_tasks: 500\n");
  EXPECT_EQ(read().threads->value, 1);
  file("/ipexrun/process.txt", "any_number_of_tasks: yes\nuser_tasks: 420\n");
  EXPECT_FALSE(read().threads.has_value());
  file("/proc/self/limits", "Max processes             unlimited            unlimited            processes \n");
  EXPECT_FALSE(max_processes(root_).has_value());
}

TEST_F(Limits_, threads_of_one_user_are_counted_over_all_processes) {
  file("/proc/1/status", "Name:\tinit\nUid:\t0\t0\t0\t0\nThreads:\t1\n");
  file("/proc/20/status", "Name:\ta\nUid:\t7\t0\t0\t0\nThreads:\t5\n");
  file("/proc/21/status", "Name:\tb\nUid:\t7\t7\t7\t7\nThreads:\t11\n");
  file("/proc/22/status", "Name:\tc\nUid:\t77\t7\t7\t7\nThreads:\t100\n");
  file("/proc/23/other", "a process that has no status any more\n");
  file("/proc/self/status", "Uid:\t7\t7\t7\t7\nThreads:\t11\n");
  EXPECT_EQ(count_user_tasks(root_ + "/proc", 7), 16);
  EXPECT_EQ(count_user_tasks(root_ + "/proc", 0), 1);
  EXPECT_EQ(count_user_tasks(root_ + "/no/proc", 7), 0);
}

// Memory.

TEST_F(Limits_, memory_is_the_least_of_the_machine_and_every_ancestor) {
  file("/proc/meminfo", "MemTotal:       8388608 kB\nMemFree:        1 kB\nMemAvailable:   4194304 kB\n");
  EXPECT_EQ(read().memory_total_bytes, 8ull << 30);
  EXPECT_EQ(read().memory_available_bytes, 4ull << 30);
  EXPECT_FALSE(read().memory.has_value());
  v2("/slice/pod");
  file("/sys/fs/cgroup/slice/pod/memory.max", "max\n");
  file("/sys/fs/cgroup/slice/memory.max", "2147483648\n");
  file("/sys/fs/cgroup/slice/memory.current", "1610612736\n");
  file("/sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 536870912\nactive_file 7\n");
  ASSERT_TRUE(read().memory.has_value());
  EXPECT_EQ(read().memory->value, 2ull << 30);
  EXPECT_EQ(read().memory->from, "/sys/fs/cgroup/slice/memory.max");
  EXPECT_EQ(read().memory_available_bytes, 1ull << 30) << "2 GiB less 1.5 used, of which 0.5 are cache";
  file("/sys/fs/cgroup/slice/pod/memory.high", "1073741824\n");
  EXPECT_EQ(read().memory->value, 1ull << 30);
}

TEST_F(Limits_, v1_writes_no_memory_limit_as_a_huge_one) {
  file("/proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n");
  file("/proc/self/cgroup", "4:memory:/a/b\n");
  file("/proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  file("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(read().memory.has_value());
  file("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(read().memory->value, 1ull << 30);
  EXPECT_EQ(read().memory_available_bytes, 1ull << 30);
  file("/sys/fs/cgroup/memory/a/memory.use_hierarchy", "0\n");
  EXPECT_FALSE(read().memory.has_value());
}

// CPUs of the cpuset, for what they explain and for machines whose status file is not there.

TEST_F(Limits_, reads_the_effective_cpuset) {
  v2("/pod");
  file("/sys/fs/cgroup/pod/cpuset.cpus", "\n");
  file("/sys/fs/cgroup/pod/cpuset.cpus.effective", "2-3\n");
  file("/sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
  EXPECT_THAT(*read().cpuset_cpus, ElementsAre(2, 3));
}

TEST_F(Limits_, old_kernels_have_no_effective_cpuset) {
  file("/proc/self/cgroup", "3:cpuset:/a/b\n");
  file("/proc/self/mountinfo", "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  file("/sys/fs/cgroup/cpuset/a/b/cpuset.cpus", "0-3\n");
  file("/sys/fs/cgroup/cpuset/a/cpuset.cpus", "2-5\n");
  EXPECT_THAT(*read().cpuset_cpus, ElementsAre(2, 3));
}

TEST_F(Limits_, whatever_the_files_hold_is_survived) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"/proc/self/cgroup", "0::/../a/b\n4:cpu,cpuacct:/a/b\n"},
      {"/proc/self/mountinfo",
       "41 31 0:38 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n32 31 0:29 /a /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n"},
      {"/proc/self/status", "Pid:\t7\nNSpid:\t7\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t1\n"},
      {"/proc/self/limits", "Max processes             500                  1000                 processes \n"},
      {"/proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n"},
      {"/ipexrun/process.txt", "affinity: 0-3\nmemory_policy: bind:0\nuser_tasks: 7\nisa_bits: 31\n"},
      {"/sys/fs/cgroup/x/a/b/cpu.max", "100000 100000\n"},
      {"/sys/fs/cgroup/x/a/b/cgroup.procs", "7\n"},
      {"/sys/fs/cgroup/x/a/b/memory.stat", "inactive_file 5\n"},
      {"/sys/fs/cgroup/x/a/b/memory.max", "100\n"},
      {"/sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "1000\n"}};
  std::mt19937 random(20261121);
  const auto below = [&random](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  const std::string bytes = std::string("\n\t :/-,.0x9", 11) + '\0' + '\\';
  for (int round = 0; round < 60; ++round) {
    for (const auto& [path, good] : files) {
      std::string text = good;
      for (std::size_t i = below(4); i > 0 && !text.empty(); --i) {
        const std::size_t at = below(text.size());
        if (below(2) == 0) text.erase(at, 1 + below(9));
        text.insert(std::min(at, text.size()), 1 + below(3), bytes[below(bytes.size())]);
      }
      file(path, text);
    }
    const Limits limits = read();
    EXPECT_GE(limits.quota_cpus, 0);
    EXPECT_GE(limits.threads ? limits.threads->value : 1, 1);
  }
}

TEST(ProcessFacts_, names_every_memory_policy) {
  EXPECT_EQ(memory_policy_text(0, {}), "");
  EXPECT_EQ(memory_policy_text(1, {0}), "preferred:0");
  EXPECT_EQ(memory_policy_text(1, {}), "local");
  EXPECT_EQ(memory_policy_text(2, {0, 1}), "bind:0-1");
  EXPECT_EQ(memory_policy_text(0x8002, {3}), "bind:3") << "MPOL_F_STATIC_NODES";
  EXPECT_EQ(memory_policy_text(3, {0, 2}), "interleave:0,2");
  EXPECT_EQ(memory_policy_text(4, {}), "local");
  EXPECT_EQ(memory_policy_text(5, {0, 1}), "preferred-many:0-1");
  EXPECT_EQ(memory_policy_text(6, {0, 1}), "weighted-interleave:0-1");
  EXPECT_EQ(memory_policy_text(17, {}), "mode 17");
}

TEST_F(Limits_, facts_about_the_process_are_read_back_as_written) {
  ProcessFacts facts;
  facts.affinity = std::vector<int>{0, 1, 5};
  facts.memory_policy = "interleave:0-1";
  facts.user_tasks = 77;
  facts.isa = kLevelAmx;
  facts.amx_refused = true;
  file("/ipexrun/process.txt", process_facts_text(facts));
  const ProcessFacts back = read_process_facts(root_);
  EXPECT_EQ(back.affinity, facts.affinity);
  EXPECT_EQ(back.memory_policy, facts.memory_policy);
  EXPECT_EQ(back.user_tasks, facts.user_tasks);
  EXPECT_EQ(back.isa, facts.isa);
  EXPECT_TRUE(back.amx_refused);
  EXPECT_FALSE(back.any_number_of_tasks);
  file("/ipexrun/process.txt", "affinity: x\nuser_tasks: -3\nisa_bits: 1e9\nmemory_policy:\n");
  const ProcessFacts broken = read_process_facts(root_);
  EXPECT_FALSE(broken.affinity.has_value() || broken.user_tasks.has_value() || broken.isa.has_value());
  EXPECT_EQ(broken.memory_policy, "");
}

}  // namespace
}  // namespace ipexrun::launcher
