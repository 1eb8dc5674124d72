// Risk: two kinds of call share a decision, or one kind is decided twice.
#include <gtest/gtest.h>

#include <thread>

#include "preload/select/site.h"

namespace ipexrun::preload {
namespace {

std::unique_ptr<Site> site_of(std::int64_t m) {
  auto site = std::make_unique<Site>();
  site->id.m = m;
  return site;
}

TEST(SiteTable, finds_what_was_put_in_and_nothing_else) {
  SiteTable table;
  Site* site = table.insert(site_of(4));
  EXPECT_EQ(table.find(site->id), site);
  SiteId other = site->id;
  other.threads = 2;
  EXPECT_EQ(table.find(other), nullptr);
  EXPECT_EQ(table.insert(site_of(4)), site);
}

TEST(SiteTable, is_bounded) {
  SiteTable table;
  for (int i = 0; i < kMaxSites; ++i) ASSERT_NE(table.insert(site_of(i)), nullptr);
  EXPECT_EQ(table.insert(site_of(kMaxSites)), nullptr);
  EXPECT_NE(table.find(site_of(17)->id), nullptr);
}

TEST(SiteTable, threads_agree_on_one_site) {
  SiteTable table;
  std::array<std::array<Site*, 100>, 4> seen{};
  std::vector<std::thread> threads;
  for (auto& mine : seen) {
    threads.emplace_back([&table, &mine] {
      for (int i = 0; i < 100; ++i) mine[static_cast<std::size_t>(i)] = table.insert(site_of(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : seen) EXPECT_EQ(mine, seen[0]);
}

TEST(RoundUpRows, is_the_next_power_of_two) {
  EXPECT_EQ(round_up_rows(0), 1);
  EXPECT_EQ(round_up_rows(1), 1);
  EXPECT_EQ(round_up_rows(3), 4);
  EXPECT_EQ(round_up_rows(128), 128);
  EXPECT_EQ(round_up_rows(129), 256);
}

}  // namespace
}  // namespace ipexrun::preload
