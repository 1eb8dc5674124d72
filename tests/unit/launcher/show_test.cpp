#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/plan/show.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LaunchPlan two_instances() {
  Options wanted = made_up::options();
  wanted.ninstances = 2;
  wanted.args = {"--name", "it's \xff"};
  return make_plan(wanted, made_up::machine({2, 2}), made_up::context()).value();
}

TEST(Show, json_has_exactly_the_agreed_keys) {
  const auto json = nlohmann::ordered_json::parse(plan_json(two_instances()));
  std::vector<std::string> top;
  for (const auto& [key, value] : json.items()) top.push_back(key);
  EXPECT_THAT(top, ElementsAre("instances", "reasons"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json["instances"][1].items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("index", "cpus", "numa_nodes", "threads", "env", "argv"));
  EXPECT_EQ(json["instances"][1]["cpus"], nlohmann::json::parse("[2,3]"));
}

TEST(Show, table_aligns_its_columns_and_quotes_the_command) {
  const std::string table = plan_table(two_instances());
  EXPECT_THAT(table, HasSubstr("instance  CPUs  NUMA nodes  memory  threads\n"
                               "0         0-1   0           bound   2\n"
                               "1         2-3   1           bound   2\n"));
  EXPECT_THAT(table, HasSubstr("./app --name 'it'\\''s \xff'"));
  EXPECT_THAT(table, HasSubstr("  instance 1: IPEXRUN_INSTANCE=1\n"));
}

TEST(Show, without_pinning_no_cpu_is_named) {
  Options wanted = made_up::options();
  wanted.pin = false;
  const std::string table = plan_table(make_plan(wanted, made_up::machine({2, 2}), made_up::context()).value());
  EXPECT_THAT(table, HasSubstr("0         any 4  -           inherited  4\n"));
  EXPECT_THAT(table, HasSubstr("Not pinned"));
}

TEST(Show, every_reason_is_a_line) {
  const LaunchPlan plan = two_instances();
  const std::string text = reasons_text(plan);
  for (const Reason& reason : plan.reasons) EXPECT_THAT(text, HasSubstr(reason.text));
}

TEST(Show, machine_names_nodes_and_limits) {
  Machine machine = made_up::machine({2, 2}, 2);
  machine.nodes[1].memory_allowed = false;
  machine.quota_cpus = 1.5;
  machine.notes = {"something was restricted"};
  const std::string text = machine_text(machine);
  EXPECT_THAT(text, HasSubstr("0-1         4-5"));
  EXPECT_THAT(text, HasSubstr("(not allowed)"));
  EXPECT_THAT(text, HasSubstr("1.5 CPUs"));
  EXPECT_THAT(text, HasSubstr("something was restricted"));
  EXPECT_EQ(nlohmann::json::parse(machine_json(machine))["cores"].size(), 4u);
}

}  // namespace
}  // namespace ipexrun::launcher
