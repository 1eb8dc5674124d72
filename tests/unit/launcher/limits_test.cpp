// A quota hides in many places: cgroup v1 or v2, the process's own group or any above it, a container's view of the mount.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launcher/machine/machine_limits.h"

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

}  // namespace
}  // namespace ipexrun::launcher
