// What `ipexrun gather` takes, what it leaves out, and that a machine looks the same through the archive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "launcher/machine/gather.h"
#include "launcher/machine/machine_devices.h"
#include "launcher/machine/placeholders.h"
#include "launcher/machine/process_facts.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/show.h"
#include "tests/unit/launcher/root_tree.h"

namespace ipexrun::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kPod = "/kubepods.slice/kubepods-pod5f1e_ab-77.slice/cri-containerd-deadbeef01.scope";

/// A container on a machine with two nodes: quota, cpuset, memory limit, one CPU off, private names in several places.
void fill(SysTree& tree) {
  for (int core = 0; core < 4; ++core) tree.core(core / 2, {core, core + 4});
  tree.l3(0, {0, 1, 4, 5});
  tree.l3(1, {2, 3, 6, 7});
  tree.node(0, {0, 1, 4, 5}, 1 << 20);
  tree.node(1, {2, 3, 6, 7}, 2 << 20);
  tree.file("/sys/devices/system/cpu/present", "0-8\n");
  tree.finish();
  tree.file("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Example CPU\nphysical id\t: 0\ncore id\t\t: 0\nSerial\t\t: 10000000f00d\n\n");
  tree.file("/proc/meminfo", "MemTotal:       3145728 kB\nMemAvailable:   2097152 kB\n");
  tree.file("/proc/self/status",
            "Name:\tsecretprog\nUid:\t4242\t4242\t4242\t4242\nPid:\t99\nNSpid:\t99\nCpus_allowed_list:\t0-5\nMems_allowed_list:\t0-1\n");
  tree.file("/proc/self/cgroup", std::string("0::") + kPod + "\n5:name=alicesown:/alice\n");
  tree.file("/proc/self/mountinfo",
            "24 1 8:1 / /home/alice rw - ext4 /dev/sda rw\n41 31 0:38 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  tree.file("/proc/mounts", "/dev/sda /home/alice ext4 rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  const std::string pod = std::string("/sys/fs/cgroup") + kPod;
  tree.file(pod + "/cpu.max", "250000 100000\n");
  tree.file(pod + "/cgroup.procs", "99\n100\n");
  tree.file(pod + "/cpuset.cpus.effective", "0-5\n");
  tree.file(pod + "/memory.max", "1073741824\n");
  tree.file("/sys/fs/cgroup/kubepods.slice/pids.max", "40\n");
  ProcessFacts facts;
  facts.affinity = std::vector<int>{0, 1, 2, 3, 4, 5};
  facts.memory_policy = "interleave:0-1";
  facts.isa = kLevelAvx512Bf16;
  tree.file("/ipexrun/process.txt", process_facts_text(facts));
  const std::string gpu = "/sys/bus/pci/devices/0000:4d:00.0";
  tree.file(gpu + "/vendor", "0x8086\n");
  tree.file(gpu + "/device", "0x0bd5\n");
  tree.file(gpu + "/class", "0x038000\n");
  tree.file(gpu + "/numa_node", "1\n");
  tree.file(gpu + "/unique_id", "SERIAL123\n");
  tree.file(gpu + "/drm/renderD128/dev", "226:128\n");
  tree.file(gpu + "/drm/card0/gt/gt0/id", "0\n");
  tree.file(gpu + "/drm/card0/gt/gt1/id", "1\n");
  std::filesystem::create_symlink("../../../../bus/pci/drivers/i915", tree.root() + gpu + "/driver");
  tree.file("/sys/bus/pci/devices/0000:01:00.0/class", "0x020000\n");
  tree.file("/sys/bus/pci/devices/0000:01:00.0/net/eth0/address", "aa:bb:cc:dd:ee:ff\n");
}

const std::vector<std::string> kEnvironment = {"OMP_NUM_THREADS=4", "SECRET_TOKEN=hunter2", "KMP_HOME=/home/alice", "HOSTNAME=alicebox"};

std::string all_text(const Tree& tree) {
  std::string out;
  for (const auto& [path, entry] : tree) out += path + "\n" + entry.content + "\n";
  return out;
}

TEST(Gather, the_replayed_machine_is_the_gathered_one) {
  SysTree tree;
  fill(tree);
  const SysTree out;
  const std::string file = out.root() + "/m.tar.gz";
  const Gathered gathered = gather(tree.root(), kEnvironment);
  ASSERT_TRUE(write_archive(gathered.tree, kArchiveTop, file).ok());
  const Result<Sysroot> replay = Sysroot::open(file);
  ASSERT_TRUE(replay.ok()) << replay.error().line();
  const Machine before = read_machine(tree.root()).value();
  Machine after = read_machine(replay->folder()).value();
  ASSERT_EQ(before.notes.size(), after.notes.size());
  EXPECT_EQ(before.notes.size(), 6u) << "CPUs, off, quota, memory, threads, policy";
  after.notes = before.notes;  // they name groups: the names differ, on purpose
  EXPECT_EQ(machine_json(before), machine_json(after));
  Result<Machine> again = read_machine(replay->folder());
  again->gpus = read_gpus(replay->folder());
  ASSERT_EQ(again->gpus.size(), 1u);
  const Gpu gpu = read_gpus(tree.root()).at(0);
  EXPECT_EQ(again->gpus[0].address + again->gpus[0].name + again->gpus[0].driver + again->gpus[0].render_node,
            gpu.address + gpu.name + gpu.driver + gpu.render_node);
  EXPECT_EQ(again->gpus[0].tiles, 2);
  EXPECT_EQ(again->gpus[0].node, 1);
  EXPECT_EQ(gathered.tree.at("ipexrun/machine.json").content, machine_json(*again));
}

TEST(Gather, leaves_private_things_out) {
  SysTree tree;
  fill(tree);
  const std::string text = all_text(gather(tree.root(), kEnvironment).tree);
  for (const char* secret : {"alice", "deadbeef", "5f1e", "secretprog", "4242", "f00d", "hunter2", "SERIAL123", "aa:bb", "sda"})
    EXPECT_THAT(text, Not(HasSubstr(secret)));
  EXPECT_THAT(text, HasSubstr("kubepods.slice/kubepods-id"));
  EXPECT_THAT(text, HasSubstr("OMP_NUM_THREADS=4"));
  EXPECT_THAT(text, HasSubstr("KMP_HOME=(a path)"));
}

TEST(Gather, keeps_what_a_gpu_is_known_by) {
  SysTree tree;
  fill(tree);
  const Tree gathered = gather(tree.root(), {}).tree;
  const std::string gpu = "sys/bus/pci/devices/0000:4d:00.0/";
  EXPECT_EQ(gathered.at(gpu + "device").content, "0x0bd5\n");
  EXPECT_EQ(gathered.at(gpu + "driver").content, "../drivers/i915");
  EXPECT_EQ(gathered.count(gpu + "drm/renderD128"), 1u);
  EXPECT_EQ(gathered.count(gpu + "drm/card0/gt/gt1"), 1u);
  EXPECT_EQ(gathered.count("sys/bus/pci/devices/0000:01:00.0/class"), 0u) << "a network card";
}

TEST(Gather, a_group_that_a_namespace_hides_is_found_again) {
  SysTree tree;
  tree.core(0, {0});
  tree.core(0, {1});
  tree.finish();
  tree.file("/proc/self/status", "Pid:\t5\nNSpid:\t5\n");
  tree.file("/proc/self/cgroup", "0::/\n");
  tree.file("/proc/self/mountinfo", "41 31 0:38 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  tree.file("/sys/fs/cgroup/somebody/cpu.max", "100000 100000\n");
  tree.file("/sys/fs/cgroup/somebody/cgroup.procs", "5\n");
  ASSERT_EQ(read_machine(tree.root())->quota_cpus, 1);
  const SysTree out;
  ASSERT_TRUE(write_folder(gather(tree.root(), {}).tree, out.root() + "/copy").ok());
  EXPECT_EQ(read_machine(out.root() + "/copy")->quota_cpus, 1);
}

TEST(Placeholders, keep_the_kind_of_group_and_hide_whose_it_is) {
  Placeholders names;
  EXPECT_EQ(names.path("/user.slice/user-1000.slice/session-3.scope"), "/user.slice/user-id1.slice/session-id2.scope");
  EXPECT_EQ(names.path("/kubepods/burstable/pod12-34_56/abc"), "/kubepods/burstable/id3/id4");
  EXPECT_EQ(names.path("/user.slice/user-1000.slice"), "/user.slice/user-id1.slice");
  EXPECT_EQ(names.path("/slurm/uid_1000/job_77/step_0"), "/slurm/uid_id1/job_id5/step_id6");
  EXPECT_EQ(names.path("/../.."), "/../..");
  EXPECT_EQ(names.path("/"), "/");
  EXPECT_EQ(names.path("/sys/fs/cgroup/cpu,cpuacct"), "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(names.text("in /kubepods/burstable/pod12-34_56/abc/cpu.max"), "in /kubepods/burstable/id3/id4/cpu.max");
  EXPECT_EQ(names.count(), 6u);
}

class Archive_ : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.root() + "/" + name; }
  SysTree folder_;
};

TEST_F(Archive_, comes_back_as_it_went) {
  const std::string deep = "a/" + std::string(90, 'b') + "/" + std::string(80, 'c');
  const Tree tree = {{"f", {TreeEntry::Kind::kFile, std::string(513, 'x')}},
                     {"empty", {TreeEntry::Kind::kFile, ""}},
                     {"d/link", {TreeEntry::Kind::kLink, "../f"}},
                     {"folder", {TreeEntry::Kind::kFolder, ""}},
                     {deep, {TreeEntry::Kind::kFile, "deep"}}};
  ASSERT_TRUE(write_archive(tree, "top", path("a.tar.gz")).ok());
  const Result<Tree> back = read_archive(path("a.tar.gz"));
  ASSERT_TRUE(back.ok()) << back.error().line();
  ASSERT_EQ(back->size(), tree.size());
  for (const auto& [name, entry] : tree) {
    EXPECT_EQ(back->at(name).content, entry.content) << name;
    EXPECT_EQ(back->at(name).kind, entry.kind) << name;
  }
}

TEST_F(Archive_, does_not_overwrite) {
  ASSERT_TRUE(write_archive({{"f", {}}}, "top", path("a.tar.gz")).ok());
  const Status second = write_archive({{"f", {}}}, "top", path("a.tar.gz"));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().line(), HasSubstr("File exists"));
  EXPECT_FALSE(write_folder({{"f", {}}}, folder_.root()).ok());
}

