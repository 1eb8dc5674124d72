#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/plan/show.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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

TEST(Show, machine_shows_l3_domains_where_a_node_has_several) {
  Machine machine = made_up::machine({4}, 2);
  for (std::size_t core = 0; core < 4; ++core) machine.cores[core].l3 = 0;
  EXPECT_THAT(machine_text(machine), Not(HasSubstr("L3 cache  ")));
  for (std::size_t core = 2; core < 4; ++core) machine.cores[core].l3 = 1;
  EXPECT_THAT(machine_text(machine), HasSubstr("L3 cache  NUMA node  first CPUs  further CPUs\n"
                                               "0         0          0-1         4-5\n"
                                               "1         0          2-3         6-7\n"));
  EXPECT_EQ(nlohmann::json::parse(machine_json(machine))["cores"][3]["l3"], 1);
}

TEST(Show, machine_tells_every_limit_in_text_and_json) {
  Machine machine = made_up::machine({2, 2});
  machine.nodes.push_back({2, 1ull << 35, true, false});
  machine.nodes.push_back({3, 0, false, true});
  machine.offline_cpus = 3;
  machine.max_threads = 77;
  machine.memory_limit_bytes = 1ull << 31;
  machine.memory_available_bytes = 3ull << 29;
  machine.memory_policy = "bind:0";
  machine.isa = kLevelAmx;
  machine.amx_refused = true;
  machine.isa_process = kLevelAvx2;
  machine.isa_kernels = kLevelAmx;
  const std::string text = machine_text(machine);
  for (const char* part : {"3 switched off", "77 more", "2 GiB, 1.5 GiB available", "bind:0", "amx (AMX is refused to this process)",
                           "32 GiB (no cores)", " none\n"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto json = nlohmann::json::parse(machine_json(machine));
  EXPECT_EQ(json["offline_cpus"], 3);
  EXPECT_EQ(json["max_threads"], 77);
  EXPECT_EQ(json["memory_limit_bytes"], 1ull << 31);
  EXPECT_EQ(json["memory_available_bytes"], 3ull << 29);
  EXPECT_EQ(json["memory_policy"], "bind:0");
  EXPECT_EQ(json["isa"], "amx");
  EXPECT_EQ(json["amx_refused"], true);
  EXPECT_EQ(json["isa_process"], "avx2");
  EXPECT_EQ(json["isa_kernels"], "amx");
  EXPECT_EQ(json["nodes"][2]["has_cores"], false);
  EXPECT_EQ(json["cores"][0]["l3"], nullptr);
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
