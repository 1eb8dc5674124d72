// Small files of the kernel: what is in them, and those that can be opened and not read.
#include <gtest/gtest.h>

#include <filesystem>

#include "launcher/machine/text_files.h"
#include "tests/unit/launcher/root_tree.h"

namespace ipexrun::launcher {
namespace {

TEST(TextFiles, a_whole_file_is_every_byte_of_it) {
  const SysTree tree;
  const std::string text = std::string(5000, 'x') + '\0' + "\nend";
  tree.file("/long", text);
  tree.file("/empty", "");
  EXPECT_EQ(whole_file(tree.root() + "/long"), text);
  EXPECT_EQ(whole_file(tree.root() + "/empty"), "");
  EXPECT_FALSE(whole_file(tree.root() + "/missing").has_value());
}

TEST(TextFiles, what_opens_and_cannot_be_read_is_not_there) {
  EXPECT_FALSE(whole_file(testing::TempDir()).has_value()) << "a folder";
  if (!std::filesystem::exists("/proc/self/mem")) GTEST_SKIP() << "/proc is not mounted";
  EXPECT_FALSE(whole_file("/proc/self/mem").has_value()) << "EIO: nothing is mapped at address 0";
}

TEST(TextFiles, a_value_stands_after_its_key) {
  const std::string text = "Uid_Map:\tno\nUid:\t7\t8 \nMax processes             500   1000 \nNothing\nEmpty:\nLast: 1";
  EXPECT_EQ(value_in(text, "Uid"), "7\t8");
  EXPECT_EQ(value_in(text, "Max processes"), "500   1000");
  EXPECT_EQ(value_in(text, "Last"), "1");
  EXPECT_EQ(value_in(text, "Empty"), "");
  EXPECT_FALSE(value_in(text, "Nothing").has_value());
  EXPECT_FALSE(value_in(text, "Missing").has_value());
  EXPECT_FALSE(value_in("", "Uid").has_value());
}

TEST(TextFiles, memory_is_told_in_bytes) {
  EXPECT_EQ(meminfo_bytes("MemTotal:       8 kB\nMemAvailable:   4 kB\n", "MemAvailable"), 4096u);
  EXPECT_EQ(meminfo_bytes("MemTotal: much\n", "MemTotal"), 0u);
  EXPECT_EQ(meminfo_bytes("", "MemTotal"), 0u);
}

}  // namespace
}  // namespace ipexrun::launcher