TEST_F(Archive_, refuses_what_is_none_or_points_out_of_it) {
  std::ofstream(path("text.tar.gz")) << std::string(2000, 'x');
  EXPECT_THAT(read_archive(path("text.tar.gz")).error().line(), HasSubstr("no tar archive"));
  std::ofstream(path("short.tar.gz")) << "x";
  EXPECT_THAT(read_archive(path("short.tar.gz")).error().line(), HasSubstr("ends too early"));
  for (const auto& [name, entry] : Tree{{"../f", {TreeEntry::Kind::kFile, "x"}},
                                        {"a/../../f", {TreeEntry::Kind::kFile, "x"}},
                                        {"l", {TreeEntry::Kind::kLink, "/etc/passwd"}},
                                        {"d/l", {TreeEntry::Kind::kLink, "../../x"}},
                                        {"d/l2", {TreeEntry::Kind::kLink, ".././../x"}},
                                        {"d//f", {TreeEntry::Kind::kFile, "x"}},
                                        {"d/./f", {TreeEntry::Kind::kFile, "x"}},
                                        {"./f", {TreeEntry::Kind::kFile, "x"}},
                                        {"d/e/l", {TreeEntry::Kind::kLink, "x/../y"}}}) {
    const std::string file = path("bad.tar.gz");
    std::filesystem::remove(file);
    ASSERT_TRUE(write_archive({{name, entry}}, "top", file).ok());
    const Result<Tree> read = read_archive(file);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_EQ(read.error().code, kExitUsage);
    EXPECT_THAT(read.error().line(), HasSubstr("points out of it"));
  }
}

