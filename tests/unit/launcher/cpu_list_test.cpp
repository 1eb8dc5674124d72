#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CpuList, writes_ranges_and_single_numbers) {
  EXPECT_EQ(cpu_list_text({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(cpu_list_text({}), "");
  EXPECT_EQ(cpu_list_text({7}), "7");
  EXPECT_EQ(cpu_list_text({4, 2, 2, 3}), "2-4");
}

TEST(CpuList, reads_what_it_writes) {
  const std::vector<std::vector<int>> lists = {{}, {0}, {0, 1}, {0, 2, 4}, {1, 2, 3, 10, 12, 13}};
  for (const auto& list : lists) EXPECT_EQ(parse_cpu_list(cpu_list_text(list)).value(), list);
}

TEST(CpuList, sorts_and_drops_repeats) { EXPECT_THAT(parse_cpu_list("3,0-1,1").value(), ElementsAre(0, 1, 3)); }

TEST(CpuList, an_empty_text_is_an_empty_list) { EXPECT_THAT(parse_cpu_list("").value(), IsEmpty()); }

TEST(CpuList, refuses_anything_else) {
  for (const char* text : {"a", "1,", ",1", "1-", "-1", "3-1", "1 2", "1;2", "0-99999999", "99999999999999999999", "1--2", "0x1", "1,,2"}) {
    const auto list = parse_cpu_list(text);
    ASSERT_FALSE(list.ok()) << text;
    EXPECT_EQ(list.error().code, kExitUsage);
    EXPECT_NE(list.error().what.find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace ipexrun::launcher
