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
    EXPECT_TRUE((std::set<std::string>{"flag", "word", "path", "int", "bytes"}.count(entry.type))) << entry.name;
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