TEST_F(Archive_, links_through_links_lead_nowhere_else) {
  // "up" leads to the top. Counted name by name "!out" stays inside, but from "up" its ".." leads to the folder beside. The second
  // spelling of "a/!out" is to keep that from being seen as the link that it is; '!' comes before '/', so the links are there first.
  Tree tree = {{"a/!in/up", {TreeEntry::Kind::kLink, "../.."}}, {"a/!out", {TreeEntry::Kind::kLink, "!in/up/../beside"}}};
  std::filesystem::create_directories(path("beside"));
  for (const char* name : {"a//!out/f", "a/./!out/f"}) {
    tree[name] = {TreeEntry::Kind::kFile, "x"};
    ASSERT_TRUE(write_archive(tree, "top", path("a.tar.gz")).ok());
    const Result<Tree> read = read_archive(path("a.tar.gz"));
    if (read.ok()) (void)write_folder(*read, path("here"));
    EXPECT_FALSE(std::filesystem::exists(path("beside/f"))) << name;
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_THAT(read.error().line(), HasSubstr("points out of it"));
    for (const char* done : {"a.tar.gz", "here"}) std::filesystem::remove_all(path(done));
    tree.erase(name);
  }
}

TEST_F(Archive_, links_that_stay_inside_are_kept) {
  const Tree tree = {{"a/b/up", {TreeEntry::Kind::kLink, "../.."}},
                     {"a/b/beside", {TreeEntry::Kind::kLink, "../../c/f"}},
                     {"a/here", {TreeEntry::Kind::kLink, "./b"}},
                     {"c/f", {TreeEntry::Kind::kFile, "x"}}};
  ASSERT_TRUE(write_archive(tree, "top", path("a.tar.gz")).ok());
  const Result<Tree> read = read_archive(path("a.tar.gz"));
  ASSERT_TRUE(read.ok()) << read.error().line();
  EXPECT_EQ(read->size(), 4u);
}

