// The table of environment variables: one row a variable, names unique, values parsed as documented.
#include "configs/contract/env.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>
#include <string>

namespace ipexrun::env {
namespace {

TEST(EnvTable, NamesAreUniqueAndRowsAreComplete) {
  std::set<std::string> seen;
  for (const Row& entry : rows()) {
    EXPECT_TRUE(seen.insert(entry.name).second) << entry.name;
    EXPECT_NE(std::string(entry.help), "") << entry.name;
    EXPECT_EQ(row(entry.id).name, entry.name);
    EXPECT_TRUE((std::set<std::string>{"flag", "word", "path", "int", "bytes", "seconds"}.count(entry.type))) << entry.name;
    EXPECT_TRUE((std::set<std::string>{"user", "launcher", "both"}.count(entry.set_by))) << entry.name;
  }
}

TEST(EnvValues, AnEmptyVariableCountsAsUnset) {
  ::setenv("IPEXRUN_DTYPE", "", 1);
  EXPECT_FALSE(get(Id::kDtype).has_value());
  ::setenv("IPEXRUN_DTYPE", "float32", 1);
  EXPECT_EQ(get(Id::kDtype), "float32");
  ::unsetenv("IPEXRUN_DTYPE");
}

TEST(EnvValues, Flags) {
  for (const char* yes : {"1", "true", "ON", "Yes"}) {
    ::setenv("IPEXRUN_DISABLE", yes, 1);
    EXPECT_TRUE(get_flag(Id::kDisable)) << yes;
  }
  for (const char* no : {"0", "false", "off", "2", ""}) {
    ::setenv("IPEXRUN_DISABLE", no, 1);
    EXPECT_FALSE(get_flag(Id::kDisable)) << no;
  }
  ::unsetenv("IPEXRUN_DISABLE");
}

TEST(EnvValues, EachDefaultIsAllowedAndAValueThatIsNotIsSaid) {
  for (const Row& entry : rows()) EXPECT_EQ(problem_of(entry, entry.fallback), "") << entry.name;
  EXPECT_EQ(problem_of(row(Id::kDtype), "foo"), "IPEXRUN_DTYPE=foo is none of auto, float32, bfloat16, float16");
  EXPECT_EQ(problem_of(row(Id::kXpuRedirect), "cpu"), "IPEXRUN_XPU_REDIRECT=cpu is not cuda");
  EXPECT_EQ(problem_of(row(Id::kLog), "DEBUG"), "");
  EXPECT_EQ(problem_of(row(Id::kForce), "any_name"), "");
  for (const char* good : {"1", "TRUE", "off", "No", ""}) EXPECT_EQ(problem_of(row(Id::kDisable), good), "") << good;
  for (const char* bad : {"y", "2", "foo", " "}) EXPECT_NE(problem_of(row(Id::kDisable), bad), "") << bad;
  for (const char* good : {"0", "0.001", "1e-3"}) EXPECT_EQ(problem_of(row(Id::kGraphWait), good), "") << good;
  for (const char* bad : {"-1", "foo", "1s", "nan", "inf"}) EXPECT_NE(problem_of(row(Id::kGraphWait), bad), "") << bad;
  for (const char* bad : {"foo", "-5", "1X"}) EXPECT_NE(problem_of(row(Id::kPackMemory), bad), "") << bad;
  EXPECT_NE(problem_of(row(Id::kInstances), "two"), "");
}

TEST(EnvValues, TheKillSwitchBeatsWhatIsWrongElsewhere) {
  ::setenv("IPEXRUN_SELECT", "foo", 1);
  EXPECT_EQ(problem_of_environment(), "IPEXRUN_SELECT=foo is none of on, fast, thorough, off");
  ::setenv("IPEXRUN_DISABLE", "1", 1);
  EXPECT_EQ(problem_of_environment(), "");
  ::setenv("IPEXRUN_DISABLE", "y", 1);
  EXPECT_NE(problem_of_environment().find("IPEXRUN_DISABLE=y"), std::string::npos);
  ::unsetenv("IPEXRUN_DISABLE");
  ::unsetenv("IPEXRUN_SELECT");
}

TEST(EnvValues, BytesTakeSuffixes) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("2K"), 2048u);
  EXPECT_EQ(parse_bytes("3MB"), 3u << 20);
  EXPECT_EQ(parse_bytes("1g"), 1u << 30);
  for (const char* bad : {"", "K", "1X", "1.5G", "-1", "99999999999999999999", "20000000T", "1KK"}) {
    EXPECT_FALSE(parse_bytes(bad).has_value()) << bad;
  }
}

TEST(EnvValues, IntegersAreWhole) {
  ::setenv("IPEXRUN_INSTANCE", "12", 1);
  EXPECT_EQ(get_int(Id::kInstance), 12);
  ::setenv("IPEXRUN_INSTANCE", "12x", 1);
  EXPECT_FALSE(get_int(Id::kInstance).has_value());
  ::unsetenv("IPEXRUN_INSTANCE");
}

}  // namespace
}  // namespace ipexrun::env
