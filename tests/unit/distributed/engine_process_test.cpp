// The process above a rank, on made-up /proc trees.
#include "launcher/machine/machine_engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

class EngineProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "engine-process-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void process(const std::string& pid, int parent, const std::string& cpus, const std::string& environ) {
    const fs::path folder = fs::path(root_) / "proc" / pid;
    fs::create_directories(folder);
    std::ofstream(folder / "status") << "Name:\tx\nPPid:\t" << parent << "\nCpus_allowed:\tf\nCpus_allowed_list:\t" << cpus << "\n";
    std::ofstream(folder / "environ", std::ios::binary) << environ;
  }

  std::string root_;
};

TEST_F(EngineProcessTest, is_the_nearest_one_without_the_rank) {
  process("self", 12, "0-1", "LOCAL_RANK=1\0"s);
  process("12", 11, "0-1", "A=b\0LOCAL_RANK=1\0"s);  // a shell of the rank
  process("11", 10, "0-3", "OMP_NUM_THREADS=4\0XLOCAL_RANK=1\0"s);
  process("10", 1, "0-7", ""s);
  const EngineProcess engine = read_engine_process(root_, "LOCAL_RANK");
  EXPECT_TRUE(engine.found);
  EXPECT_TRUE(engine.environment_known);
  EXPECT_EQ(engine.own_omp_threads, "4");
  EXPECT_EQ(engine.cpus_of_rank, (std::vector<int>{0, 1}));
  EXPECT_EQ(engine.cpus_allowed, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(EngineProcessTest, an_environment_that_cannot_be_read_is_somebody_elses) {
  process("self", 12, "0", "LOCAL_RANK=1\0"s);
  process("12", 1, "0-1", ""s);
  fs::remove(fs::path(root_) / "proc/12/environ");
  const EngineProcess engine = read_engine_process(root_, "LOCAL_RANK");
  EXPECT_TRUE(engine.found);
  EXPECT_FALSE(engine.environment_known);
}

TEST_F(EngineProcessTest, all_processes_of_a_container_may_have_the_variables) {
  process("self", 1, "0-1", "LOCAL_RANK=1\0"s);
  process("1", 0, "0-1", "LOCAL_RANK=1\0"s);
  EXPECT_FALSE(read_engine_process(root_, "LOCAL_RANK").found);
}

TEST_F(EngineProcessTest, nothing_to_read_is_nothing_found) { EXPECT_FALSE(read_engine_process(root_, "LOCAL_RANK").found); }

TEST_F(EngineProcessTest, a_loop_ends) {
  process("self", 12, "0-1", "LOCAL_RANK=1\0"s);
  process("12", 12, "0-1", "LOCAL_RANK=1\0"s);
  EXPECT_FALSE(read_engine_process(root_, "LOCAL_RANK").found);
}

}  // namespace
}  // namespace ipexrun::launcher