TEST_F(Archive_, nothing_is_written_through_a_link_of_its_own) {
  const Tree tree = {{"d", {TreeEntry::Kind::kLink, "elsewhere"}}, {"d/f", {TreeEntry::Kind::kFile, "x"}}};
  ASSERT_TRUE(write_folder(tree, path("out")).ok());
  EXPECT_FALSE(std::filesystem::exists(path("out/elsewhere/f")));
}

TEST_F(Archive_, a_sysroot_is_a_folder_an_archive_or_an_error) {
  std::filesystem::create_directories(path("outer/ipexrun-machine/proc"));
  EXPECT_EQ(Sysroot::open(path("outer"))->folder(), path("outer/ipexrun-machine"));
  EXPECT_EQ(Sysroot::open(path("outer/ipexrun-machine"))->folder(), path("outer/ipexrun-machine"));
  EXPECT_EQ(Sysroot::open("")->folder(), "");
  const auto missing = Sysroot::open(path("missing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, kExitUsage);
  ASSERT_TRUE(write_archive({{"proc/f", {TreeEntry::Kind::kFile, "x"}}}, "top", path("a.tar.gz")).ok());
  std::string unpacked;
  {
    const auto opened = Sysroot::open(path("a.tar.gz"));
    ASSERT_TRUE(opened.ok());
    unpacked = opened->folder();
    EXPECT_TRUE(std::filesystem::exists(unpacked + "/proc/f"));
  }
  EXPECT_FALSE(std::filesystem::exists(unpacked));
}

}  // namespace
}  // namespace ipexrun::launcher
